"""Time integration of the paper's flows: one trajectory, or a grid of thousands of initial conditions, in one call.

`_integrate_grid` steps with the Dormand-Prince 8(5,3) pair (Hairer, Norsett, Wanner, "Solving ODEs I", section II.5),
whose tableau is that of scipy's solver class, and gives every trajectory its own time and its own step size: the
arithmetic of a stage is shared by the whole block, the error control is not, so a stiff corner of a grid does not slow
the rest. It steps onto every time that is asked for, as interpolation costs four digits.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import DOP853, solve_ivp

from ssl_hub.errors import UsageError
from ssl_hub.theory.flow import Array, Flow, Layout, RightHandSide, Trajectory

# Safety factor and limits of one change of the step size; the error of a step scales as its 8th power.
SAFETY, SHRINK, GROW, EXPONENT = 0.9, 0.2, 10.0, -1.0 / 8.0
# Trajectories advanced together: the 13 stages of a (3, BLOCK) state then fit a second-level cache.
BLOCK = 4096


def simulate(
    flow: Flow,
    init: Mapping[str, ArrayLike],
    t_eval: ArrayLike,
    *,
    rtol: float = 1e-12,
    atol: float = 1e-14,
    stiff: bool = False,
) -> Trajectory:
    """Solve a flow from t = 0 and report it at the times `t_eval`.

    Args:
        flow: the system.
        init: one entry per state variable. Scalars (or single matrices) give one trajectory; arrays (or stacks of
            matrices), broadcast against each other, give a grid.
        t_eval: increasing times, all at or after 0, in gradient-flow time (one SGD step of size alpha advances it by
            alpha).
        rtol, atol: error allowed per step, relative and absolute. The defaults keep every trajectory of the paper
            within 1e-10; 1e-8 and 1e-10 are enough for a picture.
        stiff: use LSODA, for one trajectory over a time far longer than its fastest rate (weak decay, slow target).

    Returns:
        A `Trajectory`. A solution that ceases to exist is NaN from then on; the chart (p, s, tau) does so where w
        changes its sign, since tau = w_a / w.

    Raises:
        UsageError: unknown or missing states, shapes that do not fit, times that do not increase.
    """
    times = _check_times(t_eval)
    layout = Layout.of(flow, init)
    packed = layout.pack(init)
    rhs = layout.right_hand_side(flow)
    if not stiff:
        packed_out = _integrate_grid(rhs, packed, times, rtol, atol)
    elif layout.grid == ():
        packed_out = _integrate_stiff(rhs, packed[:, 0], times, rtol, atol)[:, :, None]
    else:
        raise UsageError(f"stiff=True takes one trajectory; got a grid of shape {layout.grid}")
    return Trajectory(flow, times, layout.unpack_times(packed_out))


def _check_times(t_eval: ArrayLike) -> Array:
    times = np.atleast_1d(np.asarray(t_eval, dtype=np.float64))
    if (
        times.ndim != 1
        or times.size == 0
        or times[0] < 0
        or (np.diff(times) <= 0).any()
        or not np.isfinite(times).all()
    ):
        raise UsageError(f"t_eval is {np.array2string(times, threshold=6)}; expected increasing finite times from 0 on")
    return times


def _integrate_stiff(rhs: RightHandSide, y: Array, times: Array, rtol: float, atol: float) -> Array:
    """One trajectory by LSODA, interpolated between its steps; returned as `(T, K)`."""
    out = np.full((times.size, y.size), np.nan)
    if times[-1] == 0.0:
        return y[None].copy()
    solution = solve_ivp(
        lambda _, state: rhs(state[:, None])[:, 0], (0.0, times[-1]), y, "LSODA", times, rtol=rtol, atol=atol
    )
    out[: solution.y.shape[1]] = solution.y.T
    return out


def _integrate_grid(rhs: RightHandSide, y: Array, times: Array, rtol: float, atol: float) -> Array:
    """All trajectories, block by block; returns `(T, K, N)`."""
    out = np.full((times.size, *y.shape), np.nan)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for start in range(0, y.shape[1], BLOCK):
            block = slice(start, start + BLOCK)
            out[:, :, block] = _integrate_block(rhs, y[:, block], times, rtol, atol)
    return out


def _integrate_block(rhs: RightHandSide, y: Array, times: Array, rtol: float, atol: float) -> Array:
    """Adaptive steps with one clock and one step size per trajectory; every trajectory lands on every time."""
    out = np.full((times.size, *y.shape), np.nan)
    owner = np.arange(y.shape[1])  # the column of `out` that each active trajectory writes
    goal = np.zeros(y.shape[1], dtype=np.intp)  # index of the next time to land on
    if times[0] == 0.0:
        out[0] = y
        goal += 1
        if times.size == 1:
            return out
    t = np.zeros(y.shape[1])
    y = y.copy()
    f = rhs(y)
    step = _first_step(y, f, rtol, atol)

    while owner.size:
        remaining = times[goal] - t
        landing = step >= remaining * (1 - 1e-12)
        h = np.where(landing, remaining, step)
        y_new, f_new, error = _dormand_prince_step(rhs, y, f, h, rtol, atol)
        accepted = error < 1.0  # False for NaN: a step into the unrepresentable is retried smaller
        factor = np.clip(SAFETY * np.maximum(error, 1e-14) ** EXPONENT, SHRINK, GROW)
        factor = np.where(np.isnan(factor), SHRINK, factor)
        # A step that was cut short to land says nothing against the longer step planned before it.
        step = np.where(
            accepted, np.where(landing, np.maximum(step, h * factor), h * factor), h * np.minimum(factor, 1)
        )

        y = np.where(accepted, y_new, y)
        f = np.where(accepted, f_new, f)
        t = np.where(accepted & ~landing, t + h, t)
        landed = np.flatnonzero(accepted & landing)
        t[landed] = times[goal[landed]]
        out[goal[landed], :, owner[landed]] = y[:, landed].T
        goal[landed] += 1

        finished = (goal == times.size) | (step < 1e-14 * np.maximum(t, 1.0))  # arrived, or escaped to infinity
        if finished.any():
            keep = ~finished
            owner, goal, t, step = owner[keep], goal[keep], t[keep], step[keep]
            y, f = y[:, keep], f[:, keep]
    return out


def _first_step(y: Array, f: Array, rtol: float, atol: float) -> Array:
    scale = atol + rtol * np.abs(y)
    size = np.sqrt(np.mean((y / scale) ** 2, axis=0))
    speed = np.sqrt(np.mean((f / scale) ** 2, axis=0))
    return np.clip(0.01 * size / np.maximum(speed, 1e-300), 1e-6, 1.0)


def _dormand_prince_step(
    rhs: RightHandSide, y: Array, f: Array, h: Array, rtol: float, atol: float
) -> tuple[Array, Array, Array]:
    """One step of size `h` (n,) from `y` (K, n) with velocity `f`: new state, new velocity, error over tolerance."""
    stages = np.empty((DOP853.n_stages + 1, *y.shape))
    stages[0] = f
    flat = stages.reshape(DOP853.n_stages + 1, -1)
    for i in range(1, DOP853.n_stages):
        increment = (DOP853.A[i, :i] @ flat[:i]).reshape(y.shape)
        stages[i] = rhs(y + h * increment)
    y_new = y + h * (DOP853.B @ flat[:-1]).reshape(y.shape)
    stages[-1] = rhs(y_new)

    scale = atol + rtol * np.maximum(np.abs(y), np.abs(y_new))
    fifth = np.sum(((DOP853.E5 @ flat).reshape(y.shape) / scale) ** 2, axis=0)
    third = np.sum(((DOP853.E3 @ flat).reshape(y.shape) / scale) ** 2, axis=0)
    denominator = np.sqrt((fifth + 0.01 * third) * y.shape[0])
    error = np.abs(h) * np.divide(fifth, denominator, out=np.zeros_like(fifth), where=denominator != 0)
    error = np.where(np.isfinite(y_new).all(axis=0), error, np.nan)
    return y_new, stages[-1].copy(), error
