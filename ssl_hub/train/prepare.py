"""From a recipe to everything a run needs, with whatever can be wrong found before anything is written."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn

from ssl_hub.atomic import sweep
from ssl_hub.codec import changes, flat, to_dict
from ssl_hub.config import Recipe
from ssl_hub.data.loaders import TrainLoader
from ssl_hub.data.sources import open_source
from ssl_hub.data.views import TwoViews
from ssl_hub.errors import UsageError
from ssl_hub.model.release import read_recipe, write_recipe
from ssl_hub.model.results import installed_versions
from ssl_hub.model.siamese import Siamese, build
from ssl_hub.train import checkpoint, run
from ssl_hub.train.launch import end_with, find_launcher, missing_processes, open_accelerator, set_threads
from ssl_hub.train.optim import scaled_lr
from ssl_hub.train.step import Trainer
from ssl_hub.train.stopwatch import Stopwatch


@dataclass(frozen=True)
class Job:
    """A run that is ready to train."""

    recipe: Recipe
    folder: Path
    accelerator: Accelerator
    loader: TrainLoader
    trainer: Trainer
    facts: dict[str, Any]
    resumed: bool
    waiting: Stopwatch = field(default_factory=Stopwatch)  # for data

    @property
    def epoch(self) -> int:
        """The epoch that the last consumed batch belongs to, from 1."""
        return -(-self.trainer.position // self.loader.steps_per_epoch)

    @property
    def at_epoch_end(self) -> bool:
        return self.trainer.position % self.loader.steps_per_epoch == 0

    @property
    def done(self) -> bool:
        return self.trainer.step >= self.trainer.total_steps

    def batches(self) -> Iterator[Any]:
        """Micro-batches of each step, from where the trainer stands to its last step, over all epochs."""
        while not self.done:
            epoch, start = divmod(self.trainer.position, self.loader.steps_per_epoch)
            for micro_batches in self.loader.epoch(epoch, start):
                yield self.waiting.over(micro_batches)
                if self.done:
                    return

    def epoch_is(self, every: int) -> bool:
        """Whether this is the end of an epoch whose number ``every`` (0: none) divides."""
        return every > 0 and self.at_epoch_end and self.epoch % every == 0

    def save(self) -> None:
        """Write a checkpoint of this step. Collective over processes."""
        runtime = self.recipe.runtime
        checkpoint.save(
            self.folder / run.CHECKPOINTS,
            self.trainer.state_dict(),
            self.accelerator,
            keep=runtime.keep_checkpoints,
            permanent=self.epoch_is(runtime.keep_every_epochs),
        )


def prepare(recipe: Recipe, folder: Path, *, resume: bool, overwrite: bool, allow_change: Sequence[str]) -> Job:
    """Check everything, then build the model, claim the folder, and load the newest checkpoint of a resumed run.

    Raises UsageError, with nothing written, where the folder, the data, the batch or a setting does not fit.
    """
    run.claim(folder, resume=resume, overwrite=overwrite)
    if resume:
        _refuse_changes(folder, recipe, allow_change)
    source = open_source(
        recipe.data.name,
        recipe.data.pretrain_split,
        image_column=recipe.data.image_column,
        label_column=recipe.data.label_column,
    )
    launcher, accelerator = find_launcher(), open_accelerator(recipe.runtime.tracker, folder)
    end_with(launcher)
    threads = set_threads(launcher, accelerator.num_processes if accelerator.device.type == "cpu" else 1)
    schedule = recipe.train
    loader = TrainLoader(
        source,
        TwoViews(recipe.views, seed=schedule.seed),
        batch_size=schedule.batch_size,
        accumulation=schedule.accumulation,
        rank=accelerator.process_index,
        world=accelerator.num_processes,
        seed=schedule.seed,
        device=accelerator.device,
        workers=recipe.runtime.workers,
        channels_last=recipe.runtime.channels_last,
    )
    total_steps = schedule.epochs * loader.steps_per_epoch
    total_steps = total_steps if schedule.max_steps is None else min(total_steps, schedule.max_steps)
    if total_steps < 1:
        limits = f"train.epochs={schedule.epochs} and train.max_steps={schedule.max_steps}"
        raise UsageError(f"{limits} leave nothing to train; both must be at least 1")
    lr, lr_in_words = scaled_lr(
        recipe.optim,
        batch_per_process=loader.micro_batch_size,
        processes=accelerator.num_processes,
        accumulation=schedule.accumulation,
    )
    torch.manual_seed(schedule.seed)  # the same initial model on every process
    trainer = Trainer(
        _arranged(build(recipe), recipe, accelerator),
        recipe.optim,
        accelerator,
        lr=lr,
        total_steps=total_steps,
        warmup_steps=round(recipe.optim.warmup_epochs * loader.steps_per_epoch),
        accumulation=schedule.accumulation,
    )
    torch.manual_seed(schedule.seed + accelerator.process_index)  # dropout and drop-path differ over processes
    facts = {
        "seed": schedule.seed,
        "processes": accelerator.num_processes,
        "batch_size": {
            "total": schedule.batch_size,
            "per_process": loader.micro_batch_size,
            "accumulation": schedule.accumulation,
        },
        "learning_rate": {"value": lr, "factors": lr_in_words},
        "steps": total_steps,
        "images": len(source),
        "resident": loader.resident,
        "device": str(accelerator.device),
        "precision": accelerator.mixed_precision,
        "threads_per_process": threads,
        "versions": installed_versions(),
        "git_commit": run.git_commit(),
        "command": " ".join(sys.argv),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "warning": missing_processes(launcher, accelerator.num_processes),
    }
    accelerator.wait_for_everyone()  # all have checked the folder, and none sees what another has put there since
    if accelerator.is_main_process:
        sweep(folder)
        if resume:
            write_recipe(folder, recipe, facts)
        else:
            run.start(folder, recipe, facts, overwrite=overwrite)
    accelerator.wait_for_everyone()
    settings = flat(to_dict(recipe))  # trackers take scalars and text
    plain = {k: v if isinstance(v, (bool, int, float, str)) else str(v) for k, v in settings.items()}
    accelerator.init_trackers("ssl_hub", config=plain)
    if resume:
        _load_newest(folder, trainer, accelerator)
    return Job(recipe, folder, accelerator, loader, trainer, facts, resume)


def _arranged(siamese: Siamese, recipe: Recipe, accelerator: Accelerator) -> Siamese:
    """Synchronised BN, memory format and compilation, as asked and where they apply; names of tensors stay the same."""
    target = siamese.target
    if accelerator.num_processes > 1 and accelerator.device.type == "cuda" and recipe.train.sync_bn:
        siamese = nn.SyncBatchNorm.convert_sync_batchnorm(siamese)
        if target.network is not None:
            target.network = nn.SyncBatchNorm.convert_sync_batchnorm(target.network)
    if recipe.runtime.channels_last:
        siamese = siamese.to(memory_format=torch.channels_last)
    if recipe.runtime.compile:
        siamese.encoder.compile()
        if target.network is not None:
            target.network.compile()
    return siamese


def _refuse_changes(folder: Path, recipe: Recipe, allowed: Sequence[str]) -> None:
    before = read_recipe(folder)
    assert before is not None, "claim() has seen it"
    changed = [name for name in changes(before, recipe) if name not in allowed]
    if changed:
        flags = " ".join(f"--allow-change {name}" for name in changed)
        raise UsageError(
            f"the run in {folder} was started with another {', '.join(changed)}; resume it with the same settings, or"
            f" name the change: {flags}"
        )


def _load_newest(folder: Path, trainer: Trainer, accelerator: Accelerator) -> None:
    saved = checkpoint.existing(folder / run.CHECKPOINTS)
    if not saved:
        return  # stopped before its first checkpoint: it starts again
    state = checkpoint.load(saved[-1])
    trainer.load_state_dict(state)
    # On another number of processes the streams are not those of before: they matter for dropout and drop-path alone.
    if len(state["random"]) == accelerator.num_processes:
        checkpoint.set_random_state(state["random"][accelerator.process_index], accelerator.device)
