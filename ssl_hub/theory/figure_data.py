"""The numbers of each figure, without drawing: `figures` draws them, tests check them.

Every function takes the figure's parameters as keywords, with the values that the paper states as defaults, or a choice
of ours where it states none (named in the docstring), and returns a dict of arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ssl_hub.theory import fixed_points, lowdim
from ssl_hub.theory.decoupled import DecoupledEmaFlow, DecoupledFlow, K_eigenvalue, ParabolaFlow
from ssl_hub.theory.derived import norm, proportionality
from ssl_hub.theory.discrete import euler
from ssl_hub.theory.dynamics import (
    BalancedPredictorFlow,
    ByolFlow,
    PredictorCorrelationFlow,
    as_isotropic,
    skew_part,
    symmetric_part,
)
from ssl_hub.theory.flow import Array, Flow
from ssl_hub.theory.integrate import simulate
from ssl_hub.theory.observations import relative_commutator

Data = dict[str, Any]
Curves = dict[str, Array]


def statespace(
    *,
    etas: Sequence[float] = (0.0, 0.01, 1.0),
    sigma2: float = 0.0,
    alpha_p: float = 1.0,
    tau: float = 1.0,
    p_range: tuple[float, float] = (-0.5, 1.5),
    s_max: float = 1.5,
    lines_per_side: int = 9,
) -> Data:
    """State space of (p, s): flow lines, fixed points and the parabola s = p^2 / alpha_p, a panel for each eta.

    sigma2, the ranges and the seeds of the flow lines are ours. `lines` is (2, T, N), (p, s) along N flow lines;
    `points` are isolated fixed points (p, s, stability); without decay `branches` are lines of them instead.
    """
    low, high = p_range
    edge, side = np.linspace(low, high, 2 * lines_per_side), np.linspace(0.1, s_max, lines_per_side)
    start_p = np.concatenate([edge, np.full_like(side, low), np.full_like(side, high), edge])
    start_s = np.concatenate([np.full_like(edge, s_max), side, side, np.full_like(edge, 0.03 * s_max)])
    goal = tau / (1 + sigma2)
    panels = []
    for eta in etas:
        flow = DecoupledFlow(sigma2=sigma2, alpha_p=alpha_p, eta=eta, tau=tau)
        t = np.concatenate([[0.0], np.geomspace(0.01, 60.0 / max(eta, 0.05), 240)])
        path = simulate(flow, {"p": start_p, "s": start_s}, t, rtol=1e-8, atol=1e-11)
        points, branches = [], []
        if eta > 0:
            points = [(*at.state.values(), at.stability) for at in fixed_points.decoupled_fixed_points(flow)]
        else:
            branches = [
                ([low, 0.0], [0.0, 0.0], "stable"),
                ([0.0, goal], [0.0, 0.0], "unstable"),
                ([goal, high], [0.0, 0.0], "stable"),
                ([goal, goal], [0.0, s_max], "stable"),
            ]
        panels.append({"eta": eta, "lines": np.stack([path["p"], path["s"]]), "points": points, "branches": branches})
    p = np.linspace(low, high, 201)
    return {"panels": panels, "p": p, "parabola": p**2 / alpha_p, "p_range": p_range, "s_max": s_max}


def stationary(
    *,
    etas: Sequence[float] = (0.0, 0.1, 0.3),
    sigma2: float = 0.0,
    tau: float = 1.0,
    p_range: tuple[float, float] = (-0.3, 1.2),
) -> Data:
    """p' against p on the invariant parabola, with fixed points; a panel for each eta (values ours).

    Stability is `stable`, `unstable` or `half-stable`. Erratum: the paper calls p = 0 at eta = 0 a saddle; on a line
    it is half-stable: it repels p > 0 and attracts p < 0.
    """
    p = np.linspace(*p_range, 301)
    panels = []
    for eta in etas:
        flow = ParabolaFlow(sigma2=sigma2, eta=eta, tau=tau)
        values = fixed_points.parabola_thresholds(sigma2=sigma2, eta=eta, tau=tau)
        merged = values.p_plus == values.p_minus
        points = [(0.0, "stable" if eta > 0 else "half-stable")]
        if eta > 0 and not values.collapse_is_certain:
            points.append((values.p_minus, "half-stable" if merged else "unstable"))
        if not values.collapse_is_certain and not merged:
            points.append((values.p_plus, "stable"))
        panels.append({"eta": eta, "velocity": flow.velocity(p)[0], "points": points})
    return {"p": p, "panels": panels}


def ablation(
    *,
    etas: Sequence[float] = (0.0, 0.01, 0.04, 0.1, 0.15, 0.25),
    betas: Sequence[float] = (0.01, 0.05, 0.1, 0.4, 1.0, 100.0),
    eta: float = 0.04,
    beta: float = 0.4,
    sigma2: float = 0.0009,
    alpha_p: float = 1.0,
    alpha: float = 0.01,
    p0: float = 0.2,
    tau0: float = 0.0,
    steps: int = 20000,
    samples: int = 400,
) -> Data:
    """Roles of eta and beta: K, p, s and tau of one mode over Euler steps, from the parabola with tau(0) = 0.

    The paper gives alpha, beta (top row) and eta (bottom row); the lists, sigma2, p0 and the steps are ours.
    `eta_row` and `beta_row` map each value to {K, p, s, tau}, arrays over `step`.
    """
    count = np.unique(np.concatenate([[0], np.geomspace(1, steps, samples).astype(int)]))

    def run(eta: float, beta: float) -> Curves:
        flow = DecoupledEmaFlow(sigma2=sigma2, alpha_p=alpha_p, eta=eta, beta=beta)
        path = euler(flow, {"p": p0, "s": p0**2 / alpha_p, "tau": tau0}, alpha, count.tolist())
        K = K_eigenvalue(path["p"], path["s"], sigma2=sigma2, alpha_p=alpha_p, eta=eta, tau=path["tau"])
        return {"K": K, **path.states}

    return {
        "step": count,
        "eta_row": {value: run(value, beta) for value in etas},
        "beta_row": {value: run(eta, value) for value in betas},
    }


def ema_assumption(
    *,
    etas: Sequence[float] = (0.0, 0.01, 0.1),
    gammas: Sequence[float] = (0.9, 0.99, 0.996, 0.999),
    sigma2: float = 0.0009,
    alpha: float = 0.1,
    n: int = 10,
    runs: int = 10,
    steps: int = 4000,
    samples: int = 120,
    seed: int = 0,
) -> Data:
    """Assumption 1, Wa = tau W: normalised correlation <Wa, W> / (|Wa| |W|) over Euler steps of Lemma 1, Wa(0) = 0.

    beta = (1 - gamma) / alpha. alpha, n and the Gaussian start N(0, 1/n) are ours: with alpha = 0.01 every curve stays
    above 0.99. `panels[eta][gamma]` is {mean, std} over the runs, arrays over `step`.
    """
    Wp, W = np.random.default_rng(seed).standard_normal((2, runs, n, n)) / np.sqrt(n)
    count = np.unique(np.geomspace(1, steps, samples).astype(int))

    def run(eta: float, gamma: float) -> Curves:
        flow = ByolFlow(**as_isotropic(n, sigma2), eta=eta, beta=(1 - gamma) / alpha)
        path = euler(flow, {"Wp": Wp, "W": W, "Wa": np.zeros_like(W)}, alpha, count.tolist())
        correlation = proportionality(path["W"], path["Wa"])[1]
        return {"mean": correlation.mean(axis=1), "std": correlation.std(axis=1)}

    return {"step": count, "panels": _crossed(run, etas, gammas)}


def symmetric_and_skew(
    *,
    etas: Sequence[float] = (0.001, 0.01, 0.05),
    taus: Sequence[float] = (0.1, 0.3, 0.5, 0.7, 1.0),
    sigma2: float = 0.0,
    alpha_p: float = 1.0,
    d: int = 8,
    scale: float = 0.5,
    t_end: float = 1000.0,
    samples: int = 160,
    seed: int = 0,
) -> Data:
    """|A| and |B| of Wp = A + B over time on F = Wp^T Wp / alpha_p, a row for each eta; taus, d, start and t_end ours.

    `rows[eta][tau]` is {A, B}, Frobenius norms over `t`. A mode survives iff eta < tau^2 / 4k; |A| then tends to
    sqrt(surviving modes) p_+.
    """
    Wp = np.random.default_rng(seed).standard_normal((d, d)) * scale / np.sqrt(d)
    t = np.concatenate([[0.0], np.geomspace(0.1, t_end, samples)])

    def run(eta: float, tau: float) -> Curves:
        flow = BalancedPredictorFlow(sigma2=sigma2, alpha_p=alpha_p, eta=eta, tau=tau)
        path = simulate(flow, {"Wp": Wp}, t, rtol=1e-8, atol=1e-11)["Wp"]
        return {"A": norm(symmetric_part(path)), "B": norm(skew_part(path))}

    return {"t": t, "rows": _crossed(run, etas, taus)}


def commutator_norm(
    *,
    etas: Sequence[float] = (0.0, 0.001, 0.01, 0.05, 0.1),
    taus: Sequence[float] = (0.1, 0.3, 0.5, 0.7, 1.0),
    sigma2: float = 0.0009,
    alpha_p: float = 1.0,
    d: int = 8,
    t_end: float = 100.0,
    samples: int = 160,
    seed: int = 0,
) -> Data:
    """|[F, Wp]| over time in the symmetrised flow, raw and divided by |F| |Wp|; a column for each eta.

    Everything but the flow is ours; F starts independent of Wp, as F = Wp^2 would commute with it from the start.
    `columns[eta][tau]` is {raw, normalised}, each relative to its start, over `t`.
    """
    t = np.linspace(0.0, t_end, samples)

    def run(eta: float, tau: float) -> Curves:
        flow = PredictorCorrelationFlow(sigma2=sigma2, alpha_p=alpha_p, eta=eta, tau=tau)
        raw, normalised = relative_commutator(flow, t, d=d, seed=seed)
        return {"raw": raw, "normalised": normalised}

    return {"t": t, "columns": _crossed(run, etas, taus)}


def low_dimension(
    *,
    lambda_s: float = 1.0,
    lambda_d: float = 0.5,
    alpha_p: float = 1.0,
    beta: float = 1.0,
    wa: float = 1.0,
    arrows: int = 15,
) -> Data:
    """The three low-dimensional panels: unit arrows, nullclines and fixed points (ranges and arrow grid ours).

    Each panel is {x, y, u, v} on a grid, `curves` (x, y, label) and `points` (x, y, stability).
    """
    ratio = lambda_d / lambda_s
    common = {"lambda_s": lambda_s, "lambda_d": lambda_d, "alpha_p": alpha_p}
    left = lowdim.LowDimFixedTargetFlow(**common, wa=wa)
    middle = lowdim.LowDimTiedFlow(**common, beta=beta)
    right = lowdim.LowDimNoPredictorFlow(**common, beta=beta)
    branch = np.linspace(0.02, 1.5, 200)
    w = np.linspace(-1.0, 1.0, 101)
    end = ratio / np.sqrt(alpha_p)
    return {
        "left": {
            **_arrows(left, ("w", "wp"), (-1.5, 1.5), arrows),
            "curves": [
                (branch, wa * ratio / branch, r"$w_p w = w_a\lambda_d/\lambda_s$"),
                (-branch, -wa * ratio / branch, ""),
            ],
            "points": [(0.0, 0.0, _stability(left, wp=0.0, w=0.0))],
        },
        "middle": {
            **_arrows(middle, ("w", "wa"), (-0.5, 1.0), arrows),
            "curves": [
                (w, w, r"$\dot w_a = 0$"),
                (w, np.sqrt(alpha_p) * w**2 / ratio, r"$\dot w = 0$"),
                (np.zeros_like(w), w, ""),
            ],
            "points": [(0.0, 0.0, "half-stable"), (end, end, _stability(middle, w=end, wa=end))],
        },
        "right": {
            **_arrows(right, ("w", "wa"), (-0.5, 1.0), arrows),
            "curves": [(w, w, r"$\dot w_a = 0$"), (w, w / ratio, r"$\dot w = 0$")],
            "points": [(0.0, 0.0, _stability(right, w=0.0, wa=0.0))],
        },
    }


def _crossed(
    run: Callable[[float, float], Curves], outer: Sequence[float], inner: Sequence[float]
) -> dict[float, dict[float, Curves]]:
    return {first: {second: run(first, second) for second in inner} for first in outer}


def _arrows(flow: Flow, axes: tuple[str, str], limits: tuple[float, float], count: int) -> Data:
    x, y = np.meshgrid(*[np.linspace(*limits, count)] * 2)
    state = dict(zip(axes, (x, y), strict=True))
    velocity = dict(zip(flow.state_names, flow.velocity(*(state[name] for name in flow.state_names)), strict=True))
    u, v = (np.broadcast_to(velocity[name], x.shape) for name in axes)
    length = np.hypot(u, v)
    length = np.where(length < 1e-12, np.inf, length)  # no arrow where the flow stands still
    return {"x": x, "y": y, "u": u / length, "v": v / length}


def _stability(flow: Flow, **state: float) -> str:
    return fixed_points.fixed_point(flow, **state).stability
