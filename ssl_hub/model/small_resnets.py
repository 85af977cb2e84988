"""The small-image ResNets that timm lacks: importing this registers them there."""

from __future__ import annotations

from typing import Any

from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models.resnet import BasicBlock, Bottleneck, ResNet
from torch import nn


class SmallImageResNet(ResNet):
    """timm's ResNet with a 3x3 stem and no max-pool, as is usual for 32x32 images.

    ``stem_padding`` is 1 here; backbones imported from solo-learn have 2, and say so in config.json's ``model_args``.
    """

    def __init__(self, *args: Any, stem_padding: int = 1, stem_stride: int = 1, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        large: nn.Conv2d = self.get_submodule("conv1")
        widths = large.in_channels, large.out_channels
        small = nn.Conv2d(*widths, 3, stride=stem_stride, padding=stem_padding, bias=False)
        nn.init.kaiming_normal_(small.weight, mode="fan_out", nonlinearity="relu")
        self.conv1 = small
        self.maxpool = nn.Identity()
        for info in self.feature_info:
            info["reduction"] = stem_stride * max(info["reduction"] // 4, 1)


SHAPES: dict[str, dict[str, Any]] = {
    "resnet18_cifar": {"block": BasicBlock, "layers": (2, 2, 2, 2)},  # 32x32 images give a 4x4 map of width 512
    "resnet50_cifar": {"block": Bottleneck, "layers": (3, 4, 6, 3)},  # and here of width 2048
    # 0.3 M parameters, for demos
    "resnet10_tiny": {"block": BasicBlock, "layers": (1, 1, 1, 1), "channels": (16, 32, 64, 128)},
    # 1.2 M parameters, for CPUs: as many multiplications as resnet10_tiny, on half the activations; a 2x2 map
    "resnet10_narrow": {
        "block": BasicBlock, "layers": (1, 1, 1, 1), "channels": (32, 64, 128, 256), "stem_stride": 2,
    },
}  # fmt: skip

NEEDS_US = "import_ssl_hub"
"""timm's tag of these architectures in config.json, so that timm's error where they are unknown says what is missing:
``Unknown model (resnet18_cifar.import_ssl_hub)``."""

CONFIG = {
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
default_cfgs = generate_default_cfgs({f"{name}.{NEEDS_US}": dict(CONFIG) for name in SHAPES})


def _register(name: str, shape: dict[str, Any]) -> None:
    def build(pretrained: bool = False, **kwargs: Any) -> nn.Module:
        model: nn.Module = build_model_with_cfg(SmallImageResNet, name, pretrained, **{**shape, **kwargs})
        return model

    build.__name__ = name
    register_model(build)


for _name, _shape in SHAPES.items():
    _register(_name, _shape)


def is_small(name: str) -> bool:
    """Whether this is one of these, which timm has only once this module is imported."""
    return name.split(".")[0] in SHAPES
