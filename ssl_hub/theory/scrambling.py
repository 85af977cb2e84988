"""Two models of augmentation with known correlation matrices: multiplicative and additive scrambling.

Sigma^s = E[x1 x1^T] correlates a view with itself and Sigma^d = E[x1 x2^T] two views of one image. Features that BYOL
and SimSiam can keep are eigenmodes of Sigma^d (Sigma^s)^{-1}: fixed points obey Wp W = W Sigma^d (Sigma^s)^{-1}.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ssl_hub.errors import UsageError
from ssl_hub.theory.dynamics import square
from ssl_hub.theory.flow import Array


class Scrambling(NamedTuple):
    """Correlations of views under an augmentation model."""

    Sigma_s: Array
    Sigma_d: Array

    @property
    def product(self) -> Array:
        """Sigma^d (Sigma^s)^{-1}, the matrix whose left eigenvectors are the learnable features.

        Raises `numpy.linalg.LinAlgError` where Sigma^s is singular.
        """
        return np.asarray(np.linalg.solve(self.Sigma_s.T, self.Sigma_d.T).T, dtype=np.float64)

    @property
    def features(self) -> tuple[Array, Array]:
        """Left eigenvectors of the product as rows, with their eigenvalues, largest first; all lie in [0, 1]."""
        values, vectors = np.linalg.eig(self.product.T)
        order = np.argsort(-values.real)
        return values.real[order], vectors.real.T[order]


def multiplicative_scrambling(Sigma_x: ArrayLike, U: ArrayLike) -> Scrambling:
    """A = Pc + U B U^T with B standard Gaussian scrambles the subspace spanned by the orthonormal columns of U.

    Sigma^d = Pc Sigma_x Pc and Sigma^s = Pc Sigma_x Pc + tr(U^T Sigma_x U) U U^T, with Pc = I - U U^T. Then
    Sigma^d (Sigma^s)^{-1} = Pc for every Sigma_x, whether or not it commutes with Pc.

    Erratum: the paper has Sigma^s = Sigma_x, which E[B_ij B_kl] = delta_ik delta_jl contradicts; with it the product
    can have eigenvalues above 1, which no pair of views has.

    Args:
        Sigma_x: data correlation, (n, n).
        U: (n, k), orthonormal columns.

    Raises:
        UsageError: columns that are not orthonormal, or shapes that do not fit.
    """
    data, basis = square(Sigma_x, "Sigma_x"), np.asarray(U, dtype=np.float64)
    if basis.ndim != 2 or basis.shape[0] != data.shape[0]:
        raise UsageError(f"U has shape {basis.shape}; expected ({data.shape[0]}, k) to fit Sigma_x")
    if not np.allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-8):
        raise UsageError("the columns of U are not orthonormal; pass np.linalg.qr(U)[0]")
    kept = conserved_projection(basis)
    Sigma_d = kept @ data @ kept
    return Scrambling(Sigma_d + np.trace(basis.T @ data @ basis) * basis @ basis.T, Sigma_d)


def additive_scrambling(Sigma_x: ArrayLike, Sigma_n: ArrayLike) -> Scrambling:
    """x' = x + noise of covariance Sigma_n: Sigma^s = Sigma_x + Sigma_n, Sigma^d = Sigma_x."""
    data, noise = square(Sigma_x, "Sigma_x"), square(Sigma_n, "Sigma_n")
    if data.shape != noise.shape:
        raise UsageError(f"Sigma_x is {data.shape} and Sigma_n is {noise.shape}; expected equal shapes")
    return Scrambling(data + noise, data)


def conserved_projection(U: ArrayLike) -> Array:
    """Pc = I - U U^T, the projection on the subspace that multiplicative scrambling keeps."""
    basis = np.asarray(U, dtype=np.float64)
    return np.eye(basis.shape[0]) - basis @ basis.T
