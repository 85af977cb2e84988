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

from ssl_hub.errors import UsageError
from ssl_hub.theory.dynamics import Decay, positive
from ssl_hub.theory.flow import Array


@dataclass(frozen=True, kw_only=True)
class _Mode(Decay):
    lambda_s: float = 1.0
    lambda_d: float = 0.5
    alpha_p: float = 1.0

    def __post_init__(self) -> None:
        positive("alpha_p", self.alpha_p)

    def learn(self, wp: Array, w: Array, wa: Array | float) -> tuple[Array, Array]:
        """(wp', w') for a target wa."""
        residual = wa * self.lambda_d - wp * w * self.lambda_s
        dwp = self.alpha_p * residual * w - self.predictor_decay * wp
        return dwp, wp * residual - self.online_decay * w


@dataclass(frozen=True, kw_only=True)
class LowDimFixedTargetFlow(_Mode):
    """(wp, w) at a fixed target `wa`: the left panel.

    For alpha_p = 1 and without decay it descends E = (lambda_s / 2)(wa lambda_d / lambda_s - wp w)^2.
    """

    wa: float = 1.0

    state_names: ClassVar[tuple[str, ...]] = ("wp", "w")

    def velocity(self, *state: Array) -> tuple[Array, ...]:
        wp, w = state
        return self.learn(wp, w, self.wa)


@dataclass(frozen=True, kw_only=True)
class LowDimSimSiamFlow(_Mode):
    """(wp, w) with the target tied to the online network, wa = w: SimSiam."""

    state_names: ClassVar[tuple[str, ...]] = ("wp", "w")

    def velocity(self, *state: Array) -> tuple[Array, ...]:
        wp, w = state
        return self.learn(wp, w, w)


@dataclass(frozen=True, kw_only=True)
class LowDimFlow(_Mode):
    """(wp, w, wa): the full system. Without decay c0 = w^2 - wp^2 / alpha_p is conserved."""

    beta: float = 1.0

    state_names: ClassVar[tuple[str, ...]] = ("wp", "w", "wa")

    def velocity(self, *state: Array) -> tuple[Array, ...]:
        wp, w, wa = state
        return *self.learn(wp, w, wa), self.beta * (w - wa)


@dataclass(frozen=True, kw_only=True)
class LowDimTiedFlow(LowDimFlow):
    """(w, wa) on the invariant submanifold wp = sqrt(alpha_p) w: the middle panel (alpha_p = 1 in the paper).

    Erratum: w = wp is invariant only for alpha_p = 1; in general w^2 = wp^2 / alpha_p is, under one weight decay.

    Raises UsageError for two.
    """

    state_names: ClassVar[tuple[str, ...]] = ("w", "wa")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.predictor_decay != self.online_decay:
            raise UsageError(
                f"eta_p is {self.predictor_decay} and eta_s is {self.online_decay}, expected one decay for both, eta:"
                " else wp = sqrt(alpha_p) w does not stay so"
            )

    def velocity(self, *state: Array) -> tuple[Array, ...]:
        w, wa = state
        return super().velocity(np.sqrt(self.alpha_p) * w, w, wa)[1:]


@dataclass(frozen=True, kw_only=True)
class LowDimNoPredictorFlow(LowDimFlow):
    """(w, wa) with the predictor removed, wp = 1: the right panel; w' = wa lambda_d - w lambda_s - eta_s w.

    What is said of the predictor (alpha_p, eta_p) has no effect.
    """

    state_names: ClassVar[tuple[str, ...]] = ("w", "wa")

    def velocity(self, *state: Array) -> tuple[Array, ...]:
        w, wa = state
        return super().velocity(np.ones_like(w), w, wa)[1:]
