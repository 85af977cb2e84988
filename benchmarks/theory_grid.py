"""A grid of decoupled trajectories: one vectorised call against a loop of scipy's solver, to the same accuracy.

    python benchmarks/theory_grid.py            # 200 x 200 initial conditions to t = 100

The loop is timed on a random sample of the grid and scaled to the whole, as all of it takes minutes; `--sample 0`
runs it in full. Both use the Dormand-Prince 8(5,3) pair with the same tolerances. Errors are against a
reference at rtol 1e-13 on the sample. Exits with 1 below the promised ratio.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import numpy as np
from scipy.integrate import solve_ivp

from ssl_hub.theory.decoupled import DecoupledEmaFlow
from ssl_hub.theory.integrate import simulate

PROMISED_RATIO = 20.0


def main() -> int:
    """Run, print one JSON object, and say whether the promise is kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", type=int, default=200, help="initial conditions per axis")
    parser.add_argument("--t-end", type=float, default=100.0)
    parser.add_argument("--rtol", type=float, default=1e-8)
    parser.add_argument("--sample", type=int, default=200, help="trajectories of the loop that are timed; 0 for all")
    arguments = parser.parse_args()
    result = compare(arguments.side, arguments.t_end, arguments.rtol, arguments.sample)
    print(json.dumps(result, indent=2))
    return 0 if result["ratio"] >= PROMISED_RATIO else 1


def compare(side: int, t_end: float, rtol: float, sample: int) -> dict[str, float]:
    """Seconds of both ways, their ratio, and their largest errors on the sample."""
    flow = DecoupledEmaFlow(sigma2=0.0009, alpha_p=1.0, eta=0.04, beta=0.4)
    p, s = (axis.ravel() for axis in np.meshgrid(np.linspace(0.0, 1.5, side), np.linspace(0.01, 1.5, side)))
    atol = 1e-2 * rtol

    started = time.perf_counter()
    grid = simulate(flow, {"p": p, "s": s, "tau": 0.0}, [t_end], rtol=rtol, atol=atol)
    grid_seconds = time.perf_counter() - started

    total = p.size
    chosen = (
        np.arange(total) if sample == 0 else np.random.default_rng(0).choice(total, min(sample, total), replace=False)
    )
    loop = np.empty((3, chosen.size))
    started = time.perf_counter()
    for column, index in enumerate(chosen):
        loop[:, column] = by_scipy(flow, (p[index], s[index], 0.0), t_end, rtol, atol)
    loop_seconds = (time.perf_counter() - started) * total / chosen.size

    exact = simulate(flow, {"p": p[chosen], "s": s[chosen], "tau": 0.0}, [t_end], rtol=1e-13, atol=1e-15)
    truth = np.stack([exact[name][0] for name in flow.state_names])
    ours = np.stack([grid[name][0][chosen] for name in flow.state_names])
    return {
        "trajectories": total,
        "timed_in_loop": chosen.size,
        "grid_seconds": grid_seconds,
        "loop_seconds": loop_seconds,
        "ratio": loop_seconds / grid_seconds,
        "grid_error": float(np.abs(ours - truth).max()),
        "loop_error": float(np.abs(loop - truth).max()),
    }


def by_scipy(
    flow: DecoupledEmaFlow, y0: tuple[float, float, float], t_end: float, rtol: float, atol: float
) -> list[float]:
    """The same equations in plain Python floats, which is the fastest a scipy call can be given."""
    k, alpha_p, eta, beta = 1.0 + flow.sigma2, flow.alpha_p, flow.eta, flow.beta

    def velocity(_: float, y: np.ndarray) -> list[float]:
        p, s, tau = y.tolist()
        pull = tau - k * p
        growth = p * pull - eta
        return [alpha_p * s * pull - eta * p, 2 * s * growth, beta * (1 - tau) - tau * growth]

    return solve_ivp(velocity, (0.0, t_end), y0, method="DOP853", rtol=rtol, atol=atol).y[:, -1].tolist()


if __name__ == "__main__":
    sys.exit(main())
