"""The flow of the training against the discrete training of a linear network, by learning rate: docs/theory.md.

python benchmarks/flow_error.py

The data is every pattern of signs, so that a batch is the population, E[f f^T] has no error, and each sample's
projection has the same norm: what is left between flow and training is the size of a step. Gaussian data has the same
moments and projections of all norms; the more modes, the less these differ.
"""

import json
import sys
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ssl_hub.atomic import replace_file
from ssl_hub.theory.discrete import LinearTraining, PredictorRule, population_moments
from ssl_hub.theory.discrete import Loss as DiscreteLoss
from ssl_hub.theory.flow import Array
from ssl_hub.theory.integrate import simulate
from ssl_hub.theory.modes import ResetPredictorFlow, SetPredictorFlow, TrainedPredictorFlow, set_from

OUT = Path(__file__).parent / "results" / "flow_error.json"
LRS = (0.1, 0.05, 0.025, 0.0125, 0.00625)
GAUSSIAN_LR = 0.025
TIME, READINGS = 8.0, 8
EPS, RHO, BETA, ETA = 0.1, 0.3, 0.4, 0.01
R = np.array([1.0, 0.9, 0.7, 0.5])  # agreement of the views in each mode
DEVIATION = np.array([1.5, 1.0, 0.8, 1.2])  # of the input in each mode
W0 = np.array([0.9, 0.5, 0.4, 0.2])
P0 = np.array([0.3, 0.5, 0.2, 0.6])


class Case(NamedTuple):
    predictor: PredictorRule
    loss: DiscreteLoss
    freq: int = 1
    momentum: float = 0.0


CASES = {
    "DirectPred, cosine": Case("direct", "cosine"),
    "DirectPred, cosine, momentum 0.9": Case("direct", "cosine", momentum=0.9),
    "DirectPred, cosine, freq 5": Case("direct", "cosine", freq=5),
    "DirectPred, squared": Case("direct", "squared"),
    "trained, cosine": Case("regular", "cosine"),
    "trained, squared": Case("regular", "squared"),
}


def signs(copies: int = 20) -> tuple[Array, Array]:
    """Two views, (16 * copies, 4): all patterns of signs, of which a share (1 - r) / 2 is flipped in the second."""
    first = np.repeat(np.array(list(product((-1.0, 1.0), repeat=len(R)))), copies, axis=0)
    kept = np.ones((copies, len(R)))
    for j, flipped in enumerate(np.rint((1 - R) / 2 * copies).astype(int)):
        kept[np.arange(3 * j, 3 * j + flipped) % copies, j] = -1
    return first * DEVIATION, first * np.tile(kept, (2 ** len(R), 1)) * DEVIATION


def gaussian(samples: int = 4096, *, repeats: int = 1) -> tuple[Array, Array]:
    """The same moments from Gaussian data, each mode `repeats` times over; a batch has them exactly."""
    r, deviation = np.tile(R, repeats), np.tile(DEVIATION, repeats)
    draws = np.random.default_rng(0).standard_normal((samples, 2 * len(r)))
    white = draws @ np.linalg.inv(np.linalg.cholesky(draws.T @ draws / samples)).T
    shared, own = np.split(white, 2, axis=1)
    one, two = (np.sqrt((1 + r) / 2) * shared + sign * np.sqrt((1 - r) / 2) * own for sign in (1, -1))
    return one * deviation, two * deviation


def error(name: str, lr: float, views: tuple[Array, Array] | None = None) -> float:
    """The largest difference between an eigenvalue of F in training and in the flow, in units of the largest of all.

    `lr` is the time of a step, lr / (1 - momentum) of SGD.
    """
    case, (one, two) = CASES[name], signs() if views is None else views
    repeats = one.shape[1] // len(R)
    deviation, w, p = (np.tile(values, repeats) for values in (DEVIATION, W0, P0))
    X = population_moments(one, two)[0]
    r, of = np.diag(X) / deviation**2, set_from(eps=EPS)
    steps = round(TIME / READINGS / lr)
    basis = np.linalg.qr(np.random.default_rng(1).standard_normal((len(w), len(w))))[0]
    start = of(w**2) if case.predictor == "direct" else p
    run = LinearTraining(
        W=basis * (w / deviation),
        Wp=(basis * start) @ basis.T,
        Wa=basis * (0.7 * w / deviation),
        lr=lr * (1 - case.momentum),
        momentum=case.momentum,
        weight_decay=ETA,
        ema_m=1 - BETA * lr,
        predictor=case.predictor,
        freq=case.freq,
        rho=RHO,
        eps=EPS,
        loss=case.loss,
    )
    trained = []
    for _ in range(READINGS):
        for _ in range(steps):
            run.step(one, two)
        scaled = run.W * deviation
        trained.append(np.linalg.eigvalsh(scaled @ scaled.T))

    settings: dict[str, Any] = {"r": r, "gain": deviation**2, "eta": ETA, "beta": BETA}
    settings |= {"rate": 4.0, "loss": "normalised"} if case.loss == "cosine" else {"rate": 1.0, "loss": "squared"}
    average = {"map": of, "averaging": (1 - RHO) / lr}
    init: dict[str, Any] = {"w": w, "wa": 0.7 * w}
    flow: SetPredictorFlow | ResetPredictorFlow | TrainedPredictorFlow
    if case.predictor != "direct":
        flow, init["wp"] = TrainedPredictorFlow(**settings, eta_p=ETA), start
    elif case.freq == 1:
        flow, init["average"] = SetPredictorFlow(**settings, **average), w**2
    else:
        flow = ResetPredictorFlow(**settings, **average, eta_p=ETA, resetting=2 / ((case.freq - 1) * lr))
        init |= {"wp": start, "average": w**2}
    times = lr * steps * np.arange(1, READINGS + 1)
    predicted = np.sort(simulate(flow, init, times, rtol=1e-9, atol=1e-12, stiff=True)["w"] ** 2, axis=1)
    return float(np.abs(predicted - np.array(trained)).max() / np.max(trained))


def main() -> None:
    found = {name: [error(name, lr) for lr in LRS] for name in CASES}
    spread = {repeats: error("DirectPred, cosine", GAUSSIAN_LR, gaussian(repeats=repeats)) for repeats in (1, 4, 16)}
    record = {
        "learning_rates": LRS,
        "errors": found,
        "gaussian": {"learning_rate": GAUSSIAN_LR, "by_modes": {str(4 * n): value for n, value in spread.items()}},
    }
    replace_file(OUT, (json.dumps(record, indent=1) + "\n").encode())
    print(json.dumps(record, indent=1), file=sys.stderr)


if __name__ == "__main__":
    main()
