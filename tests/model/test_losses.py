"""Losses: their values, their gradients, and what isotropic means."""

import pytest
import torch

from ssl_hub.model.losses import LOSSES


def batch(width: int = 5, rows: int = 7):
    f = torch.randn(rows, width, dtype=torch.float64, requires_grad=True)
    return f, torch.randn(width, width, dtype=torch.float64), torch.randn(rows, width, dtype=torch.float64)


def test_cosine_is_byols_and_simsiams_up_to_a_constant():
    f, w, t = batch()
    q = f @ w.mT
    cos = torch.nn.functional.cosine_similarity(q, t)
    byol = (torch.nn.functional.normalize(q) - torch.nn.functional.normalize(t)).square().sum(dim=1).mean()
    torch.testing.assert_close(LOSSES["cosine"](scale=2.0)(f, q, t), byol)
    torch.testing.assert_close(LOSSES["cosine"](scale=0.5)(f, q, t) - 0.5, -cos.mean() / 2)


@pytest.mark.parametrize("kind", LOSSES.names())
def test_perfect_prediction_is_zero(kind):
    t = torch.randn(4, 6)
    assert float(LOSSES[kind]()(t, t, t)) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(("iso", "plain"), [("iso", "cosine"), ("iso_mse", "mse")])
def test_isotropic_loss_moves_features_as_the_plain_loss_moves_predictions(iso, plain):
    f, w, t = batch()
    (got,) = torch.autograd.grad(LOSSES[iso]()(f, f @ w.mT, t), f)
    q = (f @ w.mT).detach().requires_grad_()
    value = LOSSES[plain]()(f, q, t)
    (want,) = torch.autograd.grad(value, q)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(LOSSES[iso]()(f, f @ w.mT, t), value)


def test_isotropic_mse_is_that_of_halvagal_et_al():
    # |z - stopgrad(t + z - W z)|^2, their Euclidean loss.
    f, w, t = batch()
    want = (f - (t + f - f @ w.mT).detach()).square().sum(dim=1).mean()
    (gradient,) = torch.autograd.grad(want, f)
    (got,) = torch.autograd.grad(LOSSES["iso_mse"]()(f, f @ w.mT, t), f)
    torch.testing.assert_close(got, gradient)


def test_isotropic_cosine_is_that_of_halvagal_et_al():
    # Their cosine loss, with only the two z free: z.t / (|q| |t|) - (q.t) / (2 |q|^3 |t|) |W^(1/2) z|^2, times -2.
    f, root, t = batch()
    w = root @ root.mT
    s, u = torch.linalg.eigh(w)
    half = f @ ((u * s.clamp(min=0).sqrt()) @ u.mT)
    q = (f @ w).detach()
    norms = q.norm(dim=1) * t.norm(dim=1)
    pull = (f * t).sum(dim=1) / norms
    shrink = ((q * t).sum(dim=1) / (norms * q.norm(dim=1).square())) * half.square().sum(dim=1) / 2
    (want,) = torch.autograd.grad(-2 * (pull - shrink).mean(), f)
    (got,) = torch.autograd.grad(LOSSES["iso"]()(f, f @ w, t), f)
    # theirs has W z where the plain loss's gradient in q has q: the same vector
    torch.testing.assert_close(got, want)


def test_isotropic_loss_equalises_the_rates_of_eigenmodes():
    # Near the aligned fixed point a mode's pull is proportional to its eigenvalue under the plain loss.
    p = torch.tensor([1.0, 0.1], dtype=torch.float64)
    rates = {}
    for kind in ("mse", "iso_mse"):
        f = torch.eye(2, dtype=torch.float64).requires_grad_()
        (gradient,) = torch.autograd.grad(LOSSES[kind]()(f, f * p, f.detach() * (p + 1)), f)
        rates[kind] = -torch.diagonal(gradient)
    assert float(rates["mse"][0] / rates["mse"][1]) == pytest.approx(10)
    assert float(rates["iso_mse"][0] / rates["iso_mse"][1]) == pytest.approx(1)


@pytest.mark.parametrize("kind", LOSSES.names())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zero_vectors_have_finite_loss_and_gradient(kind, dtype):
    f = torch.zeros(3, 4, dtype=dtype, requires_grad=True)
    loss = LOSSES[kind]()(f, f * 1, torch.zeros(3, 4, dtype=dtype))
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(f.grad).all()
