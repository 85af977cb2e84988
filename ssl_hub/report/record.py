"""What a run folder holds, read without complaint: whatever is missing or damaged becomes a sentence.

Nothing here imports torch: the live view of a run must start fast.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ssl_hub.atomic import expanded
from ssl_hub.codec import from_dict
from ssl_hub.config import Recipe
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.measurement import Headline, headline
from ssl_hub.hub.store import run_folder
from ssl_hub.model.health import Health, health_of
from ssl_hub.model.metrics import METRICS
from ssl_hub.model.results import Result, read_results
from ssl_hub.model.standing import on_data

Reading = dict[str, Any]  # a line of metrics.jsonl


@dataclass(frozen=True, kw_only=True)
class Record:
    """A run as its folder tells it. ``problems`` says in words what could not be read, and is empty for a whole run."""

    name: str
    folder: Path
    recipe: Recipe | None = None
    facts: dict[str, Any] = field(default_factory=dict)  # of recipe.json: seed, processes, versions, command, ...
    readings: tuple[Reading, ...] = ()
    results: tuple[Result, ...] = ()
    problems: tuple[str, ...] = ()
    at: int | None = None  # the step of the checkpoint that is meant; None: the run as it stands

    @property
    def model(self) -> str:
        """What its features are those of, by name."""
        return str(self.folder) if self.at is None else f"{self.folder}@{self.at}"

    @property
    def steps(self) -> int | None:
        """Optimiser steps that the run is to take."""
        steps = self.fact("steps")
        return None if steps is None else int(steps)

    @property
    def step(self) -> int:
        """The last step that the log knows of."""
        return int(self.last.get("step", 0))

    @property
    def steps_per_epoch(self) -> int | None:
        images, batch = self.fact("images"), self.fact("batch_size", "total")
        return int(images // batch) or None if images is not None and batch else None

    @property
    def trained(self) -> bool:
        return self.steps is not None and self.step >= self.steps

    @property
    def health(self) -> Health | None:
        """The state of the features at the last reading; None where nothing says."""
        return health_of(self.readings, collapsed=any(result.collapsed for result in self.results))

    @property
    def state(self) -> str:
        """Where the run stands, in words."""
        of = "" if self.steps is None else f" of {self.steps:,}"
        if not self.readings:
            return "no step logged yet"
        return f"finished, {self.step:,} steps" if self.trained else f"not finished: step {self.step:,}{of}"

    def told(self, *keys: str) -> Any:
        """What the facts say under these keys, one in the other; None where they say nothing."""
        value: Any = self.facts
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def fact(self, *keys: str) -> float | None:
        """The same where it is a number."""
        return finite(self.told(*keys))

    @property
    def last(self) -> Reading:
        """The last reading; empty where there is none."""
        return self.readings[-1] if self.readings else {}

    def logged(self, key: str) -> list[float]:
        """Every finite value of a key of the log, in order."""
        return [value for reading in self.readings if (value := finite(reading.get(key))) is not None]

    @property
    def train_split(self) -> str:
        return "train" if self.recipe is None else self.recipe.data.train_split

    def headline(self, kind: str, metric: str = "top1", *, elsewhere: bool = True) -> Headline:
        """The measurement of a kind ("knn", "linear", "finetune") that stands for the run, by
        :func:`ssl_hub.evaluate.measurement.headline`: on its own data, else on any that it was judged on
        ``elsewhere``."""
        if self.recipe is None:
            return headline(self.results, kind, metric)
        data = self.recipe.data
        usual: dict[str, Any] = {"k": self.recipe.runtime.knn_k}
        usual |= {"train_split": data.train_split, "test_split": data.test_split}
        found = headline(on_data(self.results, data.name), kind, metric, **usual)
        return found if found.result or not elsewhere else headline(self.results, kind, metric, **usual)

    def result(self, kind: str, metric: str = "top1") -> Result | None:
        """The number of :meth:`headline`."""
        return self.headline(kind, metric).result


def finite(value: Any) -> float | None:
    """The value as a float where it is a finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def spread_of(reading: Reading) -> float | None:
    """Spread of the features, in percent of the healthy one."""
    std, healthy = finite(reading.get("feature_std")), finite(reading.get("healthy_std"))
    return 100 * std / healthy if std is not None and healthy else None


