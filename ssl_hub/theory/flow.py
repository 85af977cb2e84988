"""What a flow is, what a solved one is, and how its named states become the one array that solvers step."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ssl_hub.errors import UsageError

Array = NDArray[np.float64]
RightHandSide = Callable[[Array], Array]


class Flow(ABC):
    """An autonomous system dy/dt = f(y) on named state variables.

    Scalar systems have `state_ndim` 0 and take arrays of any one shape, elementwise. Matrix systems have `state_ndim` 2
    and take stacks of matrices, `(..., rows, columns)`: the leading axes are a grid of initial conditions.
    """

    state_names: ClassVar[tuple[str, ...]]
    state_ndim: ClassVar[int] = 0

    @abstractmethod
    def velocity(self, *state: Array) -> tuple[Array, ...]:
        """Time derivative of every state variable, in the order of `state_names`."""


@dataclass(frozen=True)
class Trajectory:
    """States along time: `trajectory["p"]` has shape `(T, *grid, *state)`, T the number of times in `t`."""

    flow: Flow
    t: Array
    states: Mapping[str, Array]

    def __getitem__(self, name: str) -> Array:
        if name not in self.states:
            raise UsageError(f"the trajectory has no state {name!r}; it has {', '.join(self.states)}")
        return self.states[name]

    def at(self, index: int) -> dict[str, Array]:
        """All state variables at time `t[index]`."""
        return {name: values[index] for name, values in self.states.items()}


@dataclass(frozen=True)
class Layout:
    """How named states map to one packed array `(K, N)`: K numbers per trajectory, N trajectories."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    grid: tuple[int, ...]

    @classmethod
    def of(cls, flow: Flow, init: Mapping[str, ArrayLike]) -> Layout:
        """Read the shapes off the initial state, after checking its names."""
        wanted, got = flow.state_names, tuple(init)
        if set(wanted) != set(got):
            raise UsageError(
                f"{type(flow).__name__} got initial values for {', '.join(sorted(got)) or 'nothing'}; "
                f"expected exactly {', '.join(wanted)}"
            )
        arrays = [np.asarray(init[name], dtype=np.float64) for name in wanted]
        ndim = flow.state_ndim
        for name, array in zip(wanted, arrays, strict=True):
            if array.ndim < ndim:
                raise UsageError(f"initial {name} has {array.ndim} axes; expected a matrix or a stack of matrices")
            if not np.isfinite(array).all():
                raise UsageError(f"initial {name} holds a value that is not finite; expected finite numbers")
        shapes = tuple(array.shape[array.ndim - ndim :] for array in arrays)
        leading = [array.shape[: array.ndim - ndim] for array in arrays]
        try:
            grid = np.broadcast_shapes(*leading)
        except ValueError as error:
            raise UsageError(f"the grids of the initial states, {leading}, do not broadcast to one shape") from error
        return cls(wanted, shapes, grid)

    def pack(self, state: Mapping[str, ArrayLike]) -> Array:
        """Named states to the packed array `(K, N)`."""
        rows = []
        for name, shape, count in zip(self.names, self.shapes, self._counts, strict=True):
            full = np.broadcast_to(np.asarray(state[name], dtype=np.float64), self.grid + shape)
            rows.append(full.reshape(-1, count).T)
        return np.ascontiguousarray(np.concatenate(rows))

    def unpack(self, packed: Array) -> tuple[Array, ...]:
        """Packed `(K, n)` to per-state arrays `(n, *state)`."""
        parts = zip(self._split(packed, axis=0), self.shapes, strict=True)
        return tuple(p[0] if shape == () else np.ascontiguousarray(p.T).reshape(-1, *shape) for p, shape in parts)

    def unpack_times(self, packed: Array) -> dict[str, Array]:
        """Packed `(T, K, N)` to named arrays `(T, *grid, *state)`."""
        parts = [np.ascontiguousarray(np.moveaxis(part, 1, 2)) for part in self._split(packed, axis=1)]
        named = zip(self.names, parts, self.shapes, strict=True)
        return {name: part.reshape(len(packed), *self.grid, *shape) for name, part, shape in named}

    def right_hand_side(self, flow: Flow) -> RightHandSide:
        """The packed form `(K, n) -> (K, n)` of the flow's velocity, for any number n of trajectories."""

        def packed_velocity(packed: Array) -> Array:
            velocity = flow.velocity(*self.unpack(packed))
            rows = [
                np.broadcast_to(value, packed.shape[1:])[None] if shape == () else value.reshape(value.shape[0], -1).T
                for value, shape in zip(velocity, self.shapes, strict=True)
            ]
            return np.concatenate(rows)

        return packed_velocity

    @property
    def _counts(self) -> list[int]:
        return [math.prod(shape) for shape in self.shapes]

    def _split(self, packed: Array, *, axis: int) -> list[Array]:
        return np.split(packed, np.cumsum(self._counts)[:-1], axis=axis)
