"""Stored numerical cases of every kind, each to its own tolerance."""

from pathlib import Path

import pytest

from ssl_hub.errors import UsageError
from tests.theory.reference import cases_of, evaluate, flow_of, worst_error

CASES = cases_of(Path(__file__).parent / "reference_cases.json")


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_case_to_its_tolerance(case):
    assert worst_error(evaluate(case, others=CASES), case["outputs"]) <= case["tol_abs"]


def test_every_kind_is_there():
    assert {case["kind"] for case in CASES} == {"static", "ode", "table", "discrete", "directpred", "loop"}


def test_worst_error_sees_one_wrong_number_and_a_missing_nan():
    expected = {"rows": [{"a": 1.0, "b": [1.0, 2.0]}]}
    assert worst_error({"rows": [{"a": 1.0, "b": [1.0, 2.5]}]}, expected) == 0.5
    assert worst_error({"p": [float("nan")]}, {"p": "nan"}) == 0.0
    assert worst_error({"p": [0.0]}, {"p": "nan"}) == float("inf")
    assert worst_error({"p": float("nan")}, {"p": 1.0}) == float("inf")


def test_unknown_kinds_and_systems_are_named():
    with pytest.raises(UsageError, match="kind 'guess'; expected one of static, ode"):
        evaluate({"id": "Z", "kind": "guess", "equation": "", "inputs": {}})
    ode = {"params": {}, "init": {"q": 1.0}, "t_eval": [1.0]}
    with pytest.raises(UsageError, match="states q; no flow"):
        evaluate({"id": "Z", "kind": "ode", "equation": "", "inputs": ode})
    with pytest.raises(UsageError, match="takes its inputs from A; pass that case"):
        evaluate({"id": "Z", "kind": "loop", "equation": "", "inputs": {"same_as": "A"}})


@pytest.mark.parametrize(
    ("init", "params", "equation", "name", "setting"),
    [
        ("Wp W", {"X": [[1]], "Xprime": [[1]]}, "Lemma 1 with Wa=W", "SimSiamFlow", ("stop_gradient", True)),
        ("Wp W", {"X": [[1]], "Xprime": [[1]]}, "no stop-gradient", "SimSiamFlow", ("stop_gradient", False)),
        ("W", {"Xprime": [[1]]}, "Wdot=-W(2X'+eta I)", "NoPredictorFlow", ("stop_gradient", False)),
        ("Wp F", {"sigma2": 0.0}, "symmetrised (Wp,F)", "PredictorCorrelationFlow", ("symmetrise", True)),
        ("Wp F", {"sigma2": 0.0}, "unsymmetrised (Wp,F)", "PredictorCorrelationFlow", ("symmetrise", False)),
        ("wp w", {"wa": 0.3}, "", "LowDimFixedTargetFlow", ("wa", 0.3)),
        ("wp w", {"lambda_d": 0.3}, "", "LowDimSimSiamFlow", ("lambda_d", 0.3)),
        ("w wa", {"beta": 0.3}, "w=wp: wdot=w(wa ld-w^2 ls)", "LowDimTiedFlow", ("beta", 0.3)),
        ("w wa", {"beta": 0.3, "alpha_p": 1.0}, "wdot=wa ld-w ls", "LowDimNoPredictorFlow", ("beta", 0.3)),
        ("p s", {"eta_p": 0.1, "eta_s": 0.0}, "decoupled (p,s)", "DecoupledFlow", ("eta_p", 0.1)),
    ],
)
def test_flow_is_the_one_that_states_parameters_and_words_name(init, params, equation, name, setting):
    case = {"id": "Z", "equation": equation, "inputs": {"params": params, "init": dict.fromkeys(init.split(), 0.1)}}
    flow = flow_of(case)
    assert type(flow).__name__ == name
    assert getattr(flow, setting[0]) == setting[1]
