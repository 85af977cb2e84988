"""All learning rates of a sweep at once: a bank of linear heads trained side by side on the same features.

Legend: L learning rates, K classes, C feature width, b rows of one micro-batch.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ssl_hub.errors import UsageError
from ssl_hub.evaluate.protocols import Trained
from ssl_hub.evaluate.standardise import ROWS_AT_ONCE
from ssl_hub.evaluate.work import ALONE, Work
from ssl_hub.model.lars import Lars

INITIAL_DEVIATION = 0.01  # of the weights; biases start at 0


class HeadBank:
    """One linear head for each learning rate of ``protocol``, from one initialisation.

    Each head has its own loss, parameters and optimiser state, so it is what it would be if it were trained alone; they
    share the features, which are what costs. Gradients are summed over processes: with the same batches, any number of
    processes gives the same heads up to the rounding of those sums.
    """

    def __init__(
        self,
        width: int,
        num_classes: int,
        protocol: Trained,
        *,
        total_steps: int,
        seed: int,
        work: Work = ALONE,
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        weight = INITIAL_DEVIATION * torch.randn(num_classes, width, generator=generator)
        self.weights = [weight.to(work.device, copy=True).requires_grad_() for _ in protocol.lrs]
        self.biases = [torch.zeros(num_classes, device=work.device, requires_grad=True) for _ in protocol.lrs]
        scale = protocol.batch_size / protocol.reference_batch
        groups = [
            {"params": [weight, bias], "lr": lr * scale, "peak": lr * scale}
            for weight, bias, lr in zip(self.weights, self.biases, protocol.lrs, strict=True)
        ]
        self._optimizer = _optimizer(groups, protocol)
        self._anneals, self._total_steps, self._step = protocol.schedule == "cosine", total_steps, 0
        self._work = work

    def accumulate(self, features: Tensor, labels: Tensor, batch_size: int) -> None:
        """Add the gradients of rows [b, C] with labels int64 [b], of a batch of ``batch_size`` over all processes."""
        losses = [functional.cross_entropy(logits, labels, reduction="sum") for logits in self._logits(features)]
        (torch.stack(losses).sum() / batch_size).backward()

    def step(self) -> None:
        """One optimiser step of every head. Collective over processes; UsageError on all where one has NaN."""
        parameters = [*self.weights, *self.biases]
        gradients = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters])
        gradients = self._work.summed(gradients)
        if not gradients.isfinite().all():
            raise UsageError(
                f"gradients of the heads are not finite at step {self._step}: the backbone's features are not, or the"
                " learning rates (lrs) are too high"
            )
        for parameter, gradient in zip(parameters, gradients.split([p.numel() for p in parameters]), strict=True):
            parameter.grad = gradient.view_as(parameter)
        factor = 0.5 * (1 + math.cos(math.pi * self._step / self._total_steps)) if self._anneals else 1.0
        for group in self._optimizer.param_groups:
            group["lr"] = group["peak"] * factor
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._step += 1

    @torch.no_grad()
    def judge(self, x: Tensor, labels: Tensor) -> list[tuple[float, float]]:
        """Accuracy in percent and cross entropy of each head on features [N, C] with labels int64 [N], by process 0."""
        device = self._work.device
        hits, losses = torch.zeros(2, len(self.weights), dtype=torch.float64)
        for part, targets in zip(x.split(ROWS_AT_ONCE), labels.split(ROWS_AT_ONCE), strict=True):
            targets = targets.to(device)
            for index, logits in enumerate(self._logits(part.to(device))):
                hits[index] += int((logits.argmax(dim=1) == targets).sum())
                losses[index] += float(functional.cross_entropy(logits, targets, reduction="sum"))
        judged = self._work.of_first(torch.stack([100 * hits / len(x), losses / len(x)]).to(device))
        return list(zip(*judged.tolist(), strict=True))

    def _logits(self, features: Tensor) -> list[Tensor]:
        return [functional.linear(features, *pair) for pair in zip(self.weights, self.biases, strict=True)]


def _optimizer(groups: list[dict[str, Any]], protocol: Trained) -> torch.optim.Optimizer:
    momentum, decay = protocol.momentum, protocol.weight_decay
    if protocol.optimizer == "lars":
        return Lars(groups, lr=0.0, momentum=momentum, weight_decay=decay)
    if protocol.optimizer == "adam":
        return torch.optim.Adam(groups, lr=0.0, betas=(momentum, 0.999), weight_decay=decay)
    return torch.optim.SGD(groups, lr=0.0, momentum=momentum, nesterov=momentum > 0, weight_decay=decay)
