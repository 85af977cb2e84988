"""Every theorem and every observation at one setting, with measured defects and bounds: `check()` prints and returns.

A statement with a documented exception has a row for each: the exception's row leaves out an assumption on purpose,
must come out as `does not hold`, and its `dropped` says which one it was.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TextIO

import numpy as np

from ssl_hub.theory import fixed_points, theorems
from ssl_hub.theory.decoupled import DecoupledEmaFlow, integral_of_motion
from ssl_hub.theory.discrete import euler
from ssl_hub.theory.dynamics import (
    BalancedPredictorFlow,
    ByolFlow,
    NoPredictorFlow,
    PredictorCorrelationFlow,
    SimSiamFlow,
    symmetric_part,
)
from ssl_hub.theory.flow import Array
from ssl_hub.theory.integrate import simulate
from ssl_hub.theory.lowdim import LowDimFlow
from ssl_hub.theory.observations import OBSERVATIONS, CheckResult, Verdict
from ssl_hub.theory.scrambling import additive_scrambling, conserved_projection, multiplicative_scrambling
from ssl_hub.theory.theorems import Defect

TIMES = np.linspace(0.0, 5.0, 101)


def check(*, seed: int = 0, out: TextIO | None = sys.stdout) -> list[CheckResult]:
    """All theorems at a random setting drawn from `seed`, then the ten observations at the paper's constants.

    Args:
        seed: of the random matrices; n1 = 4, n2 = 3.
        out: where each row is printed as soon as it is measured; None prints nothing.
    """
    results = []
    for result in _all_results(seed):
        results.append(result)
        if out is not None:
            print(row(result), file=out, flush=True)
    return results


def row(result: CheckResult) -> str:
    """One result as two lines of text."""
    numbers = f"{result.measured:>10.2e} (bound {result.bound:.1e})"
    failed = bool(result.dropped) and result.verdict == "does not hold"
    head = f"{result.name:<12} {'fails' if failed else result.verdict:<17} {numbers}  {result.statement}"
    reason = f"fails without: {result.dropped}, as it should" if failed else ""
    where = "; ".join(filter(None, (reason, result.where)))
    return f"{head}\n{'':<12} {where}" if where else head


def _all_results(seed: int) -> Iterator[CheckResult]:
    setting = RandomSetting(seed)
    for group in (_lemma_1, _theorem_1, _theorem_2, _theorem_3, _reductions, _beyond_isotropy):
        yield from group(setting)
    yield from (observation() for observation in OBSERVATIONS)


class RandomSetting:
    """Random matrices of moderate size: X and X' positive definite, W, Wp, Wa Gaussian; n1 = 4, n2 = 3.

    `weights` and `pair` are states to start from. Flows have the parameters of the setting, but for those given.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.X, self.Xprime = self.covariance(4, 1.0), self.covariance(4, 0.4)
        self.Wp, self.W, self.Wa = self.matrix(3, 3), self.matrix(3, 4), self.matrix(3, 4)
        self.F = self.covariance(3, 1.0)
        self.Wp_symmetric = symmetric_part(self.Wp)
        self.weights = {"Wp": self.Wp, "W": self.W, "Wa": self.Wa}
        self.pair = {"Wp": self.Wp_symmetric, "F": self.F}
        self.alpha_p, self.eta, self.beta, self.sigma2, self.tau = 3.0, 0.05, 0.4, 0.3, 0.8

    def matrix(self, rows: int, columns: int) -> Array:
        """A Gaussian matrix with entries of standard deviation 1/2."""
        return self.rng.standard_normal((rows, columns)) / 2

    def covariance(self, size: int, scale: float) -> Array:
        """A positive definite matrix with trace about `scale` times `size`."""
        G = self.rng.standard_normal((size, 2 * size))
        return scale * G @ G.T / (2 * size)

    def byol(self, **changes: Any) -> ByolFlow:
        flow = ByolFlow(X=self.X, Xprime=self.Xprime, alpha_p=self.alpha_p, beta=self.beta, eta=self.eta)
        return replace(flow, **changes)

    def simsiam(self, **changes: Any) -> SimSiamFlow:
        flow = SimSiamFlow(X=self.X, Xprime=self.Xprime, alpha_p=self.alpha_p, eta=self.eta)
        return replace(flow, **changes)

    def predictor_correlation(self, **changes: Any) -> PredictorCorrelationFlow:
        flow = PredictorCorrelationFlow(sigma2=self.sigma2, alpha_p=self.alpha_p, eta=self.eta, tau=self.tau)
        return replace(flow, **changes)


