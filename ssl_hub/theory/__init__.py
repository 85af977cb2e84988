"""The theory lab: the paper's dynamics, theorems and figures, for linear networks.

| module | what |
|---|---|
| `dynamics`, `decoupled`, `lowdim`, `scrambling` | the flows, and the models of augmentation |
| `flow`, `integrate`, `discrete` | solving them: continuous time, singly or on a grid; discrete time, as in training |
| `derived`, `fixed_points` | what is read off a state; where flows stand still, thresholds and basins |
| `theorems`, `observations`, `checks` | each statement of the paper with its measured defect |
| `modes`, `prediction` | the flow of the training itself, mode by mode, and what it says of a run |
| `figure_data`, `painting`, `figures` | the figures: numbers, drawing, and the entry point |
| `run_spectrum` | the alignment figure of a run, from what it logged |

Source: Tian, Chen, Ganguli, "Understanding Self-Supervised Learning Dynamics without Contrastive Pairs" (ICML 2021).
"Erratum" marks where the code has a corrected form of one of its statements. Importing this package is cheap: the
names below are loaded when they are used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOME = {
    "CheckResult": "observations",
    "LinearTraining": "discrete",
    "check": "checks",
    "draw": "figures",
    "euler": "discrete",
    "figure_names": "figures",
    "flow_units": "prediction",
    "law": "prediction",
    "predict": "prediction",
    "simulate": "integrate",
}
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


if TYPE_CHECKING:
    from ssl_hub.theory.checks import check as check
    from ssl_hub.theory.discrete import LinearTraining as LinearTraining
    from ssl_hub.theory.discrete import euler as euler
    from ssl_hub.theory.figures import draw as draw
    from ssl_hub.theory.figures import figure_names as figure_names
    from ssl_hub.theory.integrate import simulate as simulate
    from ssl_hub.theory.observations import CheckResult as CheckResult
    from ssl_hub.theory.prediction import flow_units as flow_units
    from ssl_hub.theory.prediction import law as law
    from ssl_hub.theory.prediction import predict as predict
