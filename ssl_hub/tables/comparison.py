"""Runs side by side: the settings in which they differ, and their results with seeds pooled."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ssl_hub.codec import NOT_LEARNT, flat, to_dict
from ssl_hub.evaluate.measurement import Measurement, measurement_of, titles
from ssl_hub.hub import store
from ssl_hub.model.results import Result
from ssl_hub.tables.claims import Sample
from ssl_hub.tables.runs import Run, read_run

SEEDS = ("train.seed", "finetuning.seed")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Groups of runs that differ in their seeds alone, by name; for each setting in which groups differ, and for each
    measurement, its value in every group (None where there is none).

    A measurement is a protocol with the settings that define it: kNN with 20 and with 200 neighbours are two.
    """

    groups: dict[str, list[str]]  # labels of the runs
    settings: dict[str, list[Any]]
    results: dict[str, list[Sample | None]]

    def text(self) -> str:
        """A table in Markdown."""
        header = ["", *(f"{name} ({len(runs)} runs)" if len(runs) > 1 else name for name, runs in self.groups.items())]
        rows = [[key, *("" if v is None else str(v) for v in values)] for key, values in self.settings.items()]
        rows += [[key, *("" if v is None else str(v) for v in values)] for key, values in self.results.items()]
        lines = [header, ["---"] * len(header), *rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def json(self) -> str:
        plain = {
            "groups": self.groups,
            "settings": self.settings,
            "results": {key: [v and v._asdict() for v in values] for key, values in self.results.items()},
        }
        return json.dumps(plain, indent=2, allow_nan=False)


def compare(runs: Sequence[str | Path]) -> Comparison:
    """Compare runs, given as folders or names in the store.

    Runs that were trained alike from different seeds are one group, named after the first of them; their results are
    pooled, the newest of each measurement. A fine-tuned run is never in its parent's group. Settings of ``runtime``
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
    differing = sorted({key for one in settings for key in one if any(one[key] != s.get(key, ...) for s in settings)})
    samples = [_samples(group) for group in grouped]
    named = titles(measurement for found in samples for measurement in found)
    return Comparison(
        groups={group[0].label: [run.label for run in group] for group in grouped},
        settings={key: [s.get(key) for s in settings] for key in differing},
        results={title: [found.get(measurement) for found in samples] for measurement, title in named.items()},
    )


def _settings(run: Run) -> dict[str, Any]:
    return {**flat(to_dict(run.recipe)), **run.finetuning}


def _learnt(run: Run) -> dict[str, Any]:
    """The settings that change what is learnt, seeds aside."""
    return {key: v for key, v in _settings(run).items() if key.split(".")[0] not in NOT_LEARNT and key not in SEEDS}


def _seeds(run: Run) -> list[Any]:
    return [_settings(run).get(key) for key in SEEDS]


def _samples(group: Sequence[Run]) -> dict[Measurement, Sample]:
    newest: dict[Measurement, dict[str, Result]] = {}
    for run in group:
        for result in run.results:
            of_runs = newest.setdefault(measurement_of(result), {})
            if run.label not in of_runs or of_runs[run.label].date <= result.date:
                of_runs[run.label] = result
    return {
        measurement: Sample.of([r.value for r in found.values()], collapsed=sum(r.collapsed for r in found.values()))
        for measurement, found in newest.items()
    }