def _result(name: str, statement: str, defect: Defect, where: str = "", *, dropped: str = "") -> CheckResult:
    verdict: Verdict = "holds" if defect.holds else "does not hold"
    where = "; ".join(filter(None, (where, defect.detail)))
    return CheckResult(name, statement, verdict, defect.measured, defect.bound, where, dropped)


def _lemma_1(at: RandomSetting) -> Iterator[CheckResult]:
    yield _result("Lemma 1", "BYOL velocities are the gradients", theorems.lemma1(at.byol(), at.Wp, at.W, at.Wa))
    yield _result("Lemma 1", "the same for SimSiam", theorems.lemma1(at.simsiam(), at.Wp, at.W))


def _theorem_1(at: RandomSetting) -> Iterator[CheckResult]:
    def along(flow: ByolFlow) -> Defect:
        return theorems.theorem1(simulate(flow, at.weights, TIMES))

    yield _result("Theorem 1", "W W^T - Wp^T Wp/alpha_p decays as e^{-2 eta t}", along(at.byol()))
    exception = along(at.byol(eta_p=0.1, eta_s=0.0))
    yield _result("Theorem 1", "the same with eta_p != eta_s", exception, dropped="one eta for both networks")
    discrete = theorems.theorem1(euler(at.byol(), at.weights, 0.03, range(0, 200, 10)))
    where = "learning rate 0.03; first order in the learning rate"
    yield _result("Theorem 1", "the same in discrete time", discrete, where, dropped="continuous time")
    symmetrised = theorems.theorem1(simulate(at.predictor_correlation(), at.pair, TIMES))
    yield _result("Theorem 1", "the same under Assumption 3", symmetrised, dropped="F and Wp that commute")
    rate = theorems.theorem1_symmetrised_rate(at.predictor_correlation(), at.Wp_symmetric, at.F)
    yield _result("Theorem 1", "then D' + 2 eta D = -(k/2)[Wp,[Wp,F]]", rate)
    balanced = BalancedPredictorFlow(sigma2=at.sigma2, eta=at.eta, tau=at.tau)
    skew = theorems.skew_part_decay(simulate(balanced, {"Wp": at.Wp}, TIMES))
    where = "a theorem where the paper has a remark"
    yield _result("Skew part", "|B(t)| <= e^{-eta t}|B(0)| on F = Wp^T Wp", skew, where)


def _theorem_2(at: RandomSetting) -> Iterator[CheckResult]:
    flow = at.simsiam(stop_gradient=False)
    yield _result("Theorem 2", "without stop-gradient vec(W)' = -H vec(W)", theorems.theorem2(flow, at.Wp, at.W))
    yield _result("Theorem 2", "and this is the gradient", theorems.lemma1(flow, at.Wp, at.W))
    path = simulate(flow, {"Wp": at.Wp, "W": at.W}, TIMES)
    yield _result("Theorem 2", "|W(t)| <= e^{-lambda0 t}|W(0)|", theorems.theorem2_decay(path))
    init = {"W": at.W}
    damped = simulate(NoPredictorFlow(Xprime=at.Xprime, eta=at.eta), init, [0.0, 5.0, 100.0])
    yield _result("No predictor", "W(t) = W(0) exp(-(X'+eta I)t)", theorems.no_predictor(damped))
    kept = np.linalg.qr(at.matrix(4, 2))[0]
    singular = simulate(NoPredictorFlow(Xprime=kept @ kept.T), init, [0.0, 100.0])
    defect = Defect(float(np.linalg.norm(singular["W"][-1])), 1e-3)
    where = "at eta = 0 and singular X', W(0) Pc stays"
    yield _result("No predictor", "W(t) always goes to 0", defect, where, dropped="eta > 0 or a regular X'")


