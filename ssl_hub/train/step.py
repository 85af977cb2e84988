"""One optimiser step, in order. Everything that the result depends on is here and in :meth:`Trainer.state_dict`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from ssl_hub.config import Optim
from ssl_hub.errors import UsageError
from ssl_hub.model.siamese import Siamese
from ssl_hub.train.optim import (
    build_optimizer,
    load_named_state,
    named_state,
    parameter_groups,
    schedule_factor,
    set_learning_rates,
)

MAX_SKIPPED = 5  # non-finite steps in a row before the run stops


class Report(NamedTuple):
    """What one step did. Tensors stay on the device until somebody looks."""

    loss: Tensor  # mean over this process's micro-batches, scalar
    projections: Tensor  # of the last micro-batch, [views * B, D]
    grad_norm: float
    lr: float  # of the encoder
    momentum: float | None  # of an EMA target
    skipped: bool


class Trainer:
    """A model with its optimiser, advanced one optimiser step at a time.

    ``step`` counts optimiser steps taken, ``position`` the global batches consumed; they differ by the steps skipped
    because their gradients were not finite. Schedules follow ``step``, the data follows ``position``.
    """

    def __init__(
        self,
        siamese: Siamese,
        optim: Optim,
        accelerator: Accelerator,
        *,
        lr: float,
        total_steps: int,
        warmup_steps: int = 0,
        accumulation: int = 1,
        frozen_steps: int = 0,
    ) -> None:
        """The first ``frozen_steps`` leave the backbone as it is; the rest is as in the recipe."""
        self.siamese, self.optim, self.accelerator = siamese, optim, accelerator
        self.lr, self.total_steps, self.warmup_steps, self.accumulation = lr, total_steps, warmup_steps, accumulation
        self.frozen_steps, self._frozen_statistics = frozen_steps, siamese.encoder.frozen_statistics
        self.step, self.position, self._skipped_in_a_row = 0, 0, 0
        siamese.to(accelerator.device)
        optimizer = build_optimizer(parameter_groups(siamese, optim), optim)
        self.model, self.optimizer = accelerator.prepare(siamese, optimizer)
        self._backbone = list(siamese.encoder.backbone.parameters())
        self._trained = [p for p in siamese.parameters() if p.requires_grad]
        target = siamese.target.network
        self._buffers = [*siamese.buffers(), *(target.buffers() if target is not None else ())]
        self._buffers_before = [buffer.clone() for buffer in self._buffers]

    def advance(self, micro_batches: Iterable[tuple[Tensor, Tensor]]) -> Report:
        """Take one optimiser step on ``accumulation`` micro-batches of two views [B, 3, H, W] each.

        Raises UsageError after five steps in a row whose gradients were not finite on any process.
        """
        step = self.step
        factor = schedule_factor(self.optim, step, total_steps=self.total_steps, warmup_steps=self.warmup_steps)
        set_learning_rates(self.optimizer, self.lr, factor)
        self.optimizer.zero_grad(set_to_none=True)
        frozen = step < self.frozen_steps
        self.siamese.freeze_statistics(frozen or self._frozen_statistics)
        _copy(self._buffers, to=self._buffers_before)
        # 1-3. Views to projections, targets and loss; backward. Gradients cross processes on the last micro-batch only.
        losses = []
        for index, (view1, view2) in enumerate(micro_batches):
            last = index == self.accumulation - 1
            with nullcontext() if last else self.accelerator.no_sync(self.model):
                output = self.model(view1, view2)
                self.accelerator.backward(output.loss / self.accumulation)
            losses.append(output.loss.detach())
        assert len(losses) == self.accumulation, f"{len(losses)} micro-batches, expected {self.accumulation}"
        # 4. Optimiser step. A predictor that is about to be overwritten takes none, nor does a frozen backbone: without
        # gradients it neither moves nor decays, and gathers no momentum for its first step. (They are computed all the
        # same: DistributedDataParallel would miss them.)
        predictor = self.siamese.predictor
        if predictor.overwrites(step):
            for parameter in predictor.parameters():
                parameter.grad = None
        if frozen:
            for parameter in self._backbone:
                parameter.grad = None
        grad_norm, skipped = self._optimizer_step()
        # 5-6. Predictor, then target with the new online weights; neither where the step was skipped.
        if skipped:
            predictor.discard()
            _copy(self._buffers_before, to=self._buffers)  # one NaN would stay in BN's running statistics for good
            self._count_skip()
        else:
            self.siamese.after_step(step, self.total_steps)
            self._skipped_in_a_row = 0
            self.step += 1
        self.position += 1
        momentum = self.siamese.target.momentum(step, self.total_steps)
        return Report(torch.stack(losses).mean(), output.projections, grad_norm, self.lr * factor, momentum, skipped)

    def _optimizer_step(self) -> tuple[float, bool]:
        """Clip if asked and step; the gradients' norm before clipping, and whether the step was skipped."""
        self.accelerator.unscale_gradients(self.optimizer)
        gradients = [p.grad for p in self._trained if p.grad is not None]
        total = nn.utils.get_total_norm(gradients)
        norm = float(total)  # the step's one wait for the device; the same on all processes: gradients were reduced
        finite = math.isfinite(norm)
        if finite and self.optim.clip_norm is not None:
            nn.utils.clip_grads_with_norm_(self._trained, self.optim.clip_norm, total)
        scaler = self.accelerator.scaler
        if not finite and scaler is None:
            return norm, True
        self.optimizer.step()  # with a scaler: skips itself where it found infinities, and lowers the scale
        return norm, bool(self.optimizer.step_was_skipped) if scaler is not None else False

    def _count_skip(self) -> None:
        self._skipped_in_a_row += 1
        scaler = self.accelerator.scaler
        # A fresh loss scale halves its way down from 2^16: those skips are its search, not a failure.
        allowed = MAX_SKIPPED if scaler is None or scaler.get_scale() < 1 else 40
        if self._skipped_in_a_row >= allowed:
            raise UsageError(
                f"loss or gradients were not finite for {self._skipped_in_a_row} steps in a row, at step {self.step};"
                " the last checkpoint is intact. Lower optim.lr, set optim.clip_norm, or train in bf16 or float32"
            )

    def state_dict(self) -> dict[str, Any]:
        """Everything a later process needs to continue exactly, except random states and what the recipe says."""
        state = {
            "step": self.step,
            "position": self.position,
            "skipped_in_a_row": self._skipped_in_a_row,
            "online": dict(self.siamese.state_dict()),
            "target": dict(self.siamese.target.state_dict()),
            "optimizer": named_state(self.optimizer),
        }
        if self.accelerator.scaler is not None:
            state["scaler"] = self.accelerator.scaler.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.siamese.load_state_dict(state["online"], strict=True)
        self.siamese.target.load_state_dict(state["target"])
        load_named_state(self.optimizer, state["optimizer"])
        if self.accelerator.scaler is not None and "scaler" in state:
            self.accelerator.scaler.load_state_dict(state["scaler"])
        self.step, self.position = int(state["step"]), int(state["position"])
        self._skipped_in_a_row = int(state.get("skipped_in_a_row", 0))


@torch.no_grad()
def _copy(tensors: list[Tensor], *, to: list[Tensor]) -> None:
    if tensors:
        torch._foreach_copy_(to, tensors)
