"""Training and probing a published table: a run for each cell and seed, and what they say of the table's claims."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from ssl_hub.atomic import expanded
from ssl_hub.data.sources import open_part
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.extraction import Extraction, sources_of
from ssl_hub.evaluate.labels import check_labels, check_trainable, labels_of
from ssl_hub.evaluate.measurement import differences, measurement_of, protocol_of
from ssl_hub.hub import store
from ssl_hub.model.metrics import read_metrics
from ssl_hub.model.parts import check_plugins, of_plugin, with_overrides
from ssl_hub.model.release import read_facts
from ssl_hub.model.results import read_results
from ssl_hub.model.standing import is_part, standing_in
from ssl_hub.tables.cells import Cell, Table
from ssl_hub.tables.claims import Sample
from ssl_hub.tables.paper import TABLES
from ssl_hub.tables.pooling import Terms
from ssl_hub.tables.report import Report, report_on
from ssl_hub.tables.runs import Run, find_runs
from ssl_hub.train import begun, grid
from ssl_hub.train.lock import locked
from ssl_hub.train.plan import PLAN, Plan, Scale, check_budget, sized

UNTRAINED, TRIAL = "untrained", "trial"  # folders beside those of the cells
TRIAL_STEPS, TRIAL_IMAGES = 60, 4096
BUDGET_MINUTES = 60.0


def reproduce(
    table: str,
    *,
    data: str | None = None,
    out: str | Path | None = None,
    scale: Scale | None = None,
    cells: str | None = None,
    seeds: int | None = None,
    jobs: int = 1,
    budget_minutes: float | None = None,
) -> Report:
    """Train and probe the cells of a table, over seeds, and the untrained backbone beside them.

    What is finished is not run again, and what was killed continues from its last checkpoint: the same call again, or
    one with the table and the folder alone, goes on where the last one ended.

    Args:
        table: a name in :data:`ssl_hub.tables.paper.TABLES`.
        data: what to train and probe on: a registered name, a path or a Hub dataset id.
        out: the folder of the reproduction; by default one in the store, named after table and scale. It gets a folder
            for each cell with a run for each seed, and the plan.
        scale: ``paper`` (the default), or ``mini``, a reduction that fits the budget; see :class:`Plan`.
        cells: a shell-style pattern of cell names; default all.
        seeds: how many, from 0; default as many as the paper repeats.
        jobs: runs at a time, each on one thread.
        budget_minutes: of computing with that many jobs, which set the size of ``mini``; 60 where not given.

    Returns:
        The table with what was measured, and the verdict on each claim.

    Raises:
        UsageError: an unknown table or cell, arguments that contradict the plan in the folder, data that does not open,
            a budget too small, or runs that failed, naming their logs.
        Interrupted: after a signal, once every run is saved.
    """
    folder = store.home() / f"reproduce-{table}-{scale or 'paper'}" if out is None else expanded(out)
    for what, number in {"jobs": jobs, "seeds": 1 if seeds is None else seeds}.items():
        if number < 1:
            raise UsageError(f"{what} is {number}, expected at least 1")
    if cells == "":
        raise UsageError("cells is empty, expected a pattern of cell names, such as '*100 epochs'; or leave it out")
    if data is not None:
        data = grid.findable(data)
    there = begun.read(Plan, folder / PLAN, what="reproduction")
    if there is not None:
        check_plugins(there.plugins, {"table": TABLES})
    chosen = TABLES[table]
    plan = _planned({"table": table, "data": data, "scale": scale, "budget_minutes": budget_minutes}, there, folder)
    plan = replace(plan, cells=cells or plan.cells, seeds=seeds or plan.seeds or chosen.repeats)
    cells_chosen = plan.chosen(chosen)
    if there is None:
        check_budget(plan, cells_chosen, jobs=jobs)
    with locked(folder) as lock:
        if there is None:
            plan = _sized(plan, chosen, folder, jobs, lock)
        begun.write(folder / PLAN, plan)
        print(f"{chosen.title}\n{plan.words()}\nin {folder}", file=sys.stderr)
        failed = grid.work_through(_trainings(plan, chosen, folder), at_once=jobs, lock=lock)
        failed += grid.work_through(_probes(plan, chosen, folder), at_once=jobs, lock=lock)
    grid.refuse_failed(failed)
    return summarised(plan, chosen, folder)


def _planned(asked: Mapping[str, Any], there: Plan | None, folder: Path) -> Plan:
    """The plan that is ``there``, or else the one that is asked for. Raises UsageError where they contradict."""
    data, scale, minutes = asked["data"], asked["scale"], asked["budget_minutes"]
    here = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    if there is not None:
        given = {name: value for name, value in asked.items() if value is not None}
        begun.refuse_other(there, given, folder, what="reproduction")
        return replace(there, machine=there.machine or here)
    if data is None:
        raise UsageError(f"nothing was begun in {folder}; give --data: a name, a path or a Hub id")
    if minutes is not None and scale != "mini":
        raise UsageError("--budget-minutes sizes --scale mini; the paper's scale has a size of its own")
    if scale == "mini" and minutes is None:
        minutes = BUDGET_MINUTES
    plugins = of_plugin("table", asked["table"], TABLES)
    return Plan(**{**asked, "scale": scale or "paper", "budget_minutes": minutes}, machine=here, plugins=plugins)


def summarised(plan: Plan, table: Table, folder: Path) -> Report:
    """The table with what the runs in the folder have measured so far, and the verdicts on its claims."""
    cells = plan.chosen(table)
    runs = find_runs([folder], in_store=False)
    protocol = plan.protocol(cells[0])
    untrained = [
        result
        for path in sorted(folder.glob(f"{UNTRAINED}/seed-*"))
        for result in read_results(path)
        if result.metric == "top1" and protocol_of(result.protocol, result.settings) == protocol
    ]
    start = None if not untrained else measurement_of(untrained[0])
    alike = [r for r in untrained if start is not None and not differences(measurement_of(r), start)]
    report = report_on(
        table,
        runs,
        lambda cell: Terms(plan.settings(cell), plan.images, plan.protocol(cell), data=plan.data),
        cells=cells,
        untrained=None if start is None else (Sample.of([r.value for r in alike]), start),
        comparable=plan.scale == "paper",
        facts={
            "scale": plan.words(),
            "data": f"{Path(plan.data).name}, {plan.images:,} images to train on; the table's is"
            f" {cells[0].settings().data.name}",
            "command": plan.command(),
            "machine": plan.machine,
        },
    )
    counted = {label for entry in report.entries for label in entry.runs}
    return replace(report, facts={**report.facts, **_circumstances([run for run in runs if run.label in counted])})


def _circumstances(runs: Sequence[Run]) -> dict[str, str]:
    """Where and with what the runs were made, as the first of them says."""
    if not runs:
        return {}
    facts = read_facts(runs[0].folder)
    versions = ", ".join(f"{package} {version}" for package, version in facts["versions"].items())
    return {
        "seeds": ", ".join(str(seed) for seed in sorted({run.seed for run in runs})),
        "each run": f"on {facts['device']} with {facts['threads_per_process']} thread(s)",
        "versions": versions,
    }


def _sized(plan: Plan, table: Table, folder: Path, jobs: int, lock: int) -> Plan:
    """The plan with its number of images, and for ``mini`` the reduction that a trial run finds to fit the budget."""
    cells = plan.chosen(table)
    available = _available(plan, cells)
    if plan.scale == "paper":
        return replace(plan, images=available)
    some = replace(plan, images=available, every=max(1, available // TRIAL_IMAGES))
    trial = replace(_point(some, cells[0], folder), folder=folder / TRIAL).training(0)
    shutil.rmtree(trial.folder, ignore_errors=True)
    steps = (f"train.max_steps={TRIAL_STEPS}", "runtime.log_every_steps=20")
    print(f"measuring the speed: one short run, {TRIAL_STEPS} steps of {cells[0].name}", file=sys.stderr)
    started = time.monotonic()
    short = replace(trial, arguments=(*trial.arguments, *steps), steps=TRIAL_STEPS)
    if grid.work_through([short], at_once=1, lock=lock, show_progress=False):
        raise UsageError(f"the trial run that measures speed failed; see {trial.log}")
    seconds = time.monotonic() - started
    per_image = 1.0 / read_metrics(trial.folder)[-1]["images_per_second"]
    shutil.rmtree(folder / TRIAL)
    batch = some.overrides(cells[0])["train.batch_size"]
    assert isinstance(batch, int)
    return sized(
        plan,
        cells,
        available=available,
        seconds_per_image=per_image,
        seconds_each=max(0.0, seconds - TRIAL_STEPS * batch * per_image),
        jobs=jobs,
    )


def _available(plan: Plan, cells: Sequence[Cell]) -> int:
    """How many images there are to train on. Raises UsageError where they are less than a batch, or the probe would
    find nothing to fit to or to judge: before hours of training, and not after."""
    recipe = with_overrides(plan.settings(cells[0]), {"data.name": plan.data})
    fitted, judged = map(labels_of, sources_of(recipe, recipe.data.range, None, Extraction()))
    check_labels(fitted, judged)
    check_trainable(fitted)
    images = len(open_part(recipe.data, recipe.data.pretrain_split))
    batch, name = max((plan.settings(cell).train.batch_size, cell.name) for cell in cells)
    if images < batch:
        fix = " or --scale mini" if plan.scale == "paper" else ""
        raise UsageError(
            f"{plan.data} has {images:,} images to train on, expected at least {batch:,}, a batch of {name}; give other"
            f" --data{fix}"
        )
    return images


def _point(plan: Plan, cell: Cell, folder: Path) -> grid.Point:
    """What is trained for one cell."""
    return grid.Point(
        name=cell.name,
        folder=folder / cell.folder,
        recipe=cell.recipe,
        settings=plan.overrides(cell),
        data=plan.data,
        steps=plan.steps(cell),
    )


def _trainings(plan: Plan, table: Table, folder: Path) -> list[grid.Task]:
    """A run for each cell and seed."""
    return grid.trainings([_point(plan, cell, folder) for cell in plan.chosen(table)], plan.seeds)


def _probes(plan: Plan, table: Table, folder: Path) -> list[grid.Task]:
    """The probe of each run that was trained, and of the backbone before training for each seed."""
    of_runs: list[grid.Task] = []
    of_untrained: dict[int, grid.Task] = {}
    for seed, cell in product(range(plan.seeds), plan.chosen(table)):
        run, protocol = _point(plan, cell, folder).run(seed), plan.protocol(cell)
        named = ("--protocol", protocol.removeprefix("linear-"), "--seed", str(seed))
        if grid.is_trained(run):
            of_runs.append(
                grid.Task(
                    name=f"probe of {cell.name}, seed {seed}",
                    arguments=("probe", str(run), *named),
                    folder=run,
                    done=partial(_probed, run, protocol),
                )
            )
            aside = folder / UNTRAINED / f"seed-{seed}"
            untrained = grid.Task(
                name=f"probe of the untrained backbone, seed {seed}",
                arguments=("probe", f"init:{run}", *named, "--json"),
                folder=aside,
                done=partial(_probed, aside, protocol),
                prints_results=True,
            )
            of_untrained.setdefault(seed, untrained)
    return [*of_runs, *of_untrained.values()]


def _probed(folder: Path, protocol: str) -> bool:
    """Whether that very protocol has measured a whole split that was not fitted to."""
    counted = standing_in(folder).counted
    return any(protocol_of(r.protocol, r.settings) == protocol and not is_part(r.split) for r in counted)
