"""A published table beside what was measured: each number with the runs and the protocol behind it, and no others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ssl_hub.config import Recipe
from ssl_hub.evaluate.measurement import LINEAR, protocol_of
from ssl_hub.tables.cells import Cell, Printed, Table
from ssl_hub.tables.claims import Judgement, Sample, judge
from ssl_hub.tables.paper import SIZES, TABLES, chance_of
from ssl_hub.tables.runs import Run, find_runs, pooled


class Terms(NamedTuple):
    """What a run must have been to count in a cell, and the protocol whose number is taken where there are several."""

    recipe: Recipe
    images: int  # trained on
    protocol: str
    labelled: int | None = None  # that the probe was trained on; None: any


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One metric of one cell. ``measured`` is None where no run counts, or none of those that do was probed."""

    cell: Cell
    metric: str
    measured: Sample | None = None
    protocol: str | None = None
    runs: tuple[str, ...] = ()

    @property
    def printed(self) -> Printed:
        return self.cell.printed[self.metric]

    @property
    def difference(self) -> float | None:
        return None if self.measured is None else self.measured.mean - self.printed.mean


@dataclass(frozen=True, kw_only=True)
class Report:
    """A table with its measured entries; ``facts`` say how they came about, in the order in which they are shown.

    ``judged`` are the verdicts on the measured numbers, ``judged_in_paper`` those of the same rule on the printed ones.
    ``not_counted`` names runs of the table's recipes that are not what a cell asks for, and why. A reduction is not
    ``comparable`` with the printed numbers, cell by cell.
    """

    table: Table
    facts: Mapping[str, str]
    entries: tuple[Entry, ...]
    untrained: Sample | None
    judged: tuple[Judgement, ...]
    judged_in_paper: tuple[Judgement, ...]
    not_counted: tuple[str, ...] = ()
    comparable: bool = True


def report(table: str, folders: Sequence[str | Path] = ()) -> Report:
    """The paper's table ``table`` with what the runs in the store, and in ``folders`` and below, have measured.

    A run counts in a cell where its recipe is the cell's, seed and location of the data aside, and it was trained and
    probed on as many images: a shortened run never does, nor one on a part of the data.

    Raises UsageError for an unknown table, a missing folder, or damaged files.
    """
    return report_on(TABLES[table], find_runs(folders), paper_terms)


def paper_terms(cell: Cell) -> Terms:
    recipe = cell.settings()
    size = SIZES[recipe.data.name]
    return Terms(recipe, size.images, cell.protocol, size.labelled)


def report_on(
    table: Table,
    runs: Sequence[Run],
    terms: Callable[[Cell], Terms],
    *,
    cells: Sequence[Cell] | None = None,
    untrained: Sample | None = None,
    facts: Mapping[str, str] | None = None,
    comparable: bool = True,
) -> Report:
    """``table``, or those ``cells`` of it, measured by the ``runs`` that meet each cell's ``terms``."""
    cells = table.cells if cells is None else cells
    wanted = {cell.name: terms(cell) for cell in cells}
    faults = {(run.folder, cell.name): why_not(run, wanted[cell.name]) for run in runs for cell in cells}
    counted = {cell.name: [run for run in runs if not faults[run.folder, cell.name]] for cell in cells}
    used = {run.folder for found in counted.values() for run in found}
    of_recipe = {
        run: [faults[run.folder, cell.name] for cell in cells if cell.recipe == run.recipe.name]
        for run in runs
        if run.folder not in used
    }
    entries = tuple(
        _entry(cell, metric, counted[cell.name], wanted[cell.name]) for cell in cells for metric in cell.printed
    )
    measured = {entry.cell.name: entry.measured for entry in entries if entry.metric == "top1"}
    published = {cell.name: Sample.printed(cell.printed["top1"]) for cell in cells}
    claims = [claim for claim in table.claims if {claim.cell, claim.than} <= published.keys()]
    chance = chance_of(table)
    here = chance if comparable else None  # a reduction may be of other data
    return Report(
        table=table,
        facts=facts or {},
        entries=entries,
        untrained=untrained,
        judged=tuple(judge(c, measured[c.cell], measured[c.than], untrained, here) for c in claims),
        judged_in_paper=tuple(judge(c, published[c.cell], published[c.than], chance=chance) for c in claims),
        comparable=comparable,
        not_counted=tuple(_refusal(run, min(reasons, key=len)) for run, reasons in of_recipe.items() if reasons),
    )


def why_not(run: Run, terms: Terms) -> list[str]:
    """Why a run does not count, in words; nothing where it does."""
    if run.finetuning:
        return [f"fine-tuned on {run.finetuning['finetuning.data']}"]
    reasons = [f"{key} is {got}, not {wanted}" for key, (wanted, got) in run.differences(terms.recipe).items()]
    if run.images != terms.images:
        reasons.append(f"trained on {run.images} images, not {terms.images}")
    return reasons


def _refusal(run: Run, reasons: Sequence[str]) -> str:
    """A run that does not count, by the cell that it is nearest to, with what it has measured."""
    probed = [r for r in run.own_results if r.protocol.startswith(LINEAR)]
    numbers = ", ".join(f"{protocol_of(r.protocol, r.settings)} {r.metric} {r.value:.2f}" for r in probed)
    return f"{run.label} ({numbers or 'not probed'}): {'; '.join(reasons)}"


def _entry(cell: Cell, metric: str, runs: Sequence[Run], terms: Terms) -> Entry:
    found = pooled(runs, metric, wanted=terms.protocol, labelled=terms.labelled)
    if found is None:
        return Entry(cell=cell, metric=metric, runs=tuple(run.label for run in runs))
    sample, protocol, behind = found
    labels = tuple(run.label for run in behind)
    return Entry(cell=cell, metric=metric, measured=sample, protocol=protocol, runs=labels)
