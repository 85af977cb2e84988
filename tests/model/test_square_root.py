"""The root by matrix products against the exact one, over spectra of every kind, and where there is none."""

import math

import pytest
import torch
from torch import Tensor

from ssl_hub.model import square_root
from ssl_hub.model.square_root import (
    ERROR,
    GROWTH,
    PASSES,
    full_precision_products,
    largest_eigenvalue,
    unit_square_root,
)

WIDTH = 96


def spread(start: float, end: float) -> Tensor:
    return torch.exp(torch.linspace(start, end, WIDTH, dtype=torch.float64))


def first(count: int, rest: float = 0.0) -> Tensor:
    values = torch.full((WIDTH,), rest, dtype=torch.float64)
    values[:count] = torch.linspace(1, 0.1, count, dtype=torch.float64)
    return values


SPECTRA = {
    "e^0 to e^-30": spread(0, -30),
    "e^0 to e^-10": spread(0, -10),
    "identity": first(WIDTH, 1.0) * 0 + 1,
    "a quarter of the rank": first(WIDTH // 4),
    "rank one": first(1),
    "one above 1e-4": first(1, 1e-4),
    "one above 1e-6": first(1, 1e-6),
    "near the least that grows": first(1, 2.5e-5),
    "a cluster at the top": 1 - torch.arange(WIDTH, dtype=torch.float64) * 1e-6,
    "a wider cluster": 1 - torch.arange(WIDTH, dtype=torch.float64) * 1e-4,
    "tiny": 1e-30 * first(WIDTH, 1.0),
    "huge": 1e30 * first(WIDTH, 1.0),
}


def matrix_of(values: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix with these eigenvalues, and the root of it over the largest."""
    generator = torch.Generator().manual_seed(0)
    u, _ = torch.linalg.qr(torch.randn(WIDTH, WIDTH, dtype=torch.float64, generator=generator))
    return (u * values) @ u.mT, (u * (values / values.max()).sqrt()) @ u.mT


def worst(difference: Tensor) -> float:
    return float(torch.linalg.matrix_norm(difference.double(), 2))


@pytest.mark.parametrize("name", SPECTRA)
def test_error_is_below_its_bound_in_float32(name):
    matrix, exact = matrix_of(SPECTRA[name])
    root, largest = unit_square_root(matrix.float())
    assert worst(root.double() - exact) < 1.2 * ERROR  # the bound of exact arithmetic, and rounding
    assert float(largest) == pytest.approx(float(SPECTRA[name].max()), rel=math.log(WIDTH) / 2**16 + 1e-6)
    assert torch.equal(root, root.mT)


def test_bound_is_that_of_the_polynomials():
    start = torch.cat([torch.zeros(1, dtype=torch.float64), torch.logspace(-7, 0, 200_001, dtype=torch.float64)])
    x = start.clone()
    for a, b, c in PASSES:
        x = a * x + b * x**3 + c * x**5
    assert ERROR / 1.05 < float((start * (1 - x)).abs().max()) < ERROR
    assert math.prod(a for a, _, _ in PASSES) == pytest.approx(GROWTH, rel=0.01)


@pytest.mark.parametrize("rank", [4, 200])
def test_correlation_matrices_of_float32_features_are_as_good_as_decomposed_ones(rank):
    """Their eigenvalues at zero are below it by rounding."""
    generator = torch.Generator().manual_seed(1)
    f = torch.randn(512, rank, generator=generator) @ torch.randn(rank, 128, generator=generator)
    correlation, exactly = f.mT @ f / 512, f.double().mT @ f.double() / 512
    s, u = torch.linalg.eigh(exactly)
    exact = (u * (s.clamp(min=0) / s[-1]).sqrt()) @ u.mT
    decomposed, vectors = torch.linalg.eigh(correlation)
    by_eigh = (vectors * (decomposed.clamp(min=0) / decomposed[-1]).sqrt()) @ vectors.mT
    assert worst(unit_square_root(correlation)[0] - exact) < max(1.2 * ERROR, 2 * worst(by_eigh - exact))


@pytest.mark.parametrize("noise", [1e-5, 1e-4])
def test_eigenvalues_well_below_zero_give_a_ridge_or_nothing_and_never_a_wrong_root(noise):
    matrix, exact = matrix_of(first(WIDTH // 4))
    generator = torch.Generator().manual_seed(2)
    error = torch.randn(WIDTH, WIDTH, dtype=torch.float64, generator=generator)
    error = error + error.mT
    root, _ = unit_square_root((matrix + noise * error / worst(error)).float())
    assert worst(root.double() - exact) < 0.03
    badly, _ = unit_square_root((matrix - 0.1 * torch.eye(WIDTH)).float())
    assert badly.isnan().all()


@pytest.mark.parametrize("bad", [0.0, float("nan"), float("inf")])
def test_zero_and_what_is_not_finite_have_no_root(bad):
    assert not unit_square_root(torch.full((8, 8), bad))[0].isfinite().any()


def test_matrices_are_rooted_together_as_alone():
    several = torch.stack([matrix_of(SPECTRA[name])[0].float() for name in ("rank one", "identity", "e^0 to e^-10")])
    torch.testing.assert_close(unit_square_root(several)[0][1], unit_square_root(several[1])[0], atol=1e-6, rtol=0)


def test_products_are_in_full_precision_whatever_the_rest_is_allowed(monkeypatch):
    matrix, before = matrix_of(SPECTRA["e^0 to e^-30"])[0].float(), torch.get_float32_matmul_precision()
    seen = []
    real = square_root._passes
    monkeypatch.setattr(square_root, "_passes", lambda m: seen.append(torch.get_float32_matmul_precision()) or real(m))
    exactly = unit_square_root(matrix)[0]
    try:
        torch.set_float32_matmul_precision("medium")
        assert torch.equal(unit_square_root(matrix)[0], exactly)
        with pytest.raises(ZeroDivisionError), full_precision_products():
            raise ZeroDivisionError
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert seen == ["highest", "highest"]


def test_squaring_does_not_underflow():
    for matrix in (torch.eye(512), 1e-20 * torch.eye(512), torch.ones(64, 64)):
        exact = float(torch.linalg.eigvalsh(matrix)[-1])
        assert float(largest_eigenvalue(matrix)) == pytest.approx(exact, rel=1e-5)
