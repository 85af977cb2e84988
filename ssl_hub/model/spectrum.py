"""The correlation matrix F of the projections, and the predictors that are functions of it.

Legend: ``B`` samples, ``D`` projection width. Everything here is a pure function of tensors, works in the dtype it is
given (float32 or better) and is shared by the trained predictors and the theory package.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor

from ssl_hub.model.square_root import largest_eigenvalue, unit_square_root

Form = Literal["normalised", "homogeneous", "paper", "absolute"]
Solution = Literal["right", "left", "sylvester", "caption"]

Solver = Literal["auto", "eigh", "iteration"]

LEAST_EPS = 0.01  # of the iteration: 16 times its error
FLOOR = 1e-4  # smallest predictor eigenvalue of the normalised form, as in the authors' code


def symmetrise(matrix: Tensor) -> Tensor:
    """``(M + M^T) / 2`` over the last two dimensions."""
    return (matrix + matrix.mT) / 2


def eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, ascending, and eigenvectors; on the CPU where the device has no such decomposition (MPS)."""
    try:
        s, u = torch.linalg.eigh(matrix)
    except NotImplementedError:
        s, u = (part.to(matrix.device) for part in torch.linalg.eigh(matrix.cpu()))
    return s, u


def eigvalsh(matrix: Tensor) -> Tensor:
    """Eigenvalues, ascending; see :func:`eigh`."""
    try:
        return torch.linalg.eigvalsh(matrix)
    except NotImplementedError:
        return torch.linalg.eigvalsh(matrix.cpu()).to(matrix.device)


def moving_average(average: Tensor, batch: Tensor, *, rho: float | None, seen: int | Tensor) -> Tensor:
    """The running expectation after one more batch (Tian et al. 2021, equation for F-hat in section 4).

    Args:
        average: current average, ignored while ``seen`` is 0: the first batch initialises it, so no bias correction.
        batch: expectation over the new batch, same shape.
        rho: weight of the past, in [0, 1]; None averages all batches equally.
        seen: number of batches in ``average``; a tensor is not looked at by the host.
    """
    if isinstance(seen, Tensor):
        if rho is None:
            return torch.lerp(average, batch, (seen + 1).to(average.dtype).reciprocal())
        weight = torch.full((), 1 - rho, dtype=average.dtype, device=average.device)
        return torch.lerp(average, batch, weight.masked_fill_(seen == 0, 1.0))
    if seen == 0:
        return batch.clone()
    return torch.lerp(average, batch, 1 / (seen + 1) if rho is None else 1 - rho)


def eigenvalue_map(s: Tensor, *, eps: float, alpha: float = 0.5, c: float = 0.0, form: Form = "normalised") -> Tensor:
    """Predictor eigenvalues p from the eigenvalues s of F; negative (rounding) eigenvalues count as 0.

    With m = max s:

    - ``normalised``: p = max((s/m)^alpha + eps, 1e-4), the authors' code; the direction of W does not depend on the
      scale of the projections. With ``c`` the root is taken of max(s/m - c, 1e-4), c in units of m.
    - ``homogeneous``: p = s^alpha + eps m^alpha, the normalised form times m^alpha, without its floor.
    - ``paper``: p = s^alpha + eps m as printed in Tian et al. 2021, section 4; with ``c``, max(s - c, 0)^alpha in raw
      units. Its regularisation grows with the scale of the projections, unlike what the paper's text says of it.
    - ``absolute``: p = max(s - c, 0)^alpha + eps, nothing scaled; alpha = 1 is the authors' code's ``directcopy``.

    ``alpha`` = 1/2 is DirectPred; DirectSet(alpha) and DirectCopy (alpha = 1) are Wang et al. 2021, arXiv 2110.04947.
    """
    s = s.clamp(min=0)
    m = s.amax(dim=-1, keepdim=True)
    if form == "normalised":
        share = s / m
        if c != 0:
            share = (share - c).clamp(min=FLOOR)
        return (share**alpha + eps).clamp(min=FLOOR)
    unit = {"homogeneous": m**alpha, "paper": m, "absolute": torch.ones_like(m)}[form]
    return (s - c).clamp(min=0) ** alpha + eps * unit


