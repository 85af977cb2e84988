"""A checkpoint file to tensors under dotted names, with everything that is no weight left behind."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ssl_hub.errors import UsageError
from ssl_hub.hub.importers.content import read_content

Tensors = dict[str, Tensor]

# Path components that wrappers add anywhere in a name (DDP, compile, FSDP, activation checkpointing, DeepSpeed) ...
WRAPPERS = {"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module"}
# ... and that checkpoints put before all names. Neither says anything about the tensor.
CONTAINERS = {"state_dict", "model_state_dict", "model", "classy_state_dict", "base_model"}
TRAINING_STATE = re.compile(r"optim|sched|scaler|rng|callback|loops")  # names of dictionaries without weights
MOST_NESTED = 8
MOST_REPEATED = 2**30  # bytes of a tensor that repeats fewer


def read_checkpoint(path: Path) -> Tensors:
    """All tensors of a .safetensors file or of a file that ``torch.save`` wrote, by dotted name, on the CPU.

    Nested dictionaries become dotted names. Wrapper components (``module``, ``_orig_mod``, ...) and containers
    (``state_dict``, ``model``, ...) are dropped whole, component by component; optimiser state is left behind.

    Raises:
        UsageError: no such file; damaged; Python objects in it, which could only be made by running what the file
            says; no tensors; or two different tensors under what is one name.
    """
    return tensors_of(read_content(path), path)


def tensors_of(content: Any, path: Path) -> Tensors:
    """The tensors of what a file holds, as :func:`read_checkpoint` gives them."""
    tensors: Tensors = {}
    for name, tensor in _flatten(content, "", 0):
        bare = bare_name(name)
        if problem := _problem_of(tensor):
            raise UsageError(f"{path}: {name!r} {problem}; expected plain numbers: save it as such")
        if bare in tensors and not equal(tensors[bare], tensor):
            raise UsageError(
                f"{path}: two different tensors are called {bare!r} once wrappers are off, one is {name!r}"
            )
        tensors[bare] = tensor
    if not tensors:
        held = type(content).__name__
        if isinstance(content, Mapping):
            held = f"a dictionary of {', '.join(map(repr, list(content)[:6])) or 'nothing'}"
        raise UsageError(f"{path} holds no tensors by name, but {held}; expected a dictionary of tensors")
    return tensors


def _problem_of(tensor: Tensor) -> str:
    """Why a tensor is none of numbers that lie one after the other in the file."""
    if tensor.is_meta:
        return "has a shape and no numbers"
    if tensor.layout != torch.strided or tensor.is_quantized:
        return f"is {'quantised' if tensor.is_quantized else 'sparse'}"
    size, stored = tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes()
    return f"would be {size} bytes, of fewer in the file" if size > max(MOST_REPEATED, stored) else ""


def bare_name(name: str) -> str:
    """A name without wrappers and containers: ``state_dict.module.encoder.fc.weight`` becomes ``encoder.fc.weight``.

    Only whole components go, so ``modules.0.weight`` and ``encoder.base_model.weight`` stay what they are.
    """
    parts = [part for part in name.split(".") if part not in WRAPPERS]
    while len(parts) > 1 and parts[0] in CONTAINERS:
        parts.pop(0)
    return ".".join(parts)


def under(tensors: Tensors, prefix: str) -> Tensors:
    """The tensors below a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def moved(tensors: Tensors, names: Mapping[str, str]) -> Tensors:
    """The tensors with what their names begin with replaced, where ``names`` has it; the first that fits counts."""
    return {
        next((new + name.removeprefix(old) for old, new in names.items() if name.startswith(old)), name): tensor
        for name, tensor in tensors.items()
    }


def one_of(tensors: Tensors, role: str, *prefixes: str) -> Tensors:
    """The tensors of a role that goes by several prefixes, over versions of a project: those below the one that is
    there. Below two, they must be the same; else a UsageError, since nothing says which is meant."""
    there = [prefix for prefix in prefixes if under(tensors, prefix)]
    first = under(tensors, there[0]) if there else {}
    for prefix in there[1:]:
        other = under(tensors, prefix)
        if first.keys() != other.keys() or not all(equal(first[name], other[name]) for name in first):
            raise UsageError(
                f"two different networks may be its {role}, under {there[0]!r} and {prefix!r}; save the one that you"
                " mean alone"
            )
    return first


def _flatten(value: Any, prefix: str, depth: int) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield prefix.removesuffix("."), value.detach()
    elif isinstance(value, Mapping) and depth < MOST_NESTED:
        contained = any(key in CONTAINERS and isinstance(inner, Mapping) for key, inner in value.items())
        for key, inner in value.items():
            if contained and key not in CONTAINERS and _is_no_network(inner, depth + 1):
                continue
            if isinstance(inner, Tensor) or not TRAINING_STATE.search(str(key)):
                yield from _flatten(inner, f"{prefix}{key}.", depth + 1)


def _is_no_network(value: Any, depth: int) -> bool:
    """Whether what stands beside the weights is a tensor alone, such as the best accuracy so far, or a dictionary of
    some without two dimensions, which every network has."""
    if isinstance(value, Mapping):
        return all(tensor.ndim < 2 for _, tensor in _flatten(value, "", depth))
    return isinstance(value, Tensor)


def equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)
