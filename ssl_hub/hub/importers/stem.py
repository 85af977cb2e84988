"""Stems: what a ResNet does with an image before its stages.

A 3x3 convolution has parameters of the same shape whatever its padding and whether a max-pool follows, so a checkpoint
does not tell. The project that wrote it does, or else the recipe it is imported as.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from ssl_hub.errors import UsageError
from ssl_hub.hub.importers.checkpoint import Tensors
from ssl_hub.model.backbones import SmallImageResNet


@dataclass(frozen=True)
class Stem:
    """A first convolution (sizes in pixels), its BN and ReLU, and whether a max-pool follows."""

    kernel: int
    stride: int
    padding: int
    max_pool: bool

    def __str__(self) -> str:
        pool = "then a max-pool" if self.max_pool else "no max-pool"
        return f"{self.kernel}x{self.kernel} stem (stride {self.stride}, padding {self.padding}, {pool})"


LARGE = Stem(7, 2, 3, max_pool=True)
SMALL = Stem(3, 1, 1, max_pool=False)


def stem_of(model: nn.Module) -> Stem | None:
    """The stem of a timm ResNet, or None for a model that begins otherwise."""
    conv, pool = getattr(model, "conv1", None), getattr(model, "maxpool", None)
    if not isinstance(conv, nn.Conv2d) or pool is None:
        return None
    padding = conv.padding[0]
    assert isinstance(padding, int), "timm gives its stems a padding in pixels"
    return Stem(conv.kernel_size[0], conv.stride[0], padding, max_pool=not isinstance(pool, nn.Identity))


def settled_stem(
    tensors: Tensors, model: nn.Module, small: Stem | None, *, architecture: str, where: str
) -> tuple[Stem | None, str]:
    """The stem that the backbone in ``tensors`` was trained with, and who says so: ``source`` or ``recipe``.

    Args:
        tensors: the backbone, under timm's names.
        model: the recipe's backbone, an ``architecture`` of timm.
        small: what the source's 3x3 stems do, where that is known.

    Raises:
        UsageError: the recipe's backbone has another stem and cannot take this one, naming both.
    """
    ours, weight = stem_of(model), tensors.get("conv1.weight")
    if ours is None or weight is None or weight.ndim != 4:
        return ours, "recipe"
    kernel = weight.shape[-1]
    theirs = {LARGE.kernel: LARGE, SMALL.kernel: small}.get(kernel)
    if theirs is None and kernel == ours.kernel:
        return ours, "recipe"
    only_padding = theirs is not None and (theirs.kernel, theirs.stride, theirs.max_pool) == (
        ours.kernel,
        ours.stride,
        ours.max_pool,
    )
    if theirs == ours or (only_padding and isinstance(model, SmallImageResNet)):
        return theirs, "source"
    raise UsageError(
        f"{where} has a {theirs or f'{kernel}x{kernel} stem'}, the recipe's {architecture} a {ours}; choose a"
        " recipe for images of the other size, or give backbone.name (resnet18 and resnet50 have the large stem,"
        " resnet18_cifar and resnet50_cifar the small one)"
    )
