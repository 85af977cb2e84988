"""Flows: reductions to each other, and the corrected forms where the paper slips."""

import numpy as np
import pytest

from ssl_hub.errors import UsageError
from ssl_hub.theory.decoupled import DecoupledEmaFlow, DecoupledFlow, ParabolaEmaFlow, ParabolaFlow
from ssl_hub.theory.dynamics import (
    BalancedPredictorFlow,
    ByolFlow,
    NoPredictorFlow,
    PredictorCorrelationFlow,
    SimSiamFlow,
    as_isotropic,
)
from ssl_hub.theory.integrate import simulate
from ssl_hub.theory.lowdim import (
    LowDimFixedTargetFlow,
    LowDimFlow,
    LowDimNoPredictorFlow,
    LowDimSimSiamFlow,
    LowDimTiedFlow,
)
from ssl_hub.theory.scrambling import additive_scrambling, conserved_projection, multiplicative_scrambling

SEEDS = range(5)


def matrices(seed, n1=4, n2=3):
    rng = np.random.default_rng(seed)
    G, H = rng.standard_normal((2, n1, 2 * n1))
    Wp = rng.standard_normal((n2, n2)) / 2
    W, Wa = rng.standard_normal((2, n2, n1)) / 2
    return G @ G.T / (2 * n1), 0.4 * H @ H.T / (2 * n1), Wp, W, Wa


@pytest.mark.parametrize("seed", SEEDS)
def test_simsiam_is_byol_with_the_target_tied(seed):
    X, Xprime, Wp, W, _ = matrices(seed)
    byol = ByolFlow(X=X, Xprime=Xprime, alpha_p=2.0, beta=0.3, eta_p=0.1, eta_s=0.02).velocity(Wp, W, W)
    simsiam = SimSiamFlow(X=X, Xprime=Xprime, alpha_p=2.0, eta_p=0.1, eta_s=0.02).velocity(Wp, W)
    np.testing.assert_array_equal(byol[0], simsiam[0])
    np.testing.assert_array_equal(byol[1], simsiam[1])
    assert not byol[2].any()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("stop_gradient", [True, False])
def test_identity_predictor_is_no_predictor(seed, stop_gradient):
    X, Xprime, _, W, _ = matrices(seed)
    full = SimSiamFlow(X=X, Xprime=Xprime, eta=0.05, stop_gradient=stop_gradient).velocity(np.eye(3), W)[1]
    (alone,) = NoPredictorFlow(Xprime=Xprime, eta=0.05, stop_gradient=stop_gradient).velocity(W)
    np.testing.assert_allclose(full, alone, atol=1e-14)


