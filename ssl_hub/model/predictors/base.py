"""What a predictor is, and the registry of predictors by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ssl_hub.model.running import RunningExpectation
from ssl_hub.registry import Registry


class Predictor(nn.Module):
    """A map [B, D] -> [B, D] and its life cycle; see the package's docstring."""

    straight_through = False
    """True where the isotropic losses make sense: the predictor is a function of F, not trained by the loss."""

    per_process = False
    """True where a prediction depends on the rest of this process's micro-batch, as batch normalisation's does."""

    def observe(self, projections: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
        """Take statistics of one micro-batch: per view the projections [B, D] and the targets they should predict."""

    def overwrites(self, step: int) -> bool:
        """Whether :meth:`refresh` replaces the weights after optimiser step ``step`` (0-based), whatever it did."""
        return False

    def refresh(self, step: int) -> None:
        """Update the weights after optimiser step ``step``."""

    def statistics(self) -> list[RunningExpectation]:
        """The running expectations that it is computed from."""
        return [module for module in self.modules() if isinstance(module, RunningExpectation)]

    def discard(self) -> None:
        """Forget what was observed since the last refresh: the optimiser step was skipped."""
        for statistic in self.statistics():
            statistic.discard()

    def solver_on(self, device: torch.device) -> str | None:
        """What computes the predictor on a device, where there is a choice."""
        return None

    def matrix(self) -> Tensor | None:
        """The predictor as a matrix W [D, D] with forward(f) = f W^T, or None where it is not one."""
        return None


PREDICTORS: Registry[Callable[..., Predictor]] = Registry("predictor")
