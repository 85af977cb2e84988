"""Data that is read from front to back: WebDataset tar files, parquet files, and streamed datasets of the Hub."""

from __future__ import annotations

import contextlib
import tarfile
import warnings
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from lzma import LZMAError
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ssl_hub.data.addresses import file_name, has_ending, is_address, opened, shown
from ssl_hub.data.columns import encoded, find_image_column
from ssl_hub.data.endings import expected_endings, kind_of
from ssl_hub.data.hub_datasets import Address, hub_address, load_hub
from ssl_hub.data.passed_over import PassedOver
from ssl_hub.data.registered import SOURCES
from ssl_hub.data.shard_files import shard_files
from ssl_hub.data.splits import resolve_split, split_names, warn_of_others
from ssl_hub.data.tar_members import Folders, Member, WithoutImage, is_image, members, sample_of
from ssl_hub.errors import UsageError

_PARQUET_ROWS = 64  # read at a time
_COUNTED = 1024  # parquet files at addresses whose rows are counted before the first batch, at two requests each
_AT_ONCE = 16
_LOOKED_AT = 64  # images of the first tar file, to see what its samples hold
_READ = 8  # of them
_MEMBERS = 1000  # of it, among which an image is expected
_DAMAGED = (tarfile.TarError, OSError, EOFError, zlib.error, LZMAError)


class Encoded(NamedTuple):
    """One image as it is stored: a file's bytes, empty where it is missing, or a file's path."""

    name: str
    file: bytes | str


class Shards(Protocol):
    """Numbered pieces of a dataset, each read in order. ``images`` is their number together, None where unknown;
    ``passed_over`` what lies beside them at the start."""

    images: int | None
    passed_over: PassedOver

    def __len__(self) -> int: ...

    def names(self) -> list[str]:
        """What the shards are called, in their order; without the folder where they are files."""
        ...

    def read(self, shard: int, start: int) -> Iterator[Encoded]:
        """The images of one shard from number ``start`` on."""
        ...


class _Files:
    """Shards that are files, here or at addresses."""

    def __init__(self, files: Sequence[str]) -> None:
        self.files = list(files)
        self.images: int | None = None
        self.passed_over = PassedOver()

    def __len__(self) -> int:
        return len(self.files)

    def names(self) -> list[str]:
        return [file_name(file) for file in self.files]


class TarShards(_Files):
    """Tar files of images, WebDataset's among them, compressed or not. Members that are no images are passed over; a
    sample that has none, and what may be one (``.heic``), is said, the first of a kind.

    A sample is what shares a name (:func:`~ssl_hub.data.tar_members.sample_of`); of several images in it, ``column``
    (``jpg``, ``seg.png``, or ``jpg,png`` where samples differ) says which is meant.
    """

    def __init__(self, files: Sequence[str], column: str | None = None) -> None:
        super().__init__(files)
        self.kinds = [] if column is None else [kind.strip().lstrip(".") for kind in column.lower().split(",")]

    def read(self, shard: int, start: int) -> Iterator[Encoded]:
        file, number, sample, passed = self.files[shard], 0, ("", ""), ("", "")
        name = shown(file)
        folders, samples = Folders(name), WithoutImage()
        try:
            with opened(file) as stream, tarfile.open(fileobj=stream, tarinfo=Member) as archive:
                for member in members(archive):
                    self._say(samples.add(member, image=(image := is_image(member))), name)
                    if not image:
                        continue
                    folders.add(member.name)
                    key, kind = sample_of(member.name)
                    if key != passed[0]:
                        self._check(passed, sample[0], name)
                        passed = "", ""
                    if self.kinds and kind not in self.kinds:
                        passed = key, kind
                        continue
                    if key == sample[0]:
                        raise UsageError(
                            f"sample {key!r} of shard {name} holds several images, {sample[1]} and {kind}; set "
                            f"data.image_column to the one that is meant, as in data.image_column={sample[1]}; where "
                            "these dots are of the files' names, pack them under names without"
                        )
                    sample = key, kind
                    if number >= start:
                        content = archive.extractfile(member)
                        assert content is not None, "it is a file"
                        yield Encoded(f"{member.name} in {name}", content.read())
                    number += 1
                self._check(passed, sample[0], name)
                self._say(samples.ended(), name)
        except _DAMAGED as error:
            cause = str(error).partition(":\n")[0] or type(error).__name__
            raise UsageError(f"shard {name} cannot be read ({cause}); replace it or remove it") from None

    def _check(self, passed: tuple[str, str], taken: str, name: str) -> None:
        """Raise UsageError where of a sample that has images, which is over, none was taken."""
        if passed[0] not in ("", taken):
            raise UsageError(
                f"sample {passed[0]!r} of shard {name} holds {passed[1]} and no {' or '.join(self.kinds)}; name all"
                f" kinds that are meant, as in data.image_column={','.join([*self.kinds, passed[1]])}"
            )

    def _say(self, without_image: tuple[str, str] | None, name: str) -> None:
        """Warn of a sample that is left out, once for each kind that :meth:`check` has not found."""
        if without_image is not None and (kind := without_image[0]) not in self.passed_over:
            self.passed_over.add(*without_image)
            warnings.warn(
                f"sample {without_image[1]} of shard {name} has no image that is read, and is left out, as others of "
                f"files {kind} are; where these are images, pack them as PNG, TIFF or JPEG",
                stacklevel=2,
            )

    def check(self) -> TarShards:
        """The same, or :class:`UsageError` where the first samples hold several images, none of the kind named, or no
        images at all. What was left out up to there is in ``passed_over``."""
        kinds: set[str] = set()
        images, others, samples = 0, PassedOver(), WithoutImage()
        with (
            contextlib.suppress(*_DAMAGED),
            opened(self.files[0]) as stream,
            tarfile.open(fileobj=stream) as archive,
        ):
            for member in islice(members(archive), _MEMBERS):
                if images == _LOOKED_AT:
                    break
                image = is_image(member)
                if left_out := samples.add(member, image=image):
                    self.passed_over.add(*left_out)
                if image:
                    images += 1
                    kinds.add(sample_of(member.name)[1])
                else:
                    others.add(kind_of(member.name), member.name)
            else:
                if left_out := samples.ended():
                    self.passed_over.add(*left_out)
        if others and not images:
            raise UsageError(
                f"shard {shown(self.files[0])} begins without images ({others.words()}); expected files ending in "
                f"{expected_endings()}"
            )
        if self.kinds and kinds and kinds.isdisjoint(self.kinds):
            raise UsageError(
                f"the samples of {shown(self.files[0])} hold no {','.join(self.kinds)!r}, which data.image_column "
                f"names; they hold {', '.join(sorted(kinds))}"
            )
        for _ in islice(self.read(0, 0), _READ):
            pass
        return self


