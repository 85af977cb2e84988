"""Weights into a model: all that it has, each of its shape and finite, or an error that names what is not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from ssl_hub.errors import UsageError
from ssl_hub.model import backbones


def load_into(model: nn.Module, tensors: Mapping[str, Tensor], *, where: str) -> None:
    """Load weights into a backbone that :func:`~ssl_hub.model.backbones.create` made, strictly, as they are finite.

    Weights of a model that is built for one size of images, and was built for another, are resampled as timm does it:
    its position embeddings. (timm resamples the kernel that cuts patches too, which makes another network.)
    """
    own = model.state_dict()
    differing = [name for name in own.keys() & tensors.keys() if own[name].shape != tensors[name].shape]
    reshaped = own.keys() == tensors.keys() and differing and not any(_is_of_a_layer(model, name) for name in differing)
    check_finite(where, tensors)
    load_strictly(model, (reshaped and backbones.resampled(model, tensors)) or tensors, where=where)


def _is_of_a_layer(model: nn.Module, name: str) -> bool:
    """Whether a tensor is the weight or bias of a linear layer or a convolution, whose shape no size of images changes
    in the same network."""
    return isinstance(model.get_submodule(name.rpartition(".")[0]), (nn.Linear, _ConvNd))


def check_finite(path: Path | str, tensors: Mapping[str, Tensor]) -> None:
    """Raise UsageError that names the tensors of a file that hold NaN or infinity."""
    # A sum is finite only if all are; it costs a tenth of looking at each, and can overflow where all are finite.
    floats = {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}
    # torch adds up no floats of one byte
    wide = {name: tensor.float() if tensor.itemsize == 1 else tensor for name, tensor in floats.items()}
    broken = [name for name, tensor in wide.items() if not (tensor.sum().isfinite() or tensor.isfinite().all())]
    if broken:
        more = ", ..." if len(broken) > 3 else ""
        raise UsageError(
            f"{path}: {len(broken)} tensors hold NaN or infinity ({', '.join(broken[:3])}{more}); it is no usable model"
        )


def load_strictly(model: nn.Module, tensors: Mapping[str, Tensor], *, where: str) -> None:
    """Load all tensors or none: :class:`UsageError` with counts and the first names that do not fit."""
    own = model.state_dict()
    missing, unexpected = sorted(own.keys() - tensors.keys()), sorted(tensors.keys() - own.keys())
    reshaped = [
        f"{name}: {tuple(tensors[name].shape)}, not {tuple(own[name].shape)}"
        for name in sorted(own.keys() & tensors.keys())
        if own[name].shape != tensors[name].shape
    ]
    retyped = [
        f"{name}: {tensors[name].dtype}"
        for name in sorted(own.keys() & tensors.keys())
        if own[name].is_floating_point() != tensors[name].is_floating_point()
    ]
    if missing or unexpected or reshaped or retyped:
        matched = len(own) - len(missing) - len({*reshaped, *retyped})
        details = [
            f"{len(names)} {what} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"
            for what, names in (
                ("missing", missing),
                ("unexpected", unexpected),
                ("of another shape", reshaped),
                ("of another type", retyped),
            )
            if names
        ]
        raise UsageError(f"{where}: {matched} of {len(own)} tensors fit {type(model).__name__}; {'; '.join(details)}")
    model.load_state_dict(dict(tensors), strict=True)
