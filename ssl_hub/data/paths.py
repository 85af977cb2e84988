"""Many file names held together: one buffer of bytes and where each name ends, a third of what strings cost."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import numpy as np


class Paths(Sequence[str]):
    """Names of files in a fixed order, as the file system gives them: they need not be UTF-8.

    A buffer costs a worker process nothing: it is shared when forked, and cheap to send.
    """

    def __init__(self, names: Iterable[str]) -> None:
        text, ends = bytearray(), array("Q")
        for name in names:
            text += os.fsencode(name)
            ends.append(len(text))
        self._text = bytes(text)
        self._ends = np.array(ends, np.uint32 if len(text) < 2**32 else np.uint64)

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, position: int) -> str: ...

    @overload
    def __getitem__(self, position: slice) -> Sequence[str]: ...

    def __getitem__(self, position: int | slice) -> str | Sequence[str]:
        if isinstance(position, slice):
            return [self[place] for place in range(*position.indices(len(self)))]
        place = position + len(self) if position < 0 else position
        if not 0 <= place < len(self):
            raise IndexError(f"name {position} of {len(self)}")
        start = int(self._ends[place - 1]) if place else 0
        return os.fsdecode(self._text[start : int(self._ends[place])])

    def __iter__(self) -> Iterator[str]:
        start = 0
        for ends in np.array_split(self._ends, len(self) // 65536 + 1):  # else numbers would cost more than the names
            for end in ends.tolist():
                yield os.fsdecode(self._text[start:end])
                start = end

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Paths) and self._text == other._text and np.array_equal(self._ends, other._ends)

    __hash__ = None  # type: ignore[assignment]  # as lists have none


def shown(path: str) -> str:
    """A file's name for people and for tables: bytes that are not UTF-8 become escapes such as ``\\xe9``."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
