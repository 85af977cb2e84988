"""Each theorem at random settings: exact where it holds, clearly broken in its documented exceptions."""

import numpy as np
import pytest
from scipy.linalg import expm

from ssl_hub.errors import UsageError
from ssl_hub.theory import theorems
from ssl_hub.theory.checks import RandomSetting
from ssl_hub.theory.discrete import euler
from ssl_hub.theory.dynamics import BalancedPredictorFlow, NoPredictorFlow, PredictorCorrelationFlow
from ssl_hub.theory.integrate import simulate
from ssl_hub.theory.scrambling import additive_scrambling, multiplicative_scrambling

SEEDS = range(12)
TIMES = np.linspace(0, 4, 41)


@pytest.fixture(params=SEEDS)
def at(request):
    setting = RandomSetting(request.param)
    rng = np.random.default_rng(100 + request.param)
    setting.alpha_p, setting.eta = float(rng.uniform(0.3, 5)), float(rng.uniform(0, 0.3))
    setting.tau, setting.sigma2 = float(rng.uniform(0.1, 1.2)), float(rng.uniform(0, 1))
    if request.param == 0:  # a corner
        setting.eta = setting.sigma2 = 0.0
    return setting


def test_lemma_1_and_the_gradient_of_theorem_2_against_autograd(at):
    assert theorems.lemma1(at.byol(eta_p=0.1), at.Wp, at.W, at.Wa).holds
    assert theorems.lemma1(at.simsiam(), at.Wp, at.W).holds
    assert theorems.lemma1(at.simsiam(stop_gradient=False), at.Wp, at.W).holds


def test_theorem_1_holds_for_one_eta_whatever_the_target_does(at):
    assert theorems.theorem1(simulate(at.byol(), at.weights, TIMES)).measured < 1e-10
    assert theorems.theorem1(simulate(at.byol(beta=5.0), at.weights, TIMES)).measured < 1e-10
    assert theorems.theorem1(simulate(at.simsiam(), {"Wp": at.Wp, "W": at.W}, TIMES)).measured < 1e-10


def test_theorem_1_breaks_where_documented(at):
    assert theorems.theorem1(simulate(at.byol(eta_p=0.2, eta_s=0.0), at.weights, TIMES)).measured > 1e-2
    assert theorems.theorem1(simulate(at.predictor_correlation(), at.pair, TIMES)).measured > 1e-4
    assert theorems.theorem1(simulate(at.predictor_correlation(symmetrise=False), at.pair, TIMES)).measured < 1e-10
    aligned = {"Wp": at.Wp_symmetric, "F": expm(at.Wp_symmetric)}
    assert theorems.theorem1(simulate(at.predictor_correlation(), aligned, TIMES)).measured < 1e-10
    assert theorems.theorem1_symmetrised_rate(at.predictor_correlation(), at.Wp_symmetric, at.F).holds


def test_theorem_1_breaks_at_first_order_in_discrete_time():
    at = RandomSetting(0)
    defects = [
        theorems.theorem1(euler(at.byol(), at.weights, alpha, [0, round(2 / alpha)])).measured
        for alpha in (0.01, 0.005)
    ]
    assert defects[0] / defects[1] == pytest.approx(2.0, rel=0.1)


def test_theorem_2_identity_and_decay(at):
    flow = at.simsiam(stop_gradient=False)
    assert theorems.theorem2(flow, at.Wp, at.W).holds
    assert theorems.theorem2_decay(simulate(flow, {"Wp": at.Wp, "W": at.W}, TIMES)).holds
    H = theorems.collapse_matrix(flow, at.Wp)
    np.testing.assert_allclose(H, H.T, atol=1e-14)
    assert np.linalg.eigvalsh(H)[0] >= flow.eta - 1e-12
    without_eta = H - flow.eta * np.eye(len(H))  # as the supplement prints it
    residual = flow.velocity(at.Wp, at.W)[1].ravel(order="F") + without_eta @ at.W.ravel(order="F")
    assert np.linalg.norm(residual) == pytest.approx(flow.eta * np.linalg.norm(at.W), abs=1e-12)


def test_theorem_2_does_not_force_collapse_where_augmentation_leaves_a_subspace():
    at = RandomSetting(1)
    kept = np.diag([1.0, 1.0, 0.0, 0.0])
    flow = at.simsiam(Xprime=kept, eta=0.0, stop_gradient=False)
    path = simulate(flow, {"Wp": at.Wp, "W": at.W}, [0.0, 200.0])
    assert theorems.norm(path["W"])[-1] > 0.1


