"""Predictors as functions of the correlation matrix, against independently computed values."""

import numpy as np
import pytest
import torch
from torch import Tensor

from ssl_hub.model.spectrum import (
    alignment,
    asymmetry,
    effective_rank,
    feature_std,
    healthy_std,
    moving_average,
    newton_schulz,
    optimal_predictor,
    predictor_from_correlation,
    stiefel_projection,
    symmetrise,
)
from tests.model.reference import cases

FORMS = {"normalised": "Wp_code", "paper": "Wp_paper", "homogeneous": "Wp_homog"}


def double(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("case", cases("directpred", "by_eps"), ids=lambda case: case["id"])
def test_predictor_equals_reference(case):
    for eps, outputs in case["outputs"]["by_eps"].items():
        for form, key in FORMS.items():
            got = predictor_from_correlation(double(case["inputs"]["F"]), eps=float(eps), form=form)
            if outputs[key] == "nan":  # the authors' code divides by zero; the trained predictor keeps its weight then
                assert not torch.isfinite(got).any()
            else:
                torch.testing.assert_close(got, double(outputs[key]), atol=case["tol_abs"], rtol=0)


@pytest.mark.parametrize("solution", ["right", "left", "sylvester", "caption"])
def test_optimal_predictor_equals_reference(solution):
    (case,) = cases("directpred", "right")
    inputs, outputs = case["inputs"], case["outputs"]
    want = outputs.get(solution, outputs.get(f"{solution}_regularised"))
    got = optimal_predictor(double(inputs["F"]), double(inputs["M2"]), reg=inputs["reg"], solution=solution)
    torch.testing.assert_close(got, double(want), atol=case["tol_abs"], rtol=0)


def test_moving_average_equals_reference():
    (case,) = cases("directpred", "Fhat_after_each_batch")
    first, second = double(case["inputs"]["f_view1"]), double(case["inputs"]["f_view2"])
    average = torch.zeros(3, 3, dtype=torch.float64)
    for i, want in enumerate(case["outputs"]["Fhat_after_each_batch"]):
        f = torch.cat([first[i], second[i]])
        average = moving_average(average, f.mT @ f / len(f), rho=case["inputs"]["rho"], seen=i)
        torch.testing.assert_close(average, double(want), atol=case["tol_abs"], rtol=0)


def test_plain_average_weighs_all_batches_alike():
    batches = torch.randn(7, 3, 3, dtype=torch.float64)
    average = torch.zeros(3, 3, dtype=torch.float64)
    for i, batch in enumerate(batches):
        average = moving_average(average, batch, rho=None, seen=i)
    torch.testing.assert_close(average, batches.mean(dim=0))


def random_correlation(width: int = 6, seed: int = 0) -> Tensor:
    f = torch.randn(40, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return f.mT @ f / 40


def test_normalised_form_ignores_the_scale_of_the_projections_and_the_paper_form_does_not():
    f = random_correlation()
    torch.testing.assert_close(predictor_from_correlation(100 * f), predictor_from_correlation(f))
    small = predictor_from_correlation(f, form="paper", eps=0.1)
    large = predictor_from_correlation(100 * f, form="paper", eps=0.1)
    assert (large / large.norm() - small / small.norm()).abs().max() > 0.02


def test_forms_differ_by_a_scale_where_they_should():
    f, eps = random_correlation(), 0.1
    root_m = torch.linalg.eigvalsh(f)[-1].sqrt()
    normalised = predictor_from_correlation(f, eps=eps)
    torch.testing.assert_close(predictor_from_correlation(f, eps=eps, form="homogeneous"), root_m * normalised)
    as_paper = root_m * predictor_from_correlation(f, eps=float(eps * root_m))
    torch.testing.assert_close(predictor_from_correlation(f, eps=eps, form="paper"), as_paper)


def test_directcopy_is_the_normalised_correlation_matrix_plus_identity():
    f = random_correlation()
    want = f / torch.linalg.matrix_norm(f, 2) + 0.3 * torch.eye(6, dtype=torch.float64)
    torch.testing.assert_close(predictor_from_correlation(f, alpha=1.0, eps=0.3), want)
    absolute = predictor_from_correlation(f, alpha=1.0, eps=0.3, form="absolute")
    torch.testing.assert_close(absolute, f + 0.3 * torch.eye(6, dtype=torch.float64))


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
def test_directset_without_eps_is_a_matrix_power(alpha):
    f = random_correlation()
    s, u = torch.linalg.eigh(f / torch.linalg.matrix_norm(f, 2))
    torch.testing.assert_close(predictor_from_correlation(f, alpha=alpha, eps=0.0), (u * s**alpha) @ u.mT)


def test_shift_c_in_units_of_the_largest_eigenvalue_or_raw():
    s = double([0.5, 2.0, 4.0])
    assert torch.diagonal(predictor_from_correlation(s.diag(), eps=0.0, c=0.25)).tolist() == pytest.approx(
        [0.01, 0.5, 0.75**0.5]  # share - c, floored at 1e-4 before the root
    )
    assert torch.diagonal(predictor_from_correlation(s.diag(), eps=0.0, c=1.0, form="paper")).tolist() == pytest.approx(
        [0.0, 1.0, 3**0.5]
    )
    grown = torch.diagonal(predictor_from_correlation(s.diag(), eps=0.0, c=-0.05))
    assert grown.tolist() == pytest.approx([(0.125 + 0.05) ** 0.5, (0.5 + 0.05) ** 0.5, 1.05**0.5])


def test_predictor_is_symmetric_even_for_a_slightly_asymmetric_matrix():
    f = random_correlation().float()
    predictor = predictor_from_correlation(f + 1e-4 * torch.randn(6, 6))
    assert torch.equal(predictor, predictor.mT)


def test_repeated_eigenvalues_give_a_function_of_the_matrix():
    q, _ = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64))
    f = (q * double([2, 2, 2, 1, 1])) @ q.mT
    want = (q * (double([1, 1, 1, 0.5**0.5, 0.5**0.5]) + 0.1)) @ q.mT
    torch.testing.assert_close(predictor_from_correlation(f, eps=0.1), want)


