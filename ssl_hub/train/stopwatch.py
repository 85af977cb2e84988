"""Time spent in one place, summed over many visits."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


class Stopwatch:
    """Seconds that passed inside iterators, since they were last taken."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def over(self, items: Iterable[T]) -> Iterator[T]:
        """The same items; the time until each is there counts."""
        iterator = iter(items)
        while True:
            started = time.perf_counter()
            try:
                item = next(iterator)
            except StopIteration:
                return
            finally:
                self._seconds += time.perf_counter() - started
            yield item

    def take(self) -> float:
        """The seconds so far; counting starts again at zero."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds
