"""Settings that would do nothing beside the others of a recipe: who changes one is told of it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

import torch

from ssl_hub.codec import flat, to_dict
from ssl_hub.config import Recipe, View
from ssl_hub.errors import UsageError
from ssl_hub.model.predictors import PREDICTORS


class Condition(NamedTuple):
    """When a setting has an effect, and what says so."""

    holds: Callable[[Recipe], bool]
    words: str


def _is_trained(recipe: Recipe) -> bool:
    """Whether the loss trains anything of the predictor: not where it is set at every step, or has no weights."""
    with torch.random.fork_rng(devices=[]):
        predictor = PREDICTORS[recipe.predictor.kind](recipe.projector.output_width, **dict(recipe.predictor.options))
    return any(parameter.requires_grad for parameter in predictor.parameters())


def _of_jitter(view: View, strength: float) -> bool:
    return view.jitter > 0 or strength == 0  # which says the same as no jitter


def _of_view(name: str, holds: Callable[[View], bool], words: str) -> dict[str, Condition]:
    return {
        f"views.view1.{name}": Condition(lambda recipe: holds(recipe.views.view1), f"views.view1.{words}"),
        f"views.view2.{name}": Condition(lambda recipe: holds(recipe.views.view2), f"views.view2.{words}"),
    }


_MONITOR = Condition(lambda recipe: recipe.runtime.monitor_data is not None, "runtime.monitor_data is set")
_HIDDEN = Condition(lambda recipe: recipe.projector.layers > 1, "projector.layers is above 1")
_TRAINED = Condition(_is_trained, "the loss trains the predictor")
CONDITIONS = {
    "backbone.zero_init_last": Condition(lambda recipe: recipe.backbone.init is None, "backbone.init is none"),
    "projector.hidden_width": _HIDDEN,
    "projector.norm_affine": _HIDDEN,
    "projector.output_bias": Condition(
        lambda recipe: recipe.projector.output_norm == "none", "projector.output_norm is none"
    ),
    **_of_view("brightness", lambda view: _of_jitter(view, view.brightness), "jitter is above 0"),
    **_of_view("contrast", lambda view: _of_jitter(view, view.contrast), "jitter is above 0"),
    **_of_view("saturation", lambda view: _of_jitter(view, view.saturation), "jitter is above 0"),
    **_of_view("hue", lambda view: _of_jitter(view, view.hue), "jitter is above 0"),
    **_of_view("blur_sigma", lambda view: view.blur > 0, "blur is above 0"),
    "data.shuffle_buffer": Condition(lambda recipe: recipe.data.stream, "data.stream is true"),
    "data.max_bad_images": Condition(lambda recipe: recipe.data.on_bad_image == "skip", "data.on_bad_image is skip"),
    "optim.decay_norm_and_bias": Condition(
        lambda recipe: recipe.optim.weight_decay > 0 or bool(recipe.optim.predictor_weight_decay),
        "optim.weight_decay or optim.predictor_weight_decay is above 0",
    ),
    "optim.predictor_lr_ratio": _TRAINED,
    "optim.predictor_schedule": Condition(
        lambda recipe: _is_trained(recipe) and (recipe.optim.schedule != "constant" or recipe.optim.warmup_epochs > 0),
        "the loss trains the predictor by a learning rate that changes (optim.schedule, optim.warmup_epochs)",
    ),
    "optim.predictor_weight_decay": _TRAINED,
    "optim.trust_coefficient": Condition(lambda recipe: recipe.optim.name == "lars", "optim.name is lars"),
    "train.sync_bn_group": Condition(lambda recipe: recipe.train.sync_bn, "train.sync_bn is true"),
    "runtime.monitor_split": _MONITOR,
    "runtime.monitor_label_column": _MONITOR,
    "runtime.keep_every_epochs": Condition(
        lambda recipe: recipe.runtime.checkpoint_every_epochs > 0 or recipe.runtime.keep_every_epochs == 0,
        "runtime.checkpoint_every_epochs is above 0",
    ),
}
"""Of settings that have an effect only beside others."""

ALWAYS = (
    "backbone.name", "backbone.init", "backbone.bn_statistics", "backbone.freeze_patch_embedding",
    "backbone.drop_path_rate", "projector.layers", "projector.output_width", "projector.output_norm", "views.size",
    *(f"views.{view}.{name}" for view in ("view1", "view2")
      for name in ("crop_scale", "flip", "jitter", "grey", "blur", "solarise", "operations")),
    "views.mean", "views.std", "data.name", "data.pretrain_split", "data.train_split", "data.test_split",
    "data.image_column", "data.label_column", "data.range", "data.stream", "data.on_bad_image", "optim.name",
    "optim.lr", "optim.reference_batch", "optim.momentum", "optim.weight_decay", "optim.warmup_epochs",
    "optim.schedule", "optim.clip_norm", "optim.layer_decay", "train.epochs", "train.max_steps", "train.batch_size",
    "train.accumulation", "train.sync_bn", "train.freeze_backbone_epochs", "train.joint_views", "train.seed",
    "runtime.workers", "runtime.channels_last", "runtime.compile", "runtime.tf32", "runtime.cudnn_benchmark",
    "runtime.log_every_steps", "runtime.spectra_every_readings", "runtime.tracker", "runtime.knn_every_epochs",
    "runtime.knn_k", "runtime.monitor_data", "runtime.on_collapse", "runtime.checkpoint_every_epochs",
    "runtime.checkpoint_minutes", "runtime.keep_checkpoints",
)  # fmt: skip
"""Settings that have one by themselves, are refused elsewhere where they cannot have any, or depend on the machine or
the images alone. A test has each setting in one of the two. (Options of a kind are refused by what they are of.)"""


def check_effects(recipe: Recipe, registered: Recipe, settings: Collection[str]) -> None:
    """Raise UsageError for the first of ``settings``, by dotted name, that is not as ``registered`` has it and changes
    nothing of what ``recipe`` trains."""
    now, before = flat(to_dict(recipe)), flat(to_dict(registered))
    for name, condition in CONDITIONS.items():
        if name in settings and now[name] != before[name] and not condition.holds(recipe):
            raise UsageError(f"{name} is {now[name]!r}, which has an effect only where {condition.words}; leave it out")
