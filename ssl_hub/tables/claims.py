"""What numbers over seeds say of a claim: it holds, it does not, or the seeds do not decide."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Self

from ssl_hub.evaluate.intervals import student, wilson
from ssl_hub.model.results import interval_text
from ssl_hub.tables.cells import Claim, Printed

Verdict = Literal["holds", "does not hold", "not decided", "not measured", "not printed"]
NOT_PRINTED: Verdict = "not printed"  # of the paper's side
MARGIN = 1.0  # points within which one number matches another


class Sample(NamedTuple):
    """Mean and standard deviation (n - 1) of a percentage over so many ``runs``; std is None for one.

    ``collapsed`` counts the runs that ended with collapsed features; ``spread`` is the mean standard deviation of their
    features, as a share of that of features spread evenly over the sphere, where the logs tell. ``images`` were judged
    in each run, where that is known.
    """

    mean: float
    std: float | None
    runs: int | None = None  # None: not said
    collapsed: int = 0
    spread: float | None = None
    images: int | None = None

    @classmethod
    def of(
        cls, values: Sequence[float], *, collapsed: int = 0, spread: float | None = None, images: int | None = None
    ) -> Self:
        """Of at least one value."""
        std = statistics.stdev(values) if len(values) > 1 else None
        return cls(statistics.mean(values), std, len(values), collapsed, spread, images)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the mean over seeds (Student's), of a single run that over images (Wilson's)."""
        if self.std is not None and self.runs:
            low, high = student(self.mean, self.std, self.runs)
            return max(low, 0.0), min(high, 100.0)
        return None if self.images is None else wilson(self.mean, self.images)

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return self._asdict() | {"interval": self.interval}

    @property
    def interval_text(self) -> str:
        return interval_text(self.interval)

    @property
    def with_interval(self) -> str:
        return f"{self} ({self.interval_text})" if self.interval else str(self)

    @classmethod
    def printed(cls, number: Printed | None) -> Self | None:
        return None if number is None else cls(number.mean, number.std)

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.std is None else f"{self.mean:.2f} ± {self.std:.2f}"


class Judgement(NamedTuple):
    """A claim with its verdict and the numbers behind it."""

    claim: Claim
    verdict: Verdict
    evidence: str


def judge(
    claim: Claim,
    cell: Sample | None,
    than: Sample | None,
    untrained: Sample | None = None,
    chance: float | None = None,
    *,
    unlike: Sequence[str] = (),
    absent: Verdict = "not measured",
) -> Judgement:
    """The verdict on a claim. ``unlike`` are the ways in which its two numbers are different measurements, of which
    nothing is decided; ``absent`` is said where there are not two.

    A difference counts where the intervals mean ± std do not overlap; with a single run on either side nothing is
    decided, except that a cell at ``chance``, the percentage of guessing, has collapsed where the other is above it.
    Else a cell has collapsed where it is worse than the other and either all its runs ended with collapsed features or
    it does not do better than ``untrained``; where neither is known, being worse is all there is to go by.
    """
    if cell is None or than is None:
        return Judgement(claim, absent, "")
    if unlike:
        return Judgement(claim, "not decided", f"{cell} and {than} cannot be compared: {'; '.join(unlike)}")
    evidence = f"{cell} against {than} ({cell.mean - than.mean:+.2f})"
    if claim.kind == "collapses":
        evidence += _health(cell, untrained)
        if chance is not None and cell.mean <= chance + MARGIN < than.mean:
            return Judgement(claim, "holds", f"{evidence}; guessing gives {chance:.2f}")
    if cell.std is None or than.std is None:
        return Judgement(claim, "not decided", f"{evidence}; no spread is known")
    difference, overlap = cell.mean - than.mean, cell.std + than.std
    if claim.kind == "above":
        return Judgement(claim, _sign(difference, overlap), evidence)
    if claim.kind == "matches":
        close = abs(difference) + overlap <= MARGIN
        apart = abs(difference) - overlap > MARGIN
        return Judgement(claim, "holds" if close else "does not hold" if apart else "not decided", evidence)
    return Judgement(claim, _collapse(cell, difference, overlap, untrained), evidence)


def _sign(difference: float, overlap: float) -> Verdict:
    if abs(difference) <= overlap:
        return "not decided"
    return "holds" if difference > 0 else "does not hold"


def _collapse(cell: Sample, difference: float, overlap: float, untrained: Sample | None) -> Verdict:
    worse = _sign(-difference, overlap)
    if cell.runs is not None and cell.collapsed == cell.runs:
        return worse
    if untrained is None:
        return worse
    learnt = _sign(cell.mean - untrained.mean, (cell.std or 0.0) + (untrained.std or 0.0))
    return "does not hold" if learnt == "holds" else worse


def _health(cell: Sample, untrained: Sample | None) -> str:
    said = ""
    if untrained is not None:
        said += f"; untrained {untrained}"
    if cell.runs is not None:
        said += f"; collapsed in {cell.collapsed} of {cell.runs} runs"
    if cell.spread is not None:
        said += f", features at {100 * cell.spread:.0f} % of a healthy spread"
    return said
