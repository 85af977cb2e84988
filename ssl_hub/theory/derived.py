"""Quantities that the paper derives from a state: K and the commutator, H, Theorem 1's matrix, tau, norms."""

from __future__ import annotations

import numpy as np

from ssl_hub.theory.dynamics import PredictorCorrelationFlow, SimSiamFlow, commutator, transpose
from ssl_hub.theory.flow import Array


def norm(matrix: Array) -> Array:
    """Frobenius norm over the last two axes."""
    return np.asarray(np.linalg.norm(matrix, axis=(-2, -1)))


def balance(Wp: Array, F: Array, *, alpha_p: float) -> Array:
    """D = F - Wp^T Wp / alpha_p; Theorem 1 says D(t) = e^{-2 eta t} D(0)."""
    return F - transpose(Wp) @ Wp / alpha_p


def alignment_matrix(flow: PredictorCorrelationFlow, Wp: Array, F: Array) -> Array:
    """K = k (alpha_p F / 2 + Wp^2 - tau Wp / k) + (eta_p + 2 eta_s) / 2 I of Theorem 3, (..., n2, n2).

    The paper has one eta, for which the last term is 3 eta / 2.
    """
    k = 1.0 + flow.sigma2
    decay = 1.5 * flow.alignment_decay
    return k * (flow.alpha_p * F / 2 + Wp @ Wp) - flow.tau * Wp + decay * np.eye(Wp.shape[-1])


def normalised_commutator(Wp: Array, F: Array) -> Array:
    """|[F, Wp]| / (|F| |Wp|), Frobenius norms; 0 for aligned eigenspaces.

    Erratum: the paper's |[F, Wp]| falls also when F and Wp merely shrink (pure decay: as e^{-3 eta t}, at constant
    alignment), and rises when they grow. This ratio does neither.
    """
    return norm(commutator(F, Wp)) / (norm(F) * norm(Wp))


def collapse_matrix(flow: SimSiamFlow, Wp: Array) -> Array:
    """H = X' (x) (Wp^T Wp + I) + X (x) (Wp - I)^T (Wp - I) + eta I of Theorem 2, (n1 n2, n1 n2); vec(W) is by columns.

    Erratum: the supplement omits the term in eta.
    """
    identity = np.eye(Wp.shape[-1])
    shifted = Wp - identity
    data = np.kron(flow.xprime, Wp.T @ Wp + identity) + np.kron(flow.x, shifted.T @ shifted)
    return np.asarray(data + flow.online_decay * np.eye(data.shape[0]))


def proportionality(W: Array, Wa: Array) -> tuple[Array, Array]:
    """How far Wa = tau W (Assumption 1) holds: least-squares tau, and the normalised correlation <Wa, W>/(|Wa| |W|)."""
    inner = (Wa * W).sum(axis=(-2, -1))
    return inner / norm(W) ** 2, inner / (norm(Wa) * norm(W))
