"""Which of several processes this is, by what launchers say; nothing here imports torch."""

from __future__ import annotations

import os


def speaks() -> bool:
    """Whether this process prints and publishes: the only one, or the first of several (a ``RANK`` left over says
    nothing alone)."""
    return os.environ.get("WORLD_SIZE", "1") in ("", "1") or os.environ.get("RANK", "0") == "0"
