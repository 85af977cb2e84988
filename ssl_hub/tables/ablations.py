"""The STL-10 ablations of Tian et al. 2021 (arXiv 2102.06810), 100 epochs each: a function for each table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from ssl_hub.config import Scalar
from ssl_hub.tables.cells import Cell, Claim, Table, top1

Overrides = Mapping[str, Scalar]
Factor = Mapping[str, Overrides]  # the settings behind each label of a row or column
Number = tuple[float, float]  # mean, std

AUTHORS = "linear-authors-small"
LINEAR, TWO_LAYER, DIRECT = "byol-linear-r18-stl10-100ep", "byol-r18-stl10-100ep", "directpred-r18-stl10-100ep"

EMA: Factor = {"EMA": {}, "no EMA": {"target.kind": "stopgrad"}}
BIAS: Factor = {"no bias": {"predictor.bias": False}, "bias": {"predictor.bias": True}}
SYMMETRISED: Factor = {"symmetric": {"predictor.kind": "symmetric"}, "regular": {}}
REGULAR: Factor = {"regular": {}}
NO_DECAY: Overrides = {"optim.weight_decay": 0.0}


def crossed(*factors: Factor) -> Factor:
    """Every combination of the labels, joined by commas, the last factor running fastest."""
    return {
        ", ".join(label for label, _ in chosen): {key: value for _, part in chosen for key, value in part.items()}
        for chosen in product(*(factor.items() for factor in factors))
    }


def grid(recipe: str, rows: Factor, columns: Factor, numbers: Sequence[Sequence[Number]]) -> list[Cell]:
    """Cells row by row, as ``numbers`` are."""
    return [
        top1(row, column, recipe, AUTHORS, number, {**in_row, **in_column})
        for (row, in_row), row_numbers in zip(rows.items(), numbers, strict=True)
        for (column, in_column), number in zip(columns.items(), row_numbers, strict=True)
    ]


def collapses(text: str, setting: str) -> Claim:
    """The symmetric predictor of a setting, beside the regular one."""
    return Claim(text, "collapses", f"{setting}, symmetric", f"{setting}, regular")


def optimal_predictor() -> Table:
    return Table(
        name="optimal-predictor",
        title="STL-10, linear predictor set to its regularised optimum every N steps: top-1 (%)",
        source="tab:optimal-do-not-work",
        repeats=5,
        cells=grid(
            LINEAR,
            EMA,
            {f"every {n}": {"predictor.kind": "optimal", "predictor.freq": n} for n in (1, 2, 3, 5)},
            (
                ((40.67, 0.50), (35.29, 2.49), (34.60, 0.98), (35.63, 2.66)),
                ((39.45, 1.26), (34.01, 1.54), (34.58, 2.93), (32.22, 2.94)),
            ),
        ),
        notes=(
            "The regularisation and the rate of the moving averages are not printed: defaults are used.",
            "The caption gives 74 to 75 for a linear predictor trained by gradients.",
        ),
    )


def no_weight_decay() -> Table:
    return Table(
        name="no-weight-decay",
        title="STL-10, linear predictor without weight decay: top-1 (%)",
        source="tab:no-weight-decay",
        repeats=5,
        cells=[
            *grid(
                LINEAR,
                crossed({"no decay": NO_DECAY}, EMA, BIAS),
                REGULAR,
                (((70.62, 1.05),), ((70.99, 1.01),), ((71.36, 0.44),), ((71.37, 0.77),)),
            ),
            *grid(LINEAR, {"decay, EMA, no bias": {}}, REGULAR, (((74.51, 0.47),),)),
        ],
        claims=[
            Claim("weight decay helps", "above", "decay, EMA, no bias, regular", "no decay, EMA, no bias, regular"),
        ],
    )


def symmetrisation() -> Table:
    claims = []
    for predictor, bias in product(("linear", "two-layer"), BIAS):
        ema, alone = (f"{predictor}, {label}, {bias}" for label in EMA)
        better, worse = ("symmetric", "regular") if predictor == "linear" else ("regular", "symmetric")
        helps = f"EMA helps the regular {predictor} predictor ({bias})"
        said = f"with EMA the {better} {predictor} predictor does better than the {worse} one ({bias})"
        claims += [
            collapses(f"a symmetric {predictor} predictor without EMA collapses ({bias})", alone),
            Claim(helps, "above", f"{ema}, regular", f"{alone}, regular"),
            Claim(said, "above", f"{ema}, {better}", f"{ema}, {worse}"),
        ]
    return Table(
        name="symmetrisation",
        title="STL-10, symmetrised predictors with and without EMA: top-1 (%)",
        source="tab:symmetric-no-EMA-does-not-work",
        repeats=5,
        cells=[
            *grid(
                LINEAR,
                crossed({"linear": {}}, EMA, BIAS),
                SYMMETRISED,
                (
                    ((75.09, 0.48), (74.51, 0.47)),
                    ((74.52, 0.29), (74.16, 0.33)),
                    ((36.62, 1.85), (72.85, 0.16)),
                    ((36.04, 2.74), (72.13, 0.53)),
                ),
            ),
            *grid(
                TWO_LAYER,
                crossed({"two-layer": {}}, EMA, BIAS),
                {"symmetric": {"predictor.kind": "symmetric", "predictor.layers": 2}, "regular": {}},
                (
                    ((71.58, 6.46), (78.85, 0.25)),
                    ((77.64, 0.41), (78.53, 0.34)),
                    ((35.59, 2.10), (65.98, 0.71)),
                    ((41.92, 4.25), (65.59, 0.66)),
                ),
            ),
        ],
        claims=claims,
    )


def predictor_decay() -> Table:
    decay: Factor = {
        "predictor decay": {**NO_DECAY, "optim.predictor_weight_decay": 4e-4},
        "no decay": {**NO_DECAY, "optim.predictor_weight_decay": 0.0},
    }
    claims = []
    for bias in BIAS:
        decayed, free = (f"{label}, no EMA, {bias}" for label in decay)
        said = f"weight decay on the predictor alone saves it ({bias})"
        claims += [
            collapses(f"a symmetric predictor without EMA collapses without weight decay ({bias})", free),
            Claim(said, "above", f"{decayed}, symmetric", f"{free}, symmetric"),
        ]
    return Table(
        name="predictor-decay",
        title="STL-10, linear predictor, weight decay on the predictor alone or nowhere: top-1 (%)",
        source="tab:symmetric-no-EMA-works",
        repeats=5,
        cells=grid(
            LINEAR,
            crossed(decay, EMA, BIAS),
            SYMMETRISED,
            (
                ((71.91, 0.70), (70.54, 0.93)),
                ((73.67, 0.47), (70.89, 0.98)),
                ((71.12, 0.71), (71.34, 0.63)),
                ((73.01, 0.37), (71.70, 0.83)),
                ((71.76, 0.28), (70.62, 1.05)),
                ((71.86, 0.39), (70.99, 1.01)),
                ((43.04, 2.32), (71.36, 0.44)),
                ((41.36, 3.33), (71.37, 0.77)),
            ),
        ),
        claims=claims,
    )


def rho_and_eps() -> Table:
    return Table(
        name="rho-eps",
        title="STL-10, DirectPred by rho and eps: top-1 (%)",
        source="tab:direct-set-wp",
        repeats=5,
        cells=grid(
            DIRECT,
            {f"rho={rho}": {"predictor.rho": rho} for rho in (0.3, 0.5)},
            {f"eps={eps:g}": {"predictor.eps": eps} for eps in (0.0, 0.01, 0.1, 0.5)},
            (
                ((76.77, 0.24), (77.11, 0.35), (77.86, 0.16), (75.06, 1.10)),
                ((76.65, 0.20), (76.76, 0.33), (77.56, 0.25), (75.22, 0.81)),
            ),
        ),
        claims=[
            Claim(f"eps=0.1 does better than eps={eps} ({rho})", "above", f"{rho}, eps=0.1", f"{rho}, eps={eps}")
            for rho, eps in product(("rho=0.3", "rho=0.5"), ("0", "0.01", "0.5"))
        ],
    )


def eigenvalue_shift() -> Table:
    return Table(
        name="eigenvalue-shift",
        title="STL-10, DirectPred with p = sqrt(max(s - c, 0)): top-1 (%)",
        source="tab:different-cj",
        repeats=5,
        cells=grid(
            DIRECT,
            {f"freq={n}": {"predictor.freq": n, "predictor.eps": 0.0} for n in (1, 2)},
            {f"c={c}": {"predictor.c": c} for c in (0.1, 0.05, -0.05, -0.1)},
            (
                ((46.57, 18.43), (65.31, 18.22), (77.11, 0.66), (76.46, 0.55)),
                ((75.01, 0.48), (75.10, 0.35), (76.83, 0.52), (76.31, 0.27)),
            ),
        ),
        claims=[
            Claim("c > 0 hurts (freq=1)", "above", "freq=1, c=-0.05", "freq=1, c=0.1"),
            Claim("c > 0 hurts (freq=2)", "above", "freq=2, c=-0.05", "freq=2, c=0.1"),
            Claim("gradient steps between soften it", "above", "freq=2, c=0.1", "freq=1, c=0.1"),
        ],
        notes=("c is in units of the largest eigenvalue, as in the authors' code.",),
    )


def tables() -> list[Table]:
    made = (optimal_predictor, no_weight_decay, symmetrisation, predictor_decay, rho_and_eps, eigenvalue_shift)
    return [table() for table in made]
