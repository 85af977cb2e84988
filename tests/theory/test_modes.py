"""The flow of the training against the discrete training of a linear network, and what it says in closed form."""

from itertools import product

import numpy as np
import pytest

from benchmarks.flow_error import CASES, error
from ssl_hub.errors import UsageError
from ssl_hub.theory.discrete import LinearTraining, direct_predictor
from ssl_hub.theory.integrate import simulate
from ssl_hub.theory.modes import (
    ResetPredictorFlow,
    SetPredictorFlow,
    TrainedPredictorFlow,
    identity,
    set_from,
    stationary_shares,
)

R = np.array([1.0, 0.8, 0.5, 0.05])
W0 = np.array([0.9, 0.5, 0.4, 0.3])


def end(flow, time=4000.0, **init):
    return simulate(flow, {"w": W0, "wa": W0, **init}, [time], rtol=1e-9, atol=1e-12, stiff=True)["w"][-1]


@pytest.mark.parametrize("name", CASES)
def test_error_against_discrete_training_falls_as_the_learning_rate(name):
    """Halving the learning rate halves the error: what is left is the step, not the equations."""
    errors = [error(name, lr) for lr in (0.02, 0.01)]
    assert errors[1] < 0.02
    assert 1.6 < errors[0] / errors[1] < 2.8


@pytest.mark.parametrize(("eps", "alpha"), [(0.1, 0.5), (0.7, 0.5), (0.3, 1.0)])
@pytest.mark.parametrize("isotropic", [False, True])
def test_directpred_ends_at_the_shares_of_the_closed_form(eps, alpha, isotropic):
    flow = SetPredictorFlow(
        r=R, map=set_from(eps=eps, alpha=alpha), averaging=1.0, beta=0.3, rate=2.0, isotropic=isotropic
    )
    s = end(flow, average=W0**2) ** 2
    np.testing.assert_allclose(s / s.max(), stationary_shares(R, eps=eps, alpha=alpha), atol=2e-3)


def test_a_mode_lives_where_its_agreement_is_above_the_share():
    lives = stationary_shares([1.0, 0.51, 0.49], eps=1.0) > 0
    assert lives.tolist() == [True, True, False]
    assert stationary_shares([0.5, 0.5], eps=9.0).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "flow",
    [
        SetPredictorFlow(r=R, map=identity, averaging=1.0, beta=0.3),
        SetPredictorFlow(r=R, map=identity, averaging=1.0),
        SetPredictorFlow(r=R, map=set_from(eps=0.1), averaging=1.0, stop_gradient=False),
    ],
    ids=["identity", "identity-without-ema", "direct-without-stop-gradient"],
)
def test_without_predictor_or_stop_gradient_one_direction_is_left(flow):
    s = end(flow, average=W0**2) ** 2
    assert s[1:].max() < 1e-6 * s[0]


def test_under_the_squared_loss_a_predictor_of_fixed_scale_decays():
    flow = SetPredictorFlow(r=R, map=set_from(eps=0.1), averaging=1.0, loss="squared")
    assert end(flow, time=80.0, average=W0**2).max() < 1e-3


def test_normalised_velocities_are_the_gradients_of_the_normalised_loss():
    """By finite differences of 1 - C / sqrt(N M) in w and wp at fixed wa."""
    rng = np.random.default_rng(0)
    wp, w, wa = rng.uniform(0.2, 1.0, (3, 4))

    def loss(wp, w):
        C, N, M = (R * wp * w * wa).sum(), (wp * w) @ (wp * w), wa @ wa
        return 1 - C / np.sqrt(N * M)

    dwp, dw, _ = TrainedPredictorFlow(r=R, beta=1.0).velocity(wp, w, wa)
    for j, step in enumerate(1e-6 * np.eye(4)):
        assert dwp[j] == pytest.approx(-(loss(wp + step, w) - loss(wp - step, w)) / 2e-6, abs=1e-8)
        assert dw[j] == pytest.approx(-(loss(wp, w + step) - loss(wp, w - step)) / 2e-6, abs=1e-8)


def test_the_map_is_that_of_the_trained_predictor():
    p = set_from(eps=0.2)(R)
    np.testing.assert_allclose(np.diag(p), direct_predictor(np.diag(R), eps=0.2), atol=1e-12)


def test_resets_at_every_step_are_a_predictor_that_is_set():
    settings = {"r": R, "map": set_from(eps=0.1), "averaging": 1.0, "beta": 0.4}
    init = {"w": W0, "wa": W0, "average": W0**2}
    often = ResetPredictorFlow(**settings, resetting=1e5)
    one = simulate(often, {**init, "wp": set_from(eps=0.1)(W0**2)}, [5.0], stiff=True, rtol=1e-8)["w"]
    np.testing.assert_allclose(one, simulate(SetPredictorFlow(**settings), init, [5.0])["w"], rtol=1e-4)


def test_on_isotropic_data_the_eigenvectors_of_f_never_move():
    """From a random start: DirectPred needs no alignment there, and the modes of the start are those of the end."""
    rng = np.random.default_rng(0)
    one, two = (np.array(list(product((-1.0, 1.0), repeat=4))) for _ in range(2))
    one, two = np.repeat(one, 16, axis=0), np.tile(two, (16, 1))
    one, two = np.concatenate([one, one]), np.concatenate([two, one])  # agreement 1/2
    W = rng.normal(size=(3, 4)) / 2
    s, u = np.linalg.eigh(W @ W.T)
    start = direct_predictor(W @ W.T)
    run = LinearTraining(
        W=W, Wp=start, Wa=W, lr=1e-3, ema_m=0.9996, predictor="direct", weight_decay=0.01, loss="squared"
    )
    for _ in range(1000):
        run.step(one, two)
    rotated = u.T @ run.W @ run.W.T @ u
    np.testing.assert_allclose(rotated, np.diag(rotated.diagonal()), atol=1e-12)
    flow = SetPredictorFlow(
        r=np.full(3, 0.5), map=set_from(eps=0.1), averaging=700.0, beta=0.4, eta=0.01, loss="squared"
    )
    w = simulate(flow, {"w": np.sqrt(s), "wa": np.sqrt(s), "average": s}, [1.0], stiff=True, rtol=1e-8)["w"][-1]
    np.testing.assert_allclose(w**2, rotated.diagonal(), atol=2e-3)


def test_no_gradient_reaches_a_target_that_lags():
    with pytest.raises(UsageError, match="beta is 0.4 and stop_gradient False"):
        TrainedPredictorFlow(r=R, beta=0.4, stop_gradient=False)