class ParquetShards(_Files):
    """Parquet files with an image column. Not read by ``datasets``, whose threads can abort an exiting interpreter."""

    def __init__(self, files: Sequence[str], image_column: str | None, where: str) -> None:
        from datasets import Features

        super().__init__(files)
        with self._table(0) as table:
            self.column = find_image_column(Features.from_arrow_schema(table.schema_arrow), image_column, where)
        if len(self.files) <= _COUNTED or not is_address(self.files[0]):
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                self.images = sum(pool.map(self._rows, range(len(self.files))))
            if not self.images:
                raise UsageError(f"{where} has no images: its {len(self.files)} files have no rows")

    def read(self, shard: int, start: int) -> Iterator[Encoded]:
        number = 0
        with self._table(shard) as table:
            if self.column not in table.schema_arrow.names:
                raise UsageError(
                    f"shard {shown(self.files[shard])} has no column {self.column!r}, which the first has; it has "
                    f"{', '.join(table.schema_arrow.names)}"
                )
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
                            yield _of_cell(cell, f"image {number} of {shown(self.files[shard])}")
                        number += 1

    def _rows(self, shard: int) -> int:
        with self._table(shard) as table:
            return int(table.metadata.num_rows)

    @contextmanager
    def _table(self, shard: int) -> Iterator[Any]:
        from pyarrow import ArrowException, parquet

        try:
            with opened(self.files[shard]) as stream, parquet.ParquetFile(stream) as table:
                yield table
        except (ArrowException, OSError) as error:
            name, cause = shown(self.files[shard]), str(error).partition("\n")[0]
            raise UsageError(f"shard {name} cannot be read ({cause}); replace it or remove it") from None


class HubShards:
    """A streamed dataset of the Hub: files are read over the network, and nothing is stored."""

    def __init__(self, address: Address, split: str, image_column: str | None, where: str) -> None:
        stream = load_hub(address, streaming=True)
        names = split_names(stream)
        found = resolve_split(split, names, where, joins=False)
        rows = stream[names[found]]
        sizes = rows.info.splits or {}
        self.where = f"split {found!r} of {where}"
        self.passed_over = PassedOver()
        size = sizes.get(names[found])
        self.images = None if size is None else size.num_examples or None
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
    """One split of ``data`` as a stream: files (see :func:`~ssl_hub.data.shard_files.shard_files`) or a Hub dataset.

    Raises :class:`UsageError` with what was found.
    """
    if not split.isidentifier():
        raise UsageError(f"split {split!r}: a stream is one whole split, as in 'train'; parts need data.stream=false")
    if data in SOURCES:
        raise UsageError(f"{data!r} is registered data, which is no stream; set data.stream=false")
    splits, where = shard_files(data), f"stream {data!r}"
    if splits is not None:
        found = resolve_split(split, splits, where, joins=False)
        warn_of_others(split, {found}, splits, where, joins=False)
        files = splits[found]
        tables = has_ending(files[0], (".parquet",))
        return ParquetShards(files, image_column, where) if tables else TarShards(files, image_column).check()
    address = hub_address(data)
    if address is None:
        raise UsageError(
            f"{data} matches no file; a stream is a folder or a pattern of .tar or of .parquet files, an address of "
            "such, or a Hub dataset"
        )
    return HubShards(address, split, image_column, data)
