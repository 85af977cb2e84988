"""The lemmas and theorems of the paper, each as a function that measures its defect beside the bound it should keep.

A function takes a setting (a flow and a state) where the statement is about an instant, and a trajectory where it is
about time. It returns a `Defect`; where a statement has exceptions the same function measures them, and its docstring
names them as errata.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.integrate import cumulative_simpson
from scipy.linalg import expm, sqrtm

from ssl_hub.errors import UsageError
from ssl_hub.theory.derived import alignment_matrix, balance, collapse_matrix, norm, normalised_commutator
from ssl_hub.theory.dynamics import (
    BalancedPredictorFlow,
    ByolFlow,
    NoPredictorFlow,
    PredictorCorrelationFlow,
    SimSiamFlow,
    anticommutator,
    commutator,
    skew_part,
    transpose,
)
from ssl_hub.theory.flow import Array, Flow, Trajectory
from ssl_hub.theory.scrambling import Scrambling

# An identity is an identity if it holds to this many units of its own scale; trajectories carry the solver's error.
IDENTITY, SOLVER = 1e-11, 1e-8
# Slack of an inequality whose two sides are equal at t = 0, for quadrature along the trajectory.
QUADRATURE = 1e-6


@dataclass(frozen=True)
class Defect:
    """How far a statement is from true: it holds where `measured <= bound`."""

    measured: float
    bound: float
    detail: str = ""

    @property
    def holds(self) -> bool:
        return bool(self.measured <= self.bound)


def lemma1(flow: ByolFlow | SimSiamFlow, Wp: Array, W: Array, Wa: Array | None = None) -> Defect:
    """Lemma 1 (and Theorem 2's gradient) against autograd of the objective on data with exactly these X and X'.

    The data are n1 images whose augmentation averages have correlation X, each with 2 n1 equally likely augmentations
    of covariance X'; the objective averages over every pair of views, with the target detached where the flow says so.

    Args:
        flow: the setting; its `symmetrise` must be off.
        Wp, W: predictor and online network; Wa: target, for `ByolFlow`.
    """
    if flow.symmetrise:
        raise UsageError("Lemma 1 is about the unsymmetrised flow; got symmetrise=True")
    import torch  # slow to import, and only this function needs it

    tensors = [torch.tensor(np.asarray(m), dtype=torch.float64, requires_grad=True) for m in (Wp, W)]
    predictor, online = tensors
    n1 = flow.x.shape[0]
    images = torch.from_numpy(np.sqrt(n1) * np.real(sqrtm(flow.x)))
    half = np.sqrt(n1) * np.real(sqrtm(flow.xprime))
    noise = torch.from_numpy(np.concatenate([half, -half]))
    views = images[:, None, :] + noise[None, :, :]

    prediction = views @ online.T @ predictor.T
    keep_gradient = isinstance(flow, SimSiamFlow) and not flow.stop_gradient
    target_weight = torch.from_numpy(np.asarray(Wa)) if Wa is not None else online if keep_gradient else online.detach()
    target = views @ target_weight.T
    pairs = prediction[:, :, None, :] - target[:, None, :, :]
    objective = (pairs**2).sum(-1).mean() / 2
    grad_Wp, grad_W = (g.numpy() for g in torch.autograd.grad(objective, tensors))

    state = (Wp, W) if isinstance(flow, SimSiamFlow) else (Wp, W, np.asarray(Wa))
    dWp, dW = flow.velocity(*state)[:2]
    by_autograd = -flow.alpha_p * grad_Wp - flow.predictor_decay * Wp, -grad_W - flow.online_decay * W
    scale = 1.0 + float(norm(dWp) + norm(dW))
    measured = float(norm(dWp - by_autograd[0]) + norm(dW - by_autograd[1])) / scale
    return Defect(measured, IDENTITY)


def theorem1(path: Trajectory) -> Defect:
    """Theorem 1: D(t) = F - Wp^T Wp / alpha_p decays as e^{-2 eta t}, whatever the target does.

    Measured: the largest |D(t) - e^{-2 eta t} D(0)| over the trajectory, which may be of `ByolFlow` or `SimSiamFlow`
    (F stands for W W^T), of `PredictorCorrelationFlow`, or one of `euler`.

    Errata: the supplement's statement drops alpha_p. It needs one eta for both networks. Under the symmetrised flow of
    Assumption 3 it holds only while F and Wp commute (see `theorem1_symmetrised_rate`). In discrete time it is broken
    at first order in the learning rate. All three show as a defect here.
    """
    flow = _flow_of(path, (ByolFlow, SimSiamFlow, PredictorCorrelationFlow), "Theorem 1")
    F = path["F"] if isinstance(flow, PredictorCorrelationFlow) else path["W"] @ transpose(path["W"])
    D = balance(path["Wp"], F, alpha_p=flow.alpha_p)
    measured = float(norm(D - np.exp(-2 * flow.predictor_decay * _elapsed(path, D)) * D[0]).max())
    return Defect(measured, SOLVER)


def theorem1_symmetrised_rate(flow: PredictorCorrelationFlow, Wp: Array, F: Array) -> Defect:
    """What replaces Theorem 1 under Assumption 3: D' + 2 eta D = -(k/2) [Wp, [Wp, F]] for D = F - Wp^2 / alpha_p."""
    dWp, dF = flow.velocity(Wp, F)
    rate = dF - anticommutator(Wp, dWp) / flow.alpha_p + 2 * flow.eta * balance(Wp, F, alpha_p=flow.alpha_p)
    expected = -(1.0 + flow.sigma2) / 2 * commutator(Wp, commutator(Wp, F))
    return Defect(float(norm(rate - expected)), IDENTITY * (1 + float(norm(dF))))


def theorem2(flow: SimSiamFlow, Wp: Array, W: Array) -> Defect:
    """Theorem 2: without the stop-gradient vec(W)' = -H vec(W), vec by columns."""
    _require_no_stop_gradient(flow)
    dW = flow.velocity(Wp, W)[1]
    residual = dW.ravel(order="F") + collapse_matrix(flow, Wp) @ W.ravel(order="F")
    return Defect(float(np.linalg.norm(residual)), IDENTITY * (1 + float(norm(dW))))


def theorem2_decay(path: Trajectory) -> Defect:
    """Theorem 2: |W(t)| <= e^{-lambda0 t} |W(0)|, lambda0 the least eigenvalue of H over the trajectory.

    Measured: the largest |W(t)| e^{lambda0 t} / |W(0)|. Erratum: where eta = 0 and X' is singular lambda0 is 0 and W
    need not vanish; `detail` carries lambda0.
    """
    flow = _flow_of(path, (SimSiamFlow,), "Theorem 2")
    _require_no_stop_gradient(flow)
    lambda0 = min(float(np.linalg.eigvalsh(collapse_matrix(flow, Wp))[0]) for Wp in path["Wp"])
    size = norm(path["W"])
    measured = float((size * np.exp(lambda0 * _elapsed(path, size)) / size[0]).max())
    return Defect(measured, 1 + QUADRATURE, f"lambda0 = {lambda0:.3g}")


def theorem3(flow: PredictorCorrelationFlow, Wp: Array, F: Array) -> Defect:
    """Theorem 3: under the symmetrised flow [F, Wp]' = -[F, Wp] K - K [F, Wp]."""
    _require_symmetrised(flow)
    dWp, dF = flow.velocity(Wp, F)
    rate = commutator(dF, Wp) + commutator(F, dWp)
    L, K = commutator(F, Wp), alignment_matrix(flow, Wp, F)
    return Defect(float(norm(rate + L @ K + K @ L) / (1 + norm(rate))), IDENTITY)


@dataclass(frozen=True)
class AlignmentHistory:
    """The commutator L = [F, Wp] along a trajectory; every array is (T,).

    `bound` is |L(0)| exp(-2 int least eigenvalue of K); `sharp_bound` uses the sum of the two least eigenvalues, which
    is enough because L is skew. Both hold at every time whatever the sign of K.
    """

    t: Array
    norm: Array
    normalised: Array
    least_K: Array
    bound: Array
    sharp_bound: Array


def alignment_history(path: Trajectory) -> AlignmentHistory:
    """Theorem 3 along one trajectory of the symmetrised (Wp, F) flow, sampled densely enough to integrate K."""
    flow = _flow_of(path, (PredictorCorrelationFlow,), "Theorem 3")
    _require_symmetrised(flow)
    Wp, F = path["Wp"], path["F"]
    kappa: Array = np.asarray(np.linalg.eigvalsh(alignment_matrix(flow, Wp, F)), dtype=np.float64)
    L = norm(commutator(F, Wp))
    decay = [cumulative_simpson(rate, x=path.t, initial=0) for rate in (2 * kappa[:, 0], kappa[:, 0] + kappa[:, 1])]
    return AlignmentHistory(
        path.t, L, normalised_commutator(Wp, F), kappa[:, 0], L[0] * np.exp(-decay[0]), L[0] * np.exp(-decay[1])
    )


def theorem3_decay(path: Trajectory, *, sharp: bool = False) -> Defect:
    """Theorem 3: |L(t)| stays below its exponential bound. Measured: the largest ratio of the two.

    Erratum: the supplement writes lambda0 as a maximum over time of K's least eigenvalue; it is the infimum. The bound
    here is the integrated form, which implies the paper's e^{-2 lambda0 t}.
    """
    history = alignment_history(path)
    limit = history.sharp_bound if sharp else history.bound
    above_rounding = history.norm > 1e-9 * history.norm[0]
    measured = float((history.norm / limit)[above_rounding].max())
    detail = f"least K {history.least_K.min():.3g}, peak |L|/|L(0)| {(history.norm / history.norm[0]).max():.3g}"
    return Defect(measured, 1 + 1e-3, detail)


def skew_part_decay(path: Trajectory) -> Defect:
    """|B(t)| <= e^{-eta t} |B(0)| for the skew part B of Wp on F = Wp^T Wp / alpha_p: stronger than the paper's remark.

    It follows from d/dt |B|^2 / 2 = -(k/2)(|[A, B]|^2 + 2 tr(B^T B Wp^T Wp)) - eta |B|^2.
    """
    flow = _flow_of(path, (BalancedPredictorFlow,), "the bound on the skew part")
    size = norm(skew_part(path["Wp"]))
    measured = float((size * np.exp(flow.eta * _elapsed(path, size)) / size[0]).max())
    return Defect(measured, 1 + QUADRATURE)


def stationary_predictor(F: Array, *, sigma2: float, alpha_p: float, eta: float, tau: float) -> Array:
    """The predictor at which its flow stands still for a given F: Wp = tau F (k F + eta / alpha_p I)^{-1}, symmetric.

    Erratum: the derivation multiplies by U from the left and U^T from the right; it must be U^T and U.
    """
    shifted = (1.0 + sigma2) * F + eta / alpha_p * np.eye(len(F))
    return np.asarray(np.linalg.solve(shifted.T, tau * F.T).T)


def no_predictor(path: Trajectory) -> Defect:
    """Without a predictor W(t) = W(0) exp(-(X' + eta I) t), twice X' without the stop-gradient.

    Erratum: W(t) does not always go to 0. With eta = 0 the part of W(0) on the null space of X' stays; `detail` has
    the norm at the end.
    """
    flow = _flow_of(path, (NoPredictorFlow,), "the closed form of W")
    xprime = np.asarray(flow.Xprime, dtype=np.float64)
    rate = (1.0 if flow.stop_gradient else 2.0) * xprime + flow.eta * np.eye(len(xprime))
    closed = np.stack([path["W"][0] @ expm(-rate * (t - path.t[0])) for t in path.t])
    detail = f"|W| from {float(norm(path['W'][0])):.4g} to {float(norm(path['W'][-1])):.4g}"
    return Defect(float(norm(path["W"] - closed).max()), SOLVER, detail)


def scrambling_fixed_points(
    views: Scrambling, n2: int, *, alpha_p: float = 1.0, beta: float = 1.0, S: Array | None = None
) -> Defect:
    """Rows of W in the leading left eigenvectors of Sigma^d (Sigma^s)^{-1}, Wp their eigenvalues: BYOL stands still.

    With an invertible `S` (n2, n2) the whole family Wp -> S Wp S^{-1}, W -> S W. `detail` has the dimension of the
    manifold of solutions of Wp W = W Sigma^d (Sigma^s)^{-1} there, which the paper puts at n2^2.
    """
    values, rows = views.features
    W, Wp = rows[:n2], np.diag(values[:n2])
    if S is not None:
        W, Wp = S @ W, S @ Wp @ np.linalg.inv(S)
    flow = ByolFlow(X=views.Sigma_d, Xprime=views.Sigma_s - views.Sigma_d, alpha_p=alpha_p, beta=beta)
    measured = float(max(norm(velocity) for velocity in flow.velocity(Wp, W, W)))
    identity1, identity2 = np.eye(W.shape[1]), np.eye(n2)
    by_predictor = np.kron(W.T, identity2)  # vec(dWp W), by columns
    by_online = np.kron(identity1, Wp) - np.kron(views.product.T, identity2)  # vec(Wp dW - dW Sigma^d Sigma^s^-1)
    singular = np.linalg.svd(np.concatenate([by_predictor, by_online], axis=1), compute_uv=False)
    dimension = n2 * n2 + W.size - int((singular > 1e-9 * singular[0]).sum())
    detail = f"solution manifold of dimension {dimension}, n2^2 = {n2 * n2}"
    return Defect(measured, IDENTITY * (1 + float(norm(W) * norm(Wp))), detail)


def _flow_of(path: Trajectory, kinds: tuple[type[Flow], ...], statement: str) -> Any:
    if not isinstance(path.flow, kinds):
        expected = " or ".join(kind.__name__ for kind in kinds)
        raise UsageError(f"{statement} is about {expected}; got a trajectory of {type(path.flow).__name__}")
    return path.flow


def _elapsed(path: Trajectory, values: Array) -> Array:
    """Time since the start, in the shape of values along the trajectory."""
    return (path.t - path.t[0]).reshape(-1, *[1] * (values.ndim - 1))


def _require_no_stop_gradient(flow: SimSiamFlow) -> None:
    if flow.stop_gradient:
        raise UsageError("Theorem 2 is about SimSiam without the stop-gradient; got stop_gradient=True")


def _require_symmetrised(flow: PredictorCorrelationFlow) -> None:
    if not flow.symmetrise:
        raise UsageError("Theorem 3 is about the symmetrised flow (Assumption 3); got symmetrise=False")
