"""What a device can do, asked of torch where torch knows and listed here where it does not. No device is asked for its
name anywhere else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils._foreach_utils import _get_fused_kernels_supported_devices


def usual_device() -> torch.device:
    """The accelerator that torch finds, or the CPU."""
    found = torch.accelerator.current_accelerator(check_available=True)
    return torch.device("cpu") if found is None else found


def is_queued(device: torch.device) -> bool:
    """Whether work is queued there while the host goes on, so that a look at a result is a wait."""
    return device.type != "cpu"


def side_stream(device: torch.device) -> torch.Stream | None:
    """A queue of work beside the usual one; None where the device has one alone, or torch can make no other (MPS)."""
    if device.type in ("cpu", "meta"):
        return None
    try:
        return torch.Stream(device)
    except RuntimeError:
        return None


def can_pin(device: torch.device) -> bool:
    """Whether copies between the host's memory and the device's are faster, or only then asynchronous, from pinned
    memory. MPS shares its memory with the host."""
    return device.type not in ("cpu", "mps", "meta")


def to_device(array: NDArray[Any], device: torch.device) -> torch.Tensor:
    """A copy of an array, for which the host does not wait; on a CPU the array itself."""
    tensor = torch.from_numpy(array)
    if can_pin(device):
        tensor = tensor.pin_memory()  # whose allocator gives the memory to nobody else before it has been read
    return tensor.to(device, non_blocking=True)


def all_to_device(arrays: Sequence[NDArray[Any]], device: torch.device) -> list[torch.Tensor]:
    """The same of several arrays of one dtype, by one copy."""
    flat = to_device(np.concatenate([array.ravel() for array in arrays]), device)
    parts = flat.split([array.size for array in arrays])
    return [part.view(array.shape) for part, array in zip(parts, arrays, strict=True)]


def can_fuse(device: torch.device) -> bool:
    """Whether torch's fused optimisers run there."""
    return device.type in _get_fused_kernels_supported_devices()


def can_synchronise_bn(device: torch.device) -> bool:
    """Whether ``torch.nn.SyncBatchNorm`` trains there: the devices that its forward accepts."""
    own: str = torch._C._get_privateuse1_backend_name()  # NPUs and other devices of torch's extensions
    return device.type in ("cuda", "hpu", "xpu", own)


def can_replay(device: torch.device) -> bool:
    """Whether ``torch.compile`` replays CUDA graphs there, in modes that have them; elsewhere it leaves them out."""
    return device.type == "cuda"


def generator_state(device: torch.device) -> torch.Tensor | None:
    """The state of the device's own random generator; None where it has none beside the CPU's."""
    module = _module(device, "get_rng_state")
    if module is None:
        return None
    state: torch.Tensor = module.get_rng_state() if device.type == "mps" else module.get_rng_state(device)
    return state


def set_generator_state(device: torch.device, state: torch.Tensor) -> None:
    """Inverse of :func:`generator_state`."""
    if (module := _module(device, "set_rng_state")) is not None:
        module.set_rng_state(state) if device.type == "mps" else module.set_rng_state(state, device)


def _module(device: torch.device, function: str) -> Any:
    if device.type in ("cpu", "meta"):
        return None
    module = torch.get_device_module(device)
    return module if hasattr(module, function) else None
