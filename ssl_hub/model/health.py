"""When features count as collapsed, and when as narrow. Nothing here imports torch: the live view of a run must start
fast.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

COLLAPSE_SHARE = 0.1  # of the healthy standard deviation 1/sqrt(D)
PATIENCE = 3  # readings in a row before a run counts as collapsed

# Between collapse and health: most of each feature is one direction that all share, as with linear predictors at the
# start of training, and to the end where an ablation learns little.
NARROW_SHARE = 0.5  # of the healthy standard deviation: three quarters of a unit feature are the mean of all
NARROW_RANK = 3.0  # effective rank of F

THRESHOLDS = (
    f"collapsed: spread below {COLLAPSE_SHARE:.0%} of 1/√D in {PATIENCE} readings in a row; narrow: spread below"
    f" {NARROW_SHARE:.0%}, or an effective rank below {NARROW_RANK:g}; healthy: anything else"
)


class Health(NamedTuple):
    """The state of the features and the numbers that say so, in words.

    ``collapsed``, ``narrow`` or ``healthy``; ``not finite`` where the last features were not.
    """

    state: str
    numbers: str

    def __str__(self) -> str:
        return f"{self.state}: {self.numbers}" if self.numbers else self.state


def is_low(std: float, healthy: float) -> bool:
    """Whether a finite standard deviation of features is that of a point rather than of a sphere."""
    return std < COLLAPSE_SHARE * healthy


def has_collapsed(readings: Sequence[dict[str, Any]]) -> bool:
    """Whether the last readings of a training log are all low; those of features that were not finite do not count."""
    told = [r for r in readings if "healthy_std" in r and _finite(r.get("feature_std")) is not None]
    last = told[-PATIENCE:]
    return len(last) == PATIENCE and all(is_low(r["feature_std"], r["healthy_std"]) for r in last)


def health_of(readings: Sequence[dict[str, Any]], *, collapsed: bool = False) -> Health | None:
    """The health of a run by its training log, or by the word of its results that it has ``collapsed``; None where
    neither says anything."""
    last = readings[-1] if readings else {}
    std, healthy, rank = (_finite(last.get(name)) for name in ("feature_std", "healthy_std", "effective_rank"))
    share = None if std is None or not healthy else std / healthy
    numbers = [] if share is None else [f"spread {share:.0%} of 1/√D"]
    if rank is not None:
        width = f" of {round(1 / healthy**2)}" if healthy else ""
        numbers.append(f"effective rank {rank:.2f}{width}")
    if collapsed or has_collapsed(readings):
        return Health("collapsed", ", ".join(numbers))
    if share is None:
        return Health("not finite", "the last features were not finite") if "feature_std" in last else None
    narrow = share < NARROW_SHARE or (rank is not None and rank < NARROW_RANK)
    return Health("narrow" if narrow else "healthy", ", ".join(numbers))


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None
