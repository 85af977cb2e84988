"""The one place that calls timm: backbones by name, the small-image ResNets timm lacks, and the true feature width."""

from __future__ import annotations

from typing import Any

import timm
import torch
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models.resnet import BasicBlock, Bottleneck, ResNet
from torch import nn

from ssl_hub.config import Views
from ssl_hub.errors import UsageError
from ssl_hub.registry import suggest


class SmallImageResNet(ResNet):
    """timm's ResNet with a 3x3 stride-1 stem and no max-pool, as is usual for 32x32 images."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        large: nn.Conv2d = self.get_submodule("conv1")
        small = nn.Conv2d(large.in_channels, large.out_channels, 3, stride=1, padding=1, bias=False)
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


# timm's register_model looks the defaults up under this name in this module.
default_cfgs = generate_default_cfgs(
    {name: _small_image_cfg() for name in ("resnet10_tiny", "resnet18_cifar", "resnet50_cifar")}
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


def check_name(name: str) -> None:
    """Raise :class:`UsageError` with the nearest name unless timm knows the architecture (a ``.tag`` may follow it)."""
    base = name.split(".")[0]
    if not timm.is_model(base):
        raise UsageError(f"unknown backbone {name!r}{suggest(base, timm.list_models())[:200]}")


def create(name: str, *, pretrained: bool = False, num_classes: int = 0, **options: Any) -> nn.Module:
    """A timm model in train mode; with ``num_classes=0`` it maps [B, 3, H, W] to pooled features [B, C].

    ``zero_init_last`` is left out for architectures that have no such option. Everything else goes to timm as it is.
    """
    check_name(name)
    try:
        model = timm.create_model(name, pretrained=pretrained, num_classes=num_classes, **options)
    except TypeError as error:
        if "zero_init_last" not in str(error):
            raise
        options = {key: value for key, value in options.items() if key != "zero_init_last"}
        model = timm.create_model(name, pretrained=pretrained, num_classes=num_classes, **options)
    assert isinstance(model, nn.Module)
    return model


def feature_width(model: nn.Module, image_size: int) -> int:
    """Width ``C`` of the pooled features [B, C], measured on one black image: timm's ``num_features`` is not always it.

    Run in eval mode under no_grad, so no running statistic moves; training flags are restored.
    """
    training = {module: module.training for module in model.modules()}
    parameter = next(model.parameters())
    image = torch.zeros(1, 3, image_size, image_size, dtype=parameter.dtype, device=parameter.device)
    try:
        with torch.no_grad():
            out = model.eval()(image)
    finally:
        for module, flag in training.items():
            module.training = flag
    if not isinstance(out, torch.Tensor) or out.ndim != 2:
        shape: object = tuple(out.shape) if isinstance(out, torch.Tensor) else type(out).__name__
        raise UsageError(f"the backbone returns {shape}, expected pooled features [B, C]; choose a model that pools")
    return int(out.shape[1])


def timm_config(name: str, model: nn.Module, views: Views) -> dict[str, Any]:
    """The part of config.json that timm reads: architecture, and how images must come in."""
    default = dict(getattr(model, "pretrained_cfg", {}) or {})
    names = ("first_conv", "classifier", "pool_size", "fixed_input_size")
    kept = {key: default[key] for key in names if key in default}
    return {
        "architecture": name.split(".")[0],
        "num_classes": 0,
        "num_features": feature_width(model, views.size),
        "pretrained_cfg": {**kept, "input_size": [3, views.size, views.size], **views.evaluation, "num_classes": 0},
    }
