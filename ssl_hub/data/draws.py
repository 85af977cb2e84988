"""Random numbers as pure functions of what they are for: no state, so nothing to save, share or get out of step."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_MASK = 0xFFFFFFFFFFFFFFFF
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)


def hashed(*counters: int | NDArray[Any]) -> NDArray[np.uint64]:
    """A 64-bit hash of the counters, which broadcast against each other as arrays do.

    Each counter is absorbed by one round of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014, figure 16), so the order of
    counters matters and neighbouring values are unrelated.
    """
    state = np.zeros((1,), np.uint64)
    for counter in counters:
        state = _splitmix64(state ^ _as_uint64(counter))
    return state


def uniforms(*counters: int | NDArray[Any]) -> NDArray[np.float64]:
    """Numbers in [0, 1), one for each (broadcast) tuple of counters, with 53 random bits."""
    return np.asarray((hashed(*counters) >> np.uint64(11)) * 2.0**-53, np.float64)


def permutation(length: int, *counters: int) -> NDArray[np.int64]:
    """An order of ``range(length)``: int64 ``[length]``, a pure function of the counters."""
    return np.argsort(hashed(*counters, np.arange(length)), kind="stable").astype(np.int64)


def _as_uint64(counter: int | NDArray[Any]) -> NDArray[np.uint64]:
    if isinstance(counter, np.ndarray):
        return counter.astype(np.int64).view(np.uint64)
    return np.array([int(counter) & _MASK], np.uint64)


def _splitmix64(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    state = state + _GOLDEN  # arrays wrap around silently, which is what is meant
    state = (state ^ (state >> np.uint64(30))) * _MIX1
    state = (state ^ (state >> np.uint64(27))) * _MIX2
    return state ^ (state >> np.uint64(31))
