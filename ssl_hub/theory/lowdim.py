"""The low-dimensional system of the non-isotropic analysis: scalars (w_p, w, w_a) for one shared eigenmode.

    w_p' = alpha_p (w_a lambda_d - w_p w lambda_s) w - eta_p w_p
    w'   = w_p (w_a lambda_d - w_p w lambda_s) - eta_s w
    w_a' = beta (w - w_a)

lambda_s and lambda_d are the eigenvalues of Sigma^s and Sigma^d on the mode. The paper has no weight decay here; `eta`
(0 by default) adds it. With s = w^2, p = w_p, tau = w_a / w, lambda_s = 1 + sigma^2 and lambda_d = 1 this is the
decoupled system of `decoupled`, but regular where w changes sign.

Erratum: the paper's labels of the first two equations are swapped, and its captions call w_p "w_2".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ssl_hub.theory.dynamics import Array, Decay, Flow, positive


@dataclass(frozen=True, kw_only=True)
class LowDimFlow(Decay):
    """(wp, w, wa): the full system. Without decay c0 = w^2 - wp^2 / alpha_p is conserved."""

    lambda_s: float = 1.0
    lambda_d: float = 0.5
    alpha_p: float = 1.0
    beta: float = 1.0

    state_names: ClassVar[tuple[str, ...]] = ("wp", "w", "wa")

    def __post_init__(self) -> None:
        positive("alpha_p", self.alpha_p)

    def velocity(self, *state: Array) -> tuple[Array, ...]:
        """(wp', w', wa')."""
        wp, w, wa = state
        residual = wa * self.lambda_d - wp * w * self.lambda_s
        dwp = self.alpha_p * residual * w - self.predictor_decay * wp
        return dwp, wp * residual - self.online_decay * w, self.beta * (w - wa)


@dataclass(frozen=True, kw_only=True)
class LowDimFixedTargetFlow(Flow):
    """(wp, w) at a fixed target `wa`: the left panel.

    For alpha_p = 1 it descends E = (lambda_s / 2)(wa lambda_d / lambda_s - wp w)^2.
    """

    lambda_s: float = 1.0
    lambda_d: float = 0.5
    alpha_p: float = 1.0
    wa: float = 1.0

    state_names: ClassVar[tuple[str, ...]] = ("wp", "w")

    def velocity(self, *state: Array) -> tuple[Array, ...]:
        """(wp', w')."""
        wp, w = state
        residual = self.wa * self.lambda_d - wp * w * self.lambda_s
        return self.alpha_p * residual * w, wp * residual


@dataclass(frozen=True, kw_only=True)
class LowDimSimSiamFlow(Decay):
    """(wp, w) with the target tied to the online network, wa = w: SimSiam."""

    lambda_s: float = 1.0
    lambda_d: float = 0.5
    alpha_p: float = 1.0

    state_names: ClassVar[tuple[str, ...]] = ("wp", "w")

    def velocity(self, *state: Array) -> tuple[Array, ...]:
        """(wp', w')."""
        wp, w = state
        residual = w * (self.lambda_d - wp * self.lambda_s)
        return self.alpha_p * residual * w - self.predictor_decay * wp, wp * residual - self.online_decay * w


@dataclass(frozen=True, kw_only=True)
class LowDimTiedFlow(Flow):
    """(w, wa) on the invariant submanifold wp = sqrt(alpha_p) w: the middle panel (alpha_p = 1 in the paper).

    Erratum: w = wp is invariant only for alpha_p = 1; in general w^2 = wp^2 / alpha_p is.
    """

    lambda_s: float = 1.0
    lambda_d: float = 0.5
    alpha_p: float = 1.0
    beta: float = 1.0

    state_names: ClassVar[tuple[str, ...]] = ("w", "wa")

    def velocity(self, *state: Array) -> tuple[Array, ...]:
        """(w', wa')."""
        w, wa = state
        wp = np.sqrt(self.alpha_p) * w
        return wp * (wa * self.lambda_d - wp * w * self.lambda_s), self.beta * (w - wa)


@dataclass(frozen=True, kw_only=True)
class LowDimNoPredictorFlow(Flow):
    """(w, wa) with the predictor removed, wp = 1: the right panel; w' = wa lambda_d - w lambda_s."""

    lambda_s: float = 1.0
    lambda_d: float = 0.5
    beta: float = 1.0

    state_names: ClassVar[tuple[str, ...]] = ("w", "wa")

    def velocity(self, *state: Array) -> tuple[Array, ...]:
        """(w', wa')."""
        w, wa = state
        return wa * self.lambda_d - w * self.lambda_s, self.beta * (w - wa)


def conserved(wp: Array | float, w: Array | float, *, alpha_p: float) -> Array:
    """c0 = w^2 - wp^2 / alpha_p, constant in time without weight decay whatever the target does."""
    return np.asarray(np.asarray(w) ** 2 - np.asarray(wp) ** 2 / alpha_p)
