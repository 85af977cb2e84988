"""Finding runs and what they measured: in the store, in given folders, and by the recipe they were trained with."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from ssl_hub.atomic import expanded
from ssl_hub.codec import changes
from ssl_hub.config import Recipe
from ssl_hub.errors import UsageError
from ssl_hub.hub import remote, store
from ssl_hub.model.files import CONFIG, RECIPE, RESULTS_FILE
from ssl_hub.model.metrics import read_metrics
from ssl_hub.model.parts import with_defaults
from ssl_hub.model.release import read_facts, read_recipe
from ssl_hub.model.results import Result, read_results
from ssl_hub.model.standing import on_data

READINGS = 5  # of the training log, at its end, that say how features are spread


@dataclass(frozen=True, eq=False)
class Run:
    """A run folder. ``label`` is its path within the folder it was found in."""

    folder: Path
    label: str
    recipe: Recipe  # its parts with every option written out
    images: int | None  # trained on, where recipe.json says so
    results: Sequence[Result]
    finetuning: Mapping[str, Any] = field(default_factory=dict)  # the settings of a run that was fine-tuned
    classes: int | None = None  # of the data that it was trained on, where recipe.json says so

    @property
    def seed(self) -> int:
        return self.recipe.train.seed

    @property
    def own_results(self) -> list[Result]:
        """Those on the data that it was trained on, the head trained there too."""
        return on_data(self.results, self.recipe.data.name)

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


def find_runs(
    folders: Iterable[str | Path] = (),
    *,
    in_store: bool = True,
    owner: str | None = None,
    unreadable: list[str] | None = None,
) -> list[Run]:
    """Every run in ``folders`` and below, in the store and, where an ``owner`` is given, of that owner on the
    Hub; each once. Of runs that cannot be read ``unreadable`` gets the reasons.

    Raises UsageError for a folder that does not exist, and without ``unreadable`` for a run that cannot be read.
    """
    found: dict[Path, Run] = {}

    def read(find: Callable[[], Path], label: str) -> None:
        try:
            if ((folder := find()) / RECIPE).is_file():
                found[folder.resolve()] = read_run(folder, label)
        except UsageError as error:
            if unreadable is None:
                raise
            unreadable.append(f"{label}: {error}")

    roots = [expanded(folder) for folder in folders]
    for root in roots:
        if not root.is_dir():
            raise UsageError(f"no folder {str(root)!r} to look for runs in")
    for root in (*roots, *([store.home()] if in_store and store.home().is_dir() else [])):
        for path in sorted(root.rglob(RECIPE)):
            folder = path.parent
            if folder != root and folder.name.startswith("."):
                continue  # set aside by the run that replaces it
            if folder.resolve() not in found:
                label = root.resolve().name if folder == root else str(folder.relative_to(root))
                read(partial(Path, folder), label)
    if owner is not None:
        for name in remote.releases_of(owner):
            read(partial(remote.record, name, (CONFIG, RECIPE, RESULTS_FILE)), f"{remote.PREFIX}{name}")
    return list(found.values())


def read_run(folder: Path, label: str | None = None) -> Run:
    """A run folder. Raises UsageError where it holds no recipe or damaged files."""
    recipe = read_recipe(folder)
    if recipe is None:
        raise UsageError(f"{folder} holds no run: it has no {RECIPE}")
    facts = read_facts(folder)
    return Run(
        folder=folder,
        label=label or folder.name,
        recipe=with_defaults(recipe),
        images=facts.get("images"),
        results=read_results(folder),
        finetuning=_finetuning(facts) if "finetuned_from" in facts else {},
        classes=_classes(facts),
    )


def _classes(facts: Mapping[str, Any]) -> int | None:
    classes = (facts.get("inventory") or {}).get("classes")
    return None if not isinstance(classes, Mapping) else classes.get("number")


def _finetuning(facts: Mapping[str, Any]) -> dict[str, Any]:
    settings = {name: facts.get(name) for name in ("data", "train_split", "train_size")} | (facts.get("settings") or {})
    return {f"finetuning.{name}": value for name, value in settings.items()}
