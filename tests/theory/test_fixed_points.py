"""Fixed points, stability, basins and thresholds: closed forms against simulation."""

import numpy as np
import pytest

from ssl_hub.errors import UsageError
from ssl_hub.theory import fixed_points
from ssl_hub.theory.decoupled import (
    DecoupledFlow,
    Delta,
    K_eigenvalue,
    ParabolaEmaFlow,
    ParabolaFlow,
    integral_of_motion,
)
from ssl_hub.theory.integrate import simulate
from ssl_hub.theory.lowdim import LowDimFixedTargetFlow, LowDimFlow

SETTINGS = [(0.0, 0.01, 1.0, 1.0), (0.3, 0.04, 0.8, 4.0), (1.0, 0.01, 0.5, 0.5)]


@pytest.mark.parametrize(("sigma2", "eta", "tau", "alpha_p"), SETTINGS)
def test_fixed_points_of_the_decoupled_flow(sigma2, eta, tau, alpha_p):
    flow = DecoupledFlow(sigma2=sigma2, eta=eta, tau=tau, alpha_p=alpha_p)
    origin, minus, plus = fixed_points.decoupled_fixed_points(flow)
    assert [point.stability for point in (origin, minus, plus)] == ["stable", "saddle", "stable"]
    for point in (minus, plus):
        expected = sorted([-2 * eta, eta - (1 + sigma2) * point.state["p"] ** 2])
        np.testing.assert_allclose(point.eigenvalues.real, expected, atol=1e-12)
    thresholds = fixed_points.parabola_thresholds(sigma2=sigma2, eta=eta, tau=tau, alpha_p=alpha_p)
    p = np.array([0.99, 1.01]) * thresholds.p_minus
    end = simulate(ParabolaFlow(sigma2=sigma2, eta=eta, tau=tau), {"p": p}, [60 / eta], rtol=1e-9, atol=1e-13)["p"][-1]
    assert end[0] < 1e-6
    assert end[1] == pytest.approx(thresholds.p_plus, abs=1e-6)


def test_unequal_decays_move_s_and_not_p():
    flow = DecoupledFlow(sigma2=0.3, alpha_p=5.0, eta_p=0.2, eta_s=0.04)  # eta_p = alpha_p eta, as SGD has it
    plus = fixed_points.decoupled_fixed_points(flow)[-1]
    equal = fixed_points.decoupled_fixed_points(DecoupledFlow(sigma2=0.3, alpha_p=5.0, eta=0.04))[-1]
    assert plus.stability == "stable"
    assert plus.state["p"] == pytest.approx(equal.state["p"], abs=1e-12)
    assert plus.state["s"] == pytest.approx(5 * equal.state["s"]) == pytest.approx(plus.state["p"] ** 2)
    end = simulate(flow, {"p": 0.5, "s": 0.3}, [400.0])
    assert end["s"][-1] == pytest.approx(plus.state["s"], abs=1e-9)


def test_thresholds_do_not_depend_on_alpha_p_and_K_is_as_predicted():
    one, ten = (fixed_points.parabola_thresholds(sigma2=0.3, eta=0.04, alpha_p=a) for a in (1.0, 10.0))
    assert (one.p_minus, one.p_plus, one.K_min_on_parabola) == (ten.p_minus, ten.p_plus, ten.K_min_on_parabola)
    assert ten.s_plus == pytest.approx(one.s_plus / 10)
    p = np.linspace(0, 2, 20001)
    for alpha_p in (1.0, 10.0):
        K = K_eigenvalue(p, p**2 / alpha_p, sigma2=0.3, alpha_p=alpha_p, eta=0.04, tau=1.0)
        assert K.min() == pytest.approx(one.K_min_on_parabola, abs=1e-8)
        assert p[K.argmin()] == pytest.approx(one.argmin_p, abs=1e-4)
    critical = fixed_points.parabola_thresholds(sigma2=0.3, eta=one.eta_K_pd_on_parabola)
    assert critical.K_min_on_parabola == pytest.approx(0.0, abs=1e-15)


def test_criterion_of_the_paper_is_K_positive_everywhere():
    rng = np.random.default_rng(0)
    p, s, tau = rng.uniform(-1, 2, 500), rng.uniform(0, 2, 500), rng.uniform(0, 1.5, 500)
    K = K_eigenvalue(p, s, sigma2=0.3, alpha_p=2.0, eta=0.05, tau=tau)
    by_delta = (2.0 * 1.3 * s + 0.05) / 2 - Delta(p, sigma2=0.3, eta=0.05, tau=tau)
    np.testing.assert_allclose(K, by_delta, atol=1e-14)


def test_at_the_collapse_threshold_two_points_remain_and_one_is_half_stable():
    k = 1.3
    eta = 1.0 / (4 * k)
    thresholds = fixed_points.parabola_thresholds(sigma2=k - 1, eta=eta)
    assert thresholds.p_minus == pytest.approx(thresholds.p_plus, abs=1e-7)
    merged = 1.0 / (2 * k)
    end = simulate(ParabolaFlow(sigma2=k - 1, eta=eta), {"p": [merged - 0.01, merged + 0.01]}, [3000.0], rtol=1e-9)[
        "p"
    ][-1]
    assert end[0] < 1e-6
    assert end[1] == pytest.approx(merged, abs=2e-3)
    above = fixed_points.parabola_thresholds(sigma2=k - 1, eta=1.001 * eta)
    assert above.collapse_is_certain and np.isnan(above.p_minus)


