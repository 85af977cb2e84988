"""Health of a run from what the step computed anyway: do features still spread, does the predictor follow F?"""

from __future__ import annotations

import math
from typing import Any

import torch

from ssl_hub.model.health import PATIENCE, is_low
from ssl_hub.model.predictors import Predictor
from ssl_hub.model.spectrum import (
    alignment,
    asymmetry,
    effective_rank,
    eigvalsh,
    feature_std,
    healthy_std,
    symmetrise,
)
from ssl_hub.train.step import Report

WIDEST_SPECTRUM = 512  # projections wider than this log no spectrum: it would swell the metrics


@torch.no_grad()
def spectrum(projections: torch.Tensor, predictor: Predictor) -> dict[str, list[float]] | None:
    """What the paper's figure 3 draws, at one moment: None for projections wider than 512.

    ``correlation``: eigenvalues of F of this batch [D], ascending. For a predictor that is a matrix also ``predictor``,
    the eigenvalues of its symmetric part [D], and ``alignment``, |cos(u, W u)| for each eigenvector u of F [D].
    """
    f = projections.float()
    if f.shape[-1] > WIDEST_SPECTRUM or not torch.isfinite(f).all():
        return None
    correlation = symmetrise(f.mT @ f) / len(f)
    found = {"correlation": eigvalsh(correlation)}
    matrix = predictor.matrix()
    if matrix is not None:
        found["predictor"] = eigvalsh(symmetrise(matrix.float()))
        found["alignment"] = alignment(matrix.float(), correlation)
    return {name: [float(f"{value:.5g}") for value in values.tolist()] for name, values in found.items()}


class Monitor:
    """Turns a step's report into numbers, and remembers whether features have collapsed.

    What the verdict rests on is its state, which belongs into a checkpoint: a resumed run goes on counting.
    """

    def __init__(self) -> None:
        self._low_in_a_row = 0

    def state_dict(self) -> dict[str, int]:
        return {"low_in_a_row": self._low_in_a_row}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._low_in_a_row = int(state["low_in_a_row"])

    @property
    def collapsed(self) -> bool:
        return self._low_in_a_row >= PATIENCE

    @torch.no_grad()
    def read(self, report: Report, predictor: Predictor, *, spectra: bool = True) -> dict[str, Any]:
        """Feature std (healthy near 1/sqrt D), from which the verdict comes; with ``spectra``, which take
        decompositions, the effective rank of the batch's correlation matrix in [1, D], its largest eigenvalue, and for
        a predictor that is a matrix its alignment with that matrix and its asymmetry."""
        f = report.projections.float()
        width = f.shape[-1]
        std = float(feature_std(f))
        reading: dict[str, Any] = {"feature_std": std, "healthy_std": healthy_std(width)}
        if spectra and math.isfinite(std) and torch.isfinite(correlation := symmetrise(f.mT @ f) / len(f)).all():
            eigenvalues = eigvalsh(correlation)
            reading["effective_rank"] = float(effective_rank(eigenvalues))
            reading["eigenvalue_max"] = float(eigenvalues[-1])
            matrix = predictor.matrix()
            if matrix is not None:
                reading["alignment"] = float(alignment(matrix.float(), correlation).mean())
                reading["asymmetry"] = float(asymmetry(matrix.float()))
        if math.isfinite(std):  # features that are not finite are no sign of collapse, nor of health
            self._low_in_a_row = self._low_in_a_row + 1 if is_low(std, healthy_std(width)) else 0
        return reading
