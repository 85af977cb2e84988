"""The flow of the training itself, one eigenmode of F at a time: predictors that are set, and the normalised loss.

| symbol | shape | meaning |
|---|---|---|
| `w`, `wa` | (J,) | amplitudes of the modes in online and target projections; F = E[f f^T] has eigenvalues w^2 |
| `wp` | (J,) | eigenvalues p of the predictor, where the loss trains it |
| `average` | (J,) | eigenvalues of the moving average of F, from which a predictor is set |
| `r` | (J,) | agreement: correlation of the two views in the mode, 1 / (1 + sigma^2) in the paper's isotropic data |
| `gain` | (J,) | how fast the network moves the mode: the variance of its input direction in a linear network |

With N = sum p^2 s, M = sum wa^2, C = sum p r w wa and the pull g = (r wa - (C / N) p w) / sqrt(N M) of the normalised
loss, or g = r wa - p w of the squared one,

    w' = rate gain p g - eta w,   wa' = beta (w - wa),   wp' = alpha_p rate w g - eta_p wp,

and a predictor that is set has p = map(average), average' = averaging (w^2 - average). Isotropic losses drop the p of
w'.

These are exact where predictor, F and data share their eigenvectors, and with the normalised loss where every sample's
projection has one norm; `docs/theory.md` has the derivation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ssl_hub.errors import UsageError
from ssl_hub.theory.discrete import Form
from ssl_hub.theory.flow import Array, Flow

Loss = Literal["normalised", "squared"]
Map = Callable[[Array], Array]


class Pull(NamedTuple):
    """What the loss does to each mode, per unit of `rate`: `online` through predictions, `target` through targets."""

    online: Array
    target: Array


@dataclass(frozen=True, kw_only=True)
class _Modes(Flow):
    r: ArrayLike
    rate: float = 1.0
    gain: ArrayLike = 1.0
    loss: Loss = "normalised"
    isotropic: bool = False
    stop_gradient: bool = True
    eta: float = 0.0
    beta: float | None = None

    state_ndim: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if self.beta is not None and not self.stop_gradient:
            raise UsageError(f"beta is {self.beta} and stop_gradient False; expected beta None: EMA has no gradient")

    def pull(self, p: Array, w: Array, wa: Array) -> Pull:
        """The pull of the loss, each (..., J)."""
        r = np.asarray(self.r, dtype=np.float64)
        if self.loss == "squared":
            return Pull(r * wa - p * w, r * p * w - wa)
        N, M, C = ((x * y).sum(axis=-1, keepdims=True) for x, y in ((p * w, p * w), (wa, wa), (p * w, r * wa)))
        scale = np.sqrt(N * M)
        return Pull((r * wa - C / N * p * w) / scale, (r * p * w - C / M * wa) / scale)

    def move(self, p: Array, w: Array, wa: Array, pull: Pull) -> tuple[Array, Array]:
        """(w', wa')."""
        force = pull.online if self.isotropic else p * pull.online
        if not self.stop_gradient:
            force = force + pull.target
        dw = self.rate * np.asarray(self.gain) * force - self.eta * w
        return dw, dw if self.beta is None else self.beta * (w - wa)


@dataclass(frozen=True, kw_only=True)
class SetPredictorFlow(_Modes):
    """(w, wa, average) with a predictor that is set after every step: DirectPred and its relatives, or the identity.

    Without `beta` the target is the online network: start with wa = w.
    """

    map: Map
    averaging: float

    state_names: ClassVar[tuple[str, ...]] = ("w", "wa", "average")

    def predictor(self, average: Array) -> Array:
        """The predictor's eigenvalues p, (..., J)."""
        return self.map(average)

    def velocity(self, *state: Array) -> tuple[Array, ...]:
        w, wa, average = state
        p = self.map(average)
        dw, dwa = self.move(p, w, wa, self.pull(p, w, wa))
        return dw, dwa, self.averaging * (w * w - average)


@dataclass(frozen=True, kw_only=True)
class TrainedPredictorFlow(_Modes):
    """(wp, w, wa) with a linear predictor that the loss trains, symmetrised or not: aligned, the two are one."""

    alpha_p: float = 1.0
    eta_p: float = 0.0

    state_names: ClassVar[tuple[str, ...]] = ("wp", "w", "wa")

    def velocity(self, *state: Array) -> tuple[Array, ...]:
        wp, w, wa = state
        pull = self.pull(wp, w, wa)
        return self.alpha_p * self.rate * w * pull.online - self.eta_p * wp, *self.move(wp, w, wa, pull)


@dataclass(frozen=True, kw_only=True)
class ResetPredictorFlow(_Modes):
    """(wp, w, wa, average) with a predictor that is set every `freq` steps and trained in between.

    Training moves p for freq - 1 steps after each reset, (freq - 1) / 2 of them in the mean. So does a relaxation
    towards map(average) of that length in time, which is what this flow has: right to first order in the step.
    """

    map: Map
    averaging: float
    resetting: float
    alpha_p: float = 1.0
    eta_p: float = 0.0

    state_names: ClassVar[tuple[str, ...]] = ("wp", "w", "wa", "average")

    def velocity(self, *state: Array) -> tuple[Array, ...]:
        wp, w, wa, average = state
        pull = self.pull(wp, w, wa)
        trained = self.alpha_p * self.rate * w * pull.online - self.eta_p * wp
        reset = self.resetting * (self.map(average) - wp)
        return trained + reset, *self.move(wp, w, wa, pull), self.averaging * (w * w - average)


def identity(average: Array) -> Array:
    """No predictor: p = 1."""
    return np.ones_like(average)


def set_from(*, eps: float, alpha: float = 0.5, c: float = 0.0, form: Form = "normalised") -> Map:
    """The map of eigenvalues by which training sets its predictor; see `ssl_hub.model.spectrum.eigenvalue_map`."""
    import torch  # slow to import, and only this function needs it

    from ssl_hub.model.spectrum import eigenvalue_map

    def of(average: Array) -> Array:
        s = torch.from_numpy(np.maximum(average, np.finfo(np.float64).tiny))  # all that is left of a collapse can be 0
        return np.asarray(eigenvalue_map(s, eps=eps, alpha=alpha, c=c, form=form).numpy())

    return of


def stationary_shares(r: ArrayLike, *, eps: float, alpha: float = 0.5) -> Array:
    """s / max s at which DirectPred stands still under the normalised loss without decay: p is proportional to r there.

    (s_j / m)^alpha = max(0, (1 + eps) r_j / max r - eps): a mode lives where its agreement is above eps / (1 + eps) of
    the best one's. It does not depend on rho, freq, rate, gain, beta or the start.
    """
    agreement = np.asarray(r, dtype=np.float64)
    return np.maximum((1 + eps) * agreement / agreement.max(axis=-1, keepdims=True) - eps, 0.0) ** (1 / alpha)
