"""Predictors: the maps from online projections to target projections. One class adds one; nothing branches on names.

Legend: ``B`` samples of one view, ``D`` projection width. The keyword arguments of a registered predictor are the
options ``predictor.*`` of a recipe. The life of a predictor within one optimiser step:

1. ``observe(projections, targets)`` per micro-batch: detached, before anything is predicted;
2. ``forward(f)`` per view;
3. ``refresh(step)`` once, after the optimiser step, or ``discard()`` where that step was skipped.
"""

from ssl_hub.model.predictors import computed, iterated, trained
from ssl_hub.model.predictors.base import PREDICTORS, Predictor

__all__ = ["PREDICTORS", "Predictor", "computed", "iterated", "trained"]
