"""The files of a release, which are also the files of a run: one format, written and read here.

- ``recipe.json``: the exact recipe after overrides, and the facts of the run (seed, versions, processes, batch, ...);
- ``config.json``: what timm reads, plus one root key ``ssl_hub``;
- ``model.safetensors``: the online backbone under bare timm names, and the classifier where a head was fitted;
- ``method.safetensors``: projector, predictor (with its correlation matrix) and target;
- ``hashes.json``: the sha256 of each.

What is read may come from anywhere: nothing in it is executed, and what does not fit is refused with the file's name.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save
from torch import Tensor, nn

from ssl_hub.atomic import replace_file
from ssl_hub.codec import UnknownSetting
from ssl_hub.config import Recipe
from ssl_hub.errors import UsageError
from ssl_hub.model import backbones, files, lineage
from ssl_hub.model.files import CONFIG as CONFIG
from ssl_hub.model.files import METHOD as METHOD
from ssl_hub.model.files import MODEL as MODEL
from ssl_hub.model.files import RECIPE as RECIPE
from ssl_hub.model.loading import check_finite as check_finite
from ssl_hub.model.loading import load_strictly as load_strictly
from ssl_hub.model.parts import PLUGINS, from_plugins
from ssl_hub.model.probe_head import head_path
from ssl_hub.model.reading import read_tensors as read_tensors
from ssl_hub.model.recipe_file import facts_in as facts_in
from ssl_hub.model.recipe_file import read_facts as read_facts
from ssl_hub.model.recipe_file import read_recipe as read_recipe
from ssl_hub.model.recipe_file import read_recipe_file as read_recipe_file
from ssl_hub.model.recipe_file import write_recipe as write_recipe
from ssl_hub.model.release_config import FORMAT as FORMAT
from ssl_hub.model.release_config import image_settings, model_args
from ssl_hub.model.release_config import read_config as read_config
from ssl_hub.model.release_config import write_config as write_config
from ssl_hub.model.results import mark_outdated
from ssl_hub.model.siamese import Siamese
from ssl_hub.model.stages import classifier_names, linear_classifier

BRANCHES = ("online", "target")
Branch = Literal["online", "target"]
WRAPPED = "timm_model."  # before all names that transformers' TimmWrapper saves, beside a config.json as timm's


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file in one step: contiguous CPU copies, metadata ``format: pt`` as transformers asks."""
    plain = {name: tensor.detach().to("cpu").contiguous().clone() for name, tensor in tensors.items()}
    replace_file(path, save(plain, metadata={"format": "pt"}))


def description(recipe: Recipe, *, collapsed: bool = False) -> dict[str, Any]:
    """What config.json says, under ``ssl_hub``, of any release that has a recipe."""
    needed = from_plugins(recipe)
    return {
        "format": FORMAT,
        "recipe": recipe.name,
        "summary": lineage.public_recipe(recipe).summary,
        "collapsed": collapsed,
        "range": recipe.data.range,
        **({PLUGINS: needed} if needed else {}),
    }


def save_release(
    folder: Path,
    siamese: Siamese,
    recipe: Recipe,
    *,
    collapsed: bool = False,
    initialised_from: Mapping[str, Any] | None = None,
) -> None:
    """Write config.json, model.safetensors (without a classifier) and method.safetensors of a trained model.

    What was trained from other weights, ``initialised_from``, is under their licence if that binds it; else it states
    none. How it came
    to be is in config.json, and in recipe.json where there is one.
    """
    backbone = siamese.encoder.backbone
    config = backbones.timm_config(recipe.backbone.name, backbone, recipe.views)
    config["ssl_hub"] = description(recipe, collapsed=collapsed)
    if left_out := getattr(backbone, "left_out", []):
        config["ssl_hub"]["left_out"] = left_out  # of the recipe's options of the backbone: it has no such thing
    if initialised_from is not None:
        config["ssl_hub"]["licence"] = lineage.inherited(str(initialised_from["licence"]))
    facts = read_facts(folder)
    begun = lineage.started(initialised_from, recipe.train.seed)
    note_lineage(folder, config, [*begun, lineage.pretrained(recipe, facts)])
    _outdate(folder, backbone)
    write_config(folder, config)
    write_tensors(folder / MODEL, backbone.state_dict())
    method = {f"projector.{k}": v for k, v in siamese.encoder.projector.state_dict().items()}
    method |= {f"predictor.{k}": v for k, v in siamese.predictor.state_dict().items()}
    method |= {f"target.{k}": v for k, v in siamese.target.state_dict().items()}
    write_tensors(folder / METHOD, method)
    files.seal(folder)


def _outdate(folder: Path, backbone: nn.Module) -> None:
    """Where the release in a folder is to get other weights, mark its numbers and remove its heads, which are of those
    that it had."""
    if not (folder / MODEL).exists():
        return
    before: Mapping[str, Tensor] = {}
    with suppress(UsageError):  # of a damaged file, whose weights are other ones
        before = read_tensors(folder / MODEL)
    if all(name in before and torch.equal(before[name], t.cpu()) for name, t in backbone.state_dict().items()):
        return
    with suppress(ValueError):  # of damaged numbers, which are named when they are read
        mark_outdated(folder)
    for head in (folder / files.HEADS_FOLDER).glob("*"):
        head.unlink()


def note_lineage(folder: Path, config: dict[str, Any], chain: lineage.Chain) -> None:
    """Put how the weights came to be into a config.json that is to be written, and into recipe.json where it is."""
    config["ssl_hub"][lineage.LINEAGE] = chain
    if (folder / RECIPE).exists():
        write_recipe(folder, read_recipe(folder), {**read_facts(folder), lineage.LINEAGE: chain})


def add_classifier(folder: Path, weight: Tensor, bias: Tensor, classes: Sequence[str]) -> bool:
    """Put a linear classifier [K, C], [K] on the released backbone, so that plain timm loads it as a classifier.

    Returns False, and changes nothing, for an architecture whose classifier is not one linear layer on pooled features.
    """
    files.check_unchanged(folder, (MODEL, CONFIG))  # or what follows would note the hash of damaged weights
    config = read_config(folder)
    model = load_backbone(folder, num_classes=len(classes))
    try:
        attach_classifier(model, weight, bias, classes)
    except UsageError:
        return False
    config["num_classes"] = config["pretrained_cfg"]["num_classes"] = len(classes)
    config["label_names"] = list(classes)
    # The weights first: between the two writes an old config meets a new file, and the loader drops the classifier.
    write_tensors(folder / MODEL, model.state_dict())
    write_config(folder, config)
    files.record(folder, MODEL, CONFIG)
    return True


def finetuned_classes(folder: Path, data: str) -> list[str] | None:
    """The classes of the released classifier, where it is one that was fine-tuned on this data with the backbone, and
    is no head beside it: more than one linear layer."""
    config = read_config(folder)
    classes = config.get("label_names")
    alone = config["ssl_hub"].get("finetuned_on") == data and not head_path(folder, data).exists()
    return list(classes) if alone and classes else None


def attach_classifier(model: nn.Module, weight: Tensor, bias: Tensor, classes: Sequence[str]) -> None:
    """Give a timm model with a fresh classifier these weights [K, C], [K]; class names become ``model.label_names``."""
    classifier = linear_classifier(model)
    if classifier is None or classifier.bias is None:
        raise UsageError(
            f"{type(model).__name__} has no linear classifier of its features to attach a head to; fit its probe again"
            " where it is needed"
        )
    width = classifier.weight.shape[1]
    if weight.shape != (len(classifier.weight), width):
        raise UsageError(f"head of width {weight.shape[1]} on a backbone of width {width}: it fits another one")
    with torch.no_grad():
        classifier.weight.copy_(weight.view_as(classifier.weight))
        classifier.bias.copy_(bias)
    model.label_names = list(classes)  # type: ignore[assignment]


def _check_recipe(folder: Path, architecture: str) -> None:
    """Raise UsageError where config.json names another backbone than the recipe: some share all names and shapes."""
    try:
        recipe = read_recipe(folder)
    except UnknownSetting as error:  # the weights are what they are
        warnings.warn(str(error), stacklevel=3)
        return
    trained, named = ("" if recipe is None else recipe.backbone.name).split(".")[0], architecture.split(".")[0]
    if recipe is not None and trained != named:
        raise UsageError(
            f"{folder / CONFIG} names the architecture {named!r}, but {RECIPE} beside it trained {trained!r}; one of"
            " them was changed"
        )


def load_backbone(folder: Path, *, num_classes: int | None = 0, which: Branch = "online") -> nn.Module:
    """The timm model of a release in eval mode, its weights loaded strictly. ``value_range`` is ``data.range`` of its
    recipe.

    Args:
        num_classes: 0 for features [B, C]; None for the classifier as released; another number for a fresh one.
        which: the ``online`` backbone or the ``target``'s, where the method has one.
    """
    if which not in BRANCHES:
        raise UsageError(f"which is {which!r}, expected 'online' or 'target'")
    config = read_config(folder)
    _check_recipe(folder, config["architecture"])
    options = {"pretrained_cfg_overlay": image_settings(config), **_model_args(folder, config)}
    tensors = read_tensors(folder / MODEL)
    if all(name.startswith(WRAPPED) for name in tensors):
        tensors = {name.removeprefix(WRAPPED): tensor for name, tensor in tensors.items()}
    released = _released_classes(folder, config, tensors)
    model = backbones.create(
        config["architecture"], num_classes=released if num_classes is None else num_classes, **options
    )
    own = model.state_dict()
    if num_classes or which == "target" or own.keys() != tensors.keys():  # else it is what is asked for
        classifier = classifier_names(config["architecture"], **options)
        fresh = {name: tensor for name, tensor in own.items() if name in classifier}
        head = {name: tensor for name, tensor in tensors.items() if name in classifier}
        body = {name: tensor for name, tensor in tensors.items() if name not in classifier}
        if which == "target":
            body = _target_backbone(folder)
        tensors = body | (fresh if num_classes else head if num_classes is None and released else {})
    path = folder / (MODEL if which == "online" else METHOD)
    load_strictly(model, tensors, where=str(path))
    check_finite(path, tensors)
    model.value_range = str(config["ssl_hub"].get("range", "auto"))  # type: ignore[assignment]
    return model.eval()


def _model_args(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """As :func:`model_args`, without a ``global_pool`` that is the architecture's own: not all take one."""
    given = model_args(folder / CONFIG, config)
    pool = given.pop("global_pool", None)
    if pool is None:
        return given
    with torch.device("meta"):
        own = backbones.pool_of(backbones.create(config["architecture"], **given))
    return given if pool == own else {**given, "global_pool": pool}


def _released_classes(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> int:
    """The number of classes of the released classifier, 0 without one."""
    classes = config.get("num_classes") or 0
    if classes != 0 and (type(classes) is not int or classes not in {len(t) for t in tensors.values() if t.ndim}):
        raise UsageError(f"{folder / CONFIG}: 'num_classes' is {classes!r}, and {MODEL} has no classifier of that many")
    return classes


def _target_backbone(folder: Path) -> dict[str, Tensor]:
    prefix = "target.backbone."
    method = read_tensors(folder / METHOD)
    body = {name.removeprefix(prefix): tensor for name, tensor in method.items() if name.startswith(prefix)}
    if not body:
        raise UsageError(f"{folder} has no target network: its method shares the online one; use which='online'")
    return body