def test_theorem_3_identity_decay_and_sharper_bound(at):
    flow = at.predictor_correlation()
    assert theorems.theorem3(flow, at.Wp_symmetric, at.F).holds
    assert theorems.theorem3(at.predictor_correlation(eta_p=0.2, eta_s=0.05), at.Wp_symmetric, at.F).holds
    path = simulate(flow, at.pair, np.linspace(0, 4, 801), rtol=1e-10, atol=1e-14)
    assert theorems.theorem3_decay(path).holds
    assert theorems.theorem3_decay(path, sharp=True).holds
    history = theorems.alignment_history(path)
    assert (history.sharp_bound <= history.bound * (1 + 1e-9)).all()
    lambda0 = history.least_K.min()
    assert (history.bound <= history.norm[0] * np.exp(-2 * lambda0 * history.t) * (1 + 1e-6)).all()


def test_pure_decay_kills_the_commutator_and_not_the_misalignment(at):
    flow = PredictorCorrelationFlow(sigma2=-1.0, tau=0.0, eta=0.3)  # k = 0: nothing but decay
    path = simulate(flow, at.pair, np.linspace(0, 3, 61))
    history = theorems.alignment_history(path)
    np.testing.assert_allclose(history.norm, history.norm[0] * np.exp(-3 * 0.3 * history.t), rtol=1e-9)
    assert np.ptp(history.normalised) < 1e-9


def test_skew_part_dies_at_least_as_fast_as_decay(at):
    flow = BalancedPredictorFlow(sigma2=at.sigma2, alpha_p=at.alpha_p, eta=at.eta, tau=at.tau)
    stack = np.stack([at.Wp, 2 * at.Wp, at.Wp.T])
    assert theorems.skew_part_decay(simulate(flow, {"Wp": stack}, TIMES)).holds


def test_stationary_predictor_is_symmetric_and_stands_still(at):
    Wp = theorems.stationary_predictor(at.F, sigma2=at.sigma2, alpha_p=at.alpha_p, eta=at.eta, tau=at.tau)
    np.testing.assert_allclose(Wp, Wp.T, atol=1e-12)
    flow = PredictorCorrelationFlow(sigma2=at.sigma2, alpha_p=at.alpha_p, eta=at.eta, tau=at.tau, symmetrise=False)
    np.testing.assert_allclose(flow.velocity(Wp, at.F)[0], 0, atol=1e-12)


@pytest.mark.parametrize("stop_gradient", [True, False])
def test_no_predictor_closed_form_and_survival_on_the_null_space(at, stop_gradient):
    flow = NoPredictorFlow(Xprime=at.Xprime, eta=at.eta, stop_gradient=stop_gradient)
    assert theorems.no_predictor(simulate(flow, {"W": at.W}, TIMES)).holds
    U = np.linalg.qr(at.matrix(4, 2))[0]
    left = simulate(NoPredictorFlow(Xprime=U @ U.T, stop_gradient=stop_gradient), {"W": at.W}, [0.0, 60.0])
    np.testing.assert_allclose(left["W"][-1], at.W @ (np.eye(4) - U @ U.T), atol=1e-9)


@pytest.mark.parametrize("n2", [1, 2, 3])
def test_eigenmodes_of_scrambling_are_fixed_points_on_a_manifold(at, n2):
    views = additive_scrambling(at.X, at.Xprime)
    S = np.eye(n2) + at.matrix(n2, n2) / 2
    for change in (None, S):
        defect = theorems.scrambling_fixed_points(views, n2, alpha_p=at.alpha_p, S=change)
        assert defect.holds
        assert f"dimension {n2 * n2}, n2^2 = {n2 * n2}" in defect.detail


def test_multiplicative_scrambling_has_fixed_points_too():
    at = RandomSetting(2)
    views = multiplicative_scrambling(at.X, np.linalg.qr(at.matrix(4, 2))[0])
    assert theorems.scrambling_fixed_points(views, 2).holds


def test_wrong_trajectories_are_named():
    path = simulate(NoPredictorFlow(Xprime=np.eye(2)), {"W": np.eye(2)}, [0.0, 1.0])
    for theorem in (theorems.theorem1, theorems.theorem2_decay, theorems.alignment_history, theorems.skew_part_decay):
        with pytest.raises(UsageError, match="is about .*Flow; got a trajectory of NoPredictorFlow"):
            theorem(path)
    at = RandomSetting(0)
    with pytest.raises(UsageError, match="symmetrised flow"):
        theorems.theorem3(at.predictor_correlation(symmetrise=False), at.Wp, at.F)
    with pytest.raises(UsageError, match="without the stop-gradient; got stop_gradient=True"):
        theorems.theorem2(at.simsiam(), at.Wp, at.W)
