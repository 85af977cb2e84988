"""Backbones by name, of timm and the small-image ResNets it lacks, and the true feature width."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import timm
import torch
from timm.data import ImageNetInfo
from timm.models import get_deprecated_models
from torch import nn

from ssl_hub.config import Views
from ssl_hub.errors import UsageError
from ssl_hub.model.modes import eval_mode
from ssl_hub.model.small_resnets import NEEDS_US, is_small
from ssl_hub.registry import suggest


def check_name(name: str) -> None:
    """Raise :class:`UsageError` with the nearest name unless timm knows the architecture, and the ``.tag`` after it."""
    base, tag = _parts(name)
    if not timm.is_model(base):
        raise UsageError(f"unknown backbone {name!r}{suggest(base, timm.list_models())[:200]}")
    if not tag or tag == NEEDS_US:
        return
    tags = tags_of(base)
    if tag not in tags:
        there = f"timm has {', '.join(tags)}" if tags else "timm has no weights of it"
        raise UsageError(f"backbone {name!r}: {base} has no weights tagged {tag!r}; {there}")


def is_known(architecture: str) -> bool:
    """Whether timm has an architecture of this name."""
    return bool(timm.is_model(architecture)) and "." not in architecture


def tags_of(architecture: str) -> list[str]:
    """The tags of timm's weights of an architecture."""
    names = timm.list_models(f"{architecture}.*", include_tags=True)
    tags = [name.partition(".")[2] for name in names]
    return [tag for tag in tags if tag and tag != NEEDS_US]


def check_untrained(name: str) -> None:
    """Raise UsageError for the name of weights, where what is asked for starts from random ones and would ignore it."""
    check_name(name)
    base, tag = _parts(name)
    if tag:
        raise UsageError(
            f"{name!r} names pretrained weights, and this starts from random ones: give {base!r}; what takes pretrained"
            f" models (fine-tuning, probes) loads these as 'timm:{base}@{tag}'"
        )


def _parts(name: str) -> tuple[str, str]:
    """Architecture and tag, which older names of timm held without a dot."""
    base, _, tag = (get_deprecated_models().get(name) or name).partition(".")
    return base, tag


def class_names(labels: str) -> list[str]:
    """Names of the classes of a data set that timm knows, in the order of classifiers: WordNet ids of ImageNet's."""
    names: list[str] = ImageNetInfo(labels).label_names()
    return names


class NotToBeHad(UsageError):
    """Weights of timm that are not on this machine and did not come; the cause says why."""


class Making(NamedTuple):
    """How a model was made, so that it can be made again with a classifier."""

    name: str
    options: dict[str, Any]


MAY_LACK = ("zero_init_last", "img_size", "drop_path_rate")  # options that not every architecture has


def create(
    name: str, *, pretrained: bool = False, num_classes: int | None = 0, image_size: int | None = None, **options: Any
) -> nn.Module:
    """A timm model in train mode; with ``num_classes=0`` it maps [B, 3, H, W] to pooled features [B, C].

    ``num_classes=None`` is the classifier that timm's weights come with.

    ``image_size`` is for architectures that are built for one, such as ViT, and left out for those that take any.
    ``zero_init_last`` is left out where there is no residual branch to start at zero: ``model.left_out`` says so.
    Everything else goes to timm as it is. ``model.made_by`` keeps what was asked for.

    Raises UsageError for an image size or a ``drop_path_rate`` that the architecture cannot have, and where timm has no
    such weights, or they are not on this machine and cannot be fetched.
    """
    check_name(name)
    given = {**options, **({} if image_size is None else {"img_size": image_size})}
    while True:
        try:
            model = timm.create_model(name, pretrained=pretrained, num_classes=num_classes, **given)
            break
        except TypeError as error:
            refused = [option for option in MAY_LACK if option in given and option in str(error)]
            if not refused:
                raise
            del given[refused[0]]
        except (OSError, RuntimeError) as error:
            if not pretrained:
                raise
            if isinstance(error, OSError):
                raise NotToBeHad(f"the weights of {name!r} cannot be had: {_first_line(error)}") from error
            reason = " ".join(str(error).split())[:400]  # which names tensors
            raise UsageError(f"the weights of {name!r} cannot be had: {reason}") from None
        except (AssertionError, ValueError, IndexError, ZeroDivisionError) as error:
            if image_size is None:
                raise
            raise UsageError(f"{name} cannot be built for images of {image_size}: {_first_line(error)}") from None
    assert isinstance(model, nn.Module)
    if options.get("drop_path_rate") and not any(getattr(layer, "drop_prob", 0) for layer in model.modules()):
        rate = options["drop_path_rate"]
        raise UsageError(f"backbone.drop_path_rate is {rate:g}, and {name} has no stochastic depth; expected 0")
    model.made_by = Making(name, {**options, "image_size": image_size})  # type: ignore[assignment]
    asked = [option for option in ("zero_init_last",) if options.get(option)]
    model.left_out = [option for option in asked if not _takes(model, option)]  # type: ignore[assignment]
    return model


def repository_of(name: str) -> str | None:
    """The repository of the Hub that timm takes the weights of this name from; None where it takes them from elsewhere,
    or has none."""
    return _source_of(name)[0]


def address_of(name: str) -> str | None:
    """Where else weights of this name are, as far as timm says."""
    return _source_of(name)[1]


