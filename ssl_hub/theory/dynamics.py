"""The matrix flows of BYOL and SimSiam with linear networks, in the symbols of the paper.

| symbol | shape | meaning |
|---|---|---|
| `W` | (n2, n1) | online network; f = W x |
| `Wp` | (n2, n2) | predictor |
| `Wa` | (n2, n1) | target network |
| `X` | (n1, n1) | correlation of the augmentation average of the data; Sigma^d in the non-isotropic section |
| `Xprime` | (n1, n1) | covariance that augmentation adds; Sigma^s = X + X' |
| `F` | (n2, n2) | W X W^T, the correlation matrix that the predictor sees |

Rates: `alpha_p` predictor over online learning rate, `beta` target rate, `eta` weight decay. `eta_p` and `eta_s`
replace `eta` for the predictor and the online network alone. Time is gradient-flow time: an SGD step of size alpha
advances it by alpha. Every method takes stacks of matrices, `(..., rows, columns)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from ssl_hub.errors import UsageError
from ssl_hub.theory.flow import Array, Flow


def transpose(matrix: Array) -> Array:
    """Transpose of the last two axes."""
    return np.swapaxes(matrix, -1, -2)


def anticommutator(a: Array, b: Array) -> Array:
    """{A, B} = AB + BA."""
    return a @ b + b @ a


def commutator(a: Array, b: Array) -> Array:
    """[A, B] = AB - BA."""
    return a @ b - b @ a


def symmetric_part(matrix: Array) -> Array:
    """A = (M + M^T) / 2."""
    return (matrix + transpose(matrix)) / 2


def skew_part(matrix: Array) -> Array:
    """B = (M - M^T) / 2."""
    return (matrix - transpose(matrix)) / 2


@dataclass(frozen=True, kw_only=True)
class Decay(Flow):
    """Weight decay: `eta` for everything, or `eta_p` for the predictor and `eta_s` for the online network."""

    eta: float = 0.0
    eta_p: float | None = None
    eta_s: float | None = None

    @property
    def predictor_decay(self) -> float:
        """The eta of the predictor's equation."""
        return self.eta if self.eta_p is None else self.eta_p

    @property
    def online_decay(self) -> float:
        """The eta of the online network's equation."""
        return self.eta if self.eta_s is None else self.eta_s

    @property
    def alignment_decay(self) -> float:
        """(eta_p + 2 eta_s) / 3, the eta that enters K as 3 eta / 2."""
        return (self.predictor_decay + 2 * self.online_decay) / 3


@dataclass(frozen=True, kw_only=True)
class _Lemma1(Decay):
    """What BYOL and SimSiam share: the residual of the prediction, and the two gradients that it drives."""

    X: ArrayLike
    Xprime: ArrayLike
    alpha_p: float = 1.0
    symmetrise: bool = False

    state_ndim: ClassVar[int] = 2

    def __post_init__(self) -> None:
        for name in ("X", "Xprime"):
            object.__setattr__(self, name, square(getattr(self, name), name))
        if self.x.shape != self.xprime.shape:
            raise UsageError(f"X is {self.x.shape} and X' is {self.xprime.shape}; expected equal shapes")
        positive("alpha_p", self.alpha_p)

    @property
    def x(self) -> Array:
        """X as an array."""
        return np.asarray(self.X, dtype=np.float64)

    @property
    def xprime(self) -> Array:
        """X' as an array."""
        return np.asarray(self.Xprime, dtype=np.float64)

    def _gradients(self, Wp: Array, W: Array, Wa: Array) -> tuple[Array, Array]:
        """Lemma 1: R = -Wp W (X + X') + Wa X drives Wp through W and W through Wp."""
        residual = -Wp @ W @ (self.x + self.xprime) + Wa @ self.x
        predictor = self.alpha_p * residual @ transpose(W)
        online = transpose(Wp) @ residual
        if self.symmetrise:  # Assumption 3: the flow of Wp is projected on symmetric matrices
            predictor = symmetric_part(predictor)
        return predictor - self.predictor_decay * Wp, online - self.online_decay * W


@dataclass(frozen=True, kw_only=True)
class ByolFlow(_Lemma1):
    """Lemma 1 with weight decay: the full BYOL dynamics of (Wp, W, Wa).

    Wp' = alpha_p R W^T - eta_p Wp,  W' = Wp^T R - eta_s W,  Wa' = beta (W - Wa),  R = -Wp W (X + X') + Wa X.
    `symmetrise` replaces the gradient of Wp by its symmetric part (Assumption 3; start from a symmetric Wp).
    """

    beta: float

    state_names: ClassVar[tuple[str, ...]] = ("Wp", "W", "Wa")

    def velocity(self, *state: Array) -> tuple[Array, ...]:
        Wp, W, Wa = state
        dWp, dW = self._gradients(Wp, W, Wa)
        return dWp, dW, self.beta * (W - Wa)


