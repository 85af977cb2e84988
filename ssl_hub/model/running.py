"""Running expectations: the statistics that predictors are computed from."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ssl_hub.errors import UsageError
from ssl_hub.model.spectrum import mean_over_processes, moving_average


class RunningExpectation(nn.Module):
    """A moving average, one update per optimiser step, of an expectation over views, micro-batches and processes.

    Held in float32 or better whatever the precision of training; saved and resumed with the model.
    """

    value: Tensor
    seen: Tensor

    def __init__(self, *shape: int, rho: float | None) -> None:
        super().__init__()
        if rho is not None and not 0 <= rho <= 1:
            raise UsageError(f"predictor.rho is {rho}, expected a number in [0, 1], or none for a plain average")
        self.rho = rho
        self.register_buffer("value", torch.zeros(*shape))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self._total: Tensor | float = 0.0  # of the open step
        self._count: int | Tensor = 0
        self._open: Tensor | None = None  # the average as it would be if the open step ended now

    def add(self, total: Tensor, count: int | Tensor) -> None:
        """Add a sum over ``count`` samples of this process to the open optimiser step."""
        self._total, self._count, self._open = self._total + total, self._count + count, None

    def discard(self) -> None:
        self._total, self._count, self._open = 0.0, 0, None


def with_open_steps(statistics: Sequence[RunningExpectation]) -> list[Tensor]:
    """The averages as they would be if the open step ended now. One collective over processes, for all that is new."""
    new = [one for one in statistics if one._open is None and isinstance(one._total, Tensor)]
    if new:
        totals = [one._total for one in new if isinstance(one._total, Tensor)]
        for one, batch in zip(new, mean_over_processes(totals, [one._count for one in new]), strict=True):
            one._open = moving_average(one.value, batch, rho=one.rho, seen=one.seen)
    return [one.value if one._open is None else one._open for one in statistics]


def close_steps(statistics: Sequence[RunningExpectation]) -> Tensor:
    """Take the open step into each average; collective as :func:`with_open_steps`.

    Returns whether that happened to all of them, a boolean on their device: what is not finite leaves an average as it
    was, and so does a step in which nothing was added.
    """
    taken = []
    for one, updated in zip(statistics, with_open_steps(statistics), strict=True):
        if isinstance(one._total, Tensor):
            finite = torch.isfinite(updated).all()
            one.value.copy_(torch.where(finite, updated, one.value))
            one.seen += finite
        else:
            finite = torch.zeros((), dtype=torch.bool, device=one.value.device)
        one.discard()
        taken.append(finite)
    return taken[0] if len(taken) == 1 else torch.stack(taken).all()


def full_precision(f: Tensor) -> Tensor:
    """Detached, and float32 unless it is float64."""
    f = f.detach()
    return f if f.dtype == torch.float64 else f.float()


def stacked(views: Sequence[Tensor]) -> Tensor:
    """The rows of all views [B, D] as one matrix, in :func:`full_precision`."""
    return torch.cat([full_precision(view) for view in views])
