"""Operations on many tensors at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


@torch.no_grad()
def copy_tensors(tensors: Sequence[Tensor], *, to: Sequence[Tensor]) -> None:
    """Copy each tensor onto its counterpart of the same type, in one operation for each type.

    CUDA kernels of some versions take the type of the first tensor for that of all.
    """
    for places in by_type(tensors).values():
        torch._foreach_copy_([to[i] for i in places], [tensors[i] for i in places])


def by_type(tensors: Sequence[Tensor]) -> dict[torch.dtype, list[int]]:
    """The places of the tensors of each type."""
    found: dict[torch.dtype, list[int]] = {}
    for place, tensor in enumerate(tensors):
        found.setdefault(tensor.dtype, []).append(place)
    return found


class Kept:
    """Copies of tensors that a step may have to give back: one flat tensor for each type, so few operations."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = list(tensors)
        self._places = by_type(tensors)
        self._flat: dict[torch.dtype, Tensor] = {}

    @torch.no_grad()
    def keep(self) -> None:
        """Take the tensors as they are now."""
        self._flat = {kind: self._flattened(places) for kind, places in self._places.items()}

    @torch.no_grad()
    def give_back(self, unless: Tensor) -> None:
        """Put the tensors back as they were kept, unless this boolean on their device is true."""
        for kind, places in self._places.items():
            tensors = [self._tensors[i] for i in places]
            chosen = torch.where(unless, self._flattened(places), self._flat[kind])
            parts = chosen.split([tensor.numel() for tensor in tensors])
            torch._foreach_copy_(tensors, [part.view(t.shape) for part, t in zip(parts, tensors, strict=True)])

    def _flattened(self, places: list[int]) -> Tensor:
        return torch.cat([self._tensors[i].reshape(-1) for i in places])
