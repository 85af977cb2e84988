"""The square root of a correlation matrix in matrix products alone, for devices that wait for a decomposition.

Legend: ``N`` matrices, ``D`` projection width. With x the root of an eigenvalue a of A in [0, 1], each pass takes every
x to a x + b x^3 + c x^5, by polynomials that bring all of [ELL, 1] near 1 in few passes (the greedy minimax choice of
Chen and Chow 2014 and of Amsel et al. 2025, arXiv 2505.16932). Y and Z start as A and I and are multiplied by the
same polynomial in Z Y (Higham 2008, section 6.3), so that Y has the eigenvalues x_0 x_k, which tend to the root.

:data:`ERROR` bounds the error of the passes in exact arithmetic. An eigenvalue below zero, which rounding makes of one
at zero, grows by the square of :data:`GROWTH` and must stay below 1: to about -1e-6 of the largest. More passes would
be more accurate on paper and diverge in float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

PASSES = (
    (8.298204038159454, -24.428526948204365, 18.088736446097446),
    (3.914491057768119, -2.9206139186265663, 0.5591644314120683),
    (3.172921216808745, -2.3791580848644953, 0.4976824061353374),
    (2.188310689887937, -1.5661453171390218, 0.40777246070448847),
    (1.8822077539586508, -1.2579855081116755, 0.37579944401176696),
)
ELL = 5e-3
ERROR = 6.4e-4  # |root - exact root| for eigenvalues in [0, 1]
GROWTH = 425  # of the smallest x: the product of the first coefficients
SQUARINGS = 16  # for the largest eigenvalue
MARGIN = 1.001  # above the estimate of the largest eigenvalue: the passes diverge just above 1
RIDGE = 1e-4  # of the largest eigenvalue, where the matrix alone has no root that can be trusted
TOLERANCE = 3e-3  # |Y^2 - A| / |A|, Frobenius norms, of a root that is trusted


def largest_eigenvalue(matrix: Tensor) -> Tensor:
    """Of symmetric matrices [..., D, D] without negative eigenvalues but by rounding: [..., 1, 1].

    The mean of the eigenvalues weighted by their 2^16-th powers, which matrix squaring gives. At most the exact one,
    by a share of at most log(D) / 2^16 and rounding: 9e-5 for D = 256, and far less where one eigenvalue stands out.
    Not finite for zero, and for what is not finite.
    """
    scale = matrix.abs().amax(dim=(-2, -1), keepdim=True)
    power = unit = matrix / scale
    for squaring in range(SQUARINGS):
        power = power @ power
        if squaring % 2:  # from a Frobenius norm of 1 two squarings come down to D^-2 at least
            power = power / torch.linalg.matrix_norm(power, keepdim=True)
    weights = power.diagonal(dim1=-2, dim2=-1).sum(dim=-1)[..., None, None]
    return scale * (unit * power).sum(dim=(-2, -1), keepdim=True) / weights


def unit_square_root(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The root of symmetric ``matrix`` [..., D, D] over its largest eigenvalue, and that eigenvalue [..., 1, 1].

    Where the root, squared, is not the matrix, that of the matrix with a ridge of 1e-4 is taken (its error is up to
    1e-2, for eigenvalues near zero), and where that is not one either, NaN.
    """
    with full_precision_products():
        largest = largest_eigenvalue(matrix)
        share = (matrix / (MARGIN * largest)).reshape(-1, *matrix.shape[-2:])
        eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
        both = torch.cat([share, (share + RIDGE * eye) / (1 + RIDGE)])  # at once: two cost little more than one
        roots = _passes(both)
        misfit = torch.linalg.matrix_norm(roots @ roots - both) / torch.linalg.matrix_norm(both)
    (plain, ridged), trusted = roots.chunk(2), (misfit < TOLERANCE)[:, None, None].chunk(2)
    ridged = torch.where(trusted[1], ridged * (1 + RIDGE) ** 0.5, torch.nan)
    root = torch.where(trusted[0], plain, ridged) * MARGIN**0.5
    return ((root + root.mT) / 2).reshape(matrix.shape), largest


def _passes(matrix: Tensor) -> Tensor:
    """The root of symmetric [N, D, D] with eigenvalues in [0, 1]."""
    root, product = matrix, matrix  # Y, Z Y
    inverse: Tensor | None = None  # Z
    for number, (a, b, c) in enumerate(PASSES):
        if inverse is not None:
            product = torch.bmm(inverse, root)
        rest = torch.baddbmm(product, product, product, beta=b, alpha=c)
        root = torch.baddbmm(root, root, rest, beta=a)
        if inverse is None:
            inverse = rest + a * torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
        elif number < len(PASSES) - 1:
            inverse = torch.baddbmm(inverse, rest, inverse, beta=a)
    return root


@contextmanager
def full_precision_products() -> Iterator[None]:
    """Products of float32 matrices in float32, whatever TF32 or bfloat16 the rest is allowed."""
    before = torch.get_float32_matmul_precision()
    if before == "highest":
        yield
        return
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
