"""The processes of a reproduction: a training for each cell and seed, a probe for each of them, and the baselines."""

from __future__ import annotations

from functools import partial
from itertools import product
from pathlib import Path

from ssl_hub.evaluate.measurement import protocol_of
from ssl_hub.model.standing import is_part, standing_in
from ssl_hub.tables.cells import Cell, Table
from ssl_hub.train import grid
from ssl_hub.train.plan import Plan

UNTRAINED = "untrained"


def point(plan: Plan, cell: Cell, folder: Path) -> grid.Point:
    """What is trained for one cell."""
    return grid.Point(
        name=cell.name,
        folder=folder / cell.folder,
        recipe=cell.recipe,
        settings=plan.overrides(cell),
        data=plan.data,
        steps=plan.steps(cell),
    )


def trainings(plan: Plan, table: Table, folder: Path) -> list[grid.Task]:
    """A run for each cell and seed."""
    return grid.trainings([point(plan, cell, folder) for cell in plan.chosen(table)], plan.seeds)


def probes(plan: Plan, table: Table, folder: Path) -> list[grid.Task]:
    """The probe of each run that was trained, and of the backbone before training for each seed."""
    of_runs: list[grid.Task] = []
    of_untrained: dict[int, grid.Task] = {}
    for seed, cell in product(range(plan.seeds), plan.chosen(table)):
        run, protocol = point(plan, cell, folder).run(seed), plan.protocol(cell)
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
