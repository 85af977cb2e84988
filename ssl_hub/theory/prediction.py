"""What the theory says of a training run's hyperparameters, in numbers and in words."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ssl_hub.errors import UsageError
from ssl_hub.theory import fixed_points
from ssl_hub.theory.decoupled import DecoupledEmaFlow, DecoupledFlow
from ssl_hub.theory.dynamics import simulate

DESCRIBED = ("linear", "symmetric")  # kinds of predictor: a trained linear one, which the theory is about
ASSUMPTIONS = (
    "online network, predictor and target are linear and bias-free; the loss is squared, not the cosine",
    "data are isotropic (X = I) and augmentation adds isotropic variance sigma^2 (X' = sigma^2 I)",
    "predictor and correlation matrix share their eigenvectors; each mode has its own p, s, tau",
    "batches are infinite and steps small: one SGD step advances time by lr / (1 - momentum)",
    "learning rate, weight decay and EMA rate are constant",
)


@dataclass(frozen=True)
class FlowUnits:
    """Hyperparameters in gradient-flow time: one step advances time by `alpha`."""

    alpha: float
    eta: float
    beta: float


def flow_units(*, lr: float, momentum: float = 0.0, weight_decay: float = 0.0, ema_m: float = 0.0) -> FlowUnits:
    """alpha = lr / (1 - momentum), eta = weight_decay, beta = (1 - ema_m) / alpha.

    Erratum: the paper puts eta = weight_decay / alpha, which makes its figures' eta 0.04. SGD adds weight_decay to the
    gradient, so that each step decays weights by alpha times weight_decay: eta is weight_decay itself. For the same
    reason a predictor whose learning rate is alpha_p times larger decays alpha_p times faster, eta_p = alpha_p eta,
    unless its weight_decay is divided by alpha_p; the paper's equations have eta_p = eta.

    Args:
        lr: learning rate, positive.
        momentum: in [0, 1).
        weight_decay: as given to `torch.optim.SGD`, not negative.
        ema_m: the target's momentum, in [0, 1]; 0 is SimSiam.

    Raises:
        UsageError: a value out of its range.
    """
    _in_range("lr", lr, low=0.0, high=np.inf, low_open=True)
    _in_range("momentum", momentum, low=0.0, high=1.0, high_open=True)
    _in_range("weight_decay", weight_decay, low=0.0, high=np.inf)
    _in_range("ema_m", ema_m, low=0.0, high=1.0)
    alpha = lr / (1 - momentum)
    return FlowUnits(alpha=alpha, eta=weight_decay, beta=(1 - ema_m) / alpha)


@dataclass(frozen=True)
class Prediction:
    """Numbers of `predict`; `sentences` says them, `assumptions` what they rest on.

    Steps are SGD steps. NaN: no such fixed point, or the mode does not get there.
    """

    alpha: float
    eta: float
    beta: float | None
    p_minus: float
    p_plus: float
    s_plus: float
    eta_collapse: float
    eta_K_pd: float
    least_K: float
    least_K_without_ema: float
    survives: bool
    smallest_surviving_p: float
    steps_to_learn: float
    steps_to_forget: float
    steps_of_target: float
    sentences: tuple[str, ...]
    assumptions: tuple[str, ...] = ASSUMPTIONS


def predict(
    *,
    alpha_p: float,
    eta: float,
    beta: float | None,
    lr: float,
    eta_p: float | None = None,
    momentum: float = 0.0,
    steps: int | None = None,
    sigma2: float = 0.1,
    p0: float = 0.2,
    s0: float = 0.1,
    tau0: float = 1.0,
    predictor: str = "linear",
) -> Prediction:
    """The fate of an eigenmode under these hyperparameters.

    Args:
        alpha_p: predictor over online learning rate, positive.
        eta: weight decay in flow units, which is SGD's own weight_decay (see `flow_units`).
        eta_p: decay of the predictor, if it is not eta; SGD with one weight_decay for both has alpha_p eta.
        beta: EMA rate in flow units, (1 - ema_m) / alpha; None is SimSiam (the target is the online network).
        lr, momentum: one step advances time by alpha = lr / (1 - momentum).
        steps: length of the run, to say what it is long enough for.
        sigma2: variance that augmentation adds, in units of the data's.
        p0, s0: initial predictor and correlation eigenvalue of the mode.
        tau0: initial w_a / w: 1 for a target copied at the start, 0 for the paper's curriculum.
        predictor: the kind of the run's predictor; another than a trained linear one is named in the assumptions.

    Raises:
        UsageError: a value out of its range.
    """
    for name, value, positive in (
        ("alpha_p", alpha_p, True),
        ("lr", lr, True),
        ("eta", eta, False),
        ("sigma2", sigma2, False),
        ("s0", s0, False),
        ("tau0", tau0, False),
    ):
        _in_range(name, value, low=0.0, high=np.inf, low_open=positive)
    if eta_p is not None:
        _in_range("eta_p", eta_p, low=0.0, high=np.inf)
    if beta is not None:
        _in_range("beta", beta, low=0.0, high=np.inf, low_open=True)
    alpha = flow_units(lr=lr, momentum=momentum).alpha

    thresholds = fixed_points.parabola_thresholds(sigma2=sigma2, eta=eta, alpha_p=alpha_p)
    simsiam = DecoupledFlow(sigma2=sigma2, alpha_p=alpha_p, eta=eta, eta_p=eta_p)
    s_scale = simsiam.predictor_decay / eta if eta > 0 else 1.0  # fixed points leave the parabola by this factor
    flow: DecoupledFlow | DecoupledEmaFlow = simsiam
    init = {"p": p0, "s": s0}
    if beta is not None:
        flow = DecoupledEmaFlow(sigma2=sigma2, alpha_p=alpha_p, eta=eta, eta_p=eta_p, beta=beta)
        init["tau"] = tau0
    # Dense at the start, where K is least; long enough to tell growth from collapse at the slowest rate.
    horizon = 40.0 / min(rate for rate in (beta or 1.0, eta or 0.01, 1.0) if rate > 0)
    t = np.concatenate([[0.0], np.geomspace(1e-2, horizon, 1500)])
    path = simulate(flow, init, t, rtol=1e-8, atol=1e-13, stiff=True)
    p, s = path["p"], path["s"]
    survives = bool(p[-1] > (thresholds.p_minus + thresholds.p_plus) / 2 and s[-1] > thresholds.s_minus * s_scale)
    reached = np.flatnonzero(p > 0.95 * p[-1]) if survives else np.array([], dtype=int)
    unreached = reached.size == 0
    steps_to_learn = np.nan if unreached else float(t[reached[0]] / alpha)
    smallest = (
        fixed_points.minimal_surviving_p(sigma2=sigma2, eta=eta, beta=beta, tau0=tau0, tolerance=1e-3)
        if beta is not None and eta > 0
        else thresholds.p_minus
    )
    numbers = Prediction(
        alpha=alpha,
        eta=eta,
        beta=beta,
        p_minus=thresholds.p_minus,
        p_plus=thresholds.p_plus,
        s_plus=thresholds.s_plus * s_scale,
        eta_collapse=thresholds.eta_collapse,
        eta_K_pd=thresholds.eta_K_pd_on_parabola,
        least_K=float(fixed_points.least_K(flow, init, t)),
        least_K_without_ema=float(fixed_points.least_K(simsiam, {"p": p0, "s": s0}, t)),
        survives=survives,
        smallest_surviving_p=smallest if np.isfinite(smallest) else np.nan,
        steps_to_learn=steps_to_learn,
        steps_to_forget=1 / (2 * eta * alpha) if eta > 0 else np.inf,
        steps_of_target=1 / (beta * alpha) if beta is not None else 0.0,
        sentences=(),
    )
    sentences = tuple(_sentences(numbers, alpha_p, p0, s0, tau0, steps))
    return replace(numbers, sentences=sentences, assumptions=(*_of_predictor(predictor), *ASSUMPTIONS))


def _of_predictor(kind: str) -> tuple[str, ...]:
    if kind in DESCRIBED:
        return ()
    return (f"the predictor is a trained linear one; the recipe's is {kind!r}, which this does not describe",)


def _sentences(at: Prediction, alpha_p: float, p0: float, s0: float, tau0: float, steps: int | None) -> list[str]:
    start = f"p = {p0:g}, s = {s0:g}" + ("" if at.beta is None else f", tau = {tau0:g}")
    lines = [f"One step advances time by {at.alpha:.3g}; in flow units eta = {at.eta:.3g}, beta = {_beta(at.beta)}."]
    if np.isnan(at.p_plus):
        lines.append(
            f"Collapse: eta is above tau^2/(4(1 + sigma^2)) = {at.eta_collapse:.3g}, so that every mode decays to 0."
        )
    elif at.survives:
        when = (
            ""
            if np.isnan(at.steps_to_learn)
            else f" and is within 5% of its end after about {at.steps_to_learn:.3g} steps"
        )
        lines.append(f"Growth: a mode that starts at {start} survives{when}.")
    else:
        lines.append(f"Collapse: a mode that starts at {start} is inside the basin of collapse.")
    if at.eta > 0 and not np.isnan(at.p_plus):
        lines.append(
            f"Basin: on the parabola s = p^2/alpha_p a mode needs p(0) > {at.smallest_surviving_p:.3g}; survivors end "
            f"at p = {at.p_plus:.3g}, s = {at.s_plus:.3g}."
        )
        lines.append(
            f"Memory: the offset of s from p^2/alpha_p fades over {at.steps_to_forget:.3g} steps"
            + _compared(at.steps_to_forget, steps)
        )
    elif at.eta == 0:
        lines.append("Memory: without weight decay the offset of s from p^2/alpha_p never fades; s does not follow p.")
    if at.beta is not None:
        lines.append(f"Target: it lags by {at.steps_of_target:.3g} steps" + _compared(at.steps_of_target, steps))
        curriculum = at.least_K - at.least_K_without_ema
        lines.append(
            f"Curriculum: the least K on the way is {at.least_K:.3g}, against {at.least_K_without_ema:.3g} without EMA"
            + (
                f": the target raises it by {curriculum:.2g}."
                if curriculum > 1e-3
                else ": the target hardly changes it."
            )
        )
    stable = "positive all the way, so that alignment is stable" if at.least_K > 0 else "negative for a while"
    lines.append(
        f"Alignment: K is {stable}; "
        f"weight decay alone makes it positive on the whole parabola above eta = {at.eta_K_pd:.3g}."
    )
    lines.append(
        f"Predictor: alpha_p = {alpha_p:g} does not move the thresholds of p; off the parabola it helps the mode to "
        "survive. The s that a mode ends with is eta_p / (eta alpha_p) times p^2."
    )
    return lines


def _beta(beta: float | None) -> str:
    return "none (SimSiam)" if beta is None else f"{beta:.3g}"


def _compared(duration: float, steps: int | None) -> str:
    if steps is None:
        return "."
    return f", {duration / steps:.2g} of the run of {steps}."


def _in_range(
    name: str, value: float, *, low: float, high: float, low_open: bool = False, high_open: bool = False
) -> None:
    above = value > low if low_open else value >= low
    below = value < high if high_open or np.isinf(high) else value <= high
    if not (np.isfinite(value) and above and below):
        brackets = f"{'(' if low_open else '['}{low:g}, {high:g}{')' if high_open or np.isinf(high) else ']'}"
        raise UsageError(f"{name} is {value}; expected a number in {brackets}")
