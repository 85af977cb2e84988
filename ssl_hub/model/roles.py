"""What each parameter is for, as far as weight decay and LARS ask: pre-training and fine-tuning use the one rule."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

NORMALISATION = (_NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)


def weights(model: nn.Module) -> frozenset[str]:
    """Names of the parameters that are weights of linear maps (convolutions, recurrences), in a model of any kind.

    All others are added, looked up or multiplied elementwise: biases, scales of normalisation and of layers,
    temperatures; class, register and other tokens; position embeddings and tables of position biases. They take no
    weight decay and no trust ratio of LARS, whose authors' rule for both is the same (You et al. 2017; BYOL, appendix
    C.1, says "biases and batch normalisation parameters"; timm's and MoCo v3's code). A weight

    - has two or more dimensions, and its module is no normalisation;
    - is called so by its module, as torch does: ``weight``, ``in_proj_weight``, ``weight_ih_l0``, but not
      ``pos_embed``, ``cls_token``, ``rel_pos_h``, ``gamma`` of shape [C, 1, 1]. The models of timm keep to that;
    - is not in the ``no_weight_decay()`` of the model or of a part of it.
    """
    listed = tuple(_listed(model))
    return frozenset(
        f"{prefix}{name}"
        for prefix, module in _modules(model)
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.ndim > 1
        and "weight" in name
        and not isinstance(module, NORMALISATION)
        and not any(fnmatch.fnmatchcase(f"{prefix}{name}", pattern) for pattern in listed)
    )


def _modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Every module with the prefix of its parameters' names."""
    return ((f"{name}." if name else "", module) for name, module in model.named_modules())


def _listed(model: nn.Module) -> Iterator[str]:
    """Patterns of names that some part of the model wants without decay; a module's name means all that is in it."""
    for prefix, module in _modules(model):
        wanted = getattr(module, "no_weight_decay", None)
        for name in wanted() if callable(wanted) else ():
            yield f"{prefix}{name}"
            yield f"{prefix}{name}.*"
