"""The one place that calls timm: backbones by name, the small-image ResNets timm lacks, and the true feature width."""

from __future__ import annotations

from typing import Any

import timm
import torch
from timm.models import build_model_with_cfg, generate_default_cfgs, group_parameters, register_model
from timm.models.resnet import BasicBlock, Bottleneck, ResNet
from torch import nn

from ssl_hub.config import Views
from ssl_hub.errors import UsageError
from ssl_hub.registry import suggest


class SmallImageResNet(ResNet):
    """timm's ResNet with a 3x3 stride-1 stem and no max-pool, as is usual for 32x32 images.

    ``stem_padding`` is 1 here; backbones imported from solo-learn have 2, and say so in config.json's ``model_args``.
    """

    def __init__(self, *args: Any, stem_padding: int = 1, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        large: nn.Conv2d = self.get_submodule("conv1")
        small = nn.Conv2d(large.in_channels, large.out_channels, 3, stride=1, padding=stem_padding, bias=False)
        nn.init.kaiming_normal_(small.weight, mode="fan_out", nonlinearity="relu")
        self.conv1 = small
        self.maxpool = nn.Identity()
        for info in self.feature_info:
            info["reduction"] = max(info["reduction"] // 4, 1)


def _small_image_cfg() -> dict[str, Any]:
    return {
        "num_classes": 10,
        "input_size": (3, 32, 32),
        "pool_size": (4, 4),
        "crop_pct": 1.0,
        "interpolation": "bilinear",
        "mean": (0.4914, 0.4822, 0.4465),
        "std": (0.2470, 0.2435, 0.2616),
        "first_conv": "conv1",
        "classifier": "fc",
    }


NEEDS_US = "import_ssl_hub"
"""timm's tag of these architectures in config.json, so that timm's error where they are unknown says what is missing:
``Unknown model (resnet18_cifar.import_ssl_hub)``."""

# timm's register_model looks the defaults up under this name in this module.
default_cfgs = generate_default_cfgs(
    {f"{name}.{NEEDS_US}": _small_image_cfg() for name in ("resnet10_tiny", "resnet18_cifar", "resnet50_cifar")}
)


def _small_image_resnet(variant: str, pretrained: bool, **kwargs: Any) -> nn.Module:
    model: nn.Module = build_model_with_cfg(SmallImageResNet, variant, pretrained, **kwargs)
    return model


@register_model  # type: ignore[untyped-decorator]
def resnet18_cifar(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """ResNet-18 on the small-image stem: 32x32 images give a 4x4 feature map of width 512."""
    return _small_image_resnet("resnet18_cifar", pretrained, block=BasicBlock, layers=(2, 2, 2, 2), **kwargs)


@register_model  # type: ignore[untyped-decorator]
def resnet50_cifar(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """ResNet-50 on the small-image stem: 32x32 images give a 4x4 feature map of width 2048."""
    return _small_image_resnet("resnet50_cifar", pretrained, block=Bottleneck, layers=(3, 4, 6, 3), **kwargs)


@register_model  # type: ignore[untyped-decorator]
def resnet10_tiny(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """Four stages of one basic block, widths 16 to 128, on the small-image stem: 0.3 M parameters, for demos."""
    tiny = {"block": BasicBlock, "layers": (1, 1, 1, 1), "channels": (16, 32, 64, 128)}
    return _small_image_resnet("resnet10_tiny", pretrained, **{**tiny, **kwargs})


def is_small(name: str) -> bool:
    """Whether this is one of the small-image ResNets, which timm has only once this module is imported."""
    return name.split(".")[0] in default_cfgs


def check_name(name: str) -> None:
    """Raise :class:`UsageError` with the nearest name unless timm knows the architecture (a ``.tag`` may follow it)."""
    base = name.split(".")[0]
    if not timm.is_model(base):
        raise UsageError(f"unknown backbone {name!r}{suggest(base, timm.list_models())[:200]}")


def create(
    name: str, *, pretrained: bool = False, num_classes: int = 0, image_size: int | None = None, **options: Any
) -> nn.Module:
    """A timm model in train mode; with ``num_classes=0`` it maps [B, 3, H, W] to pooled features [B, C].

    ``image_size`` is for architectures that are built for one, such as ViT. It and ``zero_init_last`` are left out for
    those that have no such option; everything else goes to timm as it is. Raises UsageError where timm has no such
    weights, or they are not on this machine and cannot be fetched.
    """
    check_name(name)
    if image_size is not None:
        options["img_size"] = image_size
    while True:
        try:
            model = timm.create_model(name, pretrained=pretrained, num_classes=num_classes, **options)
        except TypeError as error:
            refused = [
                option for option in ("zero_init_last", "img_size") if option in options and option in str(error)
            ]
            if not refused:
                raise
            del options[refused[0]]
        except (OSError, RuntimeError) as error:
            if not pretrained:
                raise
            cause = str(error).strip().splitlines()[0]
            raise UsageError(f"the weights of {name!r} cannot be had: {cause}") from None
        else:
            assert isinstance(model, nn.Module)
            return model


def feature_width(model: nn.Module, image_size: int) -> int:
    """Width ``C`` of the pooled features [B, C], measured on one black image: timm's ``num_features`` is not always it.

    Run in eval mode under no_grad, so no running statistic moves; training flags are restored. Raises UsageError where
    the model does not take images of this size, or does not pool.
    """
    training = {module: module.training for module in model.modules()}
    parameter = next(model.parameters())
    image = torch.zeros(1, 3, image_size, image_size, dtype=parameter.dtype, device=parameter.device)
    try:
        with torch.no_grad():
            out = model.eval()(image)
    except (AssertionError, RuntimeError) as error:  # some are built for one size, or have a smallest
        cause = str(error).strip().splitlines()[0]
        raise UsageError(f"{type(model).__name__} does not take images of {image_size} pixels: {cause}") from None
    finally:
        for module, flag in training.items():
            module.training = flag
    if not isinstance(out, torch.Tensor) or out.ndim != 2:
        shape: object = tuple(out.shape) if isinstance(out, torch.Tensor) else type(out).__name__
        raise UsageError(f"the backbone returns {shape}, expected pooled features [B, C]; choose a model that pools")
    return int(out.shape[1])


def group_depths(model: nn.Module) -> dict[str, int]:
    """Depth of each parameter by name: 0 for the stem, then one more for each stage or block, the classifier last.

    Blocks of transformers, stages of others, by timm's own grouping.
    """
    matcher = model.group_matcher(coarse=True)  # type: ignore[operator]
    depths: dict[str, int] = group_parameters(model, matcher, reverse=True)
    return depths


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
