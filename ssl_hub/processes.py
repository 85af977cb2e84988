"""Which of several processes this is, by what launchers say; nothing here imports torch."""

from __future__ import annotations

import os


def speaks() -> bool:
    """Whether this process prints and publishes: the only one, or the first of several (a ``RANK`` left over says
    nothing alone)."""
    rank, world = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    if not rank.isdecimal() or not world.isdecimal() or int(rank) >= int(world):
        return True  # nobody else would say what is wrong with these
    return int(rank) == 0
