"""When features count as collapsed. Nothing here imports torch: the live view of a run must start fast."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

COLLAPSE_SHARE = 0.1  # of the healthy standard deviation 1/sqrt(D)
PATIENCE = 3  # readings in a row before a run counts as collapsed


def is_low(std: float, healthy: float) -> bool:
    """Whether a standard deviation of features is that of a point rather than of a sphere."""
    return not math.isfinite(std) or std < COLLAPSE_SHARE * healthy


def has_collapsed(readings: Sequence[dict[str, Any]]) -> bool:
    """Whether the last readings of a training log are all low."""
    last = [r for r in readings[-PATIENCE:] if "feature_std" in r and "healthy_std" in r]
    return len(last) == PATIENCE and all(is_low(r["feature_std"], r["healthy_std"]) for r in last)
