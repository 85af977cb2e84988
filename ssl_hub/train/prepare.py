"""From a recipe to everything a run needs, with whatever can be wrong found before anything is written."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.utils import gather_object

from ssl_hub.codec import DESCRIPTION, changes, flat, to_dict
from ssl_hub.config import Recipe
from ssl_hub.data.loaders import Loader
from ssl_hub.data.sources import SOURCES
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.agreement import everywhere
from ssl_hub.hub.weights import INITIALISED_FROM, Initial
from ssl_hub.model.devices import is_queued
from ssl_hub.model.parts import PLUGINS, from_plugins, of_plugin
from ssl_hub.model.release import read_facts, read_recipe, write_recipe
from ssl_hub.model.results import now
from ssl_hub.model.siamese import Siamese, arranged
from ssl_hub.registry import suggest
from ssl_hub.train import checkpoint, run
from ssl_hub.train.feeding import inventory_of, open_loader
from ssl_hub.train.given import GIVEN, Change, given_to, refuse
from ssl_hub.train.given import changed as changed_facts
from ssl_hub.train.job import Job
from ssl_hub.train.label_monitor import accuracy_monitor
from ssl_hub.train.launch import (
    Launcher,
    check_micro_batch,
    check_replays,
    end_with,
    find_launcher,
    is_restart,
    job_id,
    kernels,
    missing_processes,
    open_accelerator,
    processes_of_bn,
    set_threads,
)
from ssl_hub.train.monitor import Monitor
from ssl_hub.train.optim import scaled_lr
from ssl_hub.train.starting import begun_from, bn_warning, normalised, weights_of, with_range
from ssl_hub.train.step import Trainer
from ssl_hub.train.together import on_main, together


@contextmanager
def prepare(
    recipe: Recipe,
    folder: Path,
    *,
    resume: run.Resume,
    overwrite: bool,
    allow_change: Sequence[str],
    set_by_user: Collection[str] = (),
) -> Iterator[Job]:
    """Check everything, build the model, hold the folder, and load the newest checkpoint of a resumed run.

    Mean and std of the images, and their range, follow the weights that ``backbone.init`` names, unless they are
    ``set_by_user``.

    Raises UsageError, with nothing written, where the launch, the folder, the data, the weights, the batch or a setting
    does not fit; :class:`run.Finished` where ``resume="auto"`` finds nothing left to do.
    """
    launcher, accelerator = find_launcher(), open_accelerator(recipe.runtime.tracker, folder)
    end_with(launcher)
    options: dict[str, Any] = {"resume": resume, "overwrite": overwrite, "allow_change": allow_change}
    options["set_by_user"] = set_by_user
    chosen = kernels(recipe.runtime.tf32, cudnn_benchmark=recipe.runtime.cudnn_benchmark)
    with together(accelerator), chosen, _prepared(recipe, folder, launcher, accelerator, **options) as job:
        yield job


@contextmanager
def _prepared(
    recipe: Recipe, folder: Path, launcher: Launcher | None, accelerator: Accelerator, *, resume: run.Resume,
    overwrite: bool, allow_change: Sequence[str], set_by_user: Collection[str],
) -> Iterator[Job]:  # fmt: skip
    """:func:`prepare`, once the processes have met."""
    threads = set_threads(launcher, beside=recipe.runtime.workers if is_queued(accelerator.device) else 0)
    job = job_id(launcher)
    restart = job if is_restart() else None
    resume, overwrite = run.settled(folder, resume=resume, overwrite=overwrite, restart=restart)
    everywhere(accelerator, lambda: run.claim(folder, resume=resume, overwrite=overwrite))
    before = read_facts(folder) if resume else {}
    was = read_recipe(folder) if resume else None
    begun = bool(resume and checkpoint.existing(folder / run.CHECKPOINTS))
    start = None if begun else weights_of(recipe, before, accelerator)
    recipe, normalised_by = normalised(with_range(recipe, start, was, set_by_user), start, was, set_by_user)
    changed = _changed_settings(was, recipe, allow_change)
    finished = resume == "auto" and not changed and run.is_finished(folder)
    _same_folder(folder, accelerator, resume=bool(resume), finished=finished)
    if finished:
        accelerator.end_training()
        raise run.Finished
    ready, given = _ready(recipe, folder, accelerator, start, before, allow_change, resumed=bool(resume))
    changed += given
    facts = ready.facts
    facts |= _facts(ready, before.get(INITIALISED_FROM) if start is None else _origin(ready, start, normalised_by))
    facts |= run.facts_of(before, accelerator.num_processes, job)
    facts |= {"threads_per_process": threads, "warning": missing_processes(launcher, accelerator.num_processes)}
    accelerator.wait_for_everyone()  # all have checked the folder, and none sees what another has put there since
    with run.held(folder, accelerator, resume=resume, overwrite=overwrite):
        if resume:
            ready.load()
            facts |= _history(before, changed, ready.trainer.step)
        on_main(accelerator, lambda: write_recipe(folder, recipe, facts))
        accelerator.init_trackers("ssl_hub", config=_scalars(recipe))
        yield ready


def _ready(
    recipe: Recipe, folder: Path, accelerator: Accelerator, start: Initial | None, before: Mapping[str, Any],
    allow_change: Sequence[str], *, resumed: bool,
) -> tuple[Job, list[Change]]:  # fmt: skip
    """The run before its first step, and what it is given that it was not given ``before``."""
    loader, images, fingerprint = open_loader(recipe, accelerator)
    replays = check_replays(recipe.runtime.compile, accelerator, accumulation=recipe.train.accumulation)
    accuracy = accuracy_monitor(recipe, accelerator)
    lr, factors = scaled_lr(
        recipe.optim,
        batch_per_process=loader.micro_batch_size,
        processes=accelerator.num_processes,
        accumulation=recipe.train.accumulation,
    )
    trainer = _trainer(recipe, loader, accelerator, start, lr)
    sharing = processes_of_bn(accelerator, recipe.train.sync_bn, recipe.train.sync_bn_group)
    given = given_to(trainer.siamese, loader.micro_batch_size, sharing, accelerator, images, fingerprint)
    changed = changed_facts(before, given)
    refuse(changed, allow_change)
    facts = {"learning_rate": {"value": lr, "factors": factors}, **given}
    facts |= {} if replays is None else {"cuda_graphs": replays}
    return Job(recipe, folder, accelerator, loader, trainer, Monitor(), accuracy, facts, resumed), changed


def _facts(ready: Job, origin: Mapping[str, Any] | None) -> dict[str, Any]:
    """What recipe.json says of a run beside its settings and what it was given; ``origin`` is that of its weights."""
    recipe, loader, accelerator, trainer = ready.recipe, ready.loader, ready.accelerator, ready.trainer
    plugins = from_plugins(recipe) | of_plugin("data", recipe.data.name, SOURCES)
    solver = trainer.siamese.predictor.solver_on(accelerator.device)
    return {
        "seed": recipe.train.seed,
        "batch_size": {
            "total": recipe.train.batch_size,
            "per_process": loader.micro_batch_size,
            "accumulation": recipe.train.accumulation,
        },
        "steps": trainer.total_steps,
        "measured_on": None if ready.accuracy.unmeasurable else ready.accuracy.name,
        **({} if origin is None else {INITIALISED_FROM: origin}),
        **({PLUGINS: plugins} if plugins else {}),
        "resident": loader.resident,
        "inventory": inventory_of(recipe, loader) if accelerator.is_main_process else None,
        "device": str(accelerator.device),
        **({} if solver is None else {"predictor_solver": solver}),
    }


def _origin(ready: Job, start: Initial, normalised_by: str) -> dict[str, Any]:
    """Where the weights that a run starts from are from, and what it makes of them."""
    said = bn_warning(ready.recipe, ready.trainer.siamese.encoder.backbone)
    return {**start.origin, "normalised_by": normalised_by, **({} if said is None else {"warning": said})}


def _trainer(recipe: Recipe, loader: Loader, accelerator: Accelerator, start: Initial | None, lr: float) -> Trainer:
    """The model with its optimiser, freshly initialised but for what it starts from, the same on every process."""
    schedule = recipe.train
    group = schedule.sync_bn_group
    check_micro_batch(loader.micro_batch_size, accelerator, sync_bn=schedule.sync_bn, group=group)
    total_steps = schedule.epochs * loader.steps_per_epoch
    frozen_steps = round(schedule.freeze_backbone_epochs * loader.steps_per_epoch)
    if frozen_steps >= (total := total_steps if schedule.max_steps is None else min(total_steps, schedule.max_steps)):
        raise UsageError(
            f"train.freeze_backbone_epochs is {schedule.freeze_backbone_epochs:g}, {frozen_steps} of {total} steps: the"
            " backbone would never be trained; set train.freeze_backbone_epochs=0 or train longer"
        )
    trainer = Trainer(
        _arranged(begun_from(start, recipe), recipe, accelerator),
        recipe.optim,
        accelerator,
        lr=lr,
        total_steps=total,
        warmup_steps=round(recipe.optim.warmup_epochs * loader.steps_per_epoch),
        accumulation=schedule.accumulation,
        frozen_steps=frozen_steps,
    )
    torch.manual_seed(schedule.seed + accelerator.process_index)  # dropout and drop-path differ over processes
    return trainer


def _history(before: dict[str, Any], changed: Sequence[Change], step: int) -> dict[str, Any]:
    """What was changed and when a run went on, after what is known of that already."""
    changes = [{"at_step": step, **change._asdict()} for change in changed]
    return {
        "changed": [*before.get("changed", []), *changes],
        "resumed": [*before.get("resumed", []), {"at_step": step, "at": now()}],
    }


def _scalars(recipe: Recipe) -> dict[str, Any]:
    """Settings as trackers take them: scalars and text."""
    return {k: v if isinstance(v, (bool, int, float, str)) else str(v) for k, v in flat(to_dict(recipe)).items()}


def _same_folder(folder: Path, accelerator: Accelerator, **seen: bool) -> None:
    """Raise UsageError, on all processes, where they do not see one run folder. Collective."""
    saved = checkpoint.existing(folder / run.CHECKPOINTS)
    views = gather_object([(seen, saved[-1].name if saved else None)])
    if any(view != views[0] for view in views):
        raise UsageError(
            f"processes see different contents of {folder}: choose an --output on storage that all nodes share"
        )


def _arranged(siamese: Siamese, recipe: Recipe, accelerator: Accelerator) -> Siamese:
    train, group = recipe.train, None
    sharing = processes_of_bn(accelerator, train.sync_bn, train.sync_bn_group)
    if 1 < sharing < accelerator.num_processes:
        group, _ = dist.new_subgroups(group_size=sharing)
    return arranged(
        siamese,
        bn_group=group,
        synchronise=sharing > 1,
        channels_last=recipe.runtime.channels_last,
        compiled=recipe.runtime.compile,
    )


def _changed_settings(before: Recipe | None, recipe: Recipe, allowed: Sequence[str]) -> list[Change]:
    """Settings that differ from those of the run that goes on.

    Raises UsageError for those that are not allowed, and for allowed names of nothing that can change.
    """
    if before is not None and before.name != recipe.name:
        raise UsageError(
            f"the run is of recipe {before.name}, not of {recipe.name}: leave it out to go on, or choose another"
            " --output"
        )
    known = {name for one in (recipe, before or recipe) for name in flat(to_dict(one))} - {*DESCRIPTION} | {*GIVEN}
    for name in allowed:
        if name not in known:
            raise UsageError(f"--allow-change {name} names no setting of this recipe{suggest(name, known)}")
    changed = [] if before is None else [Change(name, *pair) for name, pair in changes(before, recipe).items()]
    if refused := [change.name for change in changed if change.name not in allowed]:
        flags = " ".join(f"--allow-change {name}" for name in refused)
        raise UsageError(
            f"the run was started with another {', '.join(refused)}; resume it with the same settings, or name the"
            f" change: {flags}"
        )
    return changed
