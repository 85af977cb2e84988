"""The eigenspace-alignment figure of the paper (figure 3) from what a real run logged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ssl_hub.errors import UsageError
from ssl_hub.theory.figures import render
from ssl_hub.theory.painting import BLUE, VERMILION
from ssl_hub.theory.prediction import Prediction

Record = dict[str, Any]  # a line of metrics.jsonl


def draw_run(records: Sequence[Record], out: str | Path, *, name: str, prediction: Prediction | None = None) -> Path:
    """Eigenvalues of F and of the predictor over training, their alignment, and the predictor's asymmetry.

    Args:
        records: of metrics.jsonl; those with a ``spectrum`` are used.
        out: a .png, .pdf or .svg file.
        name: what the run is called in the footer.
        prediction: drawn over the eigenvalues, dashed; at the steps of the spectra, and others.

    Raises:
        UsageError: fewer than two spectra, or a format that is not drawn.
    """
    logged = [record for record in records if record.get("spectrum")]
    if len(logged) < 2:
        raise UsageError(
            f"{name} has logged {len(logged)} spectra, expected two or more: one is logged at the end of each epoch,"
            " for projections of width 512 at most"
        )
    has_matrix = all("predictor" in record["spectrum"] for record in logged)
    height = 2.3
    footer = [
        f"{name}: eigenvalues of the correlation matrix $F$ of a batch"
        + (
            ", of the symmetric part of the predictor $W_p$, |cos| between each eigenvector $u$ of $F$ and $W_p u$"
            " (lines: quartiles), and $\\|W_p - W_p^T\\| / 2 \\|W_p\\|$."
            if has_matrix
            else ". The predictor is no matrix, so it has no spectrum."
        )
    ]
    if prediction is not None:
        footer.append(
            "Dashed: predicted by the theory from the network before its first step. Under the cosine, steps of finite"
            " size raise the scale of $F$, which the flow leaves as it is."
        )
    return render(lambda figure: _paint(figure, logged, has_matrix, prediction), Path(out), footer, height=height)


def _paint(figure: Any, logged: Sequence[Record], has_matrix: bool, prediction: Prediction | None) -> None:
    epochs = np.array([record["epoch"] for record in logged])
    spectra = [record["spectrum"] for record in logged]
    panels = figure.subplots(1, 4 if has_matrix else 1, squeeze=False)[0]
    correlation = np.array([spectrum["correlation"] for spectrum in spectra])
    visible = np.maximum(correlation, correlation.max() * 1e-9)  # rounding can leave eigenvalues below zero
    panels[0].semilogy(epochs, visible, color=BLUE, linewidth=0.5, alpha=0.6)
    panels[0].set(title="eigenvalues of $F$", xlabel="epoch")
    if prediction is not None:
        at = np.isin(prediction.steps, [record["step"] for record in logged])
        for panel, values in zip(panels[: 1 + has_matrix], (prediction.s, prediction.p), strict=False):
            least = correlation.max() * 1e-9 if panel is panels[0] else -np.inf
            shown = np.maximum(np.sort(values[at], axis=1), least)
            panel.plot(epochs, shown, color=VERMILION, linewidth=0.5, linestyle=(0, (4, 2)), alpha=0.8)
    if not has_matrix:
        return
    panels[1].plot(epochs, [spectrum["predictor"] for spectrum in spectra], color=BLUE, linewidth=0.5, alpha=0.6)
    panels[1].set(title="eigenvalues of $W_p$", xlabel="epoch")
    alignment = np.array([spectrum["alignment"] for spectrum in spectra])
    for share, dashes in ((25, (0, (2, 1.2))), (50, "-"), (75, (0, (5, 1.5)))):
        panels[2].plot(epochs, np.percentile(alignment, share, axis=1), color=VERMILION, linestyle=dashes)
    panels[2].set(title="alignment", xlabel="epoch", ylim=(0, 1.05))
    panels[3].plot(epochs, [record["asymmetry"] for record in logged], color="black")
    top = max(0.1, 1.1 * max(record["asymmetry"] for record in logged))
    panels[3].set(title="asymmetry of $W_p$", xlabel="epoch", ylim=(0, top))
