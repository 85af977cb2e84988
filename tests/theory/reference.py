"""Stored numerical cases, evaluated by the functions of the package: `evaluate(case)` in the schema of the files.

    python -m tests.theory.reference FILE.json     # every case of a file: its error beside its tolerance

A case is a dict with `id`, `kind`, `equation`, `inputs` and, in the files, the expected `outputs`. Kinds:

| kind | inputs | what is evaluated |
|---|---|---|
| `static` | matrices and parameters | Lemma 1, Theorem 2's H, the commutator and K, the scrambling models |
| `ode` | `params`, `init`, `t_eval` | the flow that the states and parameters name |
| `table` | parameters, or rows of them | fixed points |
| `discrete` | parameters, `alpha`, `steps` | explicit Euler |
| `directpred` | `F`, or batches | the predictor of a correlation matrix, its moving average, the plug-in optimum |
| `loop` | batches and optimiser settings | the training loop on a linear network |

The flow of an ode case follows from its state names and parameters; where those leave two (with or without
stop-gradient, symmetrised or not) the words of its `id` and `equation` decide.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ssl_hub.errors import UsageError
from ssl_hub.theory import decoupled, derived, discrete, dynamics, fixed_points, lowdim, scrambling
from ssl_hub.theory.dynamics import Array, Flow, Trajectory, simulate
from tests.theory.reference_quantities import along

Case = Mapping[str, Any]
FORMS: dict[str, discrete.Form] = {"paper": "paper", "homog": "homogeneous", "code": "normalised"}


# What the words of a case say of its equations.
WITHOUT_STOP_GRADIENT = r"\bno[ _-]?stop|without[ _]stop|_no_stop|theorem[ _]2|kron|2 ?x'"
SYMMETRISED = r"(?<!un)(?<!not )symmetrised"
TIED = r"w ?= ?wp|w\^2"


def evaluate(case: Case, *, others: Sequence[Case] = ()) -> dict[str, Any]:
    """The outputs of one case, with the names that the file uses; arrays stay numpy arrays.

    Args:
        case: the case; its own `outputs` are read only for parameters that stand there: rows of tables, values of eps.
        others: cases that a `same_as` entry may name.

    Raises:
        UsageError: a kind or a system that this package does not have.
    """
    kind = case["kind"]
    if kind not in _KINDS:
        raise UsageError(f"case {case.get('id')} has kind {kind!r}; expected one of {', '.join(_KINDS)}")
    inputs = case["inputs"]
    if "same_as" in inputs:
        source = {other["id"]: other for other in others}.get(inputs["same_as"])
        if source is None:
            raise UsageError(f"case {case['id']} takes its inputs from {inputs['same_as']}; pass that case in `others`")
        case = {**case, "inputs": {**source["inputs"], **{k: v for k, v in inputs.items() if k != "same_as"}}}
    return _KINDS[kind](case)


def cases_of(path: str | Path) -> list[Case]:
    """The cases of a file, which is a list of them or has them under `cases`; without how they were made."""
    found = json.loads(Path(path).read_text(encoding="utf-8"))
    cases = found["cases"] if isinstance(found, dict) else found
    for case in cases:
        case["outputs"] = {name: value for name, value in case["outputs"].items() if not name.startswith("crosscheck")}
    return list(cases)


def worst_error(got: Any, expected: Any) -> float:
    """Largest absolute difference over all numbers of two nested structures, compared by the keys of `expected`."""
    if isinstance(expected, Mapping):
        return max((worst_error(got[key], value) for key, value in expected.items()), default=0.0)
    if expected == "nan":
        return 0.0 if np.isnan(np.asarray(got, dtype=np.float64)).all() else np.inf
    if isinstance(expected, list) and expected and isinstance(expected[0], Mapping):
        return max(worst_error(g, e) for g, e in zip(got, expected, strict=True))
    difference = np.abs(np.asarray(got, dtype=np.float64) - np.asarray(expected, dtype=np.float64))
    return float(np.nan_to_num(difference, nan=np.inf).max(initial=0.0))


def flow_of(case: Case) -> Flow:
    """The flow of an ode case."""
    inputs = case["inputs"]
    params, states = dict(inputs["params"]), frozenset(inputs["init"])
    stop_gradient, symmetrise = not _says(case, WITHOUT_STOP_GRADIENT), _says(case, SYMMETRISED)
    if states == {"Wp", "W", "Wa"}:
        return dynamics.ByolFlow(**_as_data(params), symmetrise=symmetrise)
    if states == {"Wp", "W"}:
        return dynamics.SimSiamFlow(**_as_data(params), stop_gradient=stop_gradient, symmetrise=symmetrise)
    if states == {"W", "Wa"}:
        return dynamics.NoPredictorByolFlow(**_as_correlations(params))
    if states == {"W"}:
        params.pop("X", None)
        return dynamics.NoPredictorFlow(**params, stop_gradient=stop_gradient)
    if states == {"Wp", "F"}:
        return dynamics.PredictorCorrelationFlow(**params, symmetrise=symmetrise)
    if states == {"wp", "w", "wa"}:
        return lowdim.LowDimFlow(**params)
    if states == {"w", "wa"}:
        if _says(case, TIED):
            return lowdim.LowDimTiedFlow(**params)
        params.pop("alpha_p", None)
        return lowdim.LowDimNoPredictorFlow(**params)
    if states == {"wp", "w"} and "wa" not in params:
        params.pop("beta", None)
        return lowdim.LowDimSimSiamFlow(**params)
    simple: dict[frozenset[str], type[Flow]] = {
        frozenset({"Wp"}): dynamics.BalancedPredictorFlow,
        frozenset({"p", "s"}): decoupled.DecoupledFlow,
        frozenset({"p", "s", "tau"}): decoupled.DecoupledEmaFlow,
        frozenset({"p"}): decoupled.ParabolaFlow,
        frozenset({"p", "tau"}): decoupled.ParabolaEmaFlow,
        frozenset({"wp", "w"}): lowdim.LowDimFixedTargetFlow,
    }
    if states not in simple:
        raise UsageError(
            f"case {case['id']} has the states {', '.join(sorted(states))}; no flow of the paper has these"
        )
    return simple[states](**params)


def _says(case: Case, pattern: str) -> bool:
    return re.search(pattern, f"{case['id']} {case['equation']}".lower()) is not None


def _as_data(params: dict[str, Any]) -> dict[str, Any]:
    if "Sigma_s" in params:
        params = {**params, **dynamics.from_correlations(params.pop("Sigma_s"), params.pop("Sigma_d"))}
    return params


def _as_correlations(params: dict[str, Any]) -> dict[str, Any]:
    if "X" in params:
        X, Xprime = np.asarray(params.pop("X")), np.asarray(params.pop("Xprime"))
        params = {**params, "Sigma_s": X + Xprime, "Sigma_d": X}
    return params


def _ode(case: Case) -> dict[str, Any]:
    flow = flow_of(case)
    inputs = case["inputs"]
    path = simulate(flow, inputs["init"], inputs["t_eval"], **_tolerances(flow))
    quantities = along(path, inputs["init"])
    states = []
    for index, t in enumerate(path.t):
        states.append(
            {"t": float(t), **path.at(index), "derived": {name: values[index] for name, values in quantities.items()}}
        )
    return {"states": states}


def _tolerances(flow: Flow) -> dict[str, Any]:
    """Collapsing (p, s) must be right to relative accuracy: c = e^{2 eta t} (s - p^2 / alpha_p) undoes their decay."""
    if isinstance(flow, (decoupled.DecoupledFlow, decoupled.DecoupledEmaFlow)):
        return {"rtol": 3e-14, "atol": 1e-60}
    return {}


def _static(case: Case) -> dict[str, Any]:
    inputs = {name: np.asarray(value, dtype=np.float64) for name, value in case["inputs"].items()}
    if "Sigma_x" in inputs:
        return _scrambling(inputs)
    params: dict[str, Any] = {name: float(value) for name, value in inputs.items() if value.ndim == 0}
    if "F" in inputs:
        Wp, F = inputs["Wp"], inputs["F"]
        symmetric = dynamics.PredictorCorrelationFlow(**params)
        dWp, dF = symmetric.velocity(Wp, F)
        alpha_p, eta = symmetric.alpha_p, symmetric.eta
        L, K = dynamics.commutator(F, Wp), derived.alignment_matrix(symmetric, Wp, F)
        rate = dF - dynamics.anticommutator(Wp, dWp) / alpha_p + 2 * eta * (F - Wp @ Wp / alpha_p)
        return {
            "L": L,
            "K": K,
            "K_eigs": np.linalg.eigvalsh(K),
            "dL": -L @ K - K @ L,
            "dWp": dWp,
            "dF": dF,
            "theorem1_defect_rate": rate,
        }
    X, Xprime, Wp, W = inputs["X"], inputs["Xprime"], inputs["Wp"], inputs["W"]
    if "Wa" in inputs:
        dWp, dW, dWa = dynamics.ByolFlow(X=X, Xprime=Xprime, **params).velocity(Wp, W, inputs["Wa"])
        return {"dWp": dWp, "dW": dW, "dWa": dWa, "J": discrete.squared_error(Wp, W, inputs["Wa"], X, Xprime)}
    stop_gradient = not _says(case, WITHOUT_STOP_GRADIENT)
    simsiam = dynamics.SimSiamFlow(X=X, Xprime=Xprime, stop_gradient=stop_gradient, **params)
    dWp, dW = simsiam.velocity(Wp, W)
    H = derived.collapse_matrix(simsiam, Wp)
    J = discrete.squared_error(Wp, W, W, X, Xprime)
    return {"dWp": dWp, "dW": dW, "H": H, "H_eigs": np.linalg.eigvalsh(H), "J": J}


def _scrambling(inputs: Mapping[str, Array]) -> dict[str, Any]:
    data = inputs["Sigma_x"]
    if "U" not in inputs:
        noise = scrambling.additive_scrambling(data, inputs["Sigma_n"])
        eigenvalues = np.sort(noise.features[0])
        return {**noise._asdict(), "product": noise.product, "eigs": eigenvalues, "product_eigs": eigenvalues}
    views, kept = scrambling.multiplicative_scrambling(data, inputs["U"]), scrambling.conserved_projection(inputs["U"])
    printed = views.Sigma_d @ np.linalg.inv(data)
    return {
        **views._asdict(),
        "Pc": kept,
        "product": views.product,
        "paper_formula_Pc_Sx_Pc_Sxinv": printed,
        "paper_formula_eigs": np.sort(np.linalg.eigvals(printed).real),
    }


def _table(case: Case) -> dict[str, Any]:
    if "lambda_s" in case["inputs"]:
        return _lowdim_table(case["inputs"])
    rows = []
    for row in case["inputs"].get("rows") or case["outputs"]["rows"]:
        params = {name: row[name] for name in ("sigma2", "alpha_p", "eta", "tau")}
        thresholds = fixed_points.parabola_thresholds(**params)
        points = fixed_points.decoupled_fixed_points(decoupled.DecoupledFlow(**params))
        names = ("eig_origin", "eig_minus", "eig_plus")
        eigenvalues = {name: point.eigenvalues.real for name, point in zip(names, points, strict=False)}
        rows.append({**params, **vars(thresholds), **eigenvalues})
    return {"rows": rows}


def _lowdim_table(params: Mapping[str, float]) -> dict[str, Any]:
    pair = {name: params[name] for name in ("lambda_s", "lambda_d")}
    beta, alpha_p = params["beta"], params["alpha_p"]
    left = lowdim.LowDimFixedTargetFlow(**pair, alpha_p=alpha_p)
    middle = lowdim.LowDimTiedFlow(**pair, alpha_p=alpha_p, beta=beta)
    right = lowdim.LowDimNoPredictorFlow(**pair, beta=beta)
    end = pair["lambda_d"] / pair["lambda_s"] / np.sqrt(alpha_p)
    return {
        "left_origin_eigs": fixed_points.fixed_point(left, wp=0.0, w=0.0).eigenvalues.real,
        "middle_origin_eigs": fixed_points.fixed_point(middle, w=0.0, wa=0.0).eigenvalues.real,
        "middle_noncollapsed": [end, end],
        "middle_noncollapsed_eigs": fixed_points.fixed_point(middle, w=end, wa=end).eigenvalues.real,
        "right_origin_eigs": fixed_points.fixed_point(right, w=0.0, wa=0.0).eigenvalues.real,
        "full_line_c0p8_eigs": fixed_points.lowdim_line_eigenvalues(
            lowdim.LowDimFlow(**pair, alpha_p=alpha_p, beta=beta), 0.8
        ).real,
    }


def _discrete(case: Case) -> dict[str, Any]:
    inputs = dict(case["inputs"])
    alpha, steps, init = inputs.pop("alpha"), inputs.pop("steps"), inputs.pop("init", None)
    if isinstance(init, list):
        names = ("p", "s", "tau")[: len(init)]
        path = _euler_of(case, inputs, dict(zip(names, init, strict=True)), alpha, steps)
        return {"states": np.stack([path[name] for name in names], axis=-1)}
    init = init or {name: inputs.pop(name) for name in ("Wp", "W", "Wa", "F") if name in inputs}
    return dict(_euler_of(case, inputs, init, alpha, steps).states)


def _euler_of(case: Case, params: Mapping[str, Any], init: Mapping[str, Any], alpha: float, steps: Any) -> Trajectory:
    flow = flow_of({**case, "inputs": {"params": params, "init": init}})
    return discrete.euler(flow, init, alpha, steps)


def _directpred(case: Case) -> dict[str, Any]:
    import torch

    from ssl_hub.model.spectrum import Solution, eigenvalue_map, optimal_predictor

    inputs = case["inputs"]
    if "f_view1" in inputs:
        averages, F = [], None
        for one, two in zip(inputs["f_view1"], inputs["f_view2"], strict=True):
            F = discrete.running_correlation(F, np.concatenate([np.array(one), np.array(two)]), rho=inputs["rho"])
            averages.append(F)
        return {"Fhat_after_each_batch": averages}
    F = np.asarray(inputs["F"], dtype=np.float64)
    tensor = torch.from_numpy(F)
    if "M2" in inputs:
        cross = torch.tensor(inputs["M2"], dtype=torch.float64)
        names: dict[str, Solution] = {
            "right": "right",
            "left": "left",
            "sylvester": "sylvester",
            "caption_regularised": "caption",
        }
        return {
            name: optimal_predictor(tensor, cross, reg=inputs["reg"], solution=solution).numpy()
            for name, solution in names.items()
        }
    s = np.linalg.eigvalsh(dynamics.symmetric_part(F))

    def predictors(eps: float, c: float) -> dict[str, Any]:
        values: dict[str, Any] = {"eigs": s}
        for name, form in FORMS.items():
            values[f"p_{name}"] = eigenvalue_map(torch.from_numpy(s), eps=eps, c=c, form=form).numpy()
            values[f"Wp_{name}"] = discrete.direct_predictor(F, eps=eps, c=c, form=form)
        return values

    outputs = case.get("outputs", {})
    if "by_c" in outputs:
        return {"by_c": {key: predictors(0.0, float(key)) for key in outputs["by_c"]}}
    return {"by_eps": {key: predictors(float(key), 0.0) for key in outputs.get("by_eps", ("0.1",))}}


def _loop(case: Case) -> dict[str, Any]:
    inputs, equation = case["inputs"], case["equation"].lower()
    freq = int(equation.split("freq=")[1].split()[0]) if "freq=" in equation else 1
    predictor: discrete.PredictorRule = (
        "symmetric" if "sym" in equation else "direct" if "corr" in equation else "regular"
    )
    settings = {name: inputs[name] for name in ("lr", "momentum", "weight_decay", "ema_m", "rho", "eps")}
    run = discrete.LinearTraining(
        W=inputs["W0"], Wp=inputs["Wp0"], Wa=inputs["Wa0"], predictor=predictor, freq=freq, **settings
    )
    trace = []
    for iteration, (one, two) in enumerate(zip(inputs["x1"], inputs["x2"], strict=True)):
        loss = run.step(one, two)
        trace.append({"iter": iteration, "loss": loss, "Fhat": run.F, "W": run.W, "Wp": run.Wp, "Wa": run.Wa})
    return {"trace": trace}


_KINDS: dict[str, Callable[[Case], dict[str, Any]]] = {
    "static": _static,
    "ode": _ode,
    "table": _table,
    "discrete": _discrete,
    "directpred": _directpred,
    "loop": _loop,
}


def main(path: str) -> int:
    """Print the error of each case beside its tolerance; the number of cases above theirs."""
    cases, above = cases_of(path), 0
    for case in cases:
        error = worst_error(evaluate(case, others=cases), case["outputs"])
        above += not error <= case["tol_abs"]
        print(f"{'ok' if error <= case['tol_abs'] else 'FAILS':<6}{error:.1e}  of {case['tol_abs']:.0e}  {case['id']}")
    print(f"{len(cases) - above} of {len(cases)} cases within their tolerance")
    return above


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1]), 1))
