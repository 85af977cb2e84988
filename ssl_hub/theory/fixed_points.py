"""Fixed points with their stability, thresholds and basins of collapse, in closed form (k = 1 + sigma^2).

On the parabola s = p^2 / alpha_p at fixed tau p' = -k p (p - p_-)(p - p_+), p_pm = (tau +- sqrt(tau^2 - 4 eta k)) / 2k.
Erratum: the figure's caption omits the factor k. Erratum: at eta = tau^2 / 4k there are two fixed points, not three:
p_- and p_+ merge into one half-stable point at tau / 2k.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ssl_hub.errors import UsageError
from ssl_hub.theory.decoupled import DecoupledEmaFlow, DecoupledFlow, K_eigenvalue, ParabolaEmaFlow
from ssl_hub.theory.flow import Array, Flow
from ssl_hub.theory.integrate import simulate

# An eigenvalue of a Jacobian within this of 0 counts as 0.
NEUTRAL = 1e-12
# Closed-form tau: Gauss-Legendre nodes per panel, and the longest panel in units of the fastest rate.
NODES, PANEL = 12, 0.5


@dataclass(frozen=True)
class FixedPoint:
    """A point where a flow stands still, with the eigenvalues (ascending real parts) of its Jacobian there."""

    state: Mapping[str, float]
    eigenvalues: NDArray[np.complex128]

    @property
    def stability(self) -> str:
        """`stable`, `unstable`, `saddle`, or `neutral` where an eigenvalue is 0 and the linear part does not decide."""
        real = self.eigenvalues.real
        if (np.abs(real) <= NEUTRAL).any():
            return "neutral"
        if (real < 0).all():
            return "stable"
        return "unstable" if (real > 0).all() else "saddle"


def jacobian(flow: Flow, **state: float) -> Array:
    """Jacobian of a scalar flow at one point, (n, n), rows and columns in the order of `state_names`.

    Exact to rounding: the velocities are polynomials, and a complex step has no cancellation.
    """
    point = np.array([state[name] for name in flow.state_names], dtype=np.complex128)
    columns = []
    for j in range(point.size):
        shifted = point.copy()
        shifted[j] += 1e-30j
        columns.append([np.imag(v) / 1e-30 for v in flow.velocity(*shifted)])
    return np.array(columns, dtype=np.float64).T


def fixed_point(flow: Flow, *, tolerance: float = 1e-9, **state: float) -> FixedPoint:
    """The point with its stability.

    Raises:
        UsageError: the flow moves there faster than `tolerance`.
    """
    speed = max(float(abs(v)) for v in flow.velocity(*(np.asarray(state[name]) for name in flow.state_names)))
    if speed > tolerance:
        raise UsageError(f"{type(flow).__name__} moves at {state} with speed {speed:.2g}; expected a fixed point")
    values = np.linalg.eigvals(jacobian(flow, **state)).astype(np.complex128)
    return FixedPoint(dict(state), values[np.argsort(values.real)])


@dataclass(frozen=True)
class ParabolaThresholds:
    """What decides the fate of a mode on the invariant parabola at one fixed tau; alpha_p enters s alone."""

    p_minus: float
    p_plus: float
    s_minus: float
    s_plus: float
    eta_collapse: float
    eta_K_pd_on_parabola: float
    K_min_on_parabola: float
    argmin_p: float

    @property
    def collapse_is_certain(self) -> bool:
        """No fixed point other than 0 exists (p_- and p_+ are NaN)."""
        return bool(np.isnan(self.p_plus))


def parabola_thresholds(*, sigma2: float, eta: float, tau: float = 1.0, alpha_p: float = 1.0) -> ParabolaThresholds:
    """p_pm and s_pm; eta above which every mode collapses, tau^2/4k; eta above which K > 0 for every p, tau^2/9k.

    On the parabola K = 3/2 k p^2 - tau p + 3/2 eta, least at p = tau / 3k, where it is 3/2 eta - tau^2 / 6k.

    Erratum: the condition for K > 0 does not loosen with alpha_p there, as the paper's sixth observation has it:
    alpha_p s = p^2, so that bound, K and p_pm are all independent of alpha_p.
    """
    k = 1.0 + sigma2
    discriminant = tau**2 - 4 * eta * k
    root = np.sqrt(discriminant) if discriminant >= 0 else np.nan
    p_plus = (tau + root) / (2 * k)
    p_minus = 2 * eta / (tau + root) if tau + root > 0 else (tau - root) / (2 * k)  # without cancellation
    return ParabolaThresholds(
        p_minus=float(p_minus),
        p_plus=float(p_plus),
        s_minus=float(p_minus**2 / alpha_p),
        s_plus=float(p_plus**2 / alpha_p),
        eta_collapse=tau**2 / (4 * k),
        eta_K_pd_on_parabola=tau**2 / (9 * k),
        K_min_on_parabola=1.5 * eta - tau**2 / (6 * k),
        argmin_p=tau / (3 * k),
    )


def decoupled_fixed_points(flow: DecoupledFlow) -> list[FixedPoint]:
    """Fixed points of (p, s) at fixed tau with positive decays: the origin and, where they exist, p_- and p_+.

    p_pm are those of eta_s, and s* = (eta_p / eta_s) p*^2 / alpha_p: only equal decays put them on the parabola. The
    Jacobian's eigenvalues at p* are then {-2 eta, eta - k p*^2}. Without decay the fixed points fill two lines instead,
    s = 0 and p = tau / k; with decay on the predictor alone there is none with s > 0.

    Raises:
        UsageError: a decay that is not positive.
    """
    eta_p, eta_s = flow.predictor_decay, flow.online_decay
    if not (eta_p > 0 and eta_s > 0):
        raise UsageError(
            f"eta_p is {eta_p} and eta_s is {eta_s}; expected positive decays: without any, the fixed points are the "
            "lines s = 0 and p = tau / (1 + sigma2)"
        )
    values = parabola_thresholds(sigma2=flow.sigma2, eta=eta_s, tau=flow.tau, alpha_p=flow.alpha_p)
    points = [fixed_point(flow, p=0.0, s=0.0)]
    if not values.collapse_is_certain:
        points.append(fixed_point(flow, p=values.p_minus, s=values.s_minus * eta_p / eta_s))
        if values.p_plus > values.p_minus:
            points.append(fixed_point(flow, p=values.p_plus, s=values.s_plus * eta_p / eta_s))
    return points


def collapses_without_decay(
    p: ArrayLike, s: ArrayLike, *, sigma2: float = 0.0, alpha_p: float = 1.0, tau: float = 1.0
) -> NDArray[np.bool_]:
    """The exact basin of the collapsed line s = 0 of (p, s) for eta = 0 at fixed tau > 0; elementwise.

    {p <= 0, s <= p^2 / alpha_p} and {p > 0, s <= (p^2 - (tau / k)^2) / alpha_p}. Survivors end at p = tau / k,
    s = (tau / k)^2 / alpha_p + c. Erratum: the paper's criterion s > p^2 / alpha_p is sufficient, not necessary.
    """
    p_array, s_array = np.asarray(p, dtype=np.float64), np.asarray(s, dtype=np.float64)
    goal = tau / (1.0 + sigma2)
    margin = np.where(p_array <= 0, p_array**2, p_array**2 - goal**2) / alpha_p
    return np.asarray(s_array <= margin)


def survives_in_low_dimension(
    wp: ArrayLike, w: ArrayLike, *, lambda_s: float, lambda_d: float, alpha_p: float = 1.0
) -> NDArray[np.bool_]:
    """Which (wp, w) escape collapse in the full low-dimensional system without decay, for w_a / w >= 0 at the start.

    Survives iff c0 = w^2 - wp^2 / alpha_p > 0, or wp > 0 and -alpha_p c0 < (lambda_d / lambda_s)^2: the same basin with
    tau / k replaced by lambda_d / lambda_s. Survivors end at wp = lambda_d / lambda_s, w^2 = wp^2 / alpha_p + c0; the
    others at w = 0, |wp| = sqrt(-alpha_p c0). Erratum: the paper lists the first kind of end alone.
    """
    return ~collapses_without_decay(wp, np.asarray(w) ** 2, sigma2=lambda_s / lambda_d - 1, alpha_p=alpha_p, tau=1.0)


def tau_closed_form(flow: DecoupledEmaFlow | ParabolaEmaFlow, init: Mapping[str, float], t_eval: ArrayLike) -> Array:
    """tau(t) = (tau(0) w(0) e^{-beta t} + beta int_0^t w(t') e^{-beta (t - t')} dt') / w(t), with w = sqrt(s), or p.

    The integral is taken by Gauss-Legendre quadrature along the simulated w; shape (T,).
    Erratum: the paper gives it for c = 0 and tau(0) = 0 alone, with p for w; with w = sqrt(s) it holds for every c.
    """
    times = np.atleast_1d(np.asarray(t_eval, dtype=np.float64))
    rate = max(flow.beta, 1.0)
    edges = np.array([0.0])
    for stop in times:
        panels = max(1, int(np.ceil((stop - edges[-1]) * rate / PANEL)))
        edges = np.append(edges, np.linspace(edges[-1], stop, panels + 1)[1:])
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    left, right = edges[:-1, None], edges[1:, None]
    node_times = (left + right) / 2 + (right - left) / 2 * nodes
    path = simulate(flow, init, np.unique(np.concatenate([np.zeros(1), node_times.ravel(), times])))
    w = np.sqrt(path["s"]) if "s" in path.states else path["p"]
    w_nodes = np.interp(node_times, path.t, w)  # the nodes are points of the path
    added = flow.beta * np.diff(edges) / 2 * (np.exp(-flow.beta * (right - node_times)) * w_nodes @ weights)
    memory = [float(init["tau"]) * w[0]]  # tau w, which forgets at the rate beta
    for kept, more in zip(np.exp(-flow.beta * np.diff(edges)), added, strict=True):
        memory.append(memory[-1] * kept + more)
    return np.interp(times, edges, memory) / np.interp(times, path.t, w)


def minimal_surviving_p(*, sigma2: float, eta: float, beta: float, tau0: float = 0.0, tolerance: float = 1e-4) -> float:
    """The smallest p(0) on the parabola that does not collapse when tau starts at tau0; infinite if every p does.

    Found by bisection. For beta -> infinity it is p_-(tau = 1); a slow target widens the basin of collapse (the tenth
    observation). Needs eta > 0.
    """
    if not eta > 0:
        raise UsageError(
            f"eta is {eta}; expected positive weight decay, without which p(0) > 0 on the parabola survives"
        )
    values = parabola_thresholds(sigma2=sigma2, eta=eta)
    if values.collapse_is_certain:
        return np.inf
    flow = ParabolaEmaFlow(sigma2=sigma2, eta=eta, beta=beta)
    horizon = 40 / min(eta, beta, 1.0)

    def survives(p: float) -> bool:
        end = simulate(flow, {"p": p, "tau": tau0}, [horizon], rtol=1e-8, atol=1e-13, stiff=True)["p"][-1]
        return bool(end > (values.p_minus + values.p_plus) / 2)

    low, high = values.p_minus / 4, max(4.0, 4 * values.p_plus)
    if not survives(high):
        return np.inf
    while high - low > tolerance * high:
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if survives(middle) else (middle, high)
    return high


def least_K(flow: DecoupledFlow | DecoupledEmaFlow, init: Mapping[str, ArrayLike], t_eval: ArrayLike) -> Array:
    """The least K_j over the given times for each initial condition; negative where alignment is unstable."""
    path = simulate(flow, init, t_eval, rtol=1e-9, atol=1e-12)
    tau = path["tau"] if "tau" in path.states else flow.tau if isinstance(flow, DecoupledFlow) else 1.0
    K = K_eigenvalue(path["p"], path["s"], sigma2=flow.sigma2, alpha_p=flow.alpha_p, eta=flow.alignment_decay, tau=tau)
    return np.asarray(K.min(axis=0))
