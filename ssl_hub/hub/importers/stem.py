"""Stems: what a ResNet does with an image before its stages.

A convolution has parameters of the same shape whatever its padding and whether a max-pool follows, so a checkpoint does
not tell. The project that wrote it does, or the user; else it is assumed to be the recipe's, and said to be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from torch import nn

from ssl_hub.errors import UsageError
from ssl_hub.hub.importers.checkpoint import Tensors
from ssl_hub.model.backbones import is_known
from ssl_hub.model.small_resnets import SmallImageResNet

Padding = int | Literal["same"]
Decider = Literal["user", "source", "assumed"]


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


def pads_same(model: nn.Module) -> bool:
    """Whether the model pads as TensorFlow does: by what an image's size needs, and more on one side (timm's tf_)."""
    return any(type(module).__name__ == "Conv2dSame" for module in model.modules())


def _pads(model: nn.Module) -> bool:
    """Whether a convolution pads at all; those that cut an image into patches do not."""
    return any(isinstance(m, nn.Conv2d) and m.padding not in (0, (0, 0), "valid") for m in model.modules()) or (
        pads_same(model)
    )


def settled_stem(
    tensors: Tensors,
    model: nn.Module,
    stems: Sequence[Stem],
    *,
    stated: Padding | None,
    source_pads_same: bool,
    architecture: str,
    where: str,
) -> tuple[Stem | None, Decider]:
    """The stem that the backbone in ``tensors`` was trained with (None for what is no ResNet), and who says so.

    Args:
        tensors: the backbone, under timm's names.
        model: the recipe's backbone, an ``architecture`` of timm.
        stems: those of the source's models, where they are known.
        stated: by the user, what the convolutions pad by.
        source_pads_same: whether the source is known to pad as TensorFlow does.

    Raises:
        UsageError: the recipe's backbone pads otherwise or has another stem, and cannot take this one, naming both.
    """
    ours, weight = stem_of(model), tensors.get("conv1.weight")
    same = None if stated is None and not source_pads_same else stated in (None, "same")
    if same is not None and same != pads_same(model):
        raise UsageError(
            f"{where} pads {'as TensorFlow does (SAME)' if same else f'by {stated}'}, and {architecture} does not: its"
            f" features would not be the same; {_other_padding(architecture, same=same)}"
        )
    if ours is None or weight is None or weight.ndim != 4:
        if isinstance(stated, int):
            raise UsageError(f"padding is {stated}, and {architecture} has no stem of a ResNet to be padded so")
        return ours, "user" if stated else "source" if same is not None or not _pads(model) else "assumed"
    kernel = weight.shape[-1]
    theirs = next((stem for stem in stems if stem.kernel == kernel), None)
    by: Decider = "source"
    if theirs is None and kernel == ours.kernel:
        theirs, by = ours, "assumed"
    if theirs is not None and isinstance(stated, int):
        theirs, by = replace(theirs, padding=stated), "user"
    only_padding = theirs is not None and replace(theirs, padding=ours.padding) == ours
    if theirs == ours or (only_padding and isinstance(model, SmallImageResNet)):
        return theirs, by
    raise UsageError(
        f"{where} has a {theirs or f'{kernel}x{kernel} stem'}, the recipe's {architecture} a {ours}; choose a"
        " recipe for images of the other size, or give backbone.name (resnet18 and resnet50 have the large stem,"
        " resnet18_cifar and resnet50_cifar the small one)"
    )


def _other_padding(architecture: str, *, same: bool) -> str:
    """Where an architecture that pads the other way is, if timm has it."""
    other = f"tf_{architecture}" if same else architecture.removeprefix("tf_")
    if other != architecture and is_known(other):
        return f"give backbone.name={other}"
    return "timm has none that does"
