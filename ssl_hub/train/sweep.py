"""A recipe over a grid of settings and seeds: a run for each, what they measured, and where to go on."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from ssl_hub.atomic import expanded, replace_file
from ssl_hub.errors import UsageError
from ssl_hub.hub import store
from ssl_hub.limits import COUNT
from ssl_hub.tables.comparison import Comparison, compare
from ssl_hub.tables.grids import Grid
from ssl_hub.train import grid
from ssl_hub.train.lock import locked
from ssl_hub.zoo import get_recipe

SWEEP = "sweep.json"
_OUTSIDE_BRACKETS = re.compile(r",(?![^\[]*\])(?![^\"]*\"(?:[^\"]*\"[^\"]*\")*[^\"]*$)")


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What is varied: every combination of the values of ``axes``, with ``settings`` alike in all, over ``seeds``."""

    recipe: str
    data: str | None
    settings: dict[str, str]
    axes: dict[str, list[str]]
    seeds: int

    def points(self) -> list[dict[str, str]]:
        return [dict(zip(self.axes, values, strict=True)) for values in itertools.product(*self.axes.values())]

    def run(self, out: Path, point: Mapping[str, str], seed: int) -> Path:
        return out / name_of(point) / f"seed-{seed}"

    def task(self, out: Path, point: Mapping[str, str], seed: int) -> grid.Task:
        run = self.run(out, point, seed)
        settings = {**self.settings, **point, "train.seed": str(seed)}
        return grid.Task(
            name=f"{name_of(point)}, seed {seed}",
            arguments=(
                *("train", self.recipe, *(f"{key}={value}" for key, value in settings.items())),
                *(() if self.data is None else ("--data", self.data)),
                *("--output", str(run), "--resume", "auto"),
            ),
            folder=run,
            done=partial(grid.is_trained, run),
        )

    def tasks(self, out: Path) -> list[grid.Task]:
        """All points with one seed before the next, so that the table fills evenly."""
        return [self.task(out, point, seed) for seed in range(self.seeds) for point in self.points()]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a sweep has measured so far; ``failed`` names the logs of runs that did not end well."""

    sweep: Sweep
    folder: Path
    comparison: Comparison
    failed: list[str]

    def grid(self) -> Grid:
        """Points by measurement, with seeds pooled."""
        places = {Path(label).parent.name: place for place, label in enumerate(self.comparison.groups)}
        rows = [(point, places.get(name_of(point))) for point in self.sweep.points()]
        return Grid(
            axes=self.sweep.axes,
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
    seeds: int = 1,
    jobs: int = 1,
) -> Outcome:
    """Train a recipe at every point of a grid, each with every seed, and measure it as a run measures itself.

    What is finished is not run again, and what was killed goes on from its last checkpoint. The same folder takes more
    values and more seeds later; it belongs to one recipe, data and settings.

    Args:
        recipe: a registered name, or a recipe.json. None, with ``out`` alone, goes on with what was begun there.
        axes: dotted settings, each with the values that it takes: ``{"predictor.rho": [0.1, 0.3]}``.
        settings: dotted settings that are alike in all runs.
        data: what to train on instead of the recipe's data.
        out: the folder; by default one in the store, named after recipe and axes.
        seeds: how many, from 0.
        jobs: runs at a time, each on one thread unless OMP_NUM_THREADS says otherwise.

    Raises:
        UsageError: a setting or value that the recipe does not take, before anything starts; another recipe, data or
            settings than those of the folder; no run that ended well.
        Interrupted: after a signal, once every run is saved.
    """
    COUNT.check("jobs", jobs)
    plan, folder = planned(recipe, axes, settings=settings, data=data, out=out, seeds=seeds)
    with locked(folder) as lock:
        begin(plan, folder)
        print(f"{len(plan.points())} points, {plan.seeds} seed(s), in {folder}", file=sys.stderr)
        failed = grid.work_through(plan.tasks(folder), at_once=jobs, lock=lock)
    return outcome(plan, folder, [str(task.log) for task in failed])


def planned(
    recipe: str | None,
    axes: Mapping[str, Sequence[object]] | None,
    *,
    settings: Mapping[str, object] | None,
    data: str | None,
    out: str | Path | None,
    seeds: int,
) -> tuple[Sweep, Path]:
    """The sweep that is meant, every point of it checked, and its folder."""
    if recipe is None:
        if out is None:
            raise UsageError("no recipe: name one, or the --out of a sweep that was begun")
        return read(expanded(out)), expanded(out)
    if not axes:
        raise UsageError("nothing to sweep over: give a setting several values, as in predictor.rho=0.1,0.3,0.5")
    COUNT.check("seeds", seeds)
    plan = Sweep(
        recipe=recipe,
        data=None if data is None else grid.findable(data),
        settings={key: _text(value) for key, value in (settings or {}).items()},
        axes={key: [_text(value) for value in values] for key, values in axes.items()},
        seeds=seeds,
    )
    for key, values in plan.axes.items():
        if len(set(values)) < len(values) or key in plan.settings or key == "train.seed":
            raise UsageError(f"{key} has the same value twice, is set as well, or is the seed, which --seeds counts")
    for point in plan.points():
        get_recipe(recipe, **{**plan.settings, **point})
    name = f"sweep-{Path(recipe).stem}-{'-'.join(key.rpartition('.')[2] for key in plan.axes)}"
    return plan, store.home() / name if out is None else expanded(out)


def begin(plan: Sweep, folder: Path) -> None:
    """Note what is done in a folder. Raises UsageError where something else was."""
    if (folder / SWEEP).is_file():
        there = read(folder)
        for name in ("recipe", "data", "settings"):
            if getattr(there, name) != getattr(plan, name):
                raise UsageError(
                    f"{folder} holds a sweep with {name} {getattr(there, name)}, not {getattr(plan, name)}; choose"
                    " another --out"
                )
    replace_file(folder / SWEEP, (json.dumps(asdict(plan), indent=2) + "\n").encode())


def read(folder: Path) -> Sweep:
    path = folder / SWEEP
    try:
        return Sweep(**json.loads(path.read_text()))
    except OSError:
        raise UsageError(f"no sweep was begun in {folder}: it has no {SWEEP}") from None
    except (ValueError, TypeError) as error:
        raise UsageError(f"{path} holds no sweep ({error})") from None


def outcome(plan: Sweep, folder: Path, failed: Sequence[str] = ()) -> Outcome:
    """What has been measured so far. Raises UsageError where no run has ended well."""
    runs = [plan.run(folder, point, seed) for point in plan.points() for seed in range(plan.seeds)]
    ended = [run for run in runs if grid.is_trained(run)]
    if not ended:
        logs = f": see {', '.join(failed)}" if failed else ""
        raise UsageError(f"none of {len(runs)} runs in {folder} has ended well{logs}")
    return Outcome(sweep=plan, folder=folder, comparison=compare(ended), failed=list(failed))


def array_job(plan: Sweep, folder: Path) -> str:
    """The sweep as a job array of Slurm, for ``sbatch``: a run for each task. Runs that are finished end at once."""
    tasks = plan.tasks(folder)
    lines = "\n".join(f"    {shlex.quote(shlex.join(('ssl-hub', *task.arguments)))}" for task in tasks)
    return (
        f"#!/bin/bash\n#SBATCH --job-name={folder.name}\n#SBATCH --array=0-{len(tasks) - 1}\n#SBATCH --requeue\n"
        "#SBATCH --open-mode=append\n#SBATCH --signal=USR1@120\n"
        "# Saved and requeued at the time limit; the same file again does what is left.\n"
        f"RUNS=(\n{lines}\n)\n"
        'eval "srun ${RUNS[$SLURM_ARRAY_TASK_ID]}"\ncode=$?\n'
        'if [ "$code" -eq 75 ]; then scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"; fi\nexit "$code"\n'
    )


def split_axes(assignments: Mapping[str, str]) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Settings of a command line that have several values, and those that have one. A comma within brackets or quotes
    belongs to a value: ``views.view1.crop_scale=[0.2,1.0],[0.08,1.0]``."""
    values = {key: _OUTSIDE_BRACKETS.split(text) for key, text in assignments.items()}
    several = {key: [value.strip() for value in found] for key, found in values.items() if len(found) > 1}
    return several, {key: text for key, text in assignments.items() if key not in several}


def name_of(point: Mapping[str, str]) -> str:
    """The folder of a point, which says what it is: ``rho=0.1,eps=0.3``."""
    text = ",".join(f"{key.rpartition('.')[2]}={value}" for key, value in point.items())
    return re.sub(r"[^\w.,=+-]+", "_", text)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
