"""What the flow of the training says of a run: where each eigenmode of F goes from where it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from ssl_hub.errors import UsageError
from ssl_hub.theory.discrete import Form
from ssl_hub.theory.flow import Array
from ssl_hub.theory.integrate import simulate
from ssl_hub.theory.modes import (
    Loss,
    Map,
    ResetPredictorFlow,
    SetPredictorFlow,
    TrainedPredictorFlow,
    identity,
    set_from,
)

ASSUMPTIONS = (
    "encoder and target are linear: a direction keeps its agreement between views, and no better one is learnt",
    "predictor, F and data share their eigenvectors, a predictor that is trained from the start on",
    "batches are infinite and steps small: one SGD step advances time by lr / (1 - momentum)",
    "learning rate, weight decay and EMA rate are constant: a schedule counts by its mean",
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
    for name, value, within, interval in (
        ("lr", lr, 0 < lr < np.inf, "(0, inf)"),
        ("momentum", momentum, 0 <= momentum < 1, "[0, 1)"),
        ("weight_decay", weight_decay, 0 <= weight_decay < np.inf, "[0, inf)"),
        ("ema_m", ema_m, 0 <= ema_m <= 1, "[0, 1]"),
    ):
        if not within:
            raise UsageError(f"{name} is {value}; expected a number in {interval}")
    alpha = lr / (1 - momentum)
    return FlowUnits(alpha=alpha, eta=weight_decay, beta=(1 - ema_m) / alpha)


@dataclass(frozen=True, kw_only=True)
class PredictorRule:
    """How the predictor comes about: none (`identity`), `trained` by the loss, or `set` from F every `freq` steps."""

    kind: Literal["identity", "trained", "set"]
    eps: float = 0.1
    alpha: float = 0.5
    c: float = 0.0
    form: Form = "normalised"
    rho: float = 0.3
    freq: int = 1

    @property
    def least_agreement(self) -> float | None:
        """Share of the best agreement below which a mode dies (`modes.stationary_shares`); None without such a law."""
        if self.kind == "set" and self.form in ("normalised", "homogeneous") and self.c == 0:
            return self.eps / (1 + self.eps)
        return 1.0 if self.kind == "identity" else None

    def map(self) -> Map:
        """From eigenvalues of F to those of the predictor."""
        if self.kind == "identity":
            return identity
        return set_from(eps=self.eps, alpha=self.alpha, c=self.c, form=self.form)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The hyperparameters that the flow has.

    Args:
        units: of the encoder's training; `beta` counts where `target` is `ema`.
        rate: what multiplies the pull of the loss: its scale times its directions, twice that if squared.
        alpha_p, eta_p: of a predictor that is trained, also between two settings.
    """

    units: FlowUnits
    rate: float
    loss: Loss
    predictor: PredictorRule
    target: Literal["ema", "online", "attached"]
    isotropic: bool = False
    alpha_p: float = 1.0
    eta_p: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Start:
    """Where a run starts, mode by mode, each (J,).

    `s`, `r` and `gain` are those of `theory.modes`; `constant` is the share of s that all samples have in common, and
    `p` the diagonal of the predictor in the eigenvectors of F, which one that is trained starts from.
    """

    s: Array
    r: Array
    gain: Array
    constant: Array
    p: Array


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The eigenvalues of F and of the predictor after `steps` (T,), each (T, J) in the order of the start.

    `spread` (T,) is the standard deviation of the unit projections in units of 1/sqrt(width): 1 over the sphere, 0 at a
    point.
    """

    steps: Array
    s: Array
    p: Array
    spread: Array


def predict(setting: Setting, start: Start, *, steps: Sequence[int]) -> Prediction:
    """Integrate the flow of a setting from a start, and report it after the given steps (increasing, >= 0)."""
    counts = np.asarray(steps, dtype=np.float64)
    units, rule = setting.units, setting.predictor
    common: dict[str, Any] = {
        "r": start.r,
        "rate": setting.rate,
        "gain": start.gain,
        "loss": setting.loss,
        "isotropic": setting.isotropic,
        "stop_gradient": setting.target != "attached",
        "eta": units.eta,
        "beta": units.beta if setting.target == "ema" else None,
    }
    trained: dict[str, Any] = {"alpha_p": setting.alpha_p, "eta_p": setting.eta_p}
    w = np.sqrt(start.s)
    init: dict[str, ArrayLike] = {"w": w, "wa": w}
    flow: TrainedPredictorFlow | SetPredictorFlow | ResetPredictorFlow
    if rule.kind == "trained":
        flow, init["wp"] = TrainedPredictorFlow(**common, **trained), start.p
    else:
        average: dict[str, Any] = {"map": rule.map(), "averaging": (1 - rule.rho) / units.alpha}
        init["average"] = start.s
        if rule.kind == "identity" or rule.freq == 1:
            flow = SetPredictorFlow(**common, **average)
        else:
            resetting = 2 / ((rule.freq - 1) * units.alpha)
            flow, init["wp"] = ResetPredictorFlow(**common, **average, **trained, resetting=resetting), start.p
    # Amplitudes far below the start's are 0 for every purpose.
    path = simulate(flow, init, counts * units.alpha, rtol=1e-7, atol=1e-9 * float(w.max()), stiff=True)
    s = path["w"] ** 2
    p = flow.predictor(path["average"]) if isinstance(flow, SetPredictorFlow) else path["wp"]
    share = (start.constant * s).sum(axis=-1) / s.sum(axis=-1)
    return Prediction(steps=counts, s=s, p=p, spread=np.sqrt(np.clip(1 - share, 0, 1)))


def law(setting: Setting, *, described: bool = True) -> list[str]:
    """What holds for every start, in sentences; of a predictor that is not `described`, what holds for every one."""
    units = setting.units
    beta = f", beta = {units.beta:.3g}" if setting.target == "ema" else ""
    lines = [f"One step advances time by {units.alpha:.3g}; in flow units eta = {units.eta:.3g}{beta}."]
    if setting.target == "ema" and units.beta > 0:
        lines.append(f"Target: it lags by {1 / (units.beta * units.alpha):.3g} steps.")
    if described:
        lines.append(_fate(setting))
    return lines


def assumptions(setting: Setting) -> list[str]:
    """What predictions rest on."""
    norms = ["the projections of all samples have one norm, by which the cosine divides"]
    return [*ASSUMPTIONS, *(norms if setting.loss == "normalised" else [])]


def _fate(setting: Setting) -> str:
    rule, least = setting.predictor, setting.predictor.least_agreement
    if setting.target == "attached":
        return "Fate: without the stop-gradient the directions that views agree on best outgrow all others: collapse."
    if setting.loss == "squared" and rule.kind != "trained":
        top = 1.0 if rule.kind == "identity" else 1 + rule.eps
        if rule.kind == "identity" or rule.form == "normalised":
            return (
                f"Fate: every direction decays. The predictor's largest eigenvalue is always {top:g}, above any"
                " agreement of views: a predictor of fixed scale needs the normalised loss."
            )
        return "Fate: a direction stands still where its eigenvalue of the predictor is the agreement of its views."
    if rule.kind == "identity":
        return "Fate: only the directions that views agree on best survive, and a constant is one of them: collapse."
    if least is not None:
        return (
            f"Fate: a direction survives if its views agree by more than {least:.3g} of the best direction's"
            " (eps / (1 + eps)); with agreement r it ends at s / max s = ((1 + eps) r / max r - eps)"
            f"^{1 / rule.alpha:g}."
        )
    return "Fate: the predictor's eigenvalues move towards proportion with the agreement of views; the start decides."
