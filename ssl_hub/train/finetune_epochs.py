"""The epochs of a fine-tuning run: steps, a checkpoint after each epoch, and the best epoch on held-out images."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn

from ssl_hub.data.labelled import LabelledCrops
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.progress import Progress
from ssl_hub.model.metrics import Metrics
from ssl_hub.stopping import Interrupted, StopSignal
from ssl_hub.train import run
from ssl_hub.train.classifier import ClassifierTrainer
from ssl_hub.train.together import agreed

HeldOut = Callable[[], float]  # top-1 in percent, of the network as it is, on the held-out images. Collective


class BestEpoch:
    """The weights of the epoch that was best on held-out images, the first of equals; its state is in checkpoints."""

    def __init__(self, patience: int) -> None:
        self._patience = patience
        self.epoch, self.top1, self._seen = 0, -1.0, 0  # epochs count from 1
        self._weights: dict[str, Tensor] = {}

    def note(self, epoch: int, top1: float, network: nn.Module) -> None:
        self._seen = epoch
        if top1 > self.top1:
            self.epoch, self.top1 = epoch, top1
            self._weights = {name: tensor.detach().cpu().clone() for name, tensor in network.state_dict().items()}

    @property
    def is_over(self) -> bool:
        """Whether patience has run out."""
        return self._patience > 0 and self._seen - self.epoch >= self._patience

    def put_into(self, network: nn.Module) -> None:
        network.load_state_dict(self._weights)

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "top1": self.top1, "seen": self._seen, "weights": self._weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch, self.top1, self._seen = int(state["epoch"]), float(state["top1"]), int(state["seen"])
        self._weights = state["weights"]


def train_epochs(
    trainer: ClassifierTrainer,
    crops: LabelledCrops,
    folder: Path,
    accelerator: Accelerator,
    state: dict[str, Any] | None,
    *,
    held_out: HeldOut | None,
    show_progress: bool,
) -> BestEpoch | None:
    """All epochs from where the trainer stands, and the best one's weights in the network at the end.

    ``state`` is the checkpoint that the run goes on from. With ``held_out`` every epoch is judged by it; without, the
    last one stands and None is returned. Collective over processes. Raises Interrupted after a signal, once the run is
    saved, and UsageError for a loss that is not finite.
    """
    so_far = _SoFar(trainer, folder, accelerator, state, held_out)
    main = accelerator.is_main_process
    title = f"fine-tuning {folder.name}" if show_progress and main else None
    trainer.train_mode()
    with StopSignal() as stop, Progress(title, trainer.total_steps - trainer.step, "steps") as progress:
        while not so_far.is_over:
            epoch, start = divmod(trainer.step, trainer.steps_per_epoch)
            for _, micro_batches in crops.epoch(epoch, start):
                so_far.losses.append(trainer.advance(micro_batches))
                progress.advance(1, f"epoch {epoch + 1} of {trainer.settings.epochs}")
                stopping = agreed(accelerator, [bool(stop)])[0]
                if stopping and trainer.step % trainer.steps_per_epoch:
                    so_far.save(last=True)
                    break
            else:
                so_far.end_epoch(epoch + 1)
                stopping = so_far.save(last=stopping or so_far.is_over) or stopping
            if stopping:
                if main:
                    print(f"stopped at step {trainer.step}, saved; continue with --resume", file=sys.stderr)
                raise Interrupted
    if so_far.metrics is not None:
        so_far.metrics.close()
    if held_out is None:
        return None
    so_far.best.put_into(trainer.network)
    return so_far.best


class _SoFar:
    """What the epochs have come to: the losses of the one that is under way, and the best before it."""

    def __init__(
        self, trainer: ClassifierTrainer, folder: Path, accelerator: Accelerator, state: dict[str, Any] | None,
        held_out: HeldOut | None,
    ) -> None:  # fmt: skip
        self._trainer, self._folder, self._accelerator, self._held_out = trainer, folder, accelerator, held_out
        self.losses, self.best = _losses(state, accelerator), BestEpoch(trainer.settings.patience)
        if state is not None and "best" in state:
            self.best.load_state_dict(state["best"])
        self.metrics = Metrics(folder, from_step=trainer.step) if accelerator.is_main_process else None

    @property
    def is_over(self) -> bool:
        return self._trainer.done or self.best.is_over

    def end_epoch(self, epoch: int) -> None:
        """Judge an epoch, counted from 1, and note it. Raises UsageError for a loss that is not finite. Collective."""
        trainer = self._trainer
        loss = float(self._accelerator.reduce(torch.stack(self.losses).mean(), reduction="mean"))
        if not math.isfinite(loss):
            intact = "the last checkpoint is intact" if epoch > 1 else "there is no checkpoint yet"
            raise UsageError(f"the loss is {loss} in epoch {epoch}; {intact}. Lower lr")
        lr = trainer.optimizer.param_groups[-1]["lr"]
        reading = {"step": trainer.step, "epoch": epoch, "loss": loss, "lr": lr}
        if self._held_out is not None:
            reading["holdout_top1"] = self._held_out()
            self.best.note(epoch, reading["holdout_top1"], trainer.network)
        if self.metrics is not None:
            self.metrics.write(reading)
        self.losses.clear()

    def save(self, *, last: bool) -> bool:
        """Write a checkpoint; whether a signal came meanwhile. Collective."""
        losses = gather_object([[float(loss) for loss in self.losses]])
        whole = {**self._trainer.state_dict(), "losses": losses}
        if self._held_out is not None:
            whole["best"] = self.best.state_dict()
        return run.save(self._folder, whole, self._accelerator, keep=1, last=last)


def _losses(state: dict[str, Any] | None, accelerator: Accelerator) -> list[Tensor]:
    """Of the steps of this process in an epoch that a checkpoint was saved in the middle of."""
    saved: list[list[float]] = (state or {}).get("losses", [])
    mine = saved[accelerator.process_index] if len(saved) == accelerator.num_processes else []
    return [torch.tensor(loss, device=accelerator.device) for loss in mine]
