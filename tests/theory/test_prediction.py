"""Predictions of a run's hyperparameters against simulated training."""

import numpy as np
import pytest

from ssl_hub.errors import UsageError
from ssl_hub.theory.prediction import flow_units, predict

STL10 = {"lr": 0.03, "momentum": 0.9, "weight_decay": 4e-4, "ema_m": 0.996}


def test_units_of_the_paper_s_training_runs():
    units = flow_units(**STL10)
    assert (units.alpha, units.eta, units.beta) == pytest.approx((0.3, 4e-4, 0.004 / 0.3))


def test_prediction_of_the_paper_s_training_runs():
    units = flow_units(**STL10)
    got = predict(alpha_p=1.0, eta=units.eta, beta=units.beta, lr=0.03, momentum=0.9, steps=78_000)
    assert got.survives
    assert got.p_plus == pytest.approx(1 / 1.1, rel=1e-3)
    assert got.steps_of_target == pytest.approx(250)
    assert got.steps_to_forget == pytest.approx(1 / (2 * 4e-4 * 0.3))
    assert got.least_K_without_ema < got.least_K < 0  # the target helps, and K is still negative on the way
    text = "\n".join(got.sentences)
    assert "survives" in text and "250 steps, 0.0032 of the run of 78000" in text


def test_steps_to_learn_are_sgd_steps():
    """Against explicit steps of a one-dimensional network, p and w = sqrt(s)."""
    lr, sigma2 = 0.02, 0.5
    got = predict(alpha_p=1.0, eta=0.05, beta=None, lr=lr, sigma2=sigma2, p0=0.3, s0=0.2)
    p, w = 0.3, np.sqrt(0.2)
    trace = []
    for _ in range(20_000):
        pull = 1.0 - (1 + sigma2) * p
        p, w = p + lr * (w * w * pull - 0.05 * p), w + lr * (p * w * pull - 0.05 * w)
        trace.append(p)
    reached = int(np.flatnonzero(np.array(trace) > 0.95 * trace[-1])[0])
    assert got.steps_to_learn == pytest.approx(reached, rel=0.05)
    assert got.p_plus == pytest.approx(trace[-1], rel=1e-6)
    assert got.s_plus == pytest.approx(w * w, rel=1e-6)


def test_strong_decay_is_certain_collapse():
    got = predict(alpha_p=1.0, eta=0.3, beta=0.4, lr=0.01)
    assert not got.survives and np.isnan(got.p_plus) and np.isnan(got.steps_to_learn)
    assert "every mode decays to 0" in got.sentences[1]


def test_small_modes_under_a_slow_target_collapse_and_larger_ones_do_not():
    settings = {"alpha_p": 1.0, "eta": 0.04, "beta": 0.05, "lr": 0.01, "sigma2": 0.0009, "tau0": 0.0}
    edge = predict(**settings).smallest_surviving_p
    assert edge == pytest.approx(0.0718, abs=2e-4)
    for factor, lives in ((0.9, False), (1.1, True)):
        p0 = factor * edge
        assert predict(**settings, p0=p0, s0=p0 * p0).survives == lives


@pytest.mark.parametrize("eta_p", [None, 0.2])
def test_decay_of_the_predictor_moves_s_and_not_p(eta_p):
    got = predict(alpha_p=5.0, eta=0.04, eta_p=eta_p, beta=None, lr=0.01)
    assert got.survives
    assert got.s_plus == pytest.approx(got.p_plus**2 * (1.0 if eta_p else 0.2))


def test_no_decay_says_that_the_start_is_never_forgotten():
    got = predict(alpha_p=1.0, eta=0.0, beta=10.0, lr=0.01)
    assert got.survives and got.steps_to_forget == np.inf
    assert any("never fades" in line for line in got.sentences)
    assert not predict(alpha_p=1.0, eta=0.0, beta=10.0, lr=0.01, p0=-0.5, s0=0.1).survives


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"alpha_p": 0.0}, r"alpha_p is 0.0; expected a number in \(0, inf\)"),
        ({"eta": -1.0}, r"eta is -1.0; expected a number in \[0, inf\)"),
        ({"beta": 0.0}, r"beta is 0.0; expected a number in \(0, inf\)"),
        ({"momentum": 1.0}, r"momentum is 1.0; expected a number in \[0, 1\)"),
    ],
)
def test_values_out_of_range_are_named(changes, message):
    with pytest.raises(UsageError, match=message):
        predict(**{"alpha_p": 1.0, "eta": 0.01, "beta": 0.4, "lr": 0.01, **changes})


def test_target_momentum_out_of_range_is_named():
    with pytest.raises(UsageError, match=r"ema_m is 1.1; expected a number in \[0, 1\]"):
        flow_units(lr=0.1, ema_m=1.1)
