"""From a recipe to everything a run needs, with whatever can be wrong found before anything is written."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import nn

from ssl_hub.codec import DESCRIPTION, changes, flat, to_dict
from ssl_hub.config import Recipe
from ssl_hub.data.bad_images import skipping
from ssl_hub.data.loaders import Loader, TrainLoader
from ssl_hub.data.shards import open_shards
from ssl_hub.data.sources import open_source
from ssl_hub.data.streams import StreamLoader, steps_per_epoch
from ssl_hub.data.views import TwoViews
from ssl_hub.errors import UsageError
from ssl_hub.model.release import read_recipe, write_recipe
from ssl_hub.model.results import installed_versions
from ssl_hub.model.siamese import Siamese, build
from ssl_hub.registry import suggest
from ssl_hub.train import checkpoint, run
from ssl_hub.train.launch import (
    check_micro_batch,
    end_with,
    find_launcher,
    missing_processes,
    open_accelerator,
    set_threads,
)
from ssl_hub.train.optim import scaled_lr
from ssl_hub.train.signals import on_main
from ssl_hub.train.step import Trainer
from ssl_hub.train.stopwatch import Stopwatch


@dataclass(frozen=True)
class Job:
    """A run that is ready to train."""

    recipe: Recipe
    folder: Path
    accelerator: Accelerator
    loader: Loader
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

    def bad_images(self) -> list[str]:
        """What was wrong with each unreadable image that any process met since the start. Collective."""
        mine = [] if self.loader.bad is None else list(self.loader.bad.found.values())
        return sorted(set(gather_object(mine)))

    def save(self) -> None:
        """Write a checkpoint of this step. Collective over processes."""
        runtime = self.recipe.runtime
        run.save(
            self.folder,
            {**self.trainer.state_dict(), "data": gather_object([self.loader.state()])},
            self.accelerator,
            keep=runtime.keep_checkpoints,
            permanent=self.epoch_is(runtime.keep_every_epochs),
        )


@contextmanager
def prepare(
    recipe: Recipe, folder: Path, *, resume: bool, overwrite: bool, allow_change: Sequence[str]
) -> Iterator[Job]:
    """Check everything, build the model, hold the folder, and load the newest checkpoint of a resumed run.

    Raises UsageError, with nothing written, where the folder, the data, the batch or a setting does not fit.
    """
    run.claim(folder, resume=resume, overwrite=overwrite)
    _refuse_changes(read_recipe(folder) if resume else None, recipe, allow_change)
    launcher, accelerator = find_launcher(), open_accelerator(recipe.runtime.tracker, folder)
    end_with(launcher)
    threads = set_threads(launcher, accelerator.num_processes if accelerator.device.type == "cpu" else 1)
    schedule = recipe.train
    loader, images = _open_loader(recipe, accelerator)
    check_micro_batch(loader.micro_batch_size, accelerator, sync_bn=schedule.sync_bn)
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
        "images": images,
        "resident": loader.resident,
        "device": str(accelerator.device),
        "precision": accelerator.mixed_precision,
        "threads_per_process": threads,
        "versions": installed_versions(),
        "git_commit": run.git_commit(),
        "command": shlex.join(sys.argv),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "warning": missing_processes(launcher, accelerator.num_processes),
    }
    settings = flat(to_dict(recipe))  # trackers take scalars and text
    plain = {k: v if isinstance(v, (bool, int, float, str)) else str(v) for k, v in settings.items()}
    accelerator.wait_for_everyone()  # all have checked the folder, and none sees what another has put there since
    with run.held(folder, accelerator, resume=resume, overwrite=overwrite):
        if resume:
            _load_newest(folder, trainer, loader, accelerator)
        on_main(accelerator, lambda: write_recipe(folder, recipe, facts))
        accelerator.init_trackers("ssl_hub", config=plain)
        yield Job(recipe, folder, accelerator, loader, trainer, facts, resume)


def _open_loader(recipe: Recipe, accelerator: Accelerator) -> tuple[Loader, int | None]:
    """Where this process's views come from, and the number of images that they are of (None where unknown)."""
    data, schedule = recipe.data, recipe.train
    views = TwoViews(recipe.views, seed=schedule.seed)
    settings: dict[str, Any] = {
        "batch_size": schedule.batch_size,
        "accumulation": schedule.accumulation,
        "rank": accelerator.process_index,
        "world": accelerator.num_processes,
        "seed": schedule.seed,
        "device": accelerator.device,
        "workers": recipe.runtime.workers,
        "channels_last": recipe.runtime.channels_last,
    }
    max_bad_images = data.max_bad_images if data.on_bad_image == "skip" else None
    if data.stream:
        shards = open_shards(data.name, data.pretrain_split, image_column=data.image_column)
        steps = steps_per_epoch(
            shards.images, schedule.batch_size, epochs=schedule.epochs, max_steps=schedule.max_steps
        )
        settings |= {"shuffle_buffer": data.shuffle_buffer, "max_bad_images": max_bad_images}
        return StreamLoader(shards, views, steps_per_epoch=steps, **settings), shards.images
    source = open_source(data.name, data.pretrain_split, image_column=data.image_column, label_column=data.label_column)
    if max_bad_images is not None:
        source = skipping(source, max_bad_images)
    return TrainLoader(source, views, **settings), len(source)


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


def _refuse_changes(before: Recipe | None, recipe: Recipe, allowed: Sequence[str]) -> None:
    """Raise UsageError for changes of the run before that are not allowed, and for allowed ones of no setting."""
    known = {name for one in (recipe, before or recipe) for name in flat(to_dict(one))} - {*DESCRIPTION}
    for name in allowed:
        if name not in known:
            raise UsageError(f"--allow-change {name} names no setting of this recipe{suggest(name, known)}")
    changed = [] if before is None else [name for name in changes(before, recipe) if name not in allowed]
    if changed:
        flags = " ".join(f"--allow-change {name}" for name in changed)
        raise UsageError(
            f"the run was started with another {', '.join(changed)}; resume it with the same settings, or name the"
            f" change: {flags}"
        )


def _load_newest(folder: Path, trainer: Trainer, loader: Loader, accelerator: Accelerator) -> None:
    state = checkpoint.restore(folder / run.CHECKPOINTS, trainer, accelerator)
    places = [] if state is None else state.get("data", [])
    if any(places):  # of a stream, where each process reads its own part
        if len(places) != accelerator.num_processes:
            raise UsageError(
                f"the stream was read by {len(places)} processes and now by {accelerator.num_processes}, which have no "
                f"place in it to go on from; resume on {len(places)}"
            )
        loader.load_state(places[accelerator.process_index])
