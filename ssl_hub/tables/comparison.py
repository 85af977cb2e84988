"""Runs side by side: the settings in which they differ, their results with seeds pooled, and tests seed by seed."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ssl_hub.codec import NOT_LEARNT, flat, to_dict
from ssl_hub.evaluate.intervals import paired
from ssl_hub.evaluate.measurement import Measurement, alike, measurement_of, protocol_of, titles
from ssl_hub.hub import store
from ssl_hub.model.results import Result
from ssl_hub.model.standing import Standing, standing
from ssl_hub.tables.claims import Sample
from ssl_hub.tables.markup import markdown_table
from ssl_hub.tables.runs import Run, read_run

SEEDS = ("train.seed", "finetuning.seed")


class Paired(NamedTuple):
    """Mean difference over the seeds that two groups share, with its 95 % interval and p by Student's paired test."""

    difference: float
    low: float
    high: float
    p: float
    seeds: int

    def __str__(self) -> str:
        return f"{self.difference:+.2f} ({self.low:+.2f} to {self.high:+.2f}), p = {self.p:.3g}, {self.seeds} seeds"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Groups of runs that differ in their seeds alone, by name; for each setting in which groups differ, and for each
    measurement, its value in every group (None where there is none).

    A measurement is a protocol with the settings that define it: kNN with 20 and with 200 neighbours are two.
    """

    groups: dict[str, list[str]]  # labels of the runs
    settings: dict[str, list[Any]]
    results: dict[str, list[Sample | None]]
    tests: dict[str, list[Paired | None]]  # of each group against the first
    not_counted: list[str]

    def text(self) -> str:
        """A table in Markdown, and what is not in it."""
        header = ["", *(f"{name} ({len(runs)} runs)" if len(runs) > 1 else name for name, runs in self.groups.items())]
        rows = [[key, *("" if v is None else str(v) for v in values)] for key, values in self.settings.items()]
        for key, values in self.results.items():
            rows.append([key, *("" if v is None else v.with_interval for v in values)])
            if any(self.tests[key]):
                against = ["against the first, seed by seed", *("" if t is None else str(t) for t in self.tests[key])]
                rows.append(against)
        left_out = ["", "Not counted, and why:", "", *(f"- {line}" for line in self.not_counted)]
        return "\n".join([markdown_table(header, rows), *(left_out if self.not_counted else [])])

    def json(self) -> str:
        plain = {
            "groups": self.groups,
            "settings": self.settings,
            "results": {key: [sample and sample.plain() for sample in values] for key, values in self.results.items()},
            "tests": {key: [t and t._asdict() for t in tests] for key, tests in self.tests.items()},
            "not_counted": self.not_counted,
        }
        return json.dumps(plain, indent=2, allow_nan=False)


def compare(runs: Sequence[str | Path]) -> Comparison:
    """Compare runs, given as folders or names in the store.

    Runs that were trained alike from different seeds are one group, named after the first of them; their results are
    pooled, the newest of each measurement. Where two groups share two seeds or more, their numbers are tested in pairs;
    what does not count (:mod:`ssl_hub.model.standing`) is named with the reason.

    A fine-tuned run is never in its parent's group. Settings of ``runtime``
    change nothing that is learnt and are left out. Raises UsageError for what is no run.
    """
    grouped: list[list[Run]] = []
    for name in dict.fromkeys(map(str, runs)):
        run = read_run(store.run_folder(name), name)
        for group in grouped:
            if _learnt(group[0]) == _learnt(run) and all(_seeds(run) != _seeds(other) for other in group):
                group.append(run)
                break
        else:
            grouped.append([run])
    settings = [_learnt(group[0]) for group in grouped]
    of_runs = {id(run): standing(run.results, train_split=run.recipe.data.train_split) for g in grouped for run in g}
    same = alike(measurement_of(r) for judged in of_runs.values() for r in judged.counted)
    superseded: list[tuple[Run, Result, str]] = []
    found = [_by_seed(group, of_runs, same, superseded) for group in grouped]
    titled = titles(measurement for of_group in found for measurement in of_group)
    return Comparison(
        groups={group[0].label: [run.label for run in group] for group in grouped},
        settings={key: [s.get(key) for s in settings] for key in differing(settings)},
        results={title: [_sample(of_group.get(m)) for of_group in found] for m, title in titled.items()},
        tests={title: [_paired(found[0].get(m), of_group.get(m)) for of_group in found] for m, title in titled.items()},
        not_counted=[
            f"{run.label}: {protocol_of(r.protocol, r.settings)} {r.metric} {r.value:.2f}: {reason}"
            for run, r, reason in (
                *((run, *aside) for group in grouped for run in group for aside in of_runs[id(run)].aside),
                *superseded,
            )
        ],
    )


def differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys whose values are not alike in all, or that are not in all."""
    return sorted({key for one in settings for key in one if any(one[key] != s.get(key, ...) for s in settings)})


def _settings(run: Run) -> dict[str, Any]:
    return {**flat(to_dict(run.recipe)), **run.finetuning}


def _learnt(run: Run) -> dict[str, Any]:
    """The settings that change what is learnt, seeds aside."""
    return {key: v for key, v in _settings(run).items() if key.split(".")[0] not in NOT_LEARNT and key not in SEEDS}


def _seeds(run: Run) -> list[Any]:
    return [_settings(run).get(key) for key in SEEDS]


def _by_seed(
    group: Sequence[Run],
    of_runs: Mapping[int, Standing],
    same: Mapping[Measurement, Measurement],
    superseded: list[tuple[Run, Result, str]],
) -> dict[Measurement, dict[str, Result]]:
    """Of each measurement the newest result of each seed; the others go to ``superseded`` with the reason."""
    newest: dict[Measurement, dict[str, Result]] = {}
    for run in group:
        seed = str(_seeds(run))
        for result in sorted(of_runs[id(run)].counted, key=lambda result: result.when):
            of_seeds = newest.setdefault(same[measurement_of(result)], {})
            if seed in of_seeds:
                superseded.append((run, of_seeds[seed], "measured again later"))
            of_seeds[seed] = result
    return newest


def _sample(of_seeds: Mapping[str, Result] | None) -> Sample | None:
    if of_seeds is None:
        return None
    results = list(of_seeds.values())
    return Sample.of([r.value for r in results], collapsed=sum(r.collapsed for r in results), images=results[0].images)


def _paired(first: Mapping[str, Result] | None, other: Mapping[str, Result] | None) -> Paired | None:
    """None for a group with itself, and where fewer than two seeds are shared."""
    shared = [seed for seed in first or {} if seed in (other or {})]
    if first is None or other is None or first is other or len(shared) < 2:
        return None
    differences = [other[seed].value - first[seed].value for seed in shared]
    return Paired(statistics.mean(differences), *paired(differences), len(shared))
