"""Runs side by side: the settings in which they differ, and their results with seeds pooled."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ssl_hub.codec import changes, flat, to_dict
from ssl_hub.hub import store
from ssl_hub.tables.claims import Sample
from ssl_hub.tables.runs import Run, protocol_of, read_run

SEED = "train.seed"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Groups of runs that differ in their seeds alone, by name; for each setting in which groups differ, and for each
    measured number, its value in every group (None where there is none)."""

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

    Runs whose recipes differ in the seed alone are one group, named after the first of them; their results are pooled.
    Settings of ``runtime`` change nothing that is learnt and are left out. Raises UsageError for what is no run.
    """
    grouped: list[list[Run]] = []
    for name in dict.fromkeys(map(str, runs)):
        run = read_run(store.run_folder(name), name)
        for group in grouped:
            if changes(group[0].recipe, run.recipe).keys() <= {SEED}:
                group.append(run)
                break
        else:
            grouped.append([run])
    differing = dict.fromkeys(
        key
        for first in grouped
        for other in grouped
        for key in changes(first[0].recipe, other[0].recipe)
        if key != SEED
    )
    flats = [flat(to_dict(group[0].recipe)) for group in grouped]
    samples = [_samples(group) for group in grouped]
    return Comparison(
        groups={group[0].label: [run.label for run in group] for group in grouped},
        settings={key: [settings.get(key) for settings in flats] for key in differing},
        results={
            key: [found.get(key) for found in samples] for key in dict.fromkeys(k for found in samples for k in found)
        },
    )


def _samples(group: Sequence[Run]) -> dict[str, Sample]:
    values: dict[str, dict[int, float]] = {}
    for run in group:
        for result in run.results:
            key = f"{protocol_of(result)} {result.metric}, {result.dataset} ({result.split})"
            values.setdefault(key, {})[run.seed] = result.value
    collapsed = sum(run.collapsed for run in group)
    return {key: Sample.of(list(by_seed.values()), collapsed=collapsed) for key, by_seed in values.items()}
