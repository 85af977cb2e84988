"""Batch normalisation over all processes, for whatever timm or torch calls batch normalisation."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any, TypeVar

from timm.layers import BatchNormAct2d, convert_sync_batchnorm
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from ssl_hub.errors import UsageError

AnyModule = TypeVar("AnyModule", bound=nn.Module)

# What the synchronised layers compute, apart from where the statistics come from. (A class without a forward of its own
# has one of these.)
CONVERTIBLE = {_BatchNorm.forward, BatchNormAct2d.forward}


def synchronised(module: AnyModule, group: Any = None) -> AnyModule:
    """The module with the statistics of every batch normalisation taken over all processes, or those of a ``group``.

    Parameters and buffers stay the same tensors under the same names, so that what was saved before loads after, and
    the reverse. The layers themselves are new ones: look for frozen ones, or hook them, afterwards. timm's conversion
    keeps the activation that is part of a ``BatchNormAct2d``; torch's drops it. Converting twice changes nothing.

    Raises UsageError for a layer that computes something of its own, which would be lost. Warns of layers that have
    running statistics and are no batch normalisation (``EvoNorm2dB0``): those stay each process's own.
    """
    plain = [layer for layer in module.modules() if isinstance(layer, _BatchNorm) and not _is_synchronised(layer)]
    for layer in plain:
        if type(layer).forward not in CONVERTIBLE:
            raise UsageError(
                f"{type(layer).__name__} is a batch normalisation that cannot be synchronised: it has a forward of its"
                " own; train it with sync_bn=false"
            )
    alone = Counter(type(layer).__name__ for layer in module.modules() if _has_statistics_of_its_own(layer))
    if alone:
        named = ", ".join(f"{count} {name}" for name, count in alone.items())
        warnings.warn(f"{named}: statistics of each process alone, no way to synchronise them is known", stacklevel=2)
    if not plain:
        return module
    assert not any(map(_is_synchronised, module.modules())), "half synchronised"
    converted: AnyModule = convert_sync_batchnorm(module, group)
    return converted


def with_statistics(module: nn.Module) -> list[nn.Module]:
    """The layers of a model, of whatever kind, that keep running statistics in train mode and use them in eval mode."""
    return [layer for layer in module.modules() if layer._buffers.get("running_var") is not None and not _is_set(layer)]


def _is_set(layer: nn.Module) -> bool:
    """Whether nothing in a layer moves: a frozen batch normalisation, whose scale is a buffer too."""
    return "weight" in layer._buffers


def _has_statistics_of_its_own(layer: nn.Module) -> bool:
    return "running_var" in layer._buffers and not isinstance(layer, _BatchNorm) and not _is_set(layer)


def synchronises_all(layer: nn.Module) -> bool:
    """Whether a layer gathers its statistics over all processes, so that they are the same everywhere."""
    return isinstance(layer, nn.SyncBatchNorm) and layer.process_group is None


def _is_synchronised(layer: nn.Module) -> bool:
    return isinstance(layer, nn.SyncBatchNorm)
