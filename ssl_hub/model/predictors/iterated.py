"""Predictors of single batches, in closed form: matrix iterations (Richemond et al. 2023), filters of a batch's own
singular values (Zhuo et al. 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from weakref import ref

import torch
from torch import Tensor

from ssl_hub.errors import UsageError
from ssl_hub.limits import NOT_NEGATIVE, number, or_none, whole
from ssl_hub.model.predictors.base import PREDICTORS, Predictor
from ssl_hub.model.predictors.computed import SetPredictor
from ssl_hub.model.running import full_precision
from ssl_hub.model.spectrum import gather_rows, moving_average, newton_schulz, stiefel_projection, symmetrise

Filter = Literal["power", "log1p", "log1p_square"]


class IteratedPredictor(SetPredictor):
    """A function of each batch's own correlation matrix, plus ``eps`` times the identity, averaged over steps.

    The average is of predictors, where that of :func:`~ssl_hub.model.predictors.computed.direct` is of F. As there, the
    batch is both views of all processes, and the forward of a step uses the batches before it.
    """

    averaged: Tensor  # how many batches are in the weight

    def __init__(self, width: int, *, iterations: int, eps: float, rho: float | None) -> None:
        super().__init__(width, rho=0.0, freq=1, momentum_through=False)  # F is of the newest batch alone
        whole(1, 100).check("predictor.iterations", iterations)
        NOT_NEGATIVE.check("predictor.eps", eps)
        or_none(number(0, 1)).check("predictor.rho", rho)
        self.iterations, self.eps, self.rho = iterations, eps, rho
        self.register_buffer("averaged", torch.zeros((), dtype=torch.int64))

    def of_batch(self, correlation: Tensor) -> Tensor:
        raise NotImplementedError

    def compute(self) -> Tensor:
        batch = self.of_batch(symmetrise(self.correlation.value))
        batch.diagonal().add_(self.eps)
        average = moving_average(self.weight, batch, rho=self.rho, seen=self.averaged)
        self.averaged += torch.isfinite(average).all()  # what is not finite leaves the weight as it was
        return average


@PREDICTORS.register("newton_schulz")
class NewtonSchulzPredictor(IteratedPredictor):
    """NS: the square root of each batch's correlation matrix by products alone (Richemond et al. 2023, proposition on
    Newton-Schulz), plus eps I, averaged over steps. Its limit is ``direct`` with ``form=absolute``, batch by batch.

    Args:
        iterations: steps of the coupled iteration, 1 to 100, from F over its Frobenius norm; 9 there, and 7 where it is
            chained.
        chained: roots taken in a row, 1 to 4: 1 is NS; 2 takes the root of the root, NS squared, which approaches the
            fourth root.
        eps: times the identity, added to the predictor, at least 0: the paper's ridge, 0 to 0.9 in its tables.
        rho: weight of the past in the average of predictors, in [0, 1]; None averages all steps equally.
    """

    def __init__(
        self, width: int, *, iterations: int = 9, chained: int = 1, eps: float = 0.3, rho: float | None = 0.3
    ) -> None:
        super().__init__(width, iterations=iterations, eps=eps, rho=rho)
        whole(1, 4).check("predictor.chained", chained)
        self.chained = chained

    def of_batch(self, correlation: Tensor) -> Tensor:
        for _ in range(self.chained):
            correlation, _ = newton_schulz(correlation, self.iterations)
        return correlation


@PREDICTORS.register("stiefel")
class StiefelPredictor(IteratedPredictor):
    """Each batch's correlation matrix made nearly orthogonal, (F^2)^(-1/2) F by Newton-Schulz on F^2 (Richemond et al.
    2023, proposition on the Stiefel predictor), plus eps I, averaged over steps.

    Args:
        iterations: steps of the coupled iteration on F^2, 1 to 100; 9 there. Few leave small eigenvalues small.
        eps: times the identity, added to the predictor, at least 0: the paper's ridge, 0 to 0.9 in its tables.
        rho: weight of the past in the average of predictors, in [0, 1]; None averages all steps equally.
    """

    def __init__(self, width: int, *, iterations: int = 9, eps: float = 0.3, rho: float | None = 0.3) -> None:
        super().__init__(width, iterations=iterations, eps=eps, rho=rho)

    def of_batch(self, correlation: Tensor) -> Tensor:
        return stiefel_projection(correlation, self.iterations)


@PREDICTORS.register("rank_filter")
class RankFilterPredictor(Predictor):
    """V g(sigma) V^T of each view's own batch Z = U sigma V^T, that batch included (Zhuo et al. 2023, online filter).

    No average over steps, no weight and no eps: what a batch does not span is predicted to be zero. The batch is that
    of all processes, and of one micro-batch where gradients are accumulated.

    Args:
        function: the function g: ``power`` is sigma^power, ``log1p`` log(1 + sigma), ``log1p_square`` log(1 + sigma^2).
        power: exponent of the ``power`` function, at least 0; 1 is the square root of Z^T Z, DirectPred's of one batch
            without eps.
    """

    straight_through = True
    per_process = True

    def __init__(self, width: int, *, function: Filter = "power", power: float = 1.0) -> None:
        super().__init__()
        number(0).check("predictor.power", power)
        self.function, self.power = function, power
        self._observed: list[tuple[ref[Tensor], Tensor, Tensor]] = []  # a view, the rows V^T, g(sigma)

    def filtered(self, sigma: Tensor) -> Tensor:
        if self.function == "power":
            return sigma**self.power
        return torch.log1p(sigma if self.function == "log1p" else sigma.square())

    @torch.no_grad()
    def observe(self, projections: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
        self._observed = []
        for view in projections:
            z = gather_rows(full_precision(view))
            if not bool(torch.isfinite(z).all()):  # so is the loss then, on every process, and the step is skipped
                self._observed.append((ref(view), z[:1], z[:1, 0]))
                continue
            _, sigma, rows = torch.linalg.svd(z, full_matrices=False)
            self._observed.append((ref(view), rows, self.filtered(sigma)))

    def forward(self, f: Tensor) -> Tensor:
        for view, rows, gains in self._observed:
            if view() is f:
                return (f @ rows.to(f.dtype).mT * gains.to(f.dtype)) @ rows.to(f.dtype)
        raise UsageError(
            "a rank filter predicts only the views it has observed; call observe with the same tensors first"
        )
