"""What the backbone of a run starts from: the weights that ``backbone.init`` names, the same on every process.

A run that goes on from a checkpoint needs them no longer: what it started from, and how images come in, is what its
recipe.json says.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import nn

from ssl_hub.config import Recipe
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.agreement import everywhere
from ssl_hub.hub.weights import INITIALISED_FROM, Initial, initial
from ssl_hub.model.normalisation import with_statistics
from ssl_hub.model.siamese import Siamese, build
from ssl_hub.train.together import on_main

NORMALISATION = ("views.mean", "views.std")


def weights_of(recipe: Recipe, before: Mapping[str, Any], accelerator: Accelerator) -> Initial | None:
    """The weights that a run without a checkpoint starts from; None where they are random. Collective.

    The main process looks first: it downloads what the others find then.

    Raises UsageError, on all processes, where they cannot be had or do not fit; where processes have others; and where
    a run that is to go on (the facts of which are ``before``) was started with others.
    """
    if recipe.backbone.init is None:
        if recipe.backbone.bn_statistics == "frozen":
            raise UsageError(
                "backbone.bn_statistics is 'frozen' without backbone.init, and random weights have none to keep: name"
                " the weights to start from, or set backbone.bn_statistics=batch"
            )
        return None
    first: list[Initial] = []
    on_main(accelerator, lambda: first.append(initial(recipe)))
    found = everywhere(accelerator, lambda: first[0] if first else initial(recipe))
    seen: list[str] = gather_object([found.origin["sha256"]])
    if len(set(seen)) > 1:
        raise UsageError(
            f"processes found different weights as backbone.init={recipe.backbone.init}; give every node the same"
        )
    was = before.get(INITIALISED_FROM, {}).get("sha256", seen[0])
    if was != seen[0]:
        raise UsageError(
            f"{recipe.backbone.init} is not what the run was started from (sha256 {was[:12]}, now {seen[0][:12]}), and"
            " it has no checkpoint to go on from: restore those weights, or start anew with --overwrite"
        )
    return found


def begun_from(start: Initial | None, recipe: Recipe) -> Siamese:
    """The model of a recipe before its first step, drawn by its seed but for the weights that it starts from."""
    torch.manual_seed(recipe.train.seed)
    siamese = build(recipe)
    if start is not None:
        siamese.start_from(start.tensors, where=f"backbone.init {recipe.backbone.init}")
    return siamese


def with_range(recipe: Recipe, found: Initial | None, was: Recipe | None, set_by_user: Collection[str]) -> Recipe:
    """The recipe with ``data.range`` of the release that it starts from, unless the user has set one. ``was`` as in
    :func:`normalised`."""
    theirs = was.data.range if was is not None else found.value_range if found is not None else None
    if recipe.backbone.init is None or theirs is None or "data.range" in set_by_user:
        return recipe
    return replace(recipe, data=replace(recipe.data, range=theirs))


def normalised(
    recipe: Recipe, found: Initial | None, was: Recipe | None, set_by_user: Collection[str]
) -> tuple[Recipe, str]:
    """The recipe with the images' mean and std, and who says so: the ``user``, the ``weights``, or the ``recipe``.

    ``was`` is the recipe of a run that goes on, which has followed its weights already.
    """
    if recipe.backbone.init is None:
        return recipe, "recipe"
    if {*NORMALISATION} & {*set_by_user}:
        return recipe, "user"
    if was is not None:
        mean, std = was.views.mean, was.views.std
    elif found is not None and found.normalisation is not None:
        mean, std = found.normalisation
    else:
        return recipe, "recipe"
    return replace(recipe, views=replace(recipe.views, mean=mean, std=std)), "weights"


def bn_warning(recipe: Recipe, backbone: nn.Module) -> str | None:
    """What to say of a backbone whose BN will forget what it has learnt about images; None where it does not."""
    count = len(with_statistics(backbone))
    if recipe.backbone.init is None or recipe.backbone.bn_statistics == "frozen" or count == 0:
        return None
    return (
        f"the running statistics of {count} BN layers of backbone.init will be replaced by those of the views: this"
        " alone can undo the weights; backbone.bn_statistics=frozen keeps them"
    )