def predictor_from_correlation(
    correlation: Tensor,
    *,
    eps: float = 0.1,
    alpha: float = 0.5,
    c: float = 0.0,
    form: Form = "normalised",
    solver: Solver = "eigh",
) -> Tensor:
    """The DirectPred / DirectSet predictor of a correlation matrix.

    Args:
        correlation: F, [..., D, D]; symmetrised first.
        eps, alpha, c, form: see :func:`eigenvalue_map`.
        solver: ``iteration`` is :mod:`~ssl_hub.model.square_root`, for what :func:`iterates`; anything else decomposes.

    Returns:
        W = U diag(p) U^T, [..., D, D], symmetric. Not finite where F is zero in the normalised form, or not finite:
        the caller keeps its previous predictor then.
    """
    correlation = symmetrise(correlation)
    eye = torch.eye(correlation.shape[-1], dtype=correlation.dtype, device=correlation.device)
    if solver == "iteration":
        if alpha == 1:
            return correlation / largest_eigenvalue(correlation) + eps * eye
        return unit_square_root(correlation)[0] + eps * eye
    if alpha == 1 and c == 0 and eps >= FLOOR and form == "normalised":
        # DirectCopy needs the largest eigenvalue only. A negative rounding eigenvalue stays as it is: |s| << eps m.
        return correlation / eigvalsh(correlation)[..., -1, None, None] + eps * eye
    s, u = eigh(correlation)
    p = eigenvalue_map(s, eps=eps, alpha=alpha, c=c, form=form)
    return symmetrise((u * p.unsqueeze(-2)) @ u.mT)


def iterates(*, eps: float, alpha: float, c: float, form: Form) -> bool:
    """Whether the iteration gives this predictor: the normalised root (or F itself) with a regularisation well above
    the iteration's error, which would else be an error of the predictor's smallest eigenvalues."""
    return form == "normalised" and alpha in (0.5, 1) and c == 0 and eps >= LEAST_EPS


def optimal_predictor(correlation: Tensor, cross: Tensor, *, reg: float, solution: Solution = "right") -> Tensor:
    """The linear predictor that minimises the regression error, plugged in (Tian et al. 2021, table 1).

    Args:
        correlation: F = E[f f^T], [D, D], symmetric.
        cross: M = E[t f^T] of targets t and online projections f, averaged over the two directions, [D, D].
        reg: added to the eigenvalues of F.
        solution: ``right`` solves W (F + reg I) = M, the least-squares optimum; ``left`` solves (F + reg I) W = M, what
            the authors' code did by default; ``sylvester`` is the symmetric W with W F + F W + reg W = M + M^T;
            ``caption`` is the equation under the table, W (F + reg I) = (M + M^T) / 2.
    """
    correlation = symmetrise(correlation)
    s, u = eigh(correlation)
    s = s.clamp(min=0)
    if solution == "sylvester":
        rotated = u.mT @ (cross + cross.mT) @ u
        return symmetrise(u @ (rotated / (s[:, None] + s[None, :] + reg)) @ u.mT)
    inverse = (u / (s + reg)) @ u.mT
    if solution == "left":
        return inverse @ cross
    return (symmetrise(cross) if solution == "caption" else cross) @ inverse