@dataclass(frozen=True, kw_only=True)
class SimSiamFlow(_Lemma1):
    """Lemma 1 with Wa = W, with or without the stop-gradient.

    Without it (Theorem 2) the target's gradient adds Wp W X - W (X + X') to W'; the predictor's equation is unchanged.
    """

    stop_gradient: bool = True

    state_names: ClassVar[tuple[str, ...]] = ("Wp", "W")

    def velocity(self, *state: Array) -> tuple[Array, ...]:
        Wp, W = state
        dWp, dW = self._gradients(Wp, W, W)
        if not self.stop_gradient:
            dW = dW + Wp @ W @ self.x - W @ (self.x + self.xprime)
        return dWp, dW


@dataclass(frozen=True, kw_only=True)
class NoPredictorFlow(Flow):
    """SimSiam without a predictor: W' = -W (X' + eta I), or -W (2 X' + eta I) without the stop-gradient.

    Erratum: the supplement writes -(X' + eta I) W, whose factors do not conform. Erratum: W goes to 0 only where
    X' + eta I is positive definite; with eta = 0 the part of W on the null space of X' stays for ever.
    """

    Xprime: ArrayLike
    eta: float = 0.0
    stop_gradient: bool = True

    state_names: ClassVar[tuple[str, ...]] = ("W",)
    state_ndim: ClassVar[int] = 2

    def velocity(self, *state: Array) -> tuple[Array, ...]:
        (W,) = state
        xprime = square(self.Xprime, "Xprime")
        factor = 1.0 if self.stop_gradient else 2.0
        return (-factor * W @ xprime - self.eta * W,)


@dataclass(frozen=True, kw_only=True)
class NoPredictorByolFlow(Flow):
    """BYOL without a predictor on general data: W' = -W Sigma_s + Wa Sigma_d - eta W,  Wa' = beta (W - Wa)."""

    Sigma_s: ArrayLike
    Sigma_d: ArrayLike
    beta: float
    eta: float = 0.0

    state_names: ClassVar[tuple[str, ...]] = ("W", "Wa")
    state_ndim: ClassVar[int] = 2

    def velocity(self, *state: Array) -> tuple[Array, ...]:
        W, Wa = state
        gradient = -W @ square(self.Sigma_s, "Sigma_s") + Wa @ square(self.Sigma_d, "Sigma_d")
        return gradient - self.eta * W, self.beta * (W - Wa)


@dataclass(frozen=True, kw_only=True)
class PredictorCorrelationFlow(Decay):
    """The (Wp, F) flow under Assumptions 1 and 2 (Wa = tau W, X = I, X' = sigma^2 I) at fixed tau; k = 1 + sigma^2.

    Symmetrised (Assumption 3): Wp' = -(alpha_p/2) k {Wp, F} + alpha_p tau F - eta_p Wp.
    Otherwise:                  Wp' = -alpha_p k Wp F + alpha_p tau F - eta_p Wp.
    Both:                       F' = -k {Wp^T Wp, F} + tau (Wp^T F + F Wp) - 2 eta_s F.
    """

    sigma2: float
    alpha_p: float = 1.0
    tau: float = 1.0
    symmetrise: bool = True

    state_names: ClassVar[tuple[str, ...]] = ("Wp", "F")
    state_ndim: ClassVar[int] = 2

    def __post_init__(self) -> None:
        positive("alpha_p", self.alpha_p)

    def velocity(self, *state: Array) -> tuple[Array, ...]:
        Wp, F = state
        k = 1.0 + self.sigma2
        product = anticommutator(Wp, F) / 2 if self.symmetrise else Wp @ F
        dWp = self.alpha_p * (-k * product + self.tau * F) - self.predictor_decay * Wp
        WpT = transpose(Wp)
        dF = -k * anticommutator(WpT @ Wp, F) + self.tau * (WpT @ F + F @ Wp) - 2 * self.online_decay * F
        return dWp, dF


@dataclass(frozen=True, kw_only=True)
class BalancedPredictorFlow(Flow):
    """The unsymmetrised predictor on the invariant set F = Wp^T Wp / alpha_p of Theorem 1 (C = 0), at fixed tau.

    Wp' = -alpha_p k Wp F + alpha_p tau F - eta Wp: the figure of the symmetric part A and the skew part B of Wp.
    """

    sigma2: float
    alpha_p: float = 1.0
    eta: float = 0.0
    tau: float = 1.0

    state_names: ClassVar[tuple[str, ...]] = ("Wp",)
    state_ndim: ClassVar[int] = 2

    def velocity(self, *state: Array) -> tuple[Array, ...]:
        (Wp,) = state
        F = transpose(Wp) @ Wp / self.alpha_p
        return (self.alpha_p * (-(1.0 + self.sigma2) * Wp @ F + self.tau * F) - self.eta * Wp,)


def as_isotropic(n1: int, sigma2: float) -> dict[str, Any]:
    """X = I and X' = sigma^2 I of Assumption 2, as keyword arguments of the flows."""
    return {"X": np.eye(n1), "Xprime": sigma2 * np.eye(n1)}


def square(matrix: ArrayLike, name: str) -> Array:
    """The matrix as float64, checked to be one square matrix."""
    array = np.asarray(matrix, dtype=np.float64)
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise UsageError(f"{name} has shape {array.shape}; expected one square matrix")
    return array


def positive(name: str, value: float) -> None:
    """Raise unless the parameter is a positive finite number."""
    if not (np.isfinite(value) and value > 0):
        raise UsageError(f"{name} is {value}; expected a positive finite number")
