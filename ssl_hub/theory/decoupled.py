"""The decoupled dynamics of one eigenmode: p of the predictor, s of F, tau = w_a / w of the target.

Once the eigenspaces of Wp and F align, each mode j obeys its own equations (k = 1 + sigma^2):

    p'   = alpha_p s (tau - k p) - eta_p p
    s'   = 2 p s (tau - k p) - 2 eta_s s
    tau' = beta (1 - tau) - tau s'/(2 s) = beta (1 - tau) - tau (p (tau - k p) - eta_s)

The flows take arrays of any shape, elementwise: a grid of initial conditions is one call of `simulate`.

Erratum: the paper writes one tau for all modes. Exactly aligned dynamics needs a separate tau_j for each, which is what
`DecoupledEmaFlow` integrates. Erratum: tau is not bounded by 1; it exceeds 1 whenever w shrinks, and a collapsing mode
has tau -> beta / (beta - eta), or unbounded growth where eta >= beta.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ssl_hub.theory.dynamics import Array, Decay, Flow, positive


@dataclass(frozen=True, kw_only=True)
class DecoupledFlow(Decay):
    """(p, s) at fixed tau: SimSiam for tau = 1, or BYOL over times short against 1 / beta."""

    sigma2: float = 0.0
    alpha_p: float = 1.0
    tau: float = 1.0

    state_names: ClassVar[tuple[str, ...]] = ("p", "s")

    def __post_init__(self) -> None:
        positive("alpha_p", self.alpha_p)

    def velocity(self, *state: Array) -> tuple[Array, ...]:
        """(p', s')."""
        p, s = state
        pull = self.tau - (1.0 + self.sigma2) * p
        return self.alpha_p * s * pull - self.predictor_decay * p, 2 * s * (p * pull - self.online_decay)


@dataclass(frozen=True, kw_only=True)
class DecoupledEmaFlow(Decay):
    """(p, s, tau): BYOL. tau(0) = 0 is the paper's curriculum; a target copied at the start has tau(0) = 1."""

    sigma2: float = 0.0
    alpha_p: float = 1.0
    beta: float

    state_names: ClassVar[tuple[str, ...]] = ("p", "s", "tau")

    def __post_init__(self) -> None:
        positive("alpha_p", self.alpha_p)

    def velocity(self, *state: Array) -> tuple[Array, ...]:
        """(p', s', tau')."""
        p, s, tau = state
        pull = tau - (1.0 + self.sigma2) * p
        log_growth = p * pull - self.online_decay  # s'/(2 s) = w'/w, regular also at s = 0
        dp = self.alpha_p * s * pull - self.predictor_decay * p
        return dp, 2 * s * log_growth, self.beta * (1 - tau) - tau * log_growth


@dataclass(frozen=True, kw_only=True)
class ParabolaFlow(Flow):
    """p on the invariant parabola s = p^2 / alpha_p at fixed tau: p' = p^2 (tau - k p) - eta p.

    alpha_p does not enter: on the parabola alpha_p s = p^2.
    """

    sigma2: float = 0.0
    eta: float = 0.0
    tau: float = 1.0

    state_names: ClassVar[tuple[str, ...]] = ("p",)

    def velocity(self, *state: Array) -> tuple[Array, ...]:
        """(p',)."""
        (p,) = state
        return (p * Delta(p, sigma2=self.sigma2, eta=self.eta, tau=self.tau),)


@dataclass(frozen=True, kw_only=True)
class ParabolaEmaFlow(Flow):
    """(p, tau) on the invariant parabola: p' = p Delta, tau' = beta (1 - tau) - tau Delta."""

    sigma2: float = 0.0
    eta: float = 0.0
    beta: float

    state_names: ClassVar[tuple[str, ...]] = ("p", "tau")

    def velocity(self, *state: Array) -> tuple[Array, ...]:
        """(p', tau')."""
        p, tau = state
        growth = p * (tau - (1.0 + self.sigma2) * p) - self.eta
        return p * growth, self.beta * (1 - tau) - tau * growth


def Delta(p: Array | float, *, sigma2: float, eta: float, tau: Array | float) -> Array:
    """Delta_j = p (tau - k p) - eta: the growth rate of p on the parabola, and of w = sqrt(s) everywhere."""
    return np.asarray(p * (tau - (1.0 + sigma2) * p) - eta)


def K_eigenvalue(
    p: Array | float, s: Array | float, *, sigma2: float, alpha_p: float, eta: float, tau: Array | float
) -> Array:
    """K_j = k (alpha_p s / 2 + p^2) - tau p + 3 eta / 2, the rate at which misalignment of mode j decays (Theorem 3).

    K_j > 0 is the same as Delta_j < (alpha_p k s_j + eta) / 2, on the parabola or off it.
    """
    return np.asarray((1.0 + sigma2) * (alpha_p * s / 2 + p * p) - tau * p + 1.5 * eta)


def integral_of_motion(p: Array | float, s: Array | float, *, alpha_p: float) -> Array:
    """c = s - p^2 / alpha_p, which decays exactly as e^{-2 eta t} (one eta for both networks).

    Erratum: the main text defines c_j with the opposite sign; the supplement has it right.
    """
    return np.asarray(s - np.asarray(p) ** 2 / alpha_p)
