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
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ssl_hub.errors import UsageError
from ssl_hub.model.spectrum import Solution, eigenvalue_map, optimal_predictor
from ssl_hub.theory import decoupled, derived, discrete, dynamics, fixed_points, lowdim, scrambling
from ssl_hub.theory.flow import Array, Flow
from ssl_hub.theory.integrate import simulate
from tests.theory.reference_quantities import along

Case = Mapping[str, Any]

# The names of the files.
FORMS: dict[str, discrete.Form] = {"paper": "paper", "homog": "homogeneous", "code": "normalised"}
SOLUTIONS: dict[str, Solution] = {
    "right": "right",
    "left": "left",
    "sylvester": "sylvester",
    "caption_regularised": "caption",
}

SYSTEMS: dict[frozenset[str], Any] = {
    frozenset(kind.state_names): kind
    for kind in (
        dynamics.ByolFlow,
        dynamics.SimSiamFlow,
        dynamics.NoPredictorByolFlow,
        dynamics.NoPredictorFlow,
        dynamics.PredictorCorrelationFlow,
        dynamics.BalancedPredictorFlow,
        decoupled.DecoupledFlow,
        decoupled.DecoupledEmaFlow,
        decoupled.ParabolaFlow,
        decoupled.ParabolaEmaFlow,
        lowdim.LowDimFlow,
        lowdim.LowDimFixedTargetFlow,
        lowdim.LowDimNoPredictorFlow,
    )
}
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
    if states not in SYSTEMS:
        raise UsageError(
            f"case {case['id']} has the states {', '.join(sorted(states))}; no flow of the paper has these"
        )
    kind = SYSTEMS[states]
    if kind is lowdim.LowDimFixedTargetFlow and "wa" not in params:
        kind = lowdim.LowDimSimSiamFlow
    if kind is lowdim.LowDimNoPredictorFlow and _says(case, TIED):
        kind = lowdim.LowDimTiedFlow
    if "Sigma_s" in params:
        params["X"], params["Xprime"] = params["Sigma_d"], np.subtract(params["Sigma_s"], params["Sigma_d"])
    elif {"X", "Xprime"} <= params.keys():
        params["Sigma_s"], params["Sigma_d"] = np.add(params["X"], params["Xprime"]), params["X"]
    params["stop_gradient"], params["symmetrise"] = not _says(case, WITHOUT_STOP_GRADIENT), _says(case, SYMMETRISED)
    return kind(**{field.name: params[field.name] for field in fields(kind) if field.name in params})


def _says(case: Case, pattern: str) -> bool:
    return re.search(pattern, f"{case['id']} {case['equation']}".lower()) is not None


def _ode(case: Case) -> dict[str, Any]:
    flow, inputs = flow_of(case), case["inputs"]
    # Collapsing (p, s) must be right to relative accuracy: c = e^{2 eta t} (s - p^2 / alpha_p) undoes their decay.
    decoupled_modes = isinstance(flow, (decoupled.DecoupledFlow, decoupled.DecoupledEmaFlow))
    tolerances = {"rtol": 3e-14, "atol": 1e-60} if decoupled_modes else {}
    path = simulate(flow, inputs["init"], inputs["t_eval"], **tolerances)
    quantities = along(path, inputs["init"])
    return {
        "states": [
            {"t": float(t), **path.at(i), "derived": {name: values[i] for name, values in quantities.items()}}
            for i, t in enumerate(path.t)
        ]
    }


def _static(case: Case) -> dict[str, Any]:
    inputs = {name: np.asarray(value, dtype=np.float64) for name, value in case["inputs"].items()}
    if "Sigma_x" in inputs:
        return _scrambling(inputs)
    params: dict[str, Any] = {name: float(value) for name, value in inputs.items() if value.ndim == 0}
    if "F" in inputs:
        return _alignment(inputs["Wp"], inputs["F"], params)
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


