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

from ssl_hub.theory.dynamics import Decay, positive
from ssl_hub.theory.flow import Array, Flow


@dataclass(frozen=True, kw_only=True)
class _Mode(Decay):
    sigma2: float = 0.0
    alpha_p: float = 1.0

    def __post_init__(self) -> None:
        positive("alpha_p", self.alpha_p)

    def learn(self, p: Array, s: Array, tau: Array | float) -> tuple[Array, Array, Array]:
        """p', s', and w'/w = s'/(2 s), regular also at s = 0."""
        growth = Delta(p, sigma2=self.sigma2, eta=self.online_decay, tau=tau)
        dp = self.alpha_p * s * (tau - (1.0 + self.sigma2) * p) - self.predictor_decay * p
        return dp, 2 * s * growth, growth


@dataclass(frozen=True, kw_only=True)
class DecoupledFlow(_Mode):
    """(p, s) at fixed tau: SimSiam for tau = 1, or BYOL over times short against 1 / beta."""

    tau: float = 1.0

    state_names: ClassVar[tuple[str, ...]] = ("p", "s")

    def velocity(self, *state: Array) -> tuple[Array, ...]:
        p, s = state
        return self.learn(p, s, self.tau)[:2]


@dataclass(frozen=True, kw_only=True)
class DecoupledEmaFlow(_Mode):
    """(p, s, tau): BYOL. tau(0) = 0 is the paper's curriculum; a target copied at the start has tau(0) = 1."""

    beta: float

    state_names: ClassVar[tuple[str, ...]] = ("p", "s", "tau")

    def velocity(self, *state: Array) -> tuple[Array, ...]:
        p, s, tau = state
        dp, ds, growth = self.learn(p, s, tau)
        return dp, ds, self.beta * (1 - tau) - tau * growth


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
        p, tau = state
        growth = Delta(p, sigma2=self.sigma2, eta=self.eta, tau=tau)
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