def read_records(runs: Sequence[str | Path]) -> list[Record]:
    """The records of runs given by folder or by name in the store, under names that differ.

    Raises UsageError where a run does not exist.
    """
    asked = [_meant(run) for run in runs]
    folders = [folder for folder, _ in asked]
    names = [folder.resolve().name + ("" if at is None else f"@{at}") for folder, at in asked]
    taken: list[str] = []
    for folder, name in zip(folders, names, strict=True):
        longer = f"{folder.resolve().parent.name}/{name}" if names.count(name) > 1 else name
        copies = sum(t == longer or t.startswith(f"{longer} (") for t in taken)
        taken.append(f"{longer} ({copies + 1})" if copies else longer)
    return [read_record(folder, name, at) for (folder, at), name in zip(asked, taken, strict=True)]


def _meant(run: str | Path) -> tuple[Path, int | None]:
    """The folder of a run, and the step of ``RUN@STEP``. Raises UsageError where it has no such checkpoint."""
    folder = expanded(run)
    if "@" not in str(run) or folder.exists():
        return _folder(run), None
    from ssl_hub.hub.snapshot import find_snapshot  # which needs torch

    snapshot = find_snapshot(str(run))
    return (_folder(run), None) if snapshot is None else (snapshot.run, snapshot.step)


def _folder(run: str | Path) -> Path:
    """An existing folder with anything of a run in it, else what the store says of the name."""
    folder = expanded(run)
    return folder if (folder / METRICS).is_file() or (folder / "config.json").is_file() else run_folder(run)


def read_record(folder: Path, name: str, at: int | None = None) -> Record:
    """Whatever can be read of the run in ``folder``; where it is meant ``at`` a step, what was known by then."""
    problems: list[str] = []
    recipe, facts = read_about(folder, problems)
    readings = _read_readings(folder, problems)
    results: tuple[Result, ...] = ()
    try:
        results = tuple(read_results(folder)) if at is None else ()
    except (UsageError, UnicodeDecodeError, TypeError) as error:
        problems.append(f"the measurements cannot be read: {error}")
    return Record(
        name=name,
        folder=folder,
        recipe=recipe,
        facts=facts,
        readings=tuple(reading for reading in readings if at is None or reading["step"] <= at),
        results=results,
        problems=tuple(problems),
        at=at,
    )


def read_about(folder: Path, problems: list[str]) -> tuple[Recipe | None, dict[str, Any]]:
    """The recipe and the facts of recipe.json; what is wrong with the file is added to ``problems``."""
    try:
        whole = json.loads((folder / "recipe.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        problems.append("recipe.json is missing, so the settings of this run are unknown")
        return None, {}
    except (OSError, ValueError) as error:
        problems.append(f"recipe.json cannot be read: {error}")
        return None, {}
    facts = whole.get("run") if isinstance(whole, dict) else None
    try:
        recipe = from_dict(whole["recipe"])
    except (UsageError, KeyError, TypeError) as error:
        problems.append(f"recipe.json holds no recipe that this version reads: {error}")
        recipe = None
    return recipe, facts if isinstance(facts, dict) else {}


def parsed(line: bytes) -> Any:
    """A line of metrics.jsonl, or None for half a line from a kill."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def is_reading(value: Any) -> bool:
    return isinstance(value, dict) and finite(value.get("step")) is not None


def _read_readings(folder: Path, problems: list[str]) -> tuple[Reading, ...]:
    try:
        lines = [line for line in (folder / METRICS).read_bytes().splitlines() if line.strip()]
    except FileNotFoundError:
        problems.append(f"{METRICS} is missing, so there is no training log")
        return ()
    except OSError as error:
        problems.append(f"{METRICS} cannot be read: {error}")
        return ()
    readings = tuple(filter(is_reading, map(parsed, lines)))
    if lost := len(lines) - len(readings):
        problems.append(f"{lost} of {len(lines)} lines of {METRICS} are cut short or damaged, and are left out")
    return readings
