"""What the flow says of hyperparameters, in numbers and in sentences."""

from dataclasses import replace

import numpy as np
import pytest

from ssl_hub.errors import UsageError
from ssl_hub.theory.modes import stationary_shares
from ssl_hub.theory.prediction import PredictorRule, Setting, Start, assumptions, flow_units, law, predict

STL10 = {"lr": 0.03, "momentum": 0.9, "weight_decay": 4e-4, "ema_m": 0.996}
DIRECT = Setting(
    units=flow_units(**STL10), rate=4.0, loss="normalised", predictor=PredictorRule(kind="set"), target="ema"
)
START = Start(
    s=np.array([2.0, 0.5, 0.5, 0.1]),
    r=np.array([1.0, 0.9, 0.6, 0.05]),
    gain=np.ones(4),
    constant=np.array([1.0, 0.0, 0.0, 0.0]),
    p=np.array([0.5, 0.3, 0.2, 0.4]),
)


def test_units_of_the_paper_s_training_runs():
    units = flow_units(**STL10)
    assert (units.alpha, units.eta, units.beta) == pytest.approx((0.3, 4e-4, 0.004 / 0.3))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": 0.0}, r"lr is 0.0; expected a number in \(0, inf\)"),
        ({"weight_decay": -1.0}, r"weight_decay is -1.0; expected a number in \[0, inf\)"),
        ({"momentum": 1.0}, r"momentum is 1.0; expected a number in \[0, 1\)"),
        ({"ema_m": 1.1}, r"ema_m is 1.1; expected a number in \[0, 1\]"),
    ],
)
def test_values_out_of_range_are_named(changes, message):
    with pytest.raises(UsageError, match=message):
        flow_units(**{**STL10, **changes})


@pytest.mark.parametrize("freq", [1, 5])
def test_a_long_run_ends_where_the_closed_form_says(freq):
    setting = replace(
        DIRECT, units=flow_units(lr=0.03, momentum=0.9, ema_m=0.99), predictor=PredictorRule(kind="set", freq=freq)
    )
    got = predict(setting, START, steps=[0, 100, 200_000])
    np.testing.assert_allclose(got.s[0], START.s)
    np.testing.assert_allclose(got.s[-1] / got.s[-1].max(), stationary_shares(START.r, eps=0.1), atol=0.02)
    assert got.spread[0] == pytest.approx(np.sqrt(1 - 2.0 / 3.1))
    assert got.spread[-1] == pytest.approx(np.sqrt(1 - got.s[-1][0] / got.s[-1].sum()))


@pytest.mark.parametrize(
    ("changes", "collapses"),
    [
        ({}, False),
        ({"predictor": PredictorRule(kind="set", eps=20.0)}, True),
        ({"predictor": PredictorRule(kind="identity")}, True),
        ({"predictor": PredictorRule(kind="trained"), "target": "attached"}, True),
        ({"predictor": PredictorRule(kind="trained"), "target": "online"}, False),
    ],
)
def test_collapse_is_where_the_paper_has_it(changes, collapses):
    got = predict(replace(DIRECT, **changes), START, steps=[20_000])
    assert (got.spread[-1] < 0.05) == collapses


def test_sentences_are_about_the_recipe_s_own_predictor_and_loss():
    said = " ".join(law(DIRECT))
    assert "One step advances time by 0.3; in flow units eta = 0.0004, beta = 0.0133." in said
    assert "lags by 250 steps" in said
    assert "more than 0.0909 of the best direction's (eps / (1 + eps))" in said
    trained = " ".join(law(replace(DIRECT, predictor=PredictorRule(kind="trained"))))
    assert "the start decides" in trained and "eps /" not in trained
    assert "collapse" in law(replace(DIRECT, predictor=PredictorRule(kind="identity")))[-1]
    assert "needs the normalised loss" in law(replace(DIRECT, loss="squared"))[-1]
    printed = replace(DIRECT, predictor=PredictorRule(kind="set", form="paper"))
    assert "(eps / (1 + eps))" not in " ".join(law(printed))  # its eps depends on the scale of F
    assert not any("Fate" in line for line in law(DIRECT, described=False))


def test_the_cosine_s_assumption_is_said_where_it_is_made():
    assert any("one norm" in line for line in assumptions(DIRECT))
    assert not any("one norm" in line for line in assumptions(replace(DIRECT, loss="squared")))