def test_effective_rank_counts_equal_modes():
    assert float(effective_rank(double([3, 3, 3, 0, 0]))) == pytest.approx(3)
    assert float(effective_rank(double([1, 0, 0]))) == pytest.approx(1)
    assert float(effective_rank(torch.zeros(4))) == pytest.approx(1)


def test_feature_std_is_healthy_on_the_sphere_and_zero_for_a_constant():
    spread = torch.randn(4000, 64)
    assert float(feature_std(spread)) == pytest.approx(healthy_std(64), rel=0.02)
    assert float(feature_std(torch.ones(16, 64))) == pytest.approx(0, abs=1e-6)


def test_alignment_is_one_for_commuting_matrices_and_asymmetry_is_a_share():
    f = random_correlation()
    torch.testing.assert_close(alignment(predictor_from_correlation(f), f), torch.ones(6, dtype=torch.float64))
    rotation = double([[0.0, -1.0], [1.0, 0.0]])
    assert float(asymmetry(rotation)) == pytest.approx(1)
    assert float(asymmetry(symmetrise(f))) == 0  # a product f^T f is symmetric up to rounding only
    assert alignment(rotation, double([[2.0, 0.0], [0.0, 1.0]])).max() < 1e-12


def numpy_newton_schulz(matrix: Tensor, iterations: int) -> tuple[np.ndarray, np.ndarray]:
    """Per eigenvalue: the coupled iteration never leaves the eigenvectors of its matrix."""
    s, u = np.linalg.eigh(matrix.numpy())
    norm = np.sqrt((s**2).sum())
    a, b = s / norm, np.ones_like(s)
    for _ in range(iterations):
        a, b = a * (3 - a * b) / 2, b * (3 - a * b) / 2
    return (u * (a * np.sqrt(norm))) @ u.T, (u * (b / np.sqrt(norm))) @ u.T


@pytest.mark.parametrize("iterations", [1, 7, 9])
def test_newton_schulz_by_eigenvalues(iterations):
    f = random_correlation()
    for got, want in zip(newton_schulz(f, iterations), numpy_newton_schulz(f, iterations), strict=True):
        torch.testing.assert_close(got, torch.from_numpy(want))
    _, inverse_root = numpy_newton_schulz(f @ f, iterations)
    want = torch.from_numpy(inverse_root) @ f / np.linalg.norm(inverse_root)
    torch.testing.assert_close(stiefel_projection(f, iterations), want)


def test_newton_schulz_ends_at_directpreds_root_and_stiefel_at_a_multiple_of_the_identity():
    f = random_correlation()
    root, inverse_root = newton_schulz(f, 30)
    torch.testing.assert_close(root, predictor_from_correlation(f, eps=0.0, form="absolute"))
    torch.testing.assert_close(inverse_root @ inverse_root @ f, torch.eye(6, dtype=torch.float64))
    fourth, _ = newton_schulz(root, 30)
    torch.testing.assert_close(fourth, predictor_from_correlation(f, alpha=0.25, eps=0.0, form="absolute"))
    projection = stiefel_projection(f, 60)
    torch.testing.assert_close(projection, projection[0, 0] * torch.eye(6, dtype=torch.float64))


def test_directset_of_one_half_is_directpred_and_of_one_directcopy_by_eigenvalues():
    f, eps = random_correlation(), 0.1
    s, u = np.linalg.eigh(f.numpy())
    for alpha, share in ((0.5, np.sqrt(s / s.max())), (1.0, s / s.max()), (0.75, (s / s.max()) ** 0.75)):
        want = torch.from_numpy((u * (share + eps)) @ u.T)
        torch.testing.assert_close(predictor_from_correlation(f, alpha=alpha, eps=eps), want)
    torch.testing.assert_close(predictor_from_correlation(f), predictor_from_correlation(f, alpha=0.5, eps=0.1))
