"""Tables with an image column, read by ``datasets``: parquet files, saved datasets, and datasets of the Hub."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ssl_hub.data.decoding import decode, decode_array
from ssl_hub.data.hub_datasets import Address, load_hub
from ssl_hub.data.images import Source
from ssl_hub.data.splits import resolve_split
from ssl_hub.errors import UsageError
from ssl_hub.registry import suggest

_IMAGE_NAMES = ("image", "img", "jpg", "png")
_LABEL_NAMES = ("label", "labels", "fine_label", "target", "targets", "class", "cls", "y")

_ENCODED = ("binary", "large_binary", "string")  # bytes of an image file, or its path

Opener = Callable[[], Any]  # opens one split: a datasets.Dataset


class Column:
    """The images of one column of a ``datasets.Dataset``, whose rows hold encoded bytes or a file's path."""

    def __init__(self, rows: Any, column: str, where: str) -> None:
        self.rows = rows
        self.column = column
        self.where = where

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, position: int) -> Image.Image:
        return decode(*self._encoded(position))

    def array(self, position: int) -> NDArray[np.uint8]:
        return decode_array(*self._encoded(position))

    def encoded(self, position: int) -> bytes:
        file, _ = self._encoded(position)
        return file if isinstance(file, bytes) else Path(file).read_bytes()

    def _encoded(self, position: int) -> tuple[str | bytes, str]:
        """Bytes of a file or its path, and what to call it."""
        cell = self.rows[position][self.column]
        name = f"image {position} of {self.where}"
        if cell is None or (cell["bytes"] is None and cell["path"] is None):
            raise UsageError(f"{name} is missing; remove the row")
        if cell["path"]:
            name += f" ({Path(cell['path']).name})"
        return cell["path"] if cell["bytes"] is None else cell["bytes"], name

    def names(self) -> list[str]:
        """Each row's file name, empty where it has none. Images themselves are not read."""
        tables = self.rows.with_format("arrow").iter(batch_size=1024)
        cells = (table.column(self.column).combine_chunks() for table in tables)
        return [path or "" for structs in cells for path in structs.field("path").to_pylist()]


def parquet_splits(root: Path) -> dict[str, Opener]:
    """Splits of the parquet files below ``root``; empty where there are none.

    ``datasets`` copies them once to its cache, which all processes map into memory.
    """
    return {split: _parquet_opener(paths) for split, paths in files_by_split(root, ".parquet").items()}


def files_by_split(root: Path, extension: str) -> dict[str, list[str]]:
    """Files below ``root`` that end in ``extension``, by split; empty where there are none.

    They are named ``<split>-*`` or ``<split>`` and lie in ``root`` or ``root/data``, or have any name in a folder
    called as the split.
    """
    files: dict[str, list[str]] = {}
    for folder in (root, root / "data"):
        for path in sorted(folder.glob(f"*{extension}")):
            files.setdefault(path.stem.partition("-")[0], []).append(str(path))
    for path in sorted([*root.glob(f"*/*{extension}"), *root.glob(f"data/*/*{extension}")]):
        if path.parent != root / "data":
            files.setdefault(path.parent.name, []).append(str(path))
    return files


def _parquet_opener(paths: list[str]) -> Opener:
    def open_files() -> Any:
        from datasets import Dataset
        from datasets.exceptions import DatasetGenerationError

        try:
            return Dataset.from_parquet(paths)
        except (OSError, ValueError, DatasetGenerationError) as error:  # pyarrow's are ValueErrors
            raise _damaged(paths, error) from None

    return open_files


def _damaged(paths: list[str], error: Exception) -> UsageError:
    """Which of the files cannot be read."""
    from pyarrow import ArrowInvalid, parquet

    for path in paths:
        try:
            parquet.read_table(path)
        except (OSError, ArrowInvalid) as its_own:
            return UsageError(f"{path} is not a readable parquet file ({its_own}); restore it, or take it away")
    return UsageError(f"cannot read {', '.join(paths[:3])} as one table: {error}")


def saved_splits(root: Path) -> dict[str, Opener]:
    """Splits of a folder that ``save_to_disk`` of ``datasets`` wrote; empty where it is none."""
    if not ((root / "dataset_dict.json").is_file() or (root / "state.json").is_file()):
        return {}
    from datasets import load_from_disk

    saved = load_from_disk(str(root))
    if isinstance(saved, Mapping):
        return {str(split): _opened(rows) for split, rows in saved.items()}
    return {str(saved.split or "train").partition("[")[0]: _opened(saved)}


def _opened(rows: Any) -> Opener:
    return lambda: rows


def hub_splits(address: Address) -> dict[str, Opener]:
    """Splits of a Hub dataset (downloaded where the cache lacks it), or :class:`UsageError` with the cause."""
    return {str(split): _opened(rows) for split, rows in load_hub(address).items()}


def table_source(
    name: str, splits: Mapping[str, Opener], split: str, image_column: str | None, label_column: str | None
) -> Source:
    """One split of a table; classes and their order are those of ``train`` where there is one.

    The image column is the one of type ``Image``; the label column is the ``ClassLabel``, else an integer column of a
    usual name; either may be named instead. Raises :class:`UsageError` listing the columns where that does not decide,
    and naming the class where a split has one that ``train`` lacks.
    """
    found = resolve_split(split, splits, f"data {name!r}")
    where = f"split {found!r} of {name}"
    rows = splits[found]()
    images = find_image_column(rows.features, image_column, where)
    column = Column(encoded(rows.select_columns([images]), images), images, where)
    labels = _label_column(rows.features, label_column, images, where)
    if labels is None:
        return Source(name, found, column)
    classes, indices = _classes_and_labels(rows, labels)
    if found != "train" and "train" in splits:
        train_classes, _ = _classes_and_labels(splits["train"](), labels)
        classes, indices = _aligned(classes, indices, train_classes, where)
    return Source(name, found, column, classes=classes, labels=indices)


def encoded(rows: Any, column: str) -> Any:
    """The same rows with bytes of files in ``column`` in place of decoded images."""
    from datasets import Image as ImageFeature

    return rows.cast_column(column, ImageFeature(decode=False))


def find_image_column(features: Any, named: str | None, where: str) -> str:
    """The one column of images, or ``named``, where it is one; else :class:`UsageError` listing the columns."""
    from datasets import Image as ImageFeature

    typed = [c for c, feature in features.items() if isinstance(feature, ImageFeature)]
    structs = [c for c, f in features.items() if isinstance(f, dict) and set(f) == {"bytes", "path"}]
    if named is not None:
        encoded = [c for c, f in features.items() if getattr(f, "dtype", "") in _ENCODED]
        if _existing(features, named, "image", where) not in typed + structs + encoded:
            raise UsageError(f"column {named!r} of {where} holds no images; columns: {_listed(features)}")
        return named
    return _only(typed or structs, _IMAGE_NAMES, "image", features, where)


def _label_column(features: Any, named: str | None, image_column: str, where: str) -> str | None:
    from datasets import ClassLabel

    if named is not None:
        return _existing(features, named, "label", where)
    typed = [c for c, feature in features.items() if isinstance(feature, ClassLabel)]
    if typed:
        return _only(typed, _LABEL_NAMES, "label", features, where)
    whole = [c for c, feature in features.items() if "int" in str(getattr(feature, "dtype", ""))]
    return next((c for c in _LABEL_NAMES if c in whole and c != image_column), None)


def _existing(features: Any, named: str, kind: str, where: str) -> str:
    if named not in features:
        raise UsageError(
            f"{where} has no {kind} column {named!r}{suggest(named, features)}; columns: {_listed(features)}"
        )
    return named


def _only(candidates: list[str], usual: tuple[str, ...], kind: str, features: Any, where: str) -> str:
    preferred = [c for c in usual if c in candidates]
    if len(candidates) == 1 or preferred:
        return preferred[0] if preferred else candidates[0]
    problem = f"several {kind} columns ({', '.join(candidates)})" if candidates else f"no {kind} column"
    raise UsageError(f"{where} has {problem}; set data.{kind}_column to one of its columns: {_listed(features)}")


def _listed(features: Any) -> str:
    return ", ".join(f"{name} ({type(f).__name__ if isinstance(f, dict) else f.dtype})" for name, f in features.items())


def _classes_and_labels(rows: Any, column: str) -> tuple[list[str], NDArray[np.int64]]:
    """Class names and int64 labels ``[N]``, -1 where there is none."""
    from datasets import ClassLabel

    values = rows.select_columns([column]).with_format("arrow")[:].column(column)
    feature = rows.features[column]
    if isinstance(feature, ClassLabel):
        labels = values.fill_null(-1).to_numpy().astype(np.int64)
        return list(feature.names), np.where(labels < 0, -1, labels)
    plain = values.to_pylist()
    known = sorted({v for v in plain if v is not None and not (isinstance(v, int) and v < 0)})
    index = {value: position for position, value in enumerate(known)}
    return [str(v) for v in known], np.array([index.get(v, -1) for v in plain], np.int64)


def _aligned(
    classes: list[str], labels: NDArray[np.int64], reference: list[str], where: str
) -> tuple[list[str], NDArray[np.int64]]:
    """Labels that count in ``reference``'s order."""
    if classes == reference:
        return reference, labels
    position = {name: index for index, name in enumerate(reference)}
    for index in np.unique(labels[labels >= 0]):
        if classes[index] not in position:
            raise UsageError(
                f"{where} has class {classes[index]!r}, which split 'train' lacks; "
                f"'train' has {len(reference)} classes: {', '.join(reference[:10])}"
                f"{', ...' if len(reference) > 10 else ''}"
            )
    mapping = np.array([*(position.get(name, -1) for name in classes), -1], np.int64)  # the last is that of label -1
    return reference, mapping[labels]
