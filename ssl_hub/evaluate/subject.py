"""What is evaluated, found by its name: the model, and the transform that belongs to it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from ssl_hub.config import Recipe
from ssl_hub.data.views import EvalTransform
from ssl_hub.data.views import eval_transform as make_transform
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.features import PixelModel
from ssl_hub.hub import store, weights
from ssl_hub.hub.snapshot import find_snapshot
from ssl_hub.hub.weights import TIMM as TIMM
from ssl_hub.model import backbones
from ssl_hub.model.lineage import INIT as INIT
from ssl_hub.model.loading import load_into
from ssl_hub.model.parts import PLUGINS, check_plugins
from ssl_hub.model.recipe_file import read_run
from ssl_hub.model.release import read_recipe
from ssl_hub.model.siamese import build
from ssl_hub.zoo import RECIPES, get_recipe

PIXELS = "pixels"


def eval_transform(model: nn.Module) -> EvalTransform:
    """The evaluation transform of a timm model: resize, centre crop and normalise as its ``pretrained_cfg`` says.

    Of a release, images of more than 8 bits are read in the range that it was trained with (``model.value_range``).

    Takes a PIL image or a uint8 tensor [3, H, W] or [B, 3, H, W]; returns float32 of the model's input size.
    """
    config = getattr(model, "pretrained_cfg", None)
    if not isinstance(config, dict) or "input_size" not in config:
        raise UsageError(
            f"{type(model).__name__} has no pretrained_cfg; eval_transform takes models made by timm or ssl_hub.load"
        )
    _, height, width = config["input_size"]
    if height != width:
        raise UsageError(f"{type(model).__name__} takes images of {height} x {width} pixels, expected square ones")
    if (mode := config.get("crop_mode") or "center") != "center":
        warnings.warn(
            f"timm evaluates these weights with crop_mode {mode!r}, which keeps all of an image; here its middle is"
            " taken, as for every model",
            stacklevel=2,
        )
    return make_transform(
        size=width,
        crop_pct=config["crop_pct"],
        interpolation=config["interpolation"],
        mean=config["mean"],
        std=config["std"],
        value_range=getattr(model, "value_range", "auto"),
    )


def check_pools(model: nn.Module) -> None:
    """Raise UsageError for a classifier of timm, whose logits would be taken for its features. One whose classifier was
    replaced by an identity gives them, and of others ``num_classes`` may be of anything."""
    classes = getattr(model, "num_classes", 0)
    if not (isinstance(classes, int) and classes > 0):
        return
    classifier: Any = getattr(model, "get_classifier", tuple)()
    heads = classifier if isinstance(classifier, (tuple, list)) else [classifier]  # some have two
    if not all(isinstance(head, nn.Identity) for head in heads):
        raise UsageError(
            f"the model is a classifier of {classes} classes, and features are asked for: make it with num_classes=0,"
            " load it without a head, or call model.reset_classifier(0)"
        )


class Subject(NamedTuple):
    """What is evaluated."""

    model: nn.Module  # [B, 3, S, S] -> [B, C]
    transform: EvalTransform
    folder: Path | None  # where its results belong, for a release of this machine
    recipe: Recipe | None  # what trained it, for a release that says so
    collapsed: bool = False  # whether its features had, when it was trained
    config: dict[str, Any] | None = None  # config.json of a release
    step: int | None = None  # of a run's checkpoint, which no results are kept for
    origin: Mapping[str, Any] | None = None  # of its weights, where they are not random: kind, name, licence, lineage
    not_kept: str = ""  # why there is no folder for its results, of a release: "is part of the package"


def range_of(subject: Subject) -> str:
    """``data.range`` of a model: of a release what its config.json says, which fine-tuning may have changed."""
    own = None if subject.recipe is None else subject.recipe.data.range
    return str(getattr(subject.model, "value_range", own or "auto"))


def open_model(model: str | Path | nn.Module, *, image_size: int | None = None, seed: int = 0) -> Subject:
    """Find a model to evaluate.

    Args:
        model: a run folder or release name, ``RUN@STEP`` for a run's checkpoint of that step (one that is not finished
            stands at its newest); ``timm:NAME`` for that architecture at random initialisation, or ``timm:NAME@TAG``
            (or ``NAME.TAG``) for timm's weights; ``init:RECIPE`` for a recipe's backbone before training, or
            ``init:FOLDER`` for a run's; ``pixels`` for the images themselves; or a timm model.
        image_size: replaces the size of ``timm:`` models (default: the architecture's own) and of ``pixels`` (32).
        seed: draws the random initialisation.
    """
    if isinstance(model, nn.Module):
        if others := {p.dtype for p in model.parameters() if p.is_floating_point()} - {torch.float32}:
            raise UsageError(f"the model has weights of {others.pop()}, and images are float32; give model.float()")
        return Subject(model, eval_transform(model), None, None)
    name = str(model)
    if name == PIXELS:
        transform = make_transform(size=image_size or 32, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
        return Subject(PixelModel(), transform, None, None)
    if name.startswith(INIT) and image_size is None:
        return _untrained(name, seed)
    if name.startswith(TIMM) and not weights.is_pretrained(name):
        architecture = name.removeprefix(TIMM)
        backbones.check_untrained(architecture)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made = backbones.create_for(architecture, image_size).eval()
        return Subject(made, eval_transform(made), None, None)
    if image_size is not None and not weights.is_of_timm(name):
        raise UsageError(f"{name} has its own image size; image_size is for {TIMM} models and {PIXELS}")
    if (snapshot := find_snapshot(name)) is not None:
        recipe = snapshot.recipe
        backbone, collapsed = snapshot.backbone()
        transform = transform_of(recipe)
        return Subject(backbone, transform, None, recipe, collapsed, step=snapshot.step, origin=snapshot.origin)
    found = weights.pretrained(name, image_size=image_size)
    if found.folder is None or found.config is None:
        return Subject(found.model, eval_transform(found.model), None, None, origin=found.origin)
    collapsed = bool(found.config["ssl_hub"].get("collapsed", False))
    why_not = store.why_not_owned(found.folder)
    return Subject(
        found.model, eval_transform(found.model), None if why_not else found.folder, read_recipe(found.folder),
        collapsed, found.config, origin=found.origin, not_kept=why_not,
    )  # fmt: skip


def _untrained(name: str, seed: int) -> Subject:
    """The backbone that a registered recipe, or that of a run folder, starts from."""
    named, origin = name.removeprefix(INIT), None
    of_run = None
    if named not in RECIPES and Path(named).is_dir():
        of_run, facts = read_run(store.run_folder(named))
        check_plugins(facts.get(PLUGINS, {}))
    recipe = of_run or get_recipe(named)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        untrained = build(recipe).encoder.backbone.eval()
    if recipe.backbone.init is not None:  # of what a run started from, mean and std are in its recipe
        start = weights.initial(recipe)
        load_into(untrained, start.tensors, where=name)
        origin = start.origin
    return Subject(untrained, transform_of(recipe), None, recipe, origin=origin)


def transform_of(recipe: Recipe) -> EvalTransform:
    """The evaluation transform that goes with a recipe's views."""
    return make_transform(size=recipe.views.size, **recipe.views.evaluation, value_range=recipe.data.range)