@pytest.mark.parametrize("symmetrise", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_correlation_flow_is_lemma_1_with_a_proportional_target(seed, symmetrise):
    _, _, Wp, W, _ = matrices(seed)
    Wp = (Wp + Wp.T) / 2 if symmetrise else Wp
    decays = {"eta_p": 0.07, "eta_s": 0.02}
    lemma = ByolFlow(**as_isotropic(4, 0.3), alpha_p=2.0, beta=0.1, symmetrise=symmetrise, **decays)
    dWp, dW, _ = lemma.velocity(Wp, W, 0.8 * W)
    reduced = PredictorCorrelationFlow(sigma2=0.3, alpha_p=2.0, tau=0.8, symmetrise=symmetrise, **decays)
    got = reduced.velocity(Wp, W @ W.T)
    np.testing.assert_allclose(got[0], dWp, atol=1e-14)
    np.testing.assert_allclose(got[1], dW @ W.T + W @ dW.T, atol=1e-14)


def test_balanced_predictor_is_the_correlation_flow_on_its_invariant_set():
    Wp = matrices(0)[2]
    F = Wp.T @ Wp / 2.0
    pair = simulate(
        PredictorCorrelationFlow(sigma2=0.3, alpha_p=2.0, eta=0.05, tau=0.8, symmetrise=False),
        {"Wp": Wp, "F": F},
        [5.0],
    )
    alone = simulate(BalancedPredictorFlow(sigma2=0.3, alpha_p=2.0, eta=0.05, tau=0.8), {"Wp": Wp}, [5.0])
    np.testing.assert_allclose(pair["Wp"], alone["Wp"], atol=1e-11)


def test_aligned_modes_decouple_each_with_its_own_tau():
    U = np.linalg.qr(np.random.default_rng(4).standard_normal((3, 3)))[0]
    p, w, tau = np.array([0.3, 0.5, 0.9]), np.array([0.3, 0.6, 0.4]), np.array([0.0, 0.5, 1.2])
    rows = np.eye(3, 4)
    init = {"Wp": U @ np.diag(p) @ U.T, "W": U @ np.diag(w) @ rows, "Wa": U @ np.diag(tau * w) @ rows}
    full = simulate(ByolFlow(**as_isotropic(4, 0.3), alpha_p=2.0, beta=0.4, eta=0.04), init, [5.0])
    modes = simulate(
        DecoupledEmaFlow(sigma2=0.3, alpha_p=2.0, beta=0.4, eta=0.04), {"p": p, "s": w**2, "tau": tau}, [5.0]
    )
    np.testing.assert_allclose(np.diag(U.T @ full["Wp"][0] @ U), modes["p"][0], atol=1e-11)
    F = full["W"][0] @ full["W"][0].T
    np.testing.assert_allclose(np.diag(U.T @ F @ U), modes["s"][0], atol=1e-11)
    assert np.ptp(modes["tau"][0]) > 0.1  # one tau for all modes, as the paper assumes, would not do


@pytest.mark.parametrize("alpha_p", [0.5, 1.0, 5.0, 20.0])
def test_alpha_p_drops_out_on_the_parabola(alpha_p):
    times = [0.0, 5.0, 40.0]
    full = simulate(
        DecoupledEmaFlow(sigma2=0.3, alpha_p=alpha_p, eta=0.02, beta=0.4),
        {"p": 0.4, "s": 0.16 / alpha_p, "tau": 0.2},
        times,
    )
    line = simulate(ParabolaEmaFlow(sigma2=0.3, eta=0.02, beta=0.4), {"p": 0.4, "tau": 0.2}, times)
    np.testing.assert_allclose(full["p"], line["p"], atol=1e-11)
    np.testing.assert_allclose(full["tau"], line["tau"], atol=1e-11)
    fixed = DecoupledFlow(sigma2=0.3, alpha_p=alpha_p, eta=0.02, tau=0.8).velocity(
        np.float64(0.4), np.float64(0.16 / alpha_p)
    )
    assert fixed[0] == pytest.approx(
        ParabolaFlow(sigma2=0.3, eta=0.02, tau=0.8).velocity(np.float64(0.4))[0], abs=1e-15
    )


def test_separate_decays_reach_their_own_equation():
    p, s = np.float64(0.4), np.float64(0.3)
    base = DecoupledFlow().velocity(p, s)
    both = DecoupledFlow(eta_p=0.1, eta_s=0.02).velocity(p, s)
    assert both[0] - base[0] == pytest.approx(-0.1 * p)
    assert both[1] - base[1] == pytest.approx(-2 * 0.02 * s)


def test_decay_of_the_predictor_alone_lets_s_grow_linearly():
    flow = DecoupledFlow(sigma2=0.2, alpha_p=2.0, eta_p=0.05, eta_s=0.0)
    path = simulate(flow, {"p": 0.5, "s": 1.0}, [2000.0, 2100.0], rtol=1e-9, stiff=True)
    slope = (path["s"][1] - path["s"][0]) / 100
    assert slope == pytest.approx(2 * 0.05 / (2.0 * 1.2**2), rel=5e-3)  # 2 eta_p tau^2 / (alpha_p k^2)


@pytest.mark.parametrize("alpha_p", [1.0, 4.0])
def test_tied_submanifold_is_invariant_for_every_alpha_p(alpha_p):
    w = 0.3
    full = simulate(LowDimFlow(alpha_p=alpha_p, beta=0.5), {"wp": np.sqrt(alpha_p) * w, "w": w, "wa": 0.2}, [10.0])
    tied = simulate(LowDimTiedFlow(alpha_p=alpha_p, beta=0.5), {"w": w, "wa": 0.2}, [10.0])
    np.testing.assert_allclose(full["w"], tied["w"], atol=1e-11)
    untied = simulate(LowDimFlow(alpha_p=4.0, beta=0.5), {"wp": w, "w": w, "wa": 0.2}, [10.0])
    assert abs(untied["wp"][0] - untied["w"][0]) > 0.05  # w = wp is not invariant for alpha_p = 4


def test_low_dimensional_panels_are_restrictions_of_the_full_flow():
    wp, w, wa = (np.float64(x) for x in (0.7, -0.3, 0.4))
    full = LowDimFlow(alpha_p=2.0, beta=0.6).velocity(wp, w, wa)
    assert LowDimFixedTargetFlow(alpha_p=2.0, wa=0.4).velocity(wp, w) == pytest.approx(full[:2])
    tied = LowDimFlow(alpha_p=2.0, beta=0.6, eta_p=0.1).velocity(wp, w, w)
    assert LowDimSimSiamFlow(alpha_p=2.0, eta_p=0.1).velocity(wp, w) == pytest.approx(tied[:2])
    bare = LowDimFlow(alpha_p=2.0, beta=0.6).velocity(np.float64(1.0), w, wa)
    assert LowDimNoPredictorFlow(beta=0.6).velocity(w, wa) == pytest.approx(bare[1:])


def test_multiplicative_scrambling_against_random_views():
    rng = np.random.default_rng(0)
    data, U = matrices(1)[0], np.linalg.qr(rng.standard_normal((4, 2)))[0]
    count = 100_000
    x = rng.standard_normal((count, 4)) @ np.linalg.cholesky(data).T
    one, two = (
        x @ conserved_projection(U) + np.einsum("ij,njk,nk->ni", U, rng.standard_normal((count, 2, 2)), x @ U)
        for _ in range(2)
    )
    views = multiplicative_scrambling(data, U)
    np.testing.assert_allclose(one.T @ one / count, views.Sigma_s, atol=0.05)
    np.testing.assert_allclose(one.T @ two / count, views.Sigma_d, atol=0.05)


def test_additive_scrambling_has_all_features_below_one():
    data, noise = matrices(2)[:2]
    values, rows = additive_scrambling(data, noise).features
    assert values.min() > 0 and values.max() < 1 and (np.diff(values) <= 0).all()
    product = additive_scrambling(data, noise).product
    np.testing.assert_allclose(rows @ product, values[:, None] * rows, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ByolFlow(X=np.eye(2), Xprime=np.eye(3), beta=1.0), r"X is \(2, 2\) and X' is \(3, 3\)"),
        (lambda: SimSiamFlow(X=np.ones((2, 3)), Xprime=np.eye(3)), r"X has shape \(2, 3\); expected one square"),
        (lambda: DecoupledFlow(alpha_p=0.0), "alpha_p is 0.0; expected a positive"),
        (lambda: multiplicative_scrambling(np.eye(3), np.ones((3, 1))), "not orthonormal"),
        (lambda: multiplicative_scrambling(np.eye(3), np.eye(2)), r"U has shape \(2, 2\); expected \(3, k\)"),
        (lambda: additive_scrambling(np.eye(3), np.eye(2)), "expected equal shapes"),
    ],
)
def test_wrong_parameters_are_named(make, message):
    with pytest.raises(UsageError, match=message):
        make()


def test_the_tied_manifold_asks_for_one_decay():
    with pytest.raises(UsageError, match=r"eta_p is 0.1 and eta_s is 0.0, expected one decay for both, eta"):
        LowDimTiedFlow(eta_p=0.1)
    assert LowDimTiedFlow(eta=0.1).velocity(np.ones(1), np.ones(1))
