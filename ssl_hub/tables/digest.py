"""What the paper claims on STL-10, in one table: a cell of each setting, picked from its tables, and what it shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ssl_hub.config import Scalar
from ssl_hub.tables.ablations import AUTHORS, LINEAR
from ssl_hub.tables.cells import Cell, Claim, Kind, Table

PICKED = {  # by the name here: the table and the name there
    "DirectPred": ("long-stl10", "DirectPred, 100 epochs"),
    "DirectPred, freq 5": ("long-stl10", "DirectPred, freq 5, 100 epochs"),
    "DirectPred, rho=0.5": ("rho-eps", "rho=0.5, eps=0.1"),
    "DirectPred, eps=0": ("rho-eps", "rho=0.3, eps=0"),
    "DirectPred, eps=0.5": ("rho-eps", "rho=0.3, eps=0.5"),
    "two-layer": ("symmetrisation", "two-layer, EMA, no bias, regular"),
    "two-layer, no EMA": ("symmetrisation", "two-layer, no EMA, no bias, regular"),
    "linear": ("symmetrisation", "linear, EMA, no bias, regular"),
    "linear, no EMA": ("symmetrisation", "linear, no EMA, no bias, regular"),
    "linear, no weight decay": ("no-weight-decay", "no decay, EMA, no bias, regular"),
    "symmetric": ("symmetrisation", "linear, EMA, no bias, symmetric"),
    "symmetric, no EMA": ("symmetrisation", "linear, no EMA, no bias, symmetric"),
    "symmetric, no EMA, no weight decay": ("predictor-decay", "no decay, no EMA, no bias, symmetric"),
    "symmetric, no EMA, predictor decay": ("predictor-decay", "predictor decay, no EMA, no bias, symmetric"),
}
EPOCHS = "100 epochs"
FAST = "symmetric, no EMA, fast predictor"


def _claim(text: str, kind: Kind, cell: str, than: str) -> Claim:
    return Claim(text, kind, f"{cell}, {EPOCHS}", f"{than}, {EPOCHS}")


CLAIMS = (
    _claim("DirectPred does better than a trained linear predictor", "above", "DirectPred", "linear"),
    _claim("DirectPred does as well as a two-layer predictor", "matches", "DirectPred", "two-layer"),
    _claim("setting it at every fifth step does as well", "matches", "DirectPred, freq 5", "DirectPred"),
    _claim("eps=0.1 does better than eps=0", "above", "DirectPred", "DirectPred, eps=0"),
    _claim("eps=0.1 does better than eps=0.5", "above", "DirectPred", "DirectPred, eps=0.5"),
    _claim("rho=0.5 does as well as rho=0.3", "matches", "DirectPred, rho=0.5", "DirectPred"),
    _claim("EMA helps the linear predictor", "above", "linear", "linear, no EMA"),
    _claim("EMA helps the two-layer predictor", "above", "two-layer", "two-layer, no EMA"),
    _claim("weight decay helps", "above", "linear", "linear, no weight decay"),
    _claim("with EMA the symmetric predictor does better than the regular one", "above", "symmetric", "linear"),
    _claim("a symmetric predictor without EMA collapses", "collapses", "symmetric, no EMA", "linear, no EMA"),
    _claim(
        "weight decay on the predictor alone saves it",
        "above",
        "symmetric, no EMA, predictor decay",
        "symmetric, no EMA, no weight decay",
    ),
    _claim("a larger learning rate of the predictor saves it", "above", FAST, "symmetric, no EMA"),
)


def digest(tables: Mapping[str, Table]) -> Table:
    """The cells of ``PICKED`` with their printed numbers, and one that the paper has in a figure without numbers."""
    cells = [replace(tables[table][name], row=here, column=EPOCHS) for here, (table, name) in PICKED.items()]
    faster: dict[str, Scalar] = {
        "predictor.kind": "symmetric",
        "target.kind": "stopgrad",
        "optim.predictor_lr_ratio": 10.0,
    }
    cells.append(Cell(FAST, EPOCHS, LINEAR, AUTHORS, faster, {"top1": None}))
    return Table(
        name="claims",
        title="STL-10, what the paper claims, 100 epochs: top-1 (%)",
        source="five of its tables",
        repeats=5,
        cells=cells,
        claims=CLAIMS,
        notes=(
            "The trained linear predictor has 74.51 in the paper's table of symmetrised predictors and 75.06 in that of"
            " longer training: the first is here.",
            "The fast predictor has ten times the learning rate: the paper shows larger ones in a figure alone.",
        ),
    )
