"""Discrete time: explicit Euler on any flow, and the training loop's own step on a linear network.

`euler` is what the paper's simulations do. `LinearTraining` is what training does: SGD with momentum and weight decay
as in `torch.optim.SGD`, one learning rate per network, then the predictor's refresh, then the EMA with the *new* online
weights. On a linear network it is the training loop step for step; with `loss="squared"`, no momentum and a small
learning rate it is Euler on Lemma 1 up to the order of the EMA.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from ssl_hub.errors import UsageError
from ssl_hub.theory.dynamics import symmetric_part, transpose
from ssl_hub.theory.flow import Array, Flow, Layout, Trajectory

PredictorRule = Literal["regular", "symmetric", "direct"]
Loss = Literal["cosine", "squared"]
Form = Literal["normalised", "homogeneous", "paper", "absolute"]


def euler(flow: Flow, init: Mapping[str, ArrayLike], alpha: float, steps: Sequence[int]) -> Trajectory:
    """Simultaneous explicit Euler, y <- y + alpha f(y), recorded after the given numbers of steps (increasing, >= 0).

    A grid of initial conditions is one call. `Trajectory.t` holds steps times alpha.

    Raises:
        UsageError: a learning rate that is not positive, or step counts that do not increase.
    """
    counts = [int(step) for step in steps]
    if not counts or counts[0] < 0 or any(b <= a for a, b in pairwise(counts)):
        raise UsageError(f"steps is {counts[:6]}; expected increasing numbers of steps, from 0 on")
    if not (np.isfinite(alpha) and alpha > 0):
        raise UsageError(f"alpha is {alpha}; expected a positive learning rate")
    layout = Layout.of(flow, init)
    rhs = layout.right_hand_side(flow)
    y = layout.pack(init)
    out = np.empty((len(counts), *y.shape))
    done = 0
    for index, count in enumerate(counts):
        for _ in range(count - done):
            y = y + alpha * rhs(y)
        out[index], done = y, count
    return Trajectory(flow, alpha * np.asarray(counts, dtype=np.float64), layout.unpack_times(out))


@dataclass(kw_only=True)
class LinearTraining:
    """A training run of f = W x, without biases, on given pairs of views; `step` does one iteration in place.

    Shapes: `W` and `Wa` (n2, n1), `Wp` (n2, n2); views (B, n1).

    Args:
        W, Wp, Wa: initial online, predictor and target weights; copied.
        lr, momentum, weight_decay: of SGD, g += weight_decay w; buffer = momentum buffer + g; w -= lr buffer, the
            buffer being g itself on the first step. `alpha_p` multiplies the predictor's learning rate.
        ema_m: Wa <- ema_m Wa + (1 - ema_m) W after the step. 0 is SimSiam up to the lag of one step.
        predictor: "regular" SGD; "symmetric", which also symmetrises Wp after each step; "direct", which overwrites Wp
            from F whenever `iteration % freq == 0`, after the step. Momentum buffers are never reset.
        freq, rho, eps: of the direct predictor. freq 0 never overwrites. F starts as the first batch's E[f f^T], over
            both views, and is then rho F + (1 - rho) E[f f^T], always with the weights before the step.
        loss: "cosine" is mean(-2 cos(Wp f1, Wa x2) - 2 cos(Wp f2, Wa x1)); "squared" the symmetric loss of the
            supplement, mean(|Wp f1 - Wa x2|^2 + |Wp f2 - Wa x1|^2) / 4, whose gradient is Lemma 1 on the batch.
    """

    W: Array
    Wp: Array
    Wa: Array
    lr: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    alpha_p: float = 1.0
    ema_m: float = 0.996
    predictor: PredictorRule = "regular"
    freq: int = 1
    rho: float = 0.3
    eps: float = 0.1
    loss: Loss = "cosine"
    iteration: int = 0
    F: Array | None = None
    _buffers: dict[str, Array] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for name in ("W", "Wp", "Wa"):
            setattr(self, name, np.array(getattr(self, name), dtype=np.float64))
        n2, n1 = self.W.shape
        if self.Wp.shape != (n2, n2) or self.Wa.shape != (n2, n1):
            raise UsageError(
                f"W is {self.W.shape}, Wp {self.Wp.shape} and Wa {self.Wa.shape}; expected (n2, n1), (n2, n2), (n2, n1)"
            )
        if self.predictor not in ("regular", "symmetric", "direct"):
            raise UsageError(f"unknown predictor {self.predictor!r}; expected regular, symmetric or direct")
        if self.loss not in ("cosine", "squared"):
            raise UsageError(f"unknown loss {self.loss!r}; expected cosine or squared")

    def step(self, x1: ArrayLike, x2: ArrayLike) -> float:
        """One iteration on a batch of pairs of views, each (B, n1); returns the loss before the step."""
        views = np.asarray(x1, dtype=np.float64), np.asarray(x2, dtype=np.float64)
        f = [view @ self.W.T for view in views]
        self._observe(np.concatenate(f))

        targets = views[1] @ self.Wa.T, views[0] @ self.Wa.T
        loss = 0.0
        grad_W, grad_Wp = np.zeros_like(self.W), np.zeros_like(self.Wp)
        for view, features, target in zip(views, f, targets, strict=True):
            value, grad_q = self._loss(features @ self.Wp.T, target)
            loss += value
            grad_Wp += grad_q.T @ features
            grad_W += self.Wp.T @ grad_q.T @ view

        self._descend("W", grad_W, self.lr)
        self._descend("Wp", grad_Wp, self.lr * self.alpha_p)
        self._refresh()
        self.Wa = self.ema_m * self.Wa + (1 - self.ema_m) * self.W
        self.iteration += 1
        return loss

    def _observe(self, features: Array) -> None:
        self.F = running_correlation(self.F, features, rho=self.rho)

    def _loss(self, q: Array, target: Array) -> tuple[float, Array]:
        """Loss of one direction, and its gradient with respect to the prediction q."""
        count = len(q)
        if self.loss == "squared":
            residual = q - target
            return float((residual**2).sum() / (4 * count)), residual / (2 * count)
        q_norm = np.linalg.norm(q, axis=1, keepdims=True)
        q_hat, t_hat = q / q_norm, target / np.linalg.norm(target, axis=1, keepdims=True)
        cosine = (q_hat * t_hat).sum(axis=1, keepdims=True)
        return float(-2 * cosine.mean()), -2 * (t_hat - cosine * q_hat) / (q_norm * count)

    def _descend(self, name: str, gradient: Array, lr: float) -> None:
        weight: Array = getattr(self, name)
        gradient = gradient + self.weight_decay * weight
        buffer = gradient if name not in self._buffers else self.momentum * self._buffers[name] + gradient
        self._buffers[name] = buffer
        setattr(self, name, weight - lr * buffer)

    def _refresh(self) -> None:
        if self.predictor == "symmetric":
            self.Wp = symmetric_part(self.Wp)
        elif self.predictor == "direct" and self.freq > 0 and self.iteration % self.freq == 0:
            assert self.F is not None  # observed earlier in the same step
            self.Wp = direct_predictor(self.F, eps=self.eps)


def running_correlation(F: Array | None, features: Array, *, rho: float) -> Array:
    """F after one more batch of projections (N, n2), by the average that training keeps; None starts it."""
    import torch  # slow to import, and only these two functions need it

    from ssl_hub.model.spectrum import moving_average

    batch = torch.from_numpy(features.T @ features / len(features))
    past = batch if F is None else torch.from_numpy(F)
    return np.asarray(moving_average(past, batch, rho=rho, seen=0 if F is None else 1).numpy())


def direct_predictor(F: ArrayLike, *, eps: float = 0.1, form: Form = "normalised", c: float = 0.0) -> Array:
    """DirectPred's predictor of a correlation matrix, from the one implementation that training uses.

    `form` and `c` as in `ssl_hub.model.spectrum.predictor_from_correlation`.
    """
    import torch

    from ssl_hub.model.spectrum import predictor_from_correlation

    matrix = torch.from_numpy(np.array(F, dtype=np.float64))
    return np.asarray(predictor_from_correlation(matrix, eps=eps, c=c, form=form).numpy())


def population_moments(x1: ArrayLike, x2: ArrayLike) -> tuple[Array, Array]:
    """X and X' of a batch of pairs of views, each (B, n1): the Lemma-1 data whose flow the batch's SGD follows.

    X is the symmetrised cross-correlation of the two views, X + X' the average of their own correlations.
    """
    a, b = np.asarray(x1, dtype=np.float64), np.asarray(x2, dtype=np.float64)
    different = (a.T @ b + b.T @ a) / (2 * len(a))
    same = (a.T @ a + b.T @ b) / (2 * len(a))
    return different, same - different


def squared_error(Wp: Array, W: Array, Wa: Array, X: Array, Xprime: Array) -> Array:
    """J of Lemma 1 over the population, without weight decay: E|Wp f1 - f2a|^2 / 2."""
    own = Wp @ W
    total = X + Xprime
    trace = np.trace(
        own @ total @ transpose(own) - 2 * own @ X @ transpose(Wa) + Wa @ total @ transpose(Wa), axis1=-2, axis2=-1
    )
    return np.asarray(trace / 2)