def _alignment(Wp: Array, F: Array, params: dict[str, Any]) -> dict[str, Any]:
    flow = dynamics.PredictorCorrelationFlow(**params)
    dWp, dF = flow.velocity(Wp, F)
    L, K = dynamics.commutator(F, Wp), derived.alignment_matrix(flow, Wp, F)
    D = derived.balance(Wp, F, alpha_p=flow.alpha_p)
    rate = dF - dynamics.anticommutator(Wp, dWp) / flow.alpha_p + 2 * flow.eta * D
    names = ("L", "K", "K_eigs", "dL", "dWp", "dF", "theorem1_defect_rate")
    return dict(zip(names, (L, K, np.linalg.eigvalsh(K), -L @ K - K @ L, dWp, dF, rate), strict=True))


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
    beta, rest = params["beta"], {name: params[name] for name in ("lambda_s", "lambda_d", "alpha_p")}
    left = lowdim.LowDimFixedTargetFlow(**rest)
    full, middle, right = (
        kind(**rest, beta=beta) for kind in (lowdim.LowDimFlow, lowdim.LowDimTiedFlow, lowdim.LowDimNoPredictorFlow)
    )
    ratio = params["lambda_d"] / params["lambda_s"]
    end = ratio / np.sqrt(params["alpha_p"])

    def eigenvalues(flow: Flow, **state: float) -> Array:
        return fixed_points.fixed_point(flow, **state).eigenvalues.real

    return {
        "left_origin_eigs": eigenvalues(left, wp=0.0, w=0.0),
        "middle_origin_eigs": eigenvalues(middle, w=0.0, wa=0.0),
        "middle_noncollapsed": [end, end],
        "middle_noncollapsed_eigs": eigenvalues(middle, w=end, wa=end),
        "right_origin_eigs": eigenvalues(right, w=0.0, wa=0.0),
        "full_line_c0p8_eigs": eigenvalues(full, wp=ratio, w=0.8, wa=0.8),
    }


def _discrete(case: Case) -> dict[str, Any]:
    params = dict(case["inputs"])
    alpha, steps, init = params.pop("alpha"), params.pop("steps"), params.pop("init", None)
    in_rows = isinstance(init, list)
    if in_rows:
        init = dict(zip(("p", "s", "tau"), init, strict=False))
    init = init or {name: params.pop(name) for name in ("Wp", "W", "Wa", "F") if name in params}
    flow = flow_of({**case, "inputs": {"params": params, "init": init}})
    states = discrete.euler(flow, init, alpha, steps).states
    return {"states": np.stack(list(states.values()), axis=-1)} if in_rows else dict(states)


def _directpred(case: Case) -> dict[str, Any]:
    inputs, outputs = case["inputs"], case.get("outputs", {})
    if "f_view1" in inputs:
        averages, F = [], None
        for views in zip(inputs["f_view1"], inputs["f_view2"], strict=True):
            F = discrete.running_correlation(F, np.concatenate([np.array(view) for view in views]), rho=inputs["rho"])
            averages.append(F)
        return {"Fhat_after_each_batch": averages}
    F = np.asarray(inputs["F"], dtype=np.float64)
    if "M2" in inputs:
        tensors = torch.from_numpy(F), torch.tensor(inputs["M2"], dtype=torch.float64)
        return {
            name: optimal_predictor(*tensors, reg=inputs["reg"], solution=solution).numpy()
            for name, solution in SOLUTIONS.items()
        }
    if "by_c" in outputs:
        return {"by_c": {key: _predictors(F, eps=0.0, c=float(key)) for key in outputs["by_c"]}}
    return {"by_eps": {key: _predictors(F, eps=float(key), c=0.0) for key in outputs.get("by_eps", ("0.1",))}}


def _predictors(F: Array, *, eps: float, c: float) -> dict[str, Any]:
    s = np.linalg.eigvalsh(dynamics.symmetric_part(F))
    values: dict[str, Any] = {"eigs": s}
    for name, form in FORMS.items():
        values[f"p_{name}"] = eigenvalue_map(torch.from_numpy(s), eps=eps, c=c, form=form).numpy()
        values[f"Wp_{name}"] = discrete.direct_predictor(F, eps=eps, c=c, form=form)
    return values


def _loop(case: Case) -> dict[str, Any]:
    inputs, equation = case["inputs"], case["equation"].lower()
    freq = int(equation.split("freq=")[1].split()[0]) if "freq=" in equation else 1
    predictor: discrete.PredictorRule = (
        "symmetric" if "sym" in equation else "direct" if "corr" in equation else "regular"
    )
    settings = {name: inputs[name] for name in ("lr", "momentum", "weight_decay", "ema_m", "rho", "eps")}
    settings |= {name: inputs[f"{name}0"] for name in ("W", "Wp", "Wa")}
    run = discrete.LinearTraining(predictor=predictor, freq=freq, **settings)
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
