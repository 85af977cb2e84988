"""One optimiser step, in order. Everything that the result depends on is here and in :meth:`Trainer.state_dict`."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from ssl_hub.config import Optim
from ssl_hub.errors import UsageError
from ssl_hub.model.devices import can_fuse, is_queued
from ssl_hub.model.foreach import Kept
from ssl_hub.model.predictors import Predictor
from ssl_hub.model.predictors.computed import SetPredictor
from ssl_hub.model.siamese import Siamese
from ssl_hub.train.answers import Answers
from ssl_hub.train.optim import (
    build_optimizer,
    load_named_state,
    named_state,
    parameter_groups,
    schedule_factor,
    set_learning_rates,
)
from ssl_hub.train.sharing import shared

MAX_SKIPPED = 5  # non-finite steps in a row before the run stops


class Report(NamedTuple):
    """What one step did. Tensors stay on the device until somebody looks."""

    loss: Tensor  # mean over this process's micro-batches, scalar
    projections: Tensor  # of the last micro-batch, [views * B, D]
    grad_norm: float | Tensor
    lr: float  # of the encoder
    momentum: float | None  # of an EMA target
    skipped: bool  # this step; where the host learns it late, the one before


class Trainer:
    """A model with its optimiser, advanced one optimiser step at a time.

    ``step`` counts optimiser steps taken, ``position`` the global batches consumed; they differ by the steps skipped
    because their gradients were not finite. Schedules follow ``step``, the data follows ``position``.

    With ``late`` no step waits for the device. Whether a step is taken is decided there, and the host learns it after
    the next one: until then it counts every step as taken. So after a step that was skipped, one more is taken with the
    schedules a step ahead, and the fifth in a row ends the run one step later; what is skipped leaves no trace either
    way. It is chosen where work is queued, with an optimiser and a target that can leave a step out without the host,
    and without loss scaling, which reads the host's number itself.
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
        late: bool | None = None,
    ) -> None:
        """The first ``frozen_steps`` leave the backbone as it is; the rest is as in the recipe. ``late``: see the
        class; None for what the device calls for."""
        self.siamese, self.optim, self.accelerator = siamese, optim, accelerator
        self.lr, self.total_steps, self.warmup_steps, self.accumulation = lr, total_steps, warmup_steps, accumulation
        self.frozen_steps, self._frozen_statistics = frozen_steps, siamese.encoder.frozen_statistics
        self.step, self.position, self._skipped_in_a_row = 0, 0, 0
        able = accelerator.scaler is None and "taken" in inspect.signature(siamese.target.update).parameters
        able = able and can_fuse(accelerator.device)
        self.late = able and (is_queued(accelerator.device) if late is None else late)
        siamese.to(accelerator.device)
        optimizer = build_optimizer(parameter_groups(siamese, optim), optim, unless_found=self.late)
        self.model, self.optimizer = shared(siamese, optimizer, accelerator)
        self._backbone = list(siamese.encoder.backbone.parameters())
        self._trained = [p for p in siamese.parameters() if p.requires_grad]
        target = siamese.target.network
        self._buffers = Kept([*siamese.buffers(), *(target.buffers() if target is not None else ())])
        predictor = siamese.predictor
        refreshes = type(predictor).refresh is not Predictor.refresh
        self._refreshed = Kept(list(predictor.parameters()) if refreshes else [])
        # Whether the step was taken, whether the predictor kept its weight.
        self._answers = Answers(accelerator.device, 2)
        self._watches = isinstance(predictor, SetPredictor) and (self.late or is_queued(accelerator.device))
        if isinstance(predictor, SetPredictor):
            predictor.watched = self._watches

    def advance(self, micro_batches: Iterable[tuple[Tensor, Tensor]]) -> Report:
        """Take one optimiser step on ``accumulation`` micro-batches of two views [B, 3, H, W] each.

        Raises UsageError after five steps in a row whose gradients were not finite on any process.
        """
        step = self._scheduled
        factor = schedule_factor(self.optim, step, total_steps=self.total_steps, warmup_steps=self.warmup_steps)
        set_learning_rates(self.optimizer, self.lr, factor)
        self.optimizer.zero_grad(set_to_none=True)
        frozen = step < self.frozen_steps
        self.siamese.freeze_statistics(frozen or self._frozen_statistics)
        self._buffers.keep()
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
        self.accelerator.unscale_gradients(self.optimizer)
        norm = nn.utils.get_total_norm([p.grad for p in self._trained if p.grad is not None])
        taken = torch.isfinite(norm)  # the same on all processes: gradients were reduced
        # The one wait for the device of a step that has one; with loss scaling the scaler has it.
        seen = norm if self.late or self.accelerator.scaler is not None else float(norm)
        # 5-6. Predictor, then target with the new online weights; neither where the step was skipped.
        skipped = self._take_late(step, norm, taken) if self.late else not self._take(step, norm, seen)
        self.position += 1
        momentum = self.siamese.target.momentum(step, self.total_steps)
        return Report(torch.stack(losses).mean(), output.projections, seen, self.lr * factor, momentum, skipped)

    @property
    def _scheduled(self) -> int:
        """The optimiser step that comes next, as far as the schedules are told: see ``late``. It does not depend on
        whether anybody has asked since the last one, as for a checkpoint."""
        ahead = self.late and not self._answers.asked and self._skipped_in_a_row > 0
        return self.step + ahead

    def _take(self, step: int, norm: Tensor, seen: float | Tensor) -> bool:
        """The rest of a step, decided by the host; whether it was taken."""
        scaler, predictor = self.accelerator.scaler, self.siamese.predictor
        self.settle()
        is_taken = isinstance(seen, Tensor) or math.isfinite(seen)
        if is_taken:
            self._clip(norm)
            self.optimizer.step()  # with a scaler: skips itself where it found infinities, and lowers the scale
            is_taken = scaler is None or not self.optimizer.step_was_skipped
        if is_taken:
            self.siamese.after_step(step, self.total_steps)
            self.step += 1
            self._skipped_in_a_row = 0
            if self._watches:
                self._ask(torch.ones_like(norm, dtype=torch.bool))
        else:
            predictor.discard()
            # One NaN would stay in BN's running statistics for good.
            self._buffers.give_back(unless=torch.zeros_like(norm, dtype=torch.bool))
            self._count_skip()
        return is_taken

    def _take_late(self, step: int, norm: Tensor, taken: Tensor) -> bool:
        """The rest of a step, decided by the device; whether the step before was skipped."""
        predictor = self.siamese.predictor
        self._clip(norm)
        optimizer = getattr(self.optimizer, "optimizer", self.optimizer)  # torch's own, inside accelerate's
        optimizer.found_inf = (~taken).float()
        self.optimizer.step()
        self._refreshed.keep()
        predictor.refresh(step)
        self._refreshed.give_back(unless=taken)
        self._buffers.give_back(unless=taken)  # those of the predictor too
        self.siamese.target.update(self.siamese.encoder, step, self.total_steps, taken)
        skipped = self.settle()
        self._ask(taken)
        self.step += 1
        return skipped

    def _ask(self, taken: Tensor) -> None:
        predictor = self.siamese.predictor
        kept = predictor.kept & taken if isinstance(predictor, SetPredictor) else torch.zeros_like(taken)
        self._answers.ask(torch.stack([taken, kept]).float())

    def settle(self) -> bool:
        """Learn of the last step what the host does not know yet, if anything; whether it was skipped.

        Waits for the device. Raises UsageError as :meth:`advance` does.
        """
        answers = self._answers.read()
        if answers is None:
            return False
        taken, kept = answers
        if kept and isinstance(self.siamese.predictor, SetPredictor):
            self.siamese.predictor.warn(self.step - 1)
        if taken:
            self._skipped_in_a_row = 0
            return False
        self.step -= 1
        self._count_skip()
        return True

    def _clip(self, norm: Tensor) -> None:
        if self.optim.clip_norm is not None:
            nn.utils.clip_grads_with_norm_(self._trained, self.optim.clip_norm, norm)

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
        self.settle()
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
