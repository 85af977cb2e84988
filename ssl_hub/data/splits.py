"""Which split is meant, by the name that the data uses for the same thing, and which part of it."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from ssl_hub.errors import UsageError

HELD_OUT = ("test", "validation", "val", "valid")
"""Names of the split that is not trained on; each stands for another where it is absent, and none for ``train``."""


def resolve_split(split: str, available: Collection[str], where: str) -> str:
    """The available split that ``split`` means. Raises :class:`UsageError` listing what ``where`` has.

    An exact name wins. Public data names its held-out split ``test``, ``validation``, ``val`` or ``valid``; where the
    name asked for is absent, validation names are preferred to each other before ``test``.
    """
    if split in available:
        return split
    if split in HELD_OUT:
        for other in ("validation", "val", "valid", "test"):
            if other in available:
                return other
    raise UsageError(f"{where} has no split {split!r}; it has {', '.join(sorted(available)) or 'none'}")


class Part(NamedTuple):
    """A part of a split, as ``name[start:stop:step]@file_list``: each of the two restrictions may be absent."""

    name: str
    bounds: str = ""  # as written, with its brackets
    file_list: Path | None = None

    def taken(self, count: int) -> slice:
        """The images of ``count`` that the bounds take. Percentages count in rounded images, as in ``datasets``."""
        return slice(*(_bound(text, count) for text in self.bounds[1:-1].split(":")))


def parse_split(split: str) -> list[Part]:
    """The parts that ``+`` joins in ``train[:10%]+unlabeled`` or ``train@1percent.txt``.

    Raises :class:`UsageError` where a name is missing or a slice is none.
    """
    parts = []
    for text in split.split("+"):
        selected, at, file = text.strip().partition("@")
        name, bracket, inside = selected.partition("[")
        if not name or (at and not file):
            raise UsageError(
                f"split {split!r} is not a name or names joined by '+', as in 'train' or 'train+unlabeled'"
            )
        if bracket and not re.fullmatch(r"(-?\d+%?)?:(-?\d+%?)?(:([1-9]\d*)?)?\]", inside):
            raise UsageError(f"split {selected!r} is no slice, as in 'train[:5000]', 'train[:10%]' or 'train[::10]'")
        parts.append(Part(name, bracket + inside, Path(file) if at else None))
    return parts


def _bound(text: str, count: int) -> int | None:
    if not text:
        return None
    return round(int(text[:-1]) * count / 100) if text.endswith("%") else int(text)
