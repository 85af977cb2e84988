"""The processes of a reproduction: a training for each cell and seed, a probe for each of them, and the baselines."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from ssl_hub.config import Scalar
from ssl_hub.evaluate.measurement import protocol_of
from ssl_hub.model.files import RECIPE
from ssl_hub.model.standing import is_part, standing_in
from ssl_hub.tables.cells import Cell, Table
from ssl_hub.train import grid
from ssl_hub.train.plan import Plan

UNTRAINED = "untrained"


def trainings(plan: Plan, table: Table, folder: Path) -> list[grid.Task]:
    """A run for each cell and seed: all cells of one seed before the next, so that a table fills evenly."""
    return [training(plan, cell, run, seed) for cell, run, seed in _runs(plan, table, folder)]


def probes(plan: Plan, table: Table, folder: Path) -> list[grid.Task]:
    """The probe of each run that was trained, and of the backbone before training for each seed."""
    of_runs: list[grid.Task] = []
    of_untrained: dict[int, grid.Task] = {}
    for cell, run, seed in _runs(plan, table, folder):
        protocol = plan.protocol(cell)
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


def _runs(plan: Plan, table: Table, folder: Path) -> list[tuple[Cell, Path, int]]:
    return [
        (cell, folder / cell.folder / f"seed-{seed}", seed) for seed in range(plan.seeds) for cell in plan.chosen(table)
    ]


def training(plan: Plan, cell: Cell, run: Path, seed: int) -> grid.Task:
    """The training of one cell with one seed in the folder ``run``, from its last checkpoint where it was begun."""
    return grid.Task(
        name=f"{cell.name}, seed {seed}",
        arguments=(
            *("train", cell.recipe, *_assignments(plan.overrides(cell)), f"train.seed={seed}"),
            *("--data", plan.data, "--output", str(run)),
            *(("--resume",) if (run / RECIPE).exists() else ()),
        ),
        folder=run,
        done=partial(grid.is_trained, run),
        steps=plan.steps(cell),
    )


def _probed(folder: Path, protocol: str) -> bool:
    """Whether that very protocol has measured a whole split that was not fitted to."""
    counted = standing_in(folder).counted
    return any(protocol_of(r.protocol, r.settings) == protocol and not is_part(r.split) for r in counted)


def _assignments(overrides: dict[str, Scalar]) -> list[str]:
    return [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in overrides.items()]
