"""A run from recipe to release, readable in one sitting. One step is in ``step``, what comes first in ``prepare``."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from ssl_hub.atomic import expanded
from ssl_hub.codec import flat
from ssl_hub.config import Recipe
from ssl_hub.data.sources import SOURCES
from ssl_hub.errors import UsageError
from ssl_hub.hub import store
from ssl_hub.hub.weights import INITIALISED_FROM
from ssl_hub.model.parts import PLUGINS, check_plugins, with_overrides
from ssl_hub.model.release import RECIPE, facts_in, read_recipe, read_recipe_file, save_release
from ssl_hub.model.results import Result
from ssl_hub.processes import speaks
from ssl_hub.stopping import Interrupted, StopSignal, interruptible
from ssl_hub.train import run
from ssl_hub.train.effects import check_effects
from ssl_hub.train.job import Job
from ssl_hub.train.journal import Journal
from ssl_hub.train.outcome import measure, summary
from ssl_hub.train.prepare import prepare
from ssl_hub.train.together import Agreement, on_main
from ssl_hub.zoo import as_modified, departures, get_recipe, run_name


def pretrain(
    recipe: str | Recipe | None,
    *,
    data: str | None = None,
    output: str | Path | None = None,
    resume: run.Resume = False,
    overwrite: bool = False,
    allow_change: Sequence[str] = (),
    overrides: dict[str, Any] | None = None,
) -> Path:
    """Train a recipe, probe the result, and leave a run folder that is also a release.

    Args:
        recipe: a registered name, a recipe, or the path of a recipe.json, that of a run say. None, where a run is to go
            on, is the recipe of the run in ``output``.
        data: what to train on instead of the recipe's data: a registered name, a path or a Hub dataset id.
        output: the run folder; by default one in the store, named after the recipe and its departures from the
            registered one, where ``ssl_hub.load`` finds it.
        resume: continue the run in that folder from its newest checkpoint, exactly. ``"auto"`` starts it where there is
            none and does nothing where it is finished, so that one command serves a scheduler; jobs that torchrun or
            Slurm start again do so without being told.
        overwrite: replace the run in that folder.
        allow_change: names of settings that may differ from the run that is resumed, or of what it was given:
            ``images``, ``precision``, ``images_at_once``.
        overrides: dotted settings, as in :func:`ssl_hub.get_recipe`.

    Returns:
        The run folder.

    Raises:
        UsageError: anything wrong with the arguments, or a folder that another process trains in, before training
            starts (a run that was to be replaced is there as before then); later, gradients that stay non-finite or
            a folder that can no longer be written; features that collapse, where ``runtime.on_collapse`` is ``stop``.
        Interrupted: after SIGTERM, SIGUSR1 or SIGINT, once the run is saved; exits with code 75. Before the first step
            there is nothing to save, and SIGINT is a KeyboardInterrupt.
    """
    settings = {**(overrides or {}), **({} if data is None else {"data.name": data})}
    registered, plugins = _meant(recipe, output, resume=bool(resume))
    chosen = as_modified(with_overrides(registered, settings))
    check_effects(chosen, registered, flat(settings))
    data_needed = f"data {chosen.data.name}"
    check_plugins({name: owner for name, owner in plugins.items() if name == data_needed}, {"data": SOURCES})
    set_by_user = {*flat(settings), *departures(registered)}
    folder = store.home() / run_name(chosen) if output is None else expanded(output)

    try:
        with (
            interruptible(),
            prepare(
                chosen, folder, resume=resume, overwrite=overwrite, allow_change=allow_change, set_by_user=set_by_user
            ) as job,
            closing(job.loader),
        ):
            _run(job)
    except run.Finished:
        if speaks():
            print(f"the run in {folder} is finished: nothing to do", file=sys.stderr)
    return folder


def named(recipe: str) -> Recipe:
    """A registered recipe by its name, or that of a recipe.json by its path. Raises UsageError where there is none."""
    return _of_file(expanded(recipe))[0] if recipe.endswith(".json") else get_recipe(recipe)


def _of_file(path: Path) -> tuple[Recipe, dict[str, str]]:
    """What is in a recipe.json, with what came from plug-ins; those of its parts are here."""
    found, needed = read_recipe_file(path), facts_in(path).get(PLUGINS, {})
    check_plugins(needed)
    return found, needed


def _meant(recipe: str | Recipe | None, output: str | Path | None, *, resume: bool) -> tuple[Recipe, dict[str, str]]:
    """The recipe that is meant, before settings change it, and what of it is known to come from plug-ins."""
    if isinstance(recipe, Recipe):
        return recipe, {}
    if recipe is not None:
        return _of_file(expanded(recipe)) if recipe.endswith(".json") else (get_recipe(recipe), {})
    if output is None or not resume:
        raise UsageError("no recipe: name one, or a run folder to go on with")
    if read_recipe(expanded(output)) is None:
        raise UsageError(f"nothing to resume in {output}: it has no {RECIPE}, or one that no run of ours trained")
    return _of_file(expanded(output) / RECIPE)


def _run(job: Job) -> None:
    """Training, the release, its measurements, and the last words."""
    journal = Journal(job)
    _train(job, journal)
    try:
        results, unmeasured = _finish(job, collapsed=journal.collapsed)
    except (Interrupted, KeyboardInterrupt):
        journal.console.say("stopped by a signal after training, which is saved; finish with --resume")
        raise Interrupted from None
    job.accelerator.end_training()
    journal.console.say(summary(job.recipe, job.folder, results, unmeasured, collapsed=journal.collapsed))


def _finish(job: Job, *, collapsed: bool) -> tuple[list[Result], str | None]:
    """The release of a trained run, and its measurements."""
    recipe, folder, accelerator, siamese = job.recipe, job.folder, job.accelerator, job.trainer.siamese
    origin = job.facts.get(INITIALISED_FROM)
    on_main(accelerator, lambda: save_release(folder, siamese, recipe, collapsed=collapsed, initialised_from=origin))
    measured = measure(siamese.encoder.backbone, recipe, folder, accelerator, collapsed=collapsed)
    on_main(accelerator, lambda: run.finish(folder))
    return measured


def _train(job: Job, journal: Journal) -> None:
    """Every step that is left, with checkpoints when they are due, when a signal says stop, and at the end."""
    trainer, accelerator, runtime, saved_at = job.trainer, job.accelerator, job.recipe.runtime, time.monotonic()
    agreement = Agreement(accelerator, 3, late=trainer.late)
    with StopSignal() as stop:
        for micro_batches in job.batches():
            try:
                report = trainer.advance(micro_batches)
            except Interrupted:  # while a stream was waited for: nothing of this step has been done
                job.save(last=True)
                _say_stopped(job, journal)
                raise
            journal.after_step(report)
            late = (
                runtime.checkpoint_minutes is not None and time.monotonic() - saved_at > 60 * runtime.checkpoint_minutes
            )
            give_up = journal.collapsed and runtime.on_collapse == "stop"
            stopping, late, give_up = agreement([bool(stop), late, give_up])
            last = stopping or give_up or job.done
            if last or late or job.epoch_is(runtime.checkpoint_every_epochs):
                stopping = job.save(last=last) or stopping
                saved_at = time.monotonic()
            if give_up:
                journal.close()
                raise UsageError(f"features collapsed by step {trainer.step}: stopped, saved in {job.folder}")
            if stopping:
                _say_stopped(job, journal)
                raise Interrupted
    journal.close()
    job.loader.close()
    bad = job.bad_images()
    if bad:
        journal.console.say(f"{len(bad)} images could not be read and were stood in for: {'; '.join(bad)}")


def _say_stopped(job: Job, journal: Journal) -> None:
    journal.close()
    journal.console.say(f"stopped by a signal at step {job.trainer.step}, saved; continue with --resume")