def _source_of(name: str) -> tuple[str | None, str | None]:
    try:
        found = timm.get_pretrained_cfg(name)
    except RuntimeError:  # no such tag
        return None, None
    return (None, None) if found is None else (found.hf_hub_id, found.url or None)


def resampled(model: nn.Module, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor] | None:
    """Weights of the same architecture for images of another size, as timm fits them to this one: position embeddings
    interpolated. None where timm does not make them fit."""
    making: Making = model.made_by  # type: ignore[assignment]
    given = {"state_dict": dict(tensors), "num_classes": 0}
    overlay = {**(making.options.get("pretrained_cfg_overlay") or {}), **given}
    try:
        fitted = create(making.name, pretrained=True, **{**making.options, "pretrained_cfg_overlay": overlay})
    except UsageError:
        return None
    return fitted.state_dict()


def create_for(name: str, image_size: int | None, **options: Any) -> nn.Module:
    """As :func:`create`, with ``image_size`` as the size of the model's own evaluation transform too."""
    own = {} if image_size is None else {"input_size": (3, image_size, image_size), "crop_pct": 1.0}
    model = create(name, image_size=image_size, pretrained_cfg_overlay=own or None, **options)
    if image_size is not None and options.get("num_classes", 0) == 0:
        feature_width(model, image_size)
    return model


def pool_of(model: nn.Module) -> str | None:
    """How a model pools, as timm calls it; None where it does not say."""
    head = getattr(model, "head", None)
    for pool in (
        getattr(head, "global_pool", None),
        getattr(head, "pool_type", None),
        getattr(model, "global_pool", 0),
    ):
        if isinstance(name := getattr(pool, "pool_type", pool), str):
            return name
    return None


def _takes(model: nn.Module, option: str) -> bool:
    """Whether the architecture's class names the option: some take any option, and drop what they do not know."""
    makers = (vars(kind)["__init__"] for kind in type(model).__mro__ if "__init__" in vars(kind))
    return any(option in inspect.signature(maker).parameters for maker in makers)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def feature_width(model: nn.Module, image_size: int) -> int:
    """Width ``C`` of the pooled features [B, C], measured on one black image: timm's ``num_features`` is not always it.

    Run in eval mode under no_grad, so no running statistic moves; training flags are restored. Raises UsageError where
    the model does not take images of this size, cuts some of each away, or does not pool.
    """
    side = _patch_of(model)
    if image_size % side:
        raise UsageError(
            f"{type(model).__name__} would not see the edge of images of {image_size} pixels, which it cuts into"
            f" patches of {side}; take {-(-image_size // side) * side}"
        )
    try:
        with eval_mode(model), torch.no_grad():
            out = model(_black(model, image_size))
    except Exception as error:  # some are built for one size, or have a smallest, and each says so in its own way
        raise UsageError(
            f"{type(model).__name__} does not take images of {image_size} pixels: {_first_line(error)}"
        ) from None
    if not isinstance(out, torch.Tensor) or out.ndim != 2:
        shape: object = tuple(out.shape) if isinstance(out, torch.Tensor) else type(out).__name__
        raise UsageError(f"the backbone returns {shape}, expected pooled features [B, C]; choose a model that pools")
    return int(out.shape[1])


def _patch_of(model: nn.Module) -> int:
    """The side of the patches that the first layer cuts images into, 1 where they overlap, or it pads what is short."""
    embed = getattr(model, "patch_embed", None)
    cut = getattr(embed, "proj", None)
    if not isinstance(cut, nn.Conv2d) or getattr(embed, "dynamic_img_pad", False):
        return 1
    return max(cut.kernel_size) if cut.stride == cut.kernel_size and cut.padding in ((0, 0), 0) else 1


def freeze_idle(model: nn.Module, image_size: int) -> list[str]:
    """Freeze the parameters that the output does not depend on, found on one black image; warns of them by name.

    Some models with ``num_classes=0`` keep a few that only their classifiers use. They get no gradient, which
    distributed training takes for an error. Nothing else of the model changes.
    """
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    with eval_mode(model), torch.enable_grad():
        out = model(_black(model, image_size)).sum()
        gradients = torch.autograd.grad(out, list(named.values()), allow_unused=True)
    idle = [name for name, gradient in zip(named, gradients, strict=True) if gradient is None]
    for name in idle:
        named[name].requires_grad_(False)
    if idle:
        kind = type(model).__name__
        warnings.warn(f"{kind} does not use {', '.join(idle[:3])} ({len(idle)} parameters): not trained", stacklevel=2)
    return idle


def _black(model: nn.Module, size: int) -> torch.Tensor:
    like = next(model.parameters())
    return torch.zeros(1, 3, size, size, dtype=like.dtype, device=like.device)


def timm_config(name: str, model: nn.Module, views: Views) -> dict[str, Any]:
    """The part of config.json that timm reads: architecture, and how images must come in."""
    default = dict(getattr(model, "pretrained_cfg", {}) or {})
    names = ("first_conv", "classifier", "pool_size", "fixed_input_size")
    kept = {key: default[key] for key in names if key in default}
    architecture = name.split(".")[0]
    built_for_size = {"model_args": {"img_size": views.size}} if default.get("fixed_input_size") else {}
    return {
        "architecture": f"{architecture}.{NEEDS_US}" if is_small(architecture) else architecture,
        "num_classes": 0,
        "num_features": feature_width(model, views.size),
        **built_for_size,
        "pretrained_cfg": {**kept, "input_size": [3, views.size, views.size], **views.evaluation, "num_classes": 0},
    }
