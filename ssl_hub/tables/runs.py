"""Finding runs and what they measured: in the store, in given folders, and by the recipe they were trained with."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ssl_hub.codec import changes
from ssl_hub.config import Recipe
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.protocols import PROTOCOLS
from ssl_hub.hub import store
from ssl_hub.model.files import RECIPE, RESULTS_FILE
from ssl_hub.model.metrics import read_metrics
from ssl_hub.model.parts import with_defaults
from ssl_hub.model.release import read_facts, read_recipe
from ssl_hub.model.results import Result, read_results
from ssl_hub.tables.claims import Sample

PROBES = "linear"  # what the names of linear-probe protocols start with
READINGS = 5  # of the training log, at its end, that say how features are spread


@dataclass(frozen=True, eq=False)
class Run:
    """A run folder that has been measured. ``label`` is its path within the folder it was found in."""

    folder: Path
    label: str
    recipe: Recipe  # its parts with every option written out
    images: int | None  # trained on, where recipe.json says so
    results: Sequence[Result]

    @property
    def seed(self) -> int:
        return self.recipe.train.seed

    @property
    def own_results(self) -> list[Result]:
        """Those on the data that it was trained on, the head trained there too."""
        data = self.recipe.data.name
        names = {data, Path(data).name, Path(data).expanduser().resolve().name}
        return [r for r in self.results if r.dataset in names and "train_dataset" not in r.settings]

    @property
    def collapsed(self) -> bool:
        return any(result.collapsed for result in self.results)

    @cached_property
    def spread(self) -> float | None:
        """Standard deviation of the features at the end, as a share of the healthy one."""
        last = [r for r in read_metrics(self.folder)[-READINGS:] if "feature_std" in r]
        return statistics.mean(r["feature_std"] / r["healthy_std"] for r in last) if last else None

    def differences(self, recipe: Recipe) -> dict[str, tuple[Any, Any]]:
        """Settings of what is learnt in which this run differs from a recipe, seed and location of the data aside:
        ``{"train.epochs": (the recipe's, the run's)}``."""
        differing = changes(with_defaults(recipe), self.recipe)
        return {k: pair for k, pair in differing.items() if k != "train.seed" and not k.startswith("data.")}


def find_runs(folders: Iterable[str | Path] = (), *, in_store: bool = True) -> list[Run]:
    """Every measured run in ``folders`` and below, and in the store; each once.

    Raises UsageError for a folder that does not exist.
    """
    found: dict[Path, Run] = {}
    roots = [Path(folder).expanduser() for folder in folders]
    for root in roots:
        if not root.is_dir():
            raise UsageError(f"no folder {str(root)!r} to look for runs in")
    for root in (*roots, *([store.home()] if in_store and store.home().is_dir() else [])):
        for path in sorted(root.rglob(RECIPE)):
            folder = path.parent
            if (folder / RESULTS_FILE).is_file() and folder.resolve() not in found:
                label = root.resolve().name if folder == root else str(folder.relative_to(root))
                found[folder.resolve()] = read_run(folder, label)
    return list(found.values())


def read_run(folder: Path, label: str | None = None) -> Run:
    """A run folder. Raises UsageError where it holds no recipe or damaged files."""
    recipe = read_recipe(folder)
    if recipe is None:
        raise UsageError(f"{folder} holds no run: it has no {RECIPE}")
    images = read_facts(folder).get("images")
    return Run(folder, label or folder.name, with_defaults(recipe), images, read_results(folder))


def protocol_of(result: Result) -> str:
    """The protocol of a result, with the settings in which it departs from the protocol of that name."""
    name = result.protocol.removeprefix(f"{PROBES}-")
    if name not in PROTOCOLS:
        return result.protocol
    usual = asdict(PROTOCOLS[name])
    told = {key: result.settings[key] for key in usual if key in result.settings}
    departed = [f"{key}={value}" for key, value in told.items() if value != _plain(usual[key])]
    return result.protocol + (f" ({', '.join(departed)})" if departed else "")


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def pooled(
    runs: Sequence[Run], metric: str, *, wanted: str | None = None, labelled: int | None = None
) -> tuple[Sample, str, list[Run]] | None:
    """A linear-probe number over the seeds of like runs: the sample, its protocol, and the runs behind it.

    All of them are of one protocol: ``wanted`` where any run has it, else the one that most have. Of two runs with one
    seed, and of two results of one run, the newest counts. ``labelled`` leaves out probes that saw another number of
    training images. None where nothing is left.
    """
    by_protocol: dict[str, dict[int, tuple[Result, Run]]] = {}
    for run in runs:
        for result in run.own_results:
            seen = result.settings.get("train_size")
            if labelled is not None and seen not in (None, labelled):
                continue
            if result.metric == metric and result.protocol.startswith(PROBES):
                seeds = by_protocol.setdefault(protocol_of(result), {})
                if run.seed not in seeds or seeds[run.seed][0].date <= result.date:
                    seeds[run.seed] = (result, run)
    if not by_protocol:
        return None
    protocol = wanted if wanted in by_protocol else max(by_protocol, key=lambda name: (len(by_protocol[name]), name))
    pairs = [by_protocol[protocol][seed] for seed in sorted(by_protocol[protocol])]
    spreads = [run.spread for _, run in pairs if run.spread is not None]
    sample = Sample.of(
        [result.value for result, _ in pairs],
        collapsed=sum(result.collapsed for result, _ in pairs),
        spread=statistics.mean(spreads) if spreads else None,
    )
    return sample, protocol, [run for _, run in pairs]