@pytest.mark.parametrize(("sigma2", "alpha_p", "tau"), [(0.0, 1.0, 1.0), (0.3, 4.0, 0.8)])
def test_basin_without_decay_is_exact(sigma2, alpha_p, tau):
    rng = np.random.default_rng(0)
    p, s = rng.uniform(-1.5, 2, 400), rng.uniform(0.001, 2, 400)
    goal = tau / (1 + sigma2)
    margin = np.where(p <= 0, p**2, p**2 - goal**2) / alpha_p
    clear = np.abs(s - margin) > 0.01
    flow = DecoupledFlow(sigma2=sigma2, alpha_p=alpha_p, tau=tau)
    end = simulate(flow, {"p": p, "s": s}, [3000.0], rtol=1e-9, atol=1e-13)
    collapsed = end["s"][-1] < 1e-5
    predicted = fixed_points.collapses_without_decay(p, s, sigma2=sigma2, alpha_p=alpha_p, tau=tau)
    np.testing.assert_array_equal(collapsed[clear], predicted[clear])
    alive = ~collapsed & clear
    np.testing.assert_allclose(end["p"][-1][alive], goal, atol=1e-6)
    c = integral_of_motion(p, s, alpha_p=alpha_p)
    np.testing.assert_allclose(end["s"][-1][alive], goal**2 / alpha_p + c[alive], atol=1e-6)
    assert (predicted & (s > p**2 / alpha_p)).sum() == 0  # the paper's criterion is sufficient
    assert (~predicted & (s < p**2 / alpha_p)).sum() > 10  # and not necessary


@pytest.mark.parametrize("beta", [0.1, 2.0])
def test_low_dimensional_basin(beta):
    rng = np.random.default_rng(1)
    wp, w = rng.uniform(-1.5, 1.5, 200), rng.uniform(0.1, 1.5, 200)
    wa = rng.uniform(0, 1, 200) * w
    c0 = w**2 - wp**2 / 2.0
    clear = (np.abs(c0) > 0.02) & (np.abs(c0 + 0.25 / 2.0) > 0.02)
    flow = LowDimFlow(alpha_p=2.0, beta=beta)
    end = simulate(flow, {"wp": wp, "w": w, "wa": wa}, [4000.0], rtol=1e-9, atol=1e-13)
    survived = np.abs(end["w"][-1]) > 1e-4
    predicted = fixed_points.survives_in_low_dimension(wp, w, lambda_s=1.0, lambda_d=0.5, alpha_p=2.0)
    np.testing.assert_array_equal(survived[clear], predicted[clear])
    lost = ~survived & clear
    np.testing.assert_allclose(np.abs(end["wp"][-1][lost]), np.sqrt(-2.0 * c0[lost]), atol=1e-5)


def test_low_dimensional_stability():
    origin = fixed_points.fixed_point(LowDimFixedTargetFlow(alpha_p=4.0), wp=0.0, w=0.0)
    np.testing.assert_allclose(origin.eigenvalues.real, [-1.0, 1.0])  # lambda_d w_a sqrt(alpha_p)
    assert origin.stability == "saddle"
    flow, c = LowDimFlow(alpha_p=3.0, beta=0.4), 0.8
    zero, *pair = sorted(fixed_points.fixed_point(flow, wp=0.5, w=c, wa=c).eigenvalues.real, key=abs)
    np.testing.assert_allclose(sorted(pair), np.sort(np.roots([1, 3 * c * c + 0.25 + 0.4, 3 * 0.4 * c * c])))
    assert abs(zero) < 1e-12
    assert fixed_points.fixed_point(flow, wp=-0.3, w=0.0, wa=0.0).stability == "neutral"  # the whole line w = w_a = 0


def test_collapsing_mode_has_tau_above_one():
    for beta, eta in ((0.4, 0.15), (0.4, 0.3)):
        path = simulate(ParabolaEmaFlow(eta=eta, beta=beta), {"p": 0.05, "tau": 0.0}, [80.0])
        assert path["tau"][-1] == pytest.approx(beta / (beta - eta), rel=1e-3)


def test_slow_target_traps_more_and_a_copied_one_does_not():
    values = [
        fixed_points.minimal_surviving_p(sigma2=0.0009, eta=0.04, beta=beta, tolerance=1e-4)
        for beta in (0.05, 0.4, 4.0)
    ]
    np.testing.assert_allclose(values, [0.0718, 0.0459, 0.0422], atol=1e-4)
    copied = fixed_points.minimal_surviving_p(sigma2=0.0009, eta=0.04, beta=0.05, tau0=1.0)
    assert copied < 0.0418
    assert fixed_points.minimal_surviving_p(sigma2=0.0, eta=0.3, beta=1.0) == np.inf


def test_wrong_requests_are_named():
    with pytest.raises(UsageError, match=r"moves at \{'p': 0.5\} with speed"):
        fixed_points.fixed_point(ParabolaFlow(), p=0.5)
    with pytest.raises(UsageError, match="eta_p is 0.0 and eta_s is 0.0; expected positive decays"):
        fixed_points.decoupled_fixed_points(DecoupledFlow())
    with pytest.raises(UsageError, match="eta is 0.0; expected positive weight decay"):
        fixed_points.minimal_surviving_p(sigma2=0.0, eta=0.0, beta=1.0)
