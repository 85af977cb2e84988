"""The projector and predictor of another project as those of a recipe, where they are the same function."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ssl_hub.hub.importers.checkpoint import Tensors


def fit(theirs: Tensors, ours: Mapping[str, Tensor]) -> Tensors | str:
    """The tensors of an MLP under the names of ours, or why it is not ours.

    Both are numbered as layers of a Sequential. A difference that changes no output is made good: a bias that they lack
    is zero; one that we lack goes into the mean of the BN behind it (SimSiam's projector ends in a fixed bias before a
    BN); a BN without affine is one with scale 1 and shift 0.
    """
    if not theirs:
        return "none in the file"
    fitted = dict(theirs)
    for name in ours.keys() - theirs.keys():
        layer, _, kind = name.rpartition(".")
        if kind in ("bias", "num_batches_tracked"):
            fitted[name] = torch.zeros_like(ours[name])
        elif kind == "weight" and f"{layer}.running_mean" in theirs:
            fitted[name] = torch.ones_like(ours[name])
    for name in theirs.keys() - ours.keys():
        layer, _, kind = name.rpartition(".")
        mean = f"{int(layer) + 1}.running_mean" if layer.isdigit() else ""
        if kind == "bias" and mean in fitted and fitted[mean].shape == theirs[name].shape:
            fitted[mean] = fitted[mean] - fitted.pop(name)
    for name in sorted(ours.keys() | fitted.keys()):
        here, there = (tuple(side[name].shape) if name in side else "none" for side in (ours, fitted))
        if here != there:
            return f"its {name} is {there}, the recipe's {here}"
    return fitted


def fit_predictor(theirs: Tensors, ours: Mapping[str, Tensor]) -> Tensors | str:
    """As :func:`fit`, for a predictor. One that is set from statistics gets its matrix; files hold no statistics."""
    numbered = {name: "0.weight" if name == "weight" else _numbered(name) for name in ours}
    layers = {number: ours[name] for name, number in numbered.items() if number is not None}
    fitted = fit(theirs, layers)
    if isinstance(fitted, str):
        return fitted
    return {name: fitted[number] for name, number in numbered.items() if number is not None}


def _numbered(name: str) -> str | None:
    """Our name of a predictor's layer as its place in a Sequential; None for statistics."""
    if name.startswith("layers."):
        return name.removeprefix("layers.")
    return f"0.{name.removeprefix('linear.')}" if name.startswith("linear.") else None
