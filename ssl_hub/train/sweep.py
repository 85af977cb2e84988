"""A recipe over a grid of settings and seeds: a run for each, what they measured, and where to go on."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ssl_hub import plugins
from ssl_hub.atomic import expanded, make_folder
from ssl_hub.config import Recipe
from ssl_hub.errors import UsageError
from ssl_hub.hub import store
from ssl_hub.limits import COUNT
from ssl_hub.model.files import RECIPE
from ssl_hub.model.parts import check_plugins, from_plugins, of_plugin, with_overrides
from ssl_hub.tables.comparison import Comparison, compare
from ssl_hub.tables.grids import Grid
from ssl_hub.train import begun, grid
from ssl_hub.train.lock import locked
from ssl_hub.train.loop import named
from ssl_hub.zoo import RECIPES

SWEEP = "sweep.json"
LONGEST_NAME = 200  # bytes of a folder's name; file systems end at 255
_OUTSIDE_BRACKETS = re.compile(r",(?![^\[]*\])(?![^\"]*\"(?:[^\"]*\"[^\"]*\")*[^\"]*$)")


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What is varied: every combination of the values of ``axes``, with ``settings`` alike in all, over ``seeds``."""

    recipe: str
    data: str | None
    settings: dict[str, str]
    axes: dict[str, list[str]]
    seeds: int
    plugins: dict[str, str] = field(default_factory=dict)  # what of it they have, and which: see `check_plugins`

    def points(self) -> list[dict[str, str]]:
        return [dict(zip(self.axes, values, strict=True)) for values in itertools.product(*self.axes.values())]

    def tasks(self, out: Path) -> list[grid.Task]:
        """A run for each point and seed."""
        points = [
            grid.Point(
                name=self.name_of(point),
                folder=out / self.name_of(point),
                recipe=self.recipe,
                settings={**self.settings, **point},
                data=self.data,
            )
            for point in self.points()
        ]
        return grid.trainings(points, self.seeds)

    def name_of(self, point: Mapping[str, str]) -> str:
        """The folder of a point, which says what it is: ``rho=0.1,eps=0.3``."""
        short = {key: key.rpartition(".")[2] for key in self.axes}
        unique = len(set(short.values())) == len(short)
        text = ",".join(f"{short[key] if unique else key}={value}" for key, value in point.items())
        return re.sub(r"[^\w.,=+-]+", "_", text)

    def check(self) -> dict[str, str]:
        """What of the runs comes from plug-ins.

        Raises UsageError for those that are not here, for what is no grid, and for the first point that is no recipe or
        the same as another.
        """
        check_plugins(self.plugins, {"recipe": RECIPES})
        COUNT.check("seeds", self.seeds)
        if "train.seed" in {**self.settings, **self.axes}:
            raise UsageError("train.seed is set, and is what --seeds counts: leave it out")
        if both := self.settings.keys() & self.axes.keys():
            raise UsageError(f"{min(both)} has one value for all runs and several as well; give one of the two")
        recipe, seen = named(self.recipe), dict[str, tuple[Recipe, str]]()
        owners = of_plugin("recipe", self.recipe, RECIPES)
        for point in self.points():
            values, name = ", ".join(f"{key}={value}" for key, value in point.items()), self.name_of(point)
            trained = with_overrides(recipe, {**self.settings, **point})
            for there, (other, theirs) in seen.items():
                if other == trained or there == name:
                    raise UsageError(f"{values} is trained twice: it is the same as {theirs}; leave one of them out")
            if len(name.encode()) > LONGEST_NAME:
                raise UsageError(f"the values of {values} are too long for a folder's name; vary fewer settings")
            seen[name] = trained, values
            owners |= from_plugins(trained)
        return owners


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a sweep has measured so far, and why the runs that have not ended well have not."""

    sweep: Sweep
    folder: Path
    comparison: Comparison
    ended: list[grid.Task]
    left: list[grid.Task]

    def grid(self) -> Grid:
        """Points by measurement, with seeds pooled."""
        places = {Path(label).parent.name: place for place, label in enumerate(self.comparison.groups)}
        rows = [(point, places.get(self.sweep.name_of(point))) for point in self.sweep.points()]
        return Grid(
            axes=self.sweep.axes,
            seeds=self.sweep.seeds,
            values={
                title: {tuple(point.values()): samples[place] for point, place in rows if place is not None}
                for title, samples in self.comparison.results.items()
            },
        )


def sweep(
    recipe: str | None = None,
    axes: Mapping[str, Sequence[object]] | None = None,
    *,
    settings: Mapping[str, object] | None = None,
    data: str | None = None,
    out: str | Path | None = None,
    seeds: int | None = None,
    jobs: int = 1,
) -> Outcome:
    """Train a recipe at every point of a grid, each with every seed, and measure it as a run measures itself.

    What is finished is not run again, and what was killed goes on from its last checkpoint. The same folder takes other
    values and more seeds later; it belongs to one recipe, data and settings, and to what is varied.

    Args:
        recipe: a registered name, or a recipe.json. None goes on with what was begun in ``out``.
        axes: dotted settings, each with the values that it takes: ``{"predictor.rho": [0.1, 0.3]}``.
        settings: dotted settings that are alike in all runs.
        data: what to train on instead of the recipe's data.
        out: the folder; by default one in the store, named after recipe and axes.
        seeds: how many, from 0; by default 1, or as many as were begun.
        jobs: runs at a time, each on one thread unless OMP_NUM_THREADS says otherwise.

    Raises:
        UsageError: a setting or value that the recipe does not take, before anything starts; another recipe, data or
            settings than those of the folder; no run that ended well.
        Interrupted: after a signal, once every run is saved.
    """
    COUNT.check("jobs", jobs)
    plan, folder = planned(recipe, axes, settings=settings, data=data, out=out, seeds=seeds)
    with locked(folder) as lock:
        begun.write(folder / SWEEP, plan)
        print(f"{len(plan.points())} points, {plan.seeds} seed(s), in {folder}", file=sys.stderr)
        failed = grid.work_through(plan.tasks(folder), at_once=jobs, lock=lock)
    found = outcome(plan, folder)
    if not found.ended:
        grid.refuse_failed(failed)
    return found


def planned(
    recipe: str | None,
    axes: Mapping[str, Sequence[object]] | None,
    *,
    settings: Mapping[str, object] | None,
    data: str | None,
    out: str | Path | None,
    seeds: int | None,
) -> tuple[Sweep, Path]:
    """The sweep that is meant, every point of it checked, and its folder: what is not given is what was begun there."""
    if recipe is None and out is None:
        raise UsageError("no recipe: name one, or the --out of a sweep that was begun")
    given: dict[str, object] = {
        "recipe": recipe if recipe is None or not recipe.endswith(".json") else str(expanded(recipe).absolute()),
        "data": None if data is None else grid.findable(data),
        "settings": {key: grid.text(value) for key, value in settings.items()} if settings else None,
    }
    varied = {key: [grid.text(value) for value in values] for key, values in (axes or {}).items()}
    last = "-".join(key.rpartition(".")[2] for key in varied)
    folder = store.home() / f"sweep-{Path(recipe or '').stem}-{last}" if out is None else expanded(out)
    if (folder / RECIPE).exists():
        raise UsageError(f"{folder} is a run's; choose another --out")
    there = begun.read(Sweep, folder / SWEEP, what="sweep")
    if there is None and recipe is None:
        raise UsageError(f"no sweep was begun in {folder}: it has no {SWEEP}")
    if there is not None:
        plan = _merged(there, given, varied, seeds, folder)
    elif not varied:
        raise UsageError("nothing to sweep over: give a setting several values, as in predictor.rho=0.1,0.3,0.5")
    else:
        plan = Sweep(
            **{**given, "settings": given["settings"] or {}},  # type: ignore[arg-type]
            axes=varied,
            seeds=1 if seeds is None else seeds,
        )
    return replace(plan, plugins=plan.check()), folder


def _merged(
    there: Sweep, given: Mapping[str, object], varied: Mapping[str, list[str]], seeds: int | None, folder: Path
) -> Sweep:
    """The sweep that was begun in the folder, with other values and seeds where they are given.

    Raises UsageError where another sweep is meant.
    """
    if given["recipe"] is None:
        wanted = {key: value for key, value in given.items() if value is not None}
    else:  # nothing is left to the folder
        wanted = {**given, "settings": given["settings"] or {}}
    begun.refuse_other(there, wanted, folder, what="sweep")
    if varied and varied.keys() != there.axes.keys():
        raise UsageError(
            f"{folder} holds a sweep over {', '.join(there.axes)}, not {', '.join(varied)}; choose another --out"
        )
    in_order = {key: varied[key] for key in there.axes} if varied else there.axes
    return replace(there, axes=in_order, seeds=there.seeds if seeds is None else seeds)


def begun_in(name: str | Path) -> Outcome | None:
    """What has been measured so far of the sweep in a folder, or in one of that name in the store; None where no sweep
    was begun."""
    for folder in (expanded(name), store.home() / str(name)):
        if (plan := begun.read(Sweep, folder / SWEEP, what="sweep")) is not None:
            return outcome(plan, folder)
    return None


def outcome(plan: Sweep, folder: Path) -> Outcome:
    """What has been measured so far."""
    tasks = plan.tasks(folder)
    ended = [task for task in tasks if task.done()]
    left = [task for task in tasks if task not in ended]
    return Outcome(
        sweep=plan, folder=folder, comparison=compare([task.folder for task in ended]), ended=ended, left=left
    )


def array_job(plan: Sweep, folder: Path) -> str:
    """The sweep as a job array of Slurm, for ``sbatch``: a run for each task, its words in the log beside its folder.
    Runs that are finished end at once."""
    named_modules = os.environ.get(plugins.IMPORT)
    imports = [f"--import={module}" for module in named_modules.split(",")] if named_modules else []
    tasks = plan.tasks(folder.absolute())
    commands = [
        f"srun {shlex.join(('ssl-hub', *imports, *task.arguments))} >>{shlex.quote(str(task.log))} 2>&1"
        for task in tasks
    ]
    lines = "\n".join(f"    {shlex.quote(command)}" for command in commands)
    name = re.sub(r"[^\w.=,-]+", "_", folder.name)
    return (
        f"#!/bin/bash\n#SBATCH --job-name={name}\n#SBATCH --array=0-{len(tasks) - 1}\n#SBATCH --requeue\n"
        "#SBATCH --open-mode=append\n#SBATCH --signal=USR1@120\n"
        "# Saved and requeued at the time limit; the same file again does what is left.\n"
        f"RUNS=(\n{lines}\n)\n"
        'eval "${RUNS[$SLURM_ARRAY_TASK_ID]}"\ncode=$?\n'
        'if [ "$code" -eq 75 ]; then scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"; fi\nexit "$code"\n'
    )


def begin_array(plan: Sweep, folder: Path) -> str:
    """:func:`array_job` of a sweep whose folder is made ready for it."""
    begun.write(folder / SWEEP, plan)
    for task in plan.tasks(folder):
        make_folder(task.folder.parent)
    return array_job(plan, folder)


def split_axes(assignments: Mapping[str, str]) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Settings of a command line that have several values, and those that have one. A comma within brackets or quotes
    belongs to a value: ``views.view1.crop_scale=[0.2,1.0],[0.08,1.0]``."""
    values = {key: _OUTSIDE_BRACKETS.split(text) for key, text in assignments.items()}
    several = {key: [value.strip() for value in found] for key, found in values.items() if len(found) > 1}
    return several, {key: text for key, text in assignments.items() if key not in several}
