"""The theorems as properties: at any setting that hypothesis thinks of, zero where they hold, and only there."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ssl_hub.theory import theorems
from ssl_hub.theory.checks import RandomSetting
from ssl_hub.theory.fixed_points import parabola_thresholds
from ssl_hub.theory.integrate import simulate

TIMES = np.linspace(0, 2, 11)
FEW = settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
rates = st.floats(0.3, 5.0)
decays = st.floats(0.0, 0.3)


@st.composite
def random_settings(draw):
    at = RandomSetting(draw(st.integers(0, 10_000)))
    at.alpha_p, at.eta = draw(rates), draw(decays)
    at.tau, at.sigma2 = draw(st.floats(0.1, 1.2)), draw(st.floats(0.0, 1.0))
    return at


@FEW
@given(random_settings())
def test_lemma_1_is_the_gradient(at):
    assert theorems.lemma1(at.byol(), at.Wp, at.W, at.Wa).holds


@FEW
@given(random_settings())
def test_theorem_1_holds_unsymmetrised_with_one_decay(at):
    init = {"Wp": at.Wp, "W": at.W, "Wa": at.Wa}
    assert theorems.theorem1(simulate(at.byol(), init, TIMES)).measured < 1e-9


@FEW
@given(random_settings())
def test_theorem_1_breaks_with_two_decays(at):
    init = {"Wp": at.Wp, "W": at.W, "Wa": at.Wa}
    assert theorems.theorem1(simulate(at.byol(eta_p=at.eta + 0.2, eta_s=at.eta), init, TIMES)).measured > 1e-3


@FEW
@given(random_settings())
def test_theorem_2_is_an_identity_and_decays(at):
    flow = at.simsiam(stop_gradient=False)
    assert theorems.theorem2(flow, at.Wp, at.W).holds
    assert theorems.theorem2_decay(simulate(flow, {"Wp": at.Wp, "W": at.W}, TIMES)).holds


@FEW
@given(random_settings())
def test_theorem_3_is_an_identity(at):
    assert theorems.theorem3(at.predictor_correlation(), at.Wp_symmetric, at.F).holds


@FEW
@given(alpha_p=rates, eta=st.floats(1e-4, 0.2), sigma2=st.floats(0.0, 1.0))
def test_alpha_p_moves_no_threshold_on_the_parabola(alpha_p, eta, sigma2):
    one, other = (parabola_thresholds(sigma2=sigma2, eta=eta, alpha_p=a) for a in (1.0, alpha_p))
    for name in ("p_minus", "p_plus", "eta_collapse", "K_min_on_parabola"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
