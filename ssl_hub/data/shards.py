"""Data that is read from front to back: WebDataset tar files, parquet files, and streamed datasets of the Hub."""

from __future__ import annotations

import glob
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ssl_hub.atomic import expanded
from ssl_hub.data.columns import encoded, files_by_split, find_image_column
from ssl_hub.data.decoding import EXTENSIONS
from ssl_hub.data.hub_datasets import Address, hub_address, load_hub
from ssl_hub.data.splits import HELD_OUT, resolve_split
from ssl_hub.errors import UsageError

_SPLITS = ("train", *HELD_OUT)
_PARQUET_ROWS = 64  # read at a time


class Encoded(NamedTuple):
    """One image as it is stored: a file's bytes, empty where it is missing, or a file's path."""

    name: str
    file: bytes | str


class Shards(Protocol):
    """Numbered pieces of a dataset, each read in order. ``images`` is their number together, None where unknown."""

    images: int | None

    def __len__(self) -> int: ...

    def names(self) -> list[str]:
        """What the shards are called, in their order; without the folder where they are files."""
        ...

    def read(self, shard: int, start: int) -> Iterator[Encoded]:
        """The images of one shard from number ``start`` on."""
        ...


class TarShards:
    """Tar files of images, WebDataset's among them, compressed or not. Members that are no images are passed over."""

    def __init__(self, files: Sequence[str]) -> None:
        self.files = list(files)
        self.images: int | None = None

    def __len__(self) -> int:
        return len(self.files)

    def names(self) -> list[str]:
        return [Path(file).name for file in self.files]

    def read(self, shard: int, start: int) -> Iterator[Encoded]:
        file, number = self.files[shard], 0
        try:
            with tarfile.open(file) as archive:
                while (member := archive.next()) is not None:
                    archive.members = []  # type: ignore[attr-defined]  # else it remembers all that it has seen
                    base = member.name.rsplit("/", 1)[-1]
                    if not member.isfile() or base[0] == "." or not base.lower().endswith(EXTENSIONS):
                        continue
                    if number >= start:
                        content = archive.extractfile(member)
                        assert content is not None, "it is a file"
                        yield Encoded(f"{member.name} in {file}", content.read())
                    number += 1
        except (tarfile.TarError, OSError, EOFError) as error:
            cause = str(error).partition(":\n")[0] or type(error).__name__
            raise UsageError(f"shard {file} cannot be read ({cause}); replace it or remove it") from None


class ParquetShards:
    """Parquet files with an image column. Not read by ``datasets``, whose threads can abort an exiting interpreter."""

    def __init__(self, files: Sequence[str], image_column: str | None, where: str) -> None:
        from datasets import Features
        from pyarrow import parquet

        self.files = list(files)
        self.column = find_image_column(
            Features.from_arrow_schema(parquet.read_schema(self.files[0])), image_column, where
        )
        self.images: int | None = sum(parquet.read_metadata(file).num_rows for file in self.files)

    def __len__(self) -> int:
        return len(self.files)

    def names(self) -> list[str]:
        return [Path(file).name for file in self.files]

    def read(self, shard: int, start: int) -> Iterator[Encoded]:
        from pyarrow import parquet

        number = 0
        with parquet.ParquetFile(self.files[shard]) as table:
            for group in range(table.num_row_groups):
                rows = table.metadata.row_group(group).num_rows
                if number + rows <= start:
                    number += rows
                    continue
                for batch in table.iter_batches(
                    _PARQUET_ROWS, row_groups=[group], columns=[self.column], use_threads=False
                ):
                    for cell in batch.column(0).to_pylist():
                        if number >= start:
                            yield _of_cell(cell, f"image {number} of {self.files[shard]}")
                        number += 1


class HubShards:
    """A streamed dataset of the Hub: files are read over the network, and nothing is stored."""

    def __init__(self, address: Address, split: str, image_column: str | None, where: str) -> None:
        stream = load_hub(address, streaming=True)
        found = resolve_split(split, stream, where)
        rows = stream[found]
        sizes = rows.info.splits or {}
        self.where = f"split {found!r} of {where}"
        self.images = sizes[found].num_examples or None if found in sizes else None
        if rows.features is None:
            rows = rows._resolve_features()
        self.column = find_image_column(rows.features, image_column, self.where)
        self.rows = encoded(rows.select_columns([self.column]), self.column)

    def __len__(self) -> int:
        return int(self.rows.num_shards)

    def names(self) -> list[str]:
        return [f"{self.where}, {len(self)} shards"]

    def read(self, shard: int, start: int) -> Iterator[Encoded]:
        rows = self.rows.shard(num_shards=len(self), index=shard).skip(start)
        for number, row in enumerate(rows, start):
            yield _of_cell(row[self.column], f"image {number} of shard {shard} of {self.where}")


def _of_cell(cell: Any, name: str) -> Encoded:
    """An image of a table's cell: encoded bytes or a path, or a struct of both."""
    if not isinstance(cell, dict):
        return Encoded(name, cell or b"")
    path = cell["path"]
    return Encoded(f"{name} ({Path(path).name})" if path else name, cell["bytes"] or path or b"")


def open_shards(data: str, split: str, *, image_column: str | None = None) -> Shards:
    """One split of ``data`` as a stream: a folder of tar or parquet files, a pattern of such files, or a Hub dataset.

    Files belong to splits as in :func:`~ssl_hub.data.columns.files_by_split`; where none is named after a split, as
    with a pattern, all are ``train``. Raises :class:`UsageError` with what was found.
    """
    if not split.isidentifier():
        raise UsageError(f"split {split!r}: a stream is one whole split, as in 'train'; parts need data.stream=false")
    path, where = expanded(data), f"stream {data!r}"
    if path.is_dir():
        for extension, opened in _READERS.items():
            splits = files_by_split(path, extension)
            if splits:
                if not splits.keys() & set(_SPLITS):
                    splits = {"train": sorted(file for files in splits.values() for file in files)}
                return opened(splits[resolve_split(split, splits, where)], image_column, where)
        raise UsageError(
            f"{data} holds no .tar or .parquet files to stream; set data.stream=false if it is a folder of images"
        )
    matching = sorted(glob.glob(str(path), recursive=True))
    for extension, opened in _READERS.items():
        if matching and all(file.endswith(extension) for file in matching):
            resolve_split(split, ("train",), where)
            return opened(matching, image_column, where)
    address = hub_address(data)
    if matching or address is None:
        found = f"matches {Path(matching[0]).name!r}" if matching else "matches no file"
        raise UsageError(
            f"{data} {found}; a stream is a folder or a pattern of .tar or of .parquet files, or a Hub dataset"
        )
    return HubShards(address, split, image_column, data)


def _tar(files: Sequence[str], image_column: str | None, where: str) -> Shards:
    if image_column is not None:
        raise UsageError(
            f"{where} has no columns, but data.image_column is {image_column!r}; set data.image_column to none"
        )
    return TarShards(files)


_READERS: dict[str, Callable[[Sequence[str], str | None, str], Shards]] = {".tar": _tar, ".parquet": ParquetShards}
