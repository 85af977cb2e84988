"""A published table beside what was measured: each number with the runs and the protocol behind it, and no others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ssl_hub.evaluate.measurement import LINEAR, Measurement, differences, protocol_of
from ssl_hub.model.results import Result
from ssl_hub.tables.cells import Cell, Claim, Table
from ssl_hub.tables.claims import NOT_PRINTED, Judgement, Sample, judge
from ssl_hub.tables.paper import TABLES, chance_of, size_of
from ssl_hub.tables.pooling import Pool, Terms, pooled, why_not
from ssl_hub.tables.runs import Run, find_runs

NO_CELL = "of recipe {}, which has no cell in this table"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One metric of one cell. ``measured`` is None where no run counts, or none of those that do was probed."""

    cell: Cell
    metric: str
    measured: Sample | None = None
    measurement: Measurement | None = None
    runs: tuple[str, ...] = ()

    @property
    def printed(self) -> Sample | None:
        return Sample.printed(self.cell.printed[self.metric])

    @property
    def protocol(self) -> str | None:
        return None if self.measurement is None else self.measurement.protocol

    @property
    def difference(self) -> float | None:
        """From the printed number, where it was measured by the protocol of that."""
        if self.measured is None or self.printed is None or self.protocol != self.cell.protocol:
            return None
        return self.measured.mean - self.printed.mean


@dataclass(frozen=True, kw_only=True)
class Report:
    """A table with its measured entries; ``facts`` say how they came about, in the order in which they are shown.

    ``judged`` are the verdicts on the measured numbers, ``judged_in_paper`` those of the same rule on the printed ones.
    ``not_counted`` names every run, and of the runs of a cell every result of the table's kind, that is in no entry,
    and why. A reduction is not ``comparable`` with the printed numbers, cell by cell.
    """

    table: Table
    facts: Mapping[str, str]
    entries: tuple[Entry, ...]
    untrained: Sample | None
    judged: tuple[Judgement, ...]
    judged_in_paper: tuple[Judgement, ...]
    not_counted: tuple[str, ...] = ()
    comparable: bool = True


def report(table: str, folders: Sequence[str | Path] = (), *, owner: str | None = None) -> Report:
    """The paper's table ``table`` with what runs have measured: those in the store, in ``folders`` and below, and those
    of ``owner`` on the Hub.

    A run counts in a cell where its recipe is the cell's, seed and location of the data aside, and it was trained,
    probed and judged on as many images: a shortened run never does, nor one on a part of the data.

    Raises UsageError for an unknown table, a missing folder, or a Hub that cannot be asked.
    """
    unreadable: list[str] = []
    runs = find_runs(folders, owner=owner, unreadable=unreadable)
    return report_on(TABLES[table], runs, paper_terms, unreadable=unreadable)


def paper_terms(cell: Cell) -> Terms:
    recipe = cell.settings()
    size = size_of(recipe.data)
    return Terms(recipe, size.images, cell.protocol, size.labelled, size.tested, size.classes or None)


def report_on(
    table: Table,
    runs: Sequence[Run],
    terms: Callable[[Cell], Terms],
    *,
    cells: Sequence[Cell] | None = None,
    untrained: tuple[Sample, Measurement] | None = None,
    facts: Mapping[str, str] | None = None,
    comparable: bool = True,
    unreadable: Sequence[str] = (),
) -> Report:
    """``table``, or those ``cells`` of it, measured by the ``runs`` that meet each cell's ``terms``."""
    cells = table.cells if cells is None else cells
    wanted = {cell.name: terms(cell) for cell in cells}
    faults = {(run.folder, cell.name): why_not(run, wanted[cell.name]) for run in runs for cell in cells}
    counted = {cell.name: [run for run in runs if not faults[run.folder, cell.name]] for cell in cells}
    pools = {(c.name, m): pooled(counted[c.name], m, wanted[c.name]) for c in cells for m in c.printed}
    entries = tuple(_entry(c, m, pools[c.name, m], counted[c.name]) for c in cells for m in c.printed)
    fitting = {run.folder for found in counted.values() for run in found}
    others = {run: [faults[run.folder, c.name] for c in cells if c.recipe == run.recipe.name] for run in runs}
    refused = [
        _refusal(run, run.own_results, min(why, key=len) if why else [NO_CELL.format(run.recipe.name)])
        for run, why in others.items()
        if run.folder not in fitting
    ]
    chance = chance_of(table)
    here = chance if comparable else None  # a reduction may be of other data
    tops = {entry.cell.name: entry for entry in entries if entry.metric == "top1"}
    published = {cell.name: Sample.printed(cell.printed["top1"]) for cell in cells}
    claims = [claim for claim in table.claims if {claim.cell, claim.than} <= published.keys()]
    return Report(
        table=table,
        facts=facts or {},
        entries=entries,
        untrained=None if untrained is None else untrained[0],
        judged=tuple(_judged(claim, tops[claim.cell], tops[claim.than], untrained, here) for claim in claims),
        judged_in_paper=tuple(
            judge(c, published[c.cell], published[c.than], chance=chance, absent=NOT_PRINTED) for c in claims
        ),
        comparable=comparable,
        not_counted=(*refused, *_not_used(list(pools.values())), *unreadable),
    )


def _judged(
    claim: Claim, cell: Entry, than: Entry, untrained: tuple[Sample, Measurement] | None, chance: float | None
) -> Judgement:
    """The verdict on what was measured; on numbers that are not the same measurement there is none."""
    unlike: list[str] = []
    start = None
    if cell.measurement is not None and than.measurement is not None:
        unlike = differences(cell.measurement, than.measurement)
    if untrained is not None and cell.measurement is not None and not differences(untrained[1], cell.measurement):
        start = untrained[0]
    return judge(claim, cell.measured, than.measured, start, chance, unlike=unlike)


def _refusal(run: Run, results: Sequence[Result], reasons: Sequence[str]) -> str:
    """A run, or some of its results, with what it has measured and why that does not count."""
    probed = [r for r in results if r.protocol.startswith(LINEAR)]
    numbers = ", ".join(f"{protocol_of(r.protocol, r.settings)} {r.metric} {r.value:.2f}" for r in probed)
    return f"{run.label} ({numbers or 'not probed'}): {'; '.join(reasons)}"


def _not_used(pools: Sequence[Pool]) -> list[str]:
    """What runs of a cell measured and is in no cell: a line for each run and reason."""
    used = {id(result) for pool in pools for result in pool.results}
    in_use = {run for pool in pools for run in pool.runs}
    found: dict[tuple[Run, str], list[Result]] = {}
    for pool in pools:
        for run, result, reason in pool.not_used:
            if id(result) not in used and not (result is None and run in in_use):
                found.setdefault((run, reason), []).extend([] if result is None else [result])
    return [
        _refusal(run, list({id(r): r for r in results}.values()), [reason]) for (run, reason), results in found.items()
    ]


def _entry(cell: Cell, metric: str, pool: Pool, runs: Sequence[Run]) -> Entry:
    labels = tuple(run.label for run in pool.runs or runs)
    return Entry(cell=cell, metric=metric, measured=pool.sample, measurement=pool.measurement, runs=labels)
