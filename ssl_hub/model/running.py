"""Running expectations: the statistics that predictors are computed from."""

from __future__ import annotations

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
        self._count = 0

    def add(self, total: Tensor, count: int) -> None:
        """Add a sum over ``count`` samples of this process to the open optimiser step."""
        self._total, self._count = self._total + total, self._count + count

    def discard(self) -> None:
        self._total, self._count = 0.0, 0

    def with_open_step(self) -> Tensor:
        """The average as it would be if the open step ended now; collective over processes."""
        if not isinstance(self._total, Tensor):
            return self.value
        batch = mean_over_processes(self._total, self._count)
        return moving_average(self.value, batch, rho=self.rho, seen=int(self.seen))

    def close_step(self) -> bool:
        """Take the open step into the average. Returns whether that happened: a non-finite step leaves it as it was."""
        updated = self.with_open_step()
        nothing = not isinstance(self._total, Tensor)
        self.discard()
        if nothing or not bool(torch.isfinite(updated).all()):
            return False
        self.value.copy_(updated)
        self.seen += 1
        return True


def full_precision(f: Tensor) -> Tensor:
    """Detached, and float32 unless it is float64."""
    f = f.detach()
    return f if f.dtype == torch.float64 else f.float()
