"""Opening data by what it is called: a registered name, a path, or a dataset of the Hub.

Another built-in dataset is one function ``split -> Source`` registered in :data:`SOURCES`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ssl_hub.atomic import expanded
from ssl_hub.data.columns import hub_splits, parquet_splits, saved_splits, table_source
from ssl_hub.data.digits import digits
from ssl_hub.data.file_lists import listed
from ssl_hub.data.folders import folder_source
from ssl_hub.data.hub_datasets import hub_address
from ssl_hub.data.images import Source, joined
from ssl_hub.data.splits import Part, parse_split
from ssl_hub.errors import UsageError
from ssl_hub.registry import Registry

__all__ = ["SOURCES", "Source", "open_source"]

SOURCES: Registry[Callable[[str], Source]] = Registry("data")
SOURCES.add("digits", digits)


def open_source(data: str, split: str, *, image_column: str | None = None, label_column: str | None = None) -> Source:
    """The images, and labels where there are any, of one split of ``data``.

    ``data`` is the first of these that fits: (1) a name in :data:`SOURCES`; (2) a path that exists: an image folder
    (``[split/]class/image``, or flat and unlabelled), parquet files named by split, or a folder that
    ``save_to_disk`` of ``datasets`` wrote; (3) a Hub dataset, ``owner/name[:config][@revision]``, which ``datasets``
    downloads or takes from its cache.

    ``split`` may join several with ``+``, as in ``train+unlabeled``, and take a part of each: ``train[:10%]`` and
    ``train[::10]`` as slices do, ``train@1percent.txt`` those that a text file names (see ``file_lists``). ``test``,
    ``validation``, ``val`` and ``valid`` stand for each other. Columns are for tables alone and found by type where
    not named.

    Raises :class:`UsageError` that says what was found and how to fix it.
    """
    opened = [_open_part(data, part, image_column, label_column) for part in parse_split(split)]
    return opened[0] if len(opened) == 1 else joined(opened, opened[0].name, "+".join(s.split for s in opened))


def _open_part(data: str, part: Part, image_column: str | None, label_column: str | None) -> Source:
    source = _open_split(data, part.name, image_column, label_column)
    if part.bounds:
        whole, source = source, source.subset(part.taken(len(source)))
        source.split = whole.split + part.bounds
        if len(source) == 0:
            raise UsageError(f"split {part.name + part.bounds!r} of {data} takes none of its {len(whole)} images")
    return source if part.file_list is None else listed(source, part.file_list)


def _open_split(data: str, split: str, image_column: str | None, label_column: str | None) -> Source:
    columns = {"image_column": image_column, "label_column": label_column}
    if data in SOURCES:
        _refuse_columns(f"registered data {data!r}", columns)
        return SOURCES[data](split)
    path = expanded(data)
    if path.exists():
        return _open_path(path, split, columns)
    address = hub_address(data)
    if address is None:
        raise UsageError(f"data path {data!r} does not exist; give a folder that does, or one of {_registered()}")
    try:
        splits = hub_splits(address)
    except UsageError as error:
        raise UsageError(
            f"data {data!r} is no registered name ({_registered()}), no path that exists, and no Hub dataset that "
            f"loads: {error}"
        ) from error.__cause__
    return table_source(data, splits, split, image_column, label_column)


def _open_path(path: Path, split: str, columns: dict[str, str | None]) -> Source:
    if not path.is_dir():
        raise UsageError(f"data path '{path}' is a file; give the folder of images or parquet files it lies in")
    # A saved dataset holds arrow files alone; parquet files may lie beside example images, so they come first.
    splits = saved_splits(path) or parquet_splits(path)
    if splits:
        source = table_source(str(path), splits, split, columns["image_column"], columns["label_column"])
    else:
        _refuse_columns(f"image folder '{path}'", columns)
        source = folder_source(path, split)
    source.name = path.resolve().name  # what results are recorded under: where data lies is nobody else's business
    return source


def _refuse_columns(what: str, columns: dict[str, str | None]) -> None:
    for setting, value in columns.items():
        if value is not None:
            raise UsageError(f"{what} has no columns, but data.{setting} is {value!r}; set data.{setting} to none")


def _registered() -> str:
    return ", ".join(repr(name) for name in SOURCES.names())
