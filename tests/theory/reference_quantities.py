"""The derived quantities of a trajectory, by the names of the reference files."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from ssl_hub.theory import decoupled, fixed_points
from ssl_hub.theory.derived import (
    alignment_matrix,
    balance,
    collapse_matrix,
    norm,
    normalised_commutator,
    proportionality,
)
from ssl_hub.theory.dynamics import NoPredictorByolFlow, SimSiamFlow, commutator, skew_part, symmetric_part, transpose
from ssl_hub.theory.flow import Array, Trajectory


def along(path: Trajectory, init: Mapping[str, ArrayLike]) -> dict[str, Array]:
    """What a case asks for along a single trajectory, each (T, ...)."""
    flow, states = path.flow, path.states
    if {"p", "s"} <= states.keys():
        p, s, tau = path["p"], path["s"], states.get("tau", getattr(flow, "tau", 1.0))
        K = decoupled.K_eigenvalue(p, s, sigma2=flow.sigma2, alpha_p=flow.alpha_p, eta=flow.alignment_decay, tau=tau)
        c = decoupled.integral_of_motion(p, s, alpha_p=flow.alpha_p) * np.exp(2 * flow.eta * path.t)
        return {"c": c, "K": K}
    if {"p", "tau"} <= states.keys():
        start = {name: float(np.asarray(value)) for name, value in init.items()}
        return {"tau_closed_form": fixed_points.tau_closed_form(flow, start, path.t)}
    if {"wp", "w"} <= states.keys():
        wp, w = path["wp"], path["w"]
        return {"prod": wp * w, "cons": decoupled.integral_of_motion(wp, w**2, alpha_p=flow.alpha_p)}
    return _along_matrices(path) if flow.state_ndim else {}


def _along_matrices(path: Trajectory) -> dict[str, Array]:
    flow, states = path.flow, path.states
    out = {"normW": norm(path["W"])} if "W" in states else {}
    if isinstance(flow, NoPredictorByolFlow):
        out |= _scrambled_norms(flow, path["W"])
    if "Wp" not in states:
        return out
    Wp = path["Wp"]
    out |= {"normWp": norm(Wp), "normA": norm(symmetric_part(Wp)), "normB": norm(skew_part(Wp))}
    if states.keys() == {"Wp"}:
        return out
    F = path["F"] if "F" in states else path["W"] @ transpose(path["W"])
    out["invariance_C"] = np.exp(2 * flow.eta * path.t)[:, None, None] * balance(Wp, F, alpha_p=flow.alpha_p)
    if "F" in states:
        out["comm_norm"] = norm(commutator(F, Wp))
        out["comm_norm_normalised"] = normalised_commutator(Wp, F)
        out["K_eigs"] = np.linalg.eigvalsh(symmetric_part(alignment_matrix(flow, Wp, F)))
    if isinstance(flow, SimSiamFlow):
        out["lam_min_H"] = np.array([np.linalg.eigvalsh(collapse_matrix(flow, one))[0] for one in Wp])
    if "Wa" in states:
        out["tau_ls"], out["corr_Wa_W"] = proportionality(path["W"], path["Wa"])
        out |= _modes(Wp, path["W"], path["Wa"])
    return out


def _modes(Wp: Array, W: Array, Wa: Array) -> dict[str, Array]:
    """p, s and tau_j of every mode in the eigenbasis of the first Wp, and the largest off-diagonal entry left there.

    The modes are in the order of ascending p at the first time; meaningful for aligned dynamics.
    """
    F = W @ transpose(W)
    U = np.linalg.eigh(symmetric_part(Wp[0]))[1]
    P, S, T = (U.T @ matrix @ U for matrix in (Wp, F, Wa @ transpose(W)))
    p, s, t = (np.diagonal(matrix, axis1=-2, axis2=-1) for matrix in (P, S, T))
    rest = np.maximum(np.abs(P - p[..., None] * np.eye(len(U))), np.abs(S - s[..., None] * np.eye(len(U))))
    return {"p": p, "s": s, "tau_j": t / s, "offdiag_max": rest.max(axis=(-2, -1))}


def _scrambled_norms(flow: NoPredictorByolFlow, W: Array) -> dict[str, Array]:
    """Parts of W on the null space of Sigma^s - Sigma^d, which augmentation conserves, and on its complement."""
    values, vectors = np.linalg.eigh(np.asarray(flow.Sigma_s) - np.asarray(flow.Sigma_d))
    kept = vectors[:, np.abs(values) < 1e-9 * np.abs(values).max()]
    inside = W @ kept @ kept.T
    return {"norm_in_conserved": norm(inside), "norm_in_scrambled": norm(W - inside)}
