"""The tables of Richemond et al. 2023 (arXiv 2302.04817): predictors in closed form on ImageNet, by ridge."""

from __future__ import annotations

from collections.abc import Mapping

from ssl_hub.config import Scalar
from ssl_hub.tables.cells import Claim, Table, top1

PROTOCOL = "linear-byol"
RIDGES = (0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9)
AFTER: dict[int, Mapping[str, Scalar]] = {
    100: {"train.epochs": 100, "optim.lr": 0.45},
    300: {},
}  # BYOL's released rates
ROWS = {
    "DirectCopy": (
        "directcopy",
        {100: (20.9, 65.8, 67.3, 67.4, 67.5, 67.4, 67.4), 300: (48.3, 71.1, 71.4, 71.3, 71.2, 71.5, 71.4)},
    ),
    "NS": (
        "newton-schulz",
        {100: (66.4, 66.4, 66.7, 67.1, 67.6, 67.8, 68.0), 300: (70.8, 71.7, 72.0, 72.0, 71.9, 72.0, 71.9)},
    ),
    "NS squared": (
        "newton-schulz-2",
        {100: (66.8, 68.2, 68.6, 68.6, 68.7, 68.7, 68.8), 300: (70.9, 72.0, 72.1, 72.0, 72.2, 72.1, 72.1)},
    ),
    "Stiefel": (
        "stiefel",
        {100: (66.7, 67.7, 68.8, 68.7, 68.7, 68.7, 68.7), 300: (71.4, 72.0, 72.1, 72.1, 72.0, 72.0, 72.1)},
    ),
}
TRAINED = {100: 67.6, 300: 71.5}
BEST = {("NS squared", 100): 0.9, ("NS squared", 300): 0.6, ("Stiefel", 100): 0.3, ("Stiefel", 300): 0.3}


def closed_form() -> Table:
    rows = [
        (f"{row}, {epochs} epochs", f"{method}-r50-300ep", settings, numbers[epochs])
        for epochs, settings in AFTER.items()
        for row, (method, numbers) in ROWS.items()
    ]
    return Table(
        name="closed-form",
        title="ImageNet, ResNet-50, predictors in closed form by ridge: top-1 (%)",
        source="tables of 100 and of 300 epochs",
        paper="Richemond et al. 2023 (arXiv 2302.04817)",
        repeats=3,
        cells=[
            top1(row, f"eps={ridge:g}", recipe, PROTOCOL, (value,), {"predictor.eps": ridge, **settings})
            for row, recipe, settings, numbers in rows
            for ridge, value in zip(RIDGES, numbers, strict=True)
        ]
        + [
            top1(f"trained linear, {n} epochs", "no ridge", "byol-linear-r50-300ep", PROTOCOL, (TRAINED[n],), settings)
            for n, settings in AFTER.items()
        ],
        claims=[
            Claim(
                f"{row} does better than a trained linear predictor ({epochs} epochs)",
                "above",
                f"{row}, {epochs} epochs, eps={ridge:g}",
                f"trained linear, {epochs} epochs, no ridge",
            )
            for (row, epochs), ridge in BEST.items()
        ],
        notes=(
            "The ridge is the paper's alpha, which the predictors here call eps. Means of 3 seeds, without their"
            " spread.",
            "Visser's iteration and the Neumann expansion are left out: the main text gives neither the steps of the"
            " one nor the normalisation that the other rests on.",
        ),
    )
