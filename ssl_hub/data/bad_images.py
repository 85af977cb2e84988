"""Images that cannot be read: which were met, how many are put up with, and what stands in for them.

In training the next readable image takes the place of an unreadable one, under the unreadable one's own random draws,
so that batches, ranks, workers and a resumed run stay as they are. An evaluation leaves it out, label and all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ssl_hub.data.images import Source, decoding_threads
from ssl_hub.errors import UsageError

T = TypeVar("T")


class BadImages:
    """What was wrong with each unreadable image met so far, by index; more than ``limit`` of them are an error."""

    def __init__(self, limit: int) -> None:
        if limit < 0:
            raise UsageError(f"data.max_bad_images is {limit}, expected 0 or more")
        self.limit = limit
        self.found: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self.found)

    def add(self, found: Mapping[int, str]) -> None:
        """Take note. Raises :class:`UsageError` where the limit is exceeded."""
        self.found |= found
        if len(self.found) > self.limit:
            raise UsageError(
                f"{len(self.found)} images cannot be read, more than data.max_bad_images={self.limit}; the last: "
                f"{self.found[max(found, default=max(self.found))]}"
            )


class _Readable:
    """The images of a source, each unreadable one replaced by the next readable one, first after last."""

    def __init__(self, source: Source, bad: BadImages) -> None:
        self.source = source
        self.bad = bad

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, position: int) -> Image.Image:
        return self._from(position, self.source.image)

    def array(self, position: int) -> NDArray[np.uint8]:
        return self._from(position, self.source.array)

    def stored(self, position: int) -> tuple[str | bytes, str] | None:
        return self.source.stored(position)

    def names(self) -> Sequence[str] | None:
        return self.source.names()

    def file_paths(self) -> Sequence[str] | None:
        return self.source.paths()

    def _from(self, position: int, read: Callable[[int], T]) -> T:
        for step in range(len(self)):
            index = (position + step) % len(self)
            if index in self.bad.found:
                continue
            try:
                return read(index)
            except UsageError as error:
                self.bad.add({index: str(error)})
        raise UsageError(f"none of the {len(self)} images of {self.source.name} can be read; see {self.bad.found[0]}")


def skipping(source: Source, limit: int) -> Source:
    """The same source for training, where up to ``limit`` unreadable images are stood in for; see ``source.bad``."""
    if source.pixels() is not None:
        return source
    bad = BadImages(limit)
    whole = Source(source.name, source.split, _Readable(source, bad), classes=source.classes, labels=source.labels)
    whole.bad = bad
    whole.passed_over = source.passed_over
    return whole


def without_bad(source: Source, limit: int) -> Source:
    """The readable images of a source for evaluation, labels in step; its split says how many were left out.

    Reads every image once to find out. Raises :class:`UsageError` where more than ``limit`` cannot be read.
    """
    if source.pixels() is not None or len(source) == 0:
        return source

    def complaint(index: int) -> str:
        try:
            source.image(index)
        except UsageError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(decoding_threads(2**20)) as pool:
        complaints = list(pool.map(complaint, range(len(source))))
    bad = BadImages(limit)
    bad.add({index: text for index, text in enumerate(complaints) if text})
    if not bad:
        return source
    kept = source.subset(np.array([not text for text in complaints]))
    kept.split = f"{source.split} without {len(bad)} unreadable"
    return kept
