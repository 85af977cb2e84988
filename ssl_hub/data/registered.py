"""Data registered under a name: one function ``split -> Source`` in :data:`SOURCES`."""

from __future__ import annotations

from collections.abc import Callable

from ssl_hub.data.digits import digits
from ssl_hub.data.images import Source
from ssl_hub.data.reading import Reading
from ssl_hub.data.splits import WORDS
from ssl_hub.errors import UsageError
from ssl_hub.registry import Registry

SOURCES: Registry[Callable[[str], Source]] = Registry("data")
SOURCES.add("digits", digits)


class Registered:
    """What a registered function opens. Which splits it has shows when they are asked for."""

    def __init__(self, name: str, reading: Reading) -> None:
        reading.refuse_columns(f"registered data {name!r}")
        self.name = name

    @property
    def splits(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for split in WORDS:
            try:
                found[self.open(split).split] = ""
            except UsageError:
                continue
        return found

    def open(self, split: str) -> Source:
        source = SOURCES[self.name](split)
        if not isinstance(source, Source):
            raise UsageError(
                f"registered data {self.name!r} gives {type(source).__name__} for split {split!r}, expected"
                " a Source: return Source(name, split, Pixels(array))"
            )
        return source
