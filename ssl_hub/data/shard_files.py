"""Which files a stream is of: those of a folder, of a pattern with stars or braces, or at an address, by split."""

from __future__ import annotations

import glob
import warnings
from pathlib import Path, PurePath

from ssl_hub.atomic import expanded
from ssl_hub.data.addresses import below, braced, file_name, has_ending, is_address, is_folder, matching, shown
from ssl_hub.data.annotations import pictures_and_annotations
from ssl_hub.data.columns import holds_no_images
from ssl_hub.data.endings import ARCHIVES
from ssl_hub.data.file_splits import DEPTH, by_split, files_below, meanings_of
from ssl_hub.errors import UsageError

ENDINGS = (ARCHIVES, (".parquet",))


def shard_files(data: str) -> dict[str, list[str]] | None:
    """The files of one kind that ``data`` means by split, in order; None where it is no path, address or pattern.

    Files of a folder belong to splits as in :func:`~ssl_hub.data.file_splits.by_split`, and so do those of an
    address; those of a local pattern are all ``train``. Raises :class:`UsageError` with what was found instead.
    """
    if is_address(data):
        return _at_address(data)
    path = expanded(data)
    if path.is_dir():
        if found := _one_kind(data, files_below(path, sum(ENDINGS, ()))):
            return by_split(found, str(path))
        raise UsageError(
            f"{data} holds no .tar or .parquet files to stream; set data.stream=false if it is a folder of images"
        )
    files = _local(path)
    return _of_one_kind(data, files) if files else None


def _at_address(data: str) -> dict[str, list[str]]:
    every = sum(ENDINGS, ())
    if is_folder(data, every):
        below_it = {PurePath(name): file for name, file in below(data, every, DEPTH).items()}
        if found := _one_kind(shown(data), below_it):
            return by_split(found, shown(data).rstrip("/"))
        raise UsageError(f"{shown(data)} holds no .tar or .parquet files to stream")
    files = matching(data, every)
    if not files:
        raise UsageError(f"{shown(data)} matches no file; give a folder or a pattern of .tar or of .parquet files")
    return _of_one_kind(data, files)


def _one_kind(data: str, files: dict[PurePath, str]) -> dict[PurePath, str]:
    """The same; the archives alone where tables hold no images, as those that img2dataset writes beside them.

    Raises :class:`UsageError` where some are archives and some are tables, or archives of what is drawn or said of
    pictures lie beside those of pictures."""
    archives, tables = ({p: file for p, file in files.items() if has_ending(p.name, ending)} for ending in ENDINGS)
    if archives and tables and not holds_no_images(next(iter(tables.values()))):
        under = data.rstrip("/")
        raise UsageError(
            f"{data} holds both .tar and .parquet files ({next(iter(archives))}, {next(iter(tables))}); give those "
            f"that are meant by a pattern, as {under}/**/*.parquet or {under}/**/*.tar"
        )
    for folder in {path.parent for path in archives}:
        names = {path.name.partition(".")[0]: path for path in archives if path.parent == folder}
        if found := pictures_and_annotations(names):
            one, other = (names[name] for name in found)
            raise UsageError(
                f"{data} holds {one} beside {other}: pictures and what is drawn or said about them; give "
                f"{data.rstrip('/')}/{one}"
            )
    return archives or tables


def _of_one_kind(data: str, files: list[str]) -> dict[str, list[str]]:
    if not any(all(has_ending(file, ending) for file in files) for ending in ENDINGS):
        raise UsageError(
            f"{shown(data)} matches {file_name(files[0])!r}; a stream is a folder or a pattern of .tar or of "
            ".parquet files, or a Hub dataset"
        )
    if len(spoken := meanings_of(files)) > 1:
        warnings.warn(
            f"{shown(data)} names files of {' and '.join(spoken)}, all of which are read as 'train'; where these are "
            "different splits, give a folder, or a pattern of one",
            stacklevel=2,
        )
    return {"train": files}


def _local(path: Path) -> list[str]:
    """The file itself, or the files that a pattern matches; a folder with brackets in its name is no pattern."""
    if path.is_file():
        return [str(path)]
    names = [Path(name) for name in braced(str(path))]
    found = {name: _globbed(name) for name in names}
    missing = [name for name, its in found.items() if not its]
    if len(missing) < len(names) and missing:
        raise UsageError(f"shard {missing[0]} does not exist, which the braces name; put it back, or leave it out")
    return [file for its in found.values() for file in its]


def _globbed(path: Path) -> list[str]:
    if path.parent.is_dir() and (found := sorted(map(str, path.parent.glob(path.name)))):
        return found
    return sorted(glob.glob(str(path), recursive=True))