def _theorem_3(at: RandomSetting) -> Iterator[CheckResult]:
    flow = at.predictor_correlation()
    yield _result("Theorem 3", "[F,Wp]' = -[F,Wp]K - K[F,Wp]", theorems.theorem3(flow, at.Wp_symmetric, at.F))
    path = simulate(flow, at.pair, np.linspace(0, 5, 401), rtol=1e-10, atol=1e-14)
    yield _result("Theorem 3", "|[F,Wp]| <= exp(-2 int least K)", theorems.theorem3_decay(path))
    sharp = theorems.theorem3_decay(path, sharp=True)
    yield _result("Theorem 3", "sharper: sum of the two least K", sharp, "[F,Wp] is skew")
    shrinking = simulate(at.predictor_correlation(sigma2=-1.0, tau=0.0, eta=0.2), at.pair, np.linspace(0, 5, 201))
    history = theorems.alignment_history(shrinking)
    change = float(np.ptp(history.normalised))
    fall = float(history.norm[-1] / history.norm[0])
    defect = Defect(-change, -0.01)
    where = f"pure decay: |[F,Wp]| falls to {fall:.2g} of its start, the normalised commutator moves by {change:.1g}"
    dropped = "F that does not vanish"
    yield _result("Theorem 3", "a vanishing commutator means alignment", defect, where, dropped=dropped)


def _reductions(at: RandomSetting) -> Iterator[CheckResult]:
    flow = DecoupledEmaFlow(sigma2=at.sigma2, alpha_p=2.5, eta=0.02, beta=at.beta)
    init, times = {"p": 0.4, "s": 0.7, "tau": 0.0}, np.array([0.0, 1.0, 5.0, 20.0])
    path = simulate(flow, init, times)
    c = integral_of_motion(path["p"], path["s"], alpha_p=flow.alpha_p)
    where = "c = s(0) - p(0)^2/alpha_p (sign of the supplement)"
    yield _result("Integral", "s - p^2/alpha_p = c e^{-2 eta t}", _gap(c, c[0] * np.exp(-2 * flow.eta * times)), where)
    started = {**init, "tau": 0.3}
    closed = fixed_points.tau_closed_form(flow, started, times[1:])
    defect = _gap(closed, simulate(flow, started, times[1:])["tau"])
    yield _result("Closed tau", "tau from sqrt(s), for any c and tau(0)", defect)
    low = LowDimFlow(lambda_s=1 + flow.sigma2, lambda_d=1.0, alpha_p=flow.alpha_p, beta=flow.beta, eta=flow.eta)
    triple = simulate(low, {"wp": 0.4, "w": np.sqrt(0.7), "wa": 0.0}, times)
    as_mode = np.stack([triple["wp"], triple["w"] ** 2, triple["wa"] / triple["w"]])
    defect = _gap(as_mode, np.stack([path["p"], path["s"], path["tau"]]))
    yield _result("Low-dim", "(wp, w, wa) is (p, s, tau)", defect)


def _gap(one: Array, other: Array) -> Defect:
    return Defect(float(np.abs(one - other).max()), theorems.SOLVER)


def _beyond_isotropy(at: RandomSetting) -> Iterator[CheckResult]:
    U = np.linalg.qr(at.matrix(4, 2))[0]
    data = at.covariance(4, 1.0)
    multiplicative = multiplicative_scrambling(data, U)
    gap = float(np.abs(multiplicative.product - conserved_projection(U)).max())
    where = "with Sigma^s = Pc Sx Pc + tr(U^T Sx U) U U^T, for every Sx"
    yield _result("Scrambling", "multiplicative: Sigma^d (Sigma^s)^-1 = Pc", Defect(gap, 1e-9), where)
    printed = float(np.linalg.eigvals(multiplicative.Sigma_d @ np.linalg.inv(data)).real.max())
    where = "largest eigenvalue of Pc Sx Pc Sx^-1; no pair of views can have one above 1"
    yield _result("Scrambling", "the printed Sigma^s = Sigma^x", Defect(printed, 1 + 1e-9), where)
    additive = additive_scrambling(data, at.Xprime)
    S = np.eye(2) + at.matrix(2, 2) / 2
    for name, change in (("eigenmodes are fixed points", None), ("so are S Wp S^-1, S W", S)):
        yield _result("Scrambling", name, theorems.scrambling_fixed_points(additive, 2, alpha_p=at.alpha_p, S=change))
