"""Features of zero mean and unit deviation, and heads fitted to those folded back onto raw features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ROWS_AT_ONCE = 8192
ROUNDING = 16 * float(np.finfo(np.float32).eps)  # of a network's sums, relative: other kernels give other last digits


class Scaling(NamedTuple):
    """The map x -> (x - mean) / scale of features [N, C]; ``mean`` and ``scale`` are float64 [C], exact in float32."""

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]

    @classmethod
    def none(cls, width: int) -> Scaling:
        """The map that changes nothing."""
        return cls(np.zeros(width), np.ones(width))

    @classmethod
    def of(cls, x: NDArray[np.float32]) -> Scaling:
        """The one that standardises ``x``; scale 1 where a feature does not vary beyond rounding."""
        mean = x.mean(axis=0, dtype=np.float64)
        variance = np.zeros_like(mean)
        largest = np.zeros_like(mean)
        for rows in row_slices(len(x)):
            variance += ((x[rows] - mean) ** 2).sum(axis=0) / len(x)
            np.maximum(largest, np.abs(x[rows]).max(axis=0), out=largest)
        deviation = np.sqrt(variance)
        varies = deviation > np.maximum(ROUNDING * largest, 1e-30)
        return cls(*(part.astype(np.float32).astype(np.float64) for part in (mean, np.where(varies, deviation, 1.0))))

    def apply(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """A scaled float32 copy."""
        out = x - self.mean.astype(np.float32)
        out /= self.scale.astype(np.float32)
        return out

    def fold(self, weight: NDArray[np.float64], bias: NDArray[np.float64]) -> tuple[Tensor, Tensor]:
        """A head [K, C], [K] of scaled features as one of raw features, float32: V = W / scale and b - V mean."""
        raw = weight / self.scale
        return torch.from_numpy(raw).float(), torch.from_numpy(bias - raw @ self.mean).float()


def row_slices(count: int) -> Iterator[slice]:
    """Slices over ``count`` rows: work in parts, because a second copy of all features may not fit."""
    return (slice(start, min(start + ROWS_AT_ONCE, count)) for start in range(0, count, ROWS_AT_ONCE))
