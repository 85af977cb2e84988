"""Tables with an image column, read by ``datasets``: parquet and arrow files, saved datasets, datasets of the Hub."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ssl_hub.data.columns import (
    Column,
    aligned,
    classes_and_labels,
    encoded,
    find_image_column,
    find_label_column,
    holds_no_images,
    split_column,
    unusable_labels,
)
from ssl_hub.data.endings import ARCHIVES, TABLES, image_endings
from ssl_hub.data.file_splits import by_split, files_below, missing_by_split
from ssl_hub.data.hub_datasets import Address, load_hub
from ssl_hub.data.images import Source
from ssl_hub.data.passed_over import MISSING, NAMES_SPLITS, NO_CLASSES
from ssl_hub.data.reading import Reading
from ssl_hub.data.splits import resolve_split, split_names
from ssl_hub.errors import UsageError

Opener = Callable[[], Any]  # opens one split: a datasets.Dataset


class Table:
    """Splits of rows, by what the data calls them. Results are recorded under ``recorded``, messages say ``name``.

    The image column is the one of type ``Image``; the label column is the ``ClassLabel``, else one of a usual name that
    holds whole numbers, text or booleans, if there is one such; either may be named instead. Classes and their order
    are those of ``train`` where there is one. ``missing`` are names of files, by split, that are not there and should
    be.
    """

    def __init__(
        self,
        name: str,
        openers: Mapping[str, Opener],
        reading: Reading,
        recorded: str | None = None,
        missing: Mapping[str, list[str]] | None = None,
    ) -> None:
        self.name = name
        self.recorded = recorded or name
        self.reading = reading
        self.splits = split_names(openers)
        self.missing = missing or {}
        self._openers = openers

    def open(self, split: str) -> Source:
        """Raises :class:`UsageError` listing the columns where they do not decide, and naming the class where a split
        has one that ``train`` lacks."""
        found = resolve_split(split, self.splits, f"data {self.name!r}")
        rows = self._openers[self.splits[found]]()
        source = self._source(found, rows)
        if several := split_column(rows):
            source.passed_over.add(NAMES_SPLITS, f"{several[0]}: {', '.join(several[1][:4])}")
        if gone := self.missing.get(found):
            source.passed_over.add(MISSING, gone[0], len(gone))
        return source

    def _source(self, found: str, rows: Any) -> Source:
        where = f"split {found!r} of {self.name}"
        images = find_image_column(rows.features, self.reading.image_column, where)
        column = Column(encoded(rows.select_columns([images]), images), images, where, self.reading.values)
        labels = find_label_column(rows, self.reading.label_column, images, where)
        if labels is None:
            unlabelled = Source(self.recorded, found, column)
            for name, kind in unusable_labels(rows.features).items():
                unlabelled.passed_over.add(NO_CLASSES, f"{name}, {kind}")
            return unlabelled
        classes, indices = classes_and_labels(rows, labels)
        if found != "train" and "train" in self.splits:
            train = self._openers[self.splits["train"]]()
            if labels in train.features:  # else it has no labels
                classes, indices = aligned(classes, indices, classes_and_labels(train, labels)[0], where)
        return Source(self.recorded, found, column, classes=classes, labels=indices)


def find_table(root: Path, reading: Reading) -> Table | None:
    """The table that lies in a folder; None where there is none."""
    openers = _saved(root) or _declared(root) or _files(root, may_hold_paths=reading.image_column is not None)
    if not openers:
        return None
    return Table(str(root), openers, reading, root.resolve().name, missing_by_split(root, TABLES))


def hub_table(name: str, address: Address, reading: Reading) -> Table:
    """A Hub dataset (downloaded where the cache lacks it), or :class:`UsageError` with the cause."""
    return Table(name, _opened(load_hub(address)), reading)


def copy_of_hub(root: Path, config: str, reading: Reading) -> Table:
    """One configuration of a copy of a Hub dataset, whose README names several."""
    recorded = f"{root.resolve().name}:{config}"
    return Table(f"{root}:{config}", _opened(load_hub(Address(str(root), config))), reading, recorded)


def _opened(splits: Mapping[Any, Any]) -> dict[str, Opener]:
    return {str(split): lambda rows=rows: rows for split, rows in splits.items()}  # type: ignore[misc]


def _saved(root: Path) -> dict[str, Opener]:
    """Splits of a folder that ``save_to_disk`` of ``datasets`` wrote."""
    if not ((root / "dataset_dict.json").is_file() or (root / "state.json").is_file()):
        return {}
    from datasets import load_from_disk

    try:
        saved = load_from_disk(str(root))
    except (OSError, ValueError, KeyError, TypeError) as error:  # pyarrow's and JSON's are ValueErrors
        cause = str(error).partition("\n")[0] or type(error).__name__
        raise UsageError(f"{root}, which `save_to_disk` wrote, cannot be read ({cause}); write it again") from None
    return _opened(saved if isinstance(saved, Mapping) else {str(saved.split or "train").partition("[")[0]: saved})


def _declared(root: Path) -> dict[str, Opener]:
    """Splits of a copy of a Hub dataset, whose README says which files are which; ``datasets`` reads it.

    It takes the folder for a pattern, so that one with brackets or ``::`` in its name is read by its files' names.
    """
    try:
        head = (root / "README.md").read_text(encoding="utf-8", errors="replace").split("\n---", 1)[0]
    except OSError:
        return {}
    if not head.startswith("---") or not re.search(r"^configs:", head, re.MULTILINE) or _is_pattern(root):
        return {}
    return _opened(load_hub(Address(str(root))))


def _is_pattern(root: Path) -> bool:
    return re.search(r"[*?\[\]]|::", str(root.absolute())) is not None


def _files(root: Path, *, may_hold_paths: bool) -> dict[str, Opener]:
    """Splits of the parquet or arrow files below ``root``; ``datasets`` copies them once to its cache, which all
    processes map into memory."""
    for ending in TABLES:
        files = files_below(root, ending)
        if files and (may_hold_paths or not _is_about_images(root, next(iter(files.values())))):
            return {split: _opener(paths, ending) for split, paths in by_split(files, str(root)).items()}
    return {}


def _is_about_images(root: Path, file: str) -> bool:
    """Whether a table holds nothing that could be images, and images or archives of them lie below its folder."""
    held = (*image_endings(), *ARCHIVES)
    return holds_no_images(file) and any(path.name.lower().endswith(held) for path in root.rglob("*"))


def _opener(paths: list[str], ending: str) -> Opener:
    def open_files() -> Any:
        from datasets.data_files import DataFilesDict, DataFilesList
        from datasets.download import DownloadManager
        from datasets.exceptions import DatasetGenerationError
        from datasets.packaged_modules.arrow.arrow import Arrow
        from datasets.packaged_modules.parquet.parquet import Parquet

        class Here(DownloadManager):
            """Of files that are here already. A ``::`` in a name is linked around: it would be an address."""

            def download(self, url_or_urls: Any) -> Any:
                return {split: [_plainly_named(path, links, n) for n, path in enumerate(url_or_urls[split])]
                        for split in url_or_urls}  # fmt: skip

        # Not `Dataset.from_parquet`, which takes a path for a pattern. The cache goes by these three facts of a file.
        facts = [(str(path), str(path.stat().st_size), str(path.stat().st_mtime_ns)) for path in map(Path, paths)]
        files = DataFilesDict({"train": DataFilesList(paths, facts)})
        try:
            builder = (Parquet if ending == ".parquet" else Arrow)(data_files=files)
            with TemporaryDirectory() as links:
                builder.download_and_prepare(dl_manager=Here())
            return builder.as_dataset(split="train")
        except (OSError, ValueError, DatasetGenerationError) as error:  # pyarrow's are ValueErrors
            raise _damaged(paths, ending, error) from None

    return open_files


def _plainly_named(path: str, links: str, number: int) -> str:
    if "::" not in path:
        return path
    link = Path(links, str(number))
    link.symlink_to(Path(path).absolute())
    return str(link)


def _damaged(paths: list[str], ending: str, error: Exception) -> UsageError:
    """Which of the files cannot be read."""
    for path in paths:
        try:
            _read(path, ending)
        except (OSError, ValueError) as its_own:
            return UsageError(f"{path} is not a readable {ending[1:]} file ({its_own}); restore it, or take it away")
    if isinstance(error, OSError) and error.filename is not None and str(error.filename) not in paths:
        from datasets import config

        return UsageError(
            f"`datasets` keeps tables that it reads in {config.HF_DATASETS_CACHE}, and cannot: {error.strerror} "
            f"({error.filename}); set HF_HOME to a folder that can be written"
        )
    # `datasets` itself says that there was an error; between the first and the last line of its cause are the columns.
    lines = (str(error.__cause__ or error).strip() or type(error).__name__).splitlines()
    cause = " ".join(dict.fromkeys([lines[0], lines[-1]]))
    return UsageError(f"cannot read {', '.join(paths[:3])} as one table: {cause}")


def _read(path: str, ending: str) -> None:
    import pyarrow
    from pyarrow import parquet

    if ending == ".parquet":
        parquet.read_table(path)
        return
    with open(path, "rb") as file:
        try:
            pyarrow.ipc.open_stream(file).read_all()
        except pyarrow.ArrowInvalid:
            pyarrow.ipc.open_file(file).read_all()
