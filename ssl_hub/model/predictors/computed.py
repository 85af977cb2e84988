"""Predictors that are set from running statistics of the projections: DirectPred and its relatives, and the optimum."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from ssl_hub.errors import UsageError
from ssl_hub.limits import FINITE, NOT_NEGATIVE, POSITIVE, whole
from ssl_hub.model.predictors.base import PREDICTORS, Predictor
from ssl_hub.model.running import RunningExpectation, close_steps, full_precision, stacked, with_open_steps
from ssl_hub.model.spectrum import (
    LEAST_EPS,
    Form,
    Solution,
    Solver,
    iterates,
    optimal_predictor,
    predictor_from_correlation,
)
from ssl_hub.model.square_root import full_precision_products


class SetPredictor(Predictor):
    """Common to the predictors whose matrix is computed from running statistics rather than trained.

    Every ``freq``-th step (0, freq, 2 freq, ...) the weight is overwritten after the optimiser step. With ``freq=1`` it
    is never trained. With larger ``freq`` the steps in between are ordinary gradient steps, while one that overwrites
    takes no gradient, weight decay or momentum, unless ``momentum_through``: the authors' code lets the momentum buffer
    collect those gradients too. ``freq=0`` never overwrites. A weight that cannot be computed stays, with one warning.
    """

    straight_through = True

    def __init__(self, width: int, *, rho: float | None, freq: int, momentum_through: bool) -> None:
        super().__init__()
        whole(0, fix="0 never overwrites").check("predictor.freq", freq)
        self.freq, self.momentum_through = freq, momentum_through
        self.weight = nn.Parameter(nn.Linear(width, width, bias=False).weight.detach(), requires_grad=freq != 1)
        self.correlation = RunningExpectation(width, width, rho=rho)  # F
        self.kept = torch.zeros((), dtype=torch.bool)
        self.watched = False  # whether whoever trains looks at ``kept``, so that it is not looked at here
        self._warned = False

    def forward(self, f: Tensor) -> Tensor:
        return nn.functional.linear(f, self.weight)

    def matrix(self) -> Tensor:
        return self.weight

    def is_due(self, step: int) -> bool:
        return self.freq > 0 and step % self.freq == 0

    def overwrites(self, step: int) -> bool:
        return self.is_due(step) and not self.momentum_through

    @torch.no_grad()
    def observe(self, projections: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
        f = stacked(projections)
        with full_precision_products():
            self.correlation.add(f.mT @ f, len(f))

    def compute(self) -> Tensor:
        """The matrix that the statistics call for, [D, D]; its products are in full precision."""
        raise NotImplementedError

    @torch.no_grad()
    def refresh(self, step: int) -> None:
        """See :class:`Predictor`; ``kept`` is then whether the previous weight stayed where it was to be replaced."""
        updated = close_steps(self.statistics())
        self.kept = torch.zeros_like(updated)
        if not self.is_due(step):
            return
        try:
            with full_precision_products():
                weight = self.compute()
        except LinAlgError:
            weight = torch.full_like(self.weight, float("nan"))
        usable = updated & torch.isfinite(weight).all()
        self.weight.copy_(torch.where(usable, weight, self.weight))
        self.kept = ~usable
        if not self.watched and not self._warned and bool(self.kept):
            self.warn(step)

    def warn(self, step: int) -> None:
        """Say, once, that the weight of ``step`` stayed."""
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"step {step}: the correlation matrix is zero, not finite or could not be decomposed; the predictor"
                " keeps its previous weight (said once)",
                stacklevel=2,
            )


class _OfCorrelation(Predictor):
    """What is W = U diag(p) U^T of a correlation matrix F = U diag(s) U^T; see :func:`direct`."""

    formula: dict[str, Any]  # eps, alpha, c and form of predictor_from_correlation
    solver: Solver

    def solver_on(self, device: torch.device) -> Solver:
        """``auto`` iterates on anything but the CPU, where a decomposition would be waited for."""
        if self.solver != "auto":
            return self.solver
        return "eigh" if device.type == "cpu" else "iteration"

    def of(self, correlation: Tensor) -> Tensor:
        return predictor_from_correlation(correlation, **self.formula, solver=self.solver_on(correlation.device))


class DirectPredictor(_OfCorrelation, SetPredictor):
    """The predictor of one running F."""

    def __init__(
        self,
        width: int,
        formula: dict[str, Any],
        *,
        rho: float | None,
        freq: int,
        centred: bool,
        momentum_through: bool,
        solver: Solver,
    ) -> None:
        super().__init__(width, rho=rho, freq=freq, momentum_through=momentum_through)
        self.formula, self.solver = formula, solver
        self.mean = RunningExpectation(width, rho=rho) if centred else None

    @torch.no_grad()
    def observe(self, projections: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
        super().observe(projections, targets)
        if self.mean is not None:
            f = stacked(projections)
            self.mean.add(f.sum(dim=0), len(f))

    def compute(self) -> Tensor:
        f = self.correlation.value
        return self.of(f if self.mean is None else f - torch.outer(self.mean.value, self.mean.value))


class PartitionedDirectPredictor(_OfCorrelation):
    """DirectPred that depends on the features through random half-spaces (Tian et al. 2021, section 4.1).

    ``n`` fixed normal vectors a_i split each view's batch at the batch mean of f.a_i; each side keeps its own F, and a
    sample's predictor is the mean over i of the predictors of its sides. As in the authors' code these are recomputed
    for every batch, that batch included: there is no lag and no weight. (The paper's text, "the final F is the sum of
    all the correlation matrices", says something else.) The batch mean is that of this process's micro-batch.
    """

    straight_through = True
    per_process = True
    directions: Tensor

    def __init__(self, width: int, formula: dict[str, Any], *, rho: float | None, partitions: int, solver: Solver):
        super().__init__()
        self.formula, self.solver = formula, solver
        self.register_buffer("directions", torch.randn(width, partitions))
        self.sides = nn.ModuleList(RunningExpectation(width, width, rho=rho) for _ in range(2 * partitions))
        self._matrices: Tensor | None = None

    def _side(self, f: Tensor) -> Tensor:
        """[B, n] in {0., 1.}: on which side of each split a sample lies."""
        with full_precision_products():  # also where it predicts: the side that was observed
            score = f @ self.directions.to(f.dtype)
        return (score >= score.mean(dim=0)).to(f.dtype)

    @torch.no_grad()
    def observe(self, projections: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
        f = stacked(projections)
        side = torch.cat([self._side(full_precision(view)) for view in projections])
        with full_precision_products():
            for i, statistic in enumerate(self.statistics()):
                inside = side[:, i // 2] if i % 2 == 0 else 1 - side[:, i // 2]  # even: the upper side of split i // 2
                statistic.add((f * inside[:, None]).mT @ f, inside.sum())
        now = torch.stack(with_open_steps(self.statistics()))
        empty = now.abs().amax(dim=(-2, -1)) == 0
        safe = torch.where(empty[:, None, None], torch.eye(now.shape[-1], dtype=now.dtype, device=now.device), now)
        try:
            with full_precision_products():
                matrices = self.of(safe)
        except LinAlgError:  # not finite, on every process alike: so is the loss then, and the step is skipped
            matrices = torch.full_like(safe, float("nan"))
        matrices = torch.where(empty[:, None, None], torch.zeros_like(matrices), matrices)
        self._matrices = matrices.unflatten(0, (-1, 2))  # [n, 2, D, D]: upper, lower

    def forward(self, f: Tensor) -> Tensor:
        if self._matrices is None:
            raise UsageError("a partitioned predictor predicts only what it has observed; call observe first")
        upper, lower = self._matrices.to(f.dtype).unbind(dim=1)
        side = self._side(f.detach()).unsqueeze(-1)  # [B, n, 1]
        by_upper, by_lower = torch.einsum("bd,ned->bne", f, upper), torch.einsum("bd,ned->bne", f, lower)
        return (side * by_upper + (1 - side) * by_lower).mean(dim=1)

    @torch.no_grad()
    def refresh(self, step: int) -> None:
        close_steps(self.statistics())


@PREDICTORS.register("direct")
def direct(
    width: int,
    *,
    rho: float | None = 0.3,
    eps: float = 0.1,
    freq: int = 1,
    alpha: float = 0.5,
    c: float = 0.0,
    form: Form = "normalised",
    centred: bool = False,
    partitions: int = 0,
    momentum_through: bool = False,
    solver: Solver = "auto",
) -> Predictor:
    """DirectPred (Tian et al. 2021, section 4) and its relatives DirectSet(alpha) and DirectCopy (Wang et al. 2021).

    F is the moving average of E[f f^T] over the online projections of both views and all processes; no bias. The
    forward of a step uses the F of the steps before it.

    Args:
        rho: weight of the past in the moving average, in [0, 1]; None averages all steps equally.
        eps: regularisation, at least 0, in units set by ``form``.
        freq: steps from one overwriting of the weight to the next, between which the loss trains it; 0 never does.
        alpha: power of the eigenvalues, above 0: 0.5 DirectPred, 1 DirectCopy, others DirectSet.
        c: shift of the eigenvalues before the power is taken, any number.
        form: formula of the eigenvalues, :func:`ssl_hub.model.spectrum.eigenvalue_map`; ``paper`` is the printed one.
        centred: whether to subtract the outer product of the running mean, which the paper reports to hurt.
        partitions: number of random splits of the feature space, up to 1024; 0 for one global F.
        momentum_through: whether momentum gathers gradients of a weight that is overwritten, as in the authors' code.
        solver: ``eigh`` decomposes F; ``iteration`` takes the normalised root by matrix products
            (:mod:`ssl_hub.model.square_root`), to 7e-4 of the largest eigenvalue and without a wait for the device;
            ``auto`` iterates where that gives the predictor and the device is not the CPU.
    """
    NOT_NEGATIVE.check("predictor.eps", eps)
    POSITIVE.check("predictor.alpha", alpha)
    FINITE.check("predictor.c", c)
    whole(0, 1024).check("predictor.partitions", partitions)
    formula = {"eps": eps, "alpha": alpha, "c": c, "form": form}
    able = not centred and iterates(eps=eps, alpha=alpha, c=c, form=form)
    if solver == "iteration" and not able:
        raise UsageError(
            "predictor.solver is 'iteration', which gives the normalised form alone, with predictor.alpha=0.5 or 1,"
            f" predictor.c=0, predictor.centred=false and predictor.eps of at least {LEAST_EPS:g}; set"
            " predictor.solver=eigh"
        )
    if solver == "auto" and not able:
        solver = "eigh"
    if not partitions:
        return DirectPredictor(
            width, formula, rho=rho, freq=freq, centred=centred, momentum_through=momentum_through, solver=solver
        )
    if freq != 1 or centred:
        raise UsageError("predictor.partitions needs predictor.freq=1 and predictor.centred=false")
    return PartitionedDirectPredictor(width, formula, rho=rho, partitions=partitions, solver=solver)


@PREDICTORS.register("optimal")
class OptimalPredictor(SetPredictor):
    """The regularised least-squares optimum, plugged in every ``freq`` steps: bad (Tian et al. 2021, table 1).

    Args:
        reg: added to the eigenvalues of F, above 0: F can be singular. The paper does not print its value.
        rho: weight of the past in both moving averages, in [0, 1], or None as above; not printed either.
        freq: steps from one solution to the next, between which the loss trains it; 0 never overwrites.
        solution: which optimum it is, see :func:`ssl_hub.model.spectrum.optimal_predictor`.
        momentum_through: whether it does what it does in ``direct``.
    """

    def __init__(
        self,
        width: int,
        *,
        reg: float = 0.01,
        rho: float | None = 0.3,
        freq: int = 1,
        solution: Solution = "right",
        momentum_through: bool = False,
    ) -> None:
        super().__init__(width, rho=rho, freq=freq, momentum_through=momentum_through)
        POSITIVE.check("predictor.reg", reg)
        self.reg, self.solution = reg, solution
        self.cross = RunningExpectation(width, width, rho=rho)

    @torch.no_grad()
    def observe(self, projections: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
        super().observe(projections, targets)
        f, t = stacked(projections), stacked(targets)
        with full_precision_products():
            self.cross.add(t.mT @ f, len(f))

    def compute(self) -> Tensor:
        return optimal_predictor(self.correlation.value, self.cross.value, reg=self.reg, solution=self.solution)