def newton_schulz(matrix: Tensor, iterations: int) -> tuple[Tensor, Tensor]:
    """Approximate square root of a symmetric, positive semidefinite matrix [D, D], and inverse square root.

    The coupled iteration of Richemond et al. 2023 (arXiv 2302.04817, proposition on Newton-Schulz) from A = M / |M|
    (Frobenius) and B = I: A <- A (3 I - B A) / 2, B <- (3 I - B A) B / 2. A small eigenvalue grows by 3/2 an iteration
    until it is at its root, so few iterations leave the smallest too small. Not finite where M is zero.
    """
    norm = torch.linalg.matrix_norm(matrix)
    a, identity = matrix / norm, torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    b = identity
    for _ in range(iterations):
        step = (3 * identity - b @ a) / 2
        a, b = a @ step, step @ b
    return symmetrise(a) * norm.sqrt(), symmetrise(b) / norm.sqrt()


def stiefel_projection(matrix: Tensor, iterations: int) -> Tensor:
    """B M / |B| (Frobenius) with B the Newton-Schulz estimate of (M^T M)^(-1/2): a multiple of M's orthogonal factor
    in the limit (Richemond et al. 2023, proposition on the Stiefel predictor)."""
    _, inverse_root = newton_schulz(matrix.mT @ matrix, iterations)
    return symmetrise(inverse_root @ matrix.mT) / torch.linalg.matrix_norm(inverse_root)


def effective_rank(eigenvalues: Tensor) -> Tensor:
    """exp of the entropy of the normalised eigenvalues, in [1, D] (Roy and Vetterli 2007)."""
    share = eigenvalues.clamp(min=0)
    share = share / share.sum().clamp(min=torch.finfo(share.dtype).tiny)
    return torch.exp(-torch.special.xlogy(share, share).sum())


def feature_std(features: Tensor) -> Tensor:
    """Mean over the ``D`` columns of the standard deviation of l2-normalised ``features`` [B, D].

    Near 1/sqrt(D) when features spread over the sphere, 0 when they collapse to a point (Chen and He 2021, figure 2).
    """
    unit = torch.nn.functional.normalize(features.float(), dim=-1)
    return unit.std(dim=0, unbiased=False).mean()


def alignment(predictor: Tensor, correlation: Tensor) -> Tensor:
    """|cos| between each eigenvector u of F and W u, [D], ascending eigenvalues (Tian et al. 2021, figure 3)."""
    _, u = eigh(symmetrise(correlation))
    return torch.nn.functional.cosine_similarity(predictor @ u, u, dim=0).abs()


def asymmetry(matrix: Tensor) -> Tensor:
    """Frobenius norm of the antisymmetric part over that of the matrix, in [0, 1]."""
    return torch.linalg.matrix_norm((matrix - matrix.mT) / 2) / torch.linalg.matrix_norm(matrix).clamp(min=1e-30)


def mean_over_processes(totals: Sequence[Tensor], counts: Sequence[int | Tensor]) -> list[Tensor]:
    """``sum of total / sum of count`` of each over all processes, in one collective; zero where nothing was counted."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return [total / _at_least_one(count) for total, count in zip(totals, counts, strict=True)]
    # Filled, not made of Python's numbers: an upload would have the host wait.
    one = totals[0]
    numbers = [n.reshape(1) if isinstance(n, Tensor) else one.new_full((1,), n) for n in counts]
    packed = torch.cat([*(total.flatten() for total in totals), *numbers])
    dist.all_reduce(packed)
    *sums, number = packed.split([*(total.numel() for total in totals), len(counts)])
    means = zip(sums, totals, number.clamp(min=1), strict=True)
    return [(whole / count).view_as(total) for whole, total, count in means]


def _at_least_one(count: int | Tensor) -> int | Tensor:
    return count.clamp(min=1) if isinstance(count, Tensor) else max(count, 1)


def gather_rows(rows: Tensor) -> Tensor:
    """The rows of all processes, [B, D] of each, as many of each: [processes * B, D]. Without gradient."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return rows
    parts = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, rows.contiguous())
    return torch.cat(parts)


def healthy_std(width: int) -> float:
    """The value of :func:`feature_std` for features spread evenly over the sphere in ``width`` dimensions."""
    return 1 / math.sqrt(width)
