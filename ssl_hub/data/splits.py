"""Which split is meant: the name as given, or the name that the data uses for the same thing."""

from __future__ import annotations

from collections.abc import Collection

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
