"""What a reproduction trains: the paper's size, or a stated reduction of it that fits a budget of time."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from ssl_hub.config import Recipe, Scalar
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.protocols import PROTOCOLS, Cached
from ssl_hub.limits import POSITIVE
from ssl_hub.registry import suggest
from ssl_hub.tables.cells import Cell, Table
from ssl_hub.zoo import get_recipe

PLAN = "plan.json"
Scale = Literal["paper", "mini"]

# The mini scale, beside a part of the images and of the epochs. What is not named here is as in the paper.
MINI_BACKBONE = "resnet10_narrow"
MINI_PIXELS = 32
MINI_WIDEST = 512  # hidden layers of projector and predictor
MINI_PROJECTION = 128
MINI_BATCH = 32  # so small that there are many steps: benchmarks/README.md has the trial
MINI_LAG = 0.4  # of the steps that the target lags behind, 1 / (1 - momentum): so few steps hold the paper's 250 badly
MINI_EPOCHS = 6  # of a table's shortest cell, while there are images enough for them
FEWEST_IMAGES = 40 * MINI_BATCH
CHECKPOINTS = 10  # of a mini run
LEAST_SECONDS = 5.0  # that a run takes beside its training: two processes start, decode images and probe


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The grid of a reproduction, kept in its folder so that what is continued is what was begun.

    ``every`` takes one of so many training images and ``epochs_share`` that share of each cell's epochs; both are 1 at
    the paper's scale. ``images`` are trained on. The sizes of ``mini`` follow from ``budget_minutes`` of computing and
    the ``images_per_second`` of a trial run.
    """

    table: str
    data: str
    scale: Scale
    cells: str = "*"
    seeds: int = 0
    images: int = 0
    every: int = 1
    epochs_share: float = 1.0
    budget_minutes: float | None = None
    images_per_second: float | None = None
    machine: str = ""  # that it was begun on
    plugins: dict[str, str] = field(default_factory=dict)  # whose table it is, where it is not ours

    def overrides(self, cell: Cell) -> dict[str, Scalar]:
        """What a cell's run changes of the recipe that the cell names, beside the seed."""
        return {**cell.overrides, **(self._mini(cell.settings()) if self.scale == "mini" else {})}

    def settings(self, cell: Cell) -> Recipe:
        """The recipe of a cell's run."""
        return get_recipe(cell.recipe, **self.overrides(cell))

    def protocol(self, cell: Cell) -> str:
        """The protocol that probes a cell, by its name in results: the paper's, but for ``mini`` none that trains on
        augmented images, which would take longer than the run."""
        protocol = PROTOCOLS[cell.protocol.removeprefix("linear-")]
        cheap = isinstance(protocol, Cached) or protocol.images == "cached"
        return cell.protocol if self.scale == "paper" or cheap else "linear-cached"

    def steps(self, cell: Cell) -> int:
        """Optimiser steps of a cell's run."""
        schedule = self.settings(cell).train
        return schedule.epochs * (self.images // schedule.batch_size)

    def chosen(self, table: Table) -> tuple[Cell, ...]:
        """The cells of the table that the plan's pattern matches."""
        cells = tuple(cell for cell in table.cells if fnmatchcase(cell.name.lower(), self.cells.lower()))
        if not cells:
            names = [cell.name for cell in table.cells]
            raise UsageError(f"no cell of table {table.name!r} matches {self.cells!r}{suggest(self.cells, names)}")
        return cells

    def words(self) -> str:
        """One sentence that says what was reduced."""
        if self.scale == "paper":
            return "the paper's settings"
        return (
            f"a mini reduction of the paper's settings: {MINI_BACKBONE} at {MINI_PIXELS} px, {self.images:,} training"
            f" images (one of {self.every}), {100 * self.epochs_share:g} % of each cell's epochs, batch at most"
            f" {MINI_BATCH}, a target that lags by {MINI_LAG:g} of the steps, hidden layers at most {MINI_WIDEST} and"
            f" projections at most {MINI_PROJECTION} wide"
        )

    def command(self) -> str:
        """What begins this reproduction; data in a folder goes by the folder's name."""
        data = Path(self.data).name if Path(self.data).is_absolute() else self.data
        words = ["ssl-hub", "reproduce", self.table, "--data", data, "--scale", self.scale, "--cells", self.cells]
        words += ["--seeds", str(self.seeds)]
        words += [] if self.budget_minutes is None else ["--budget-minutes", f"{self.budget_minutes:g}"]
        return shlex.join(words)

    def _mini(self, recipe: Recipe) -> dict[str, Scalar]:
        epochs = max(1, round(recipe.train.epochs * self.epochs_share))
        train = f"{recipe.data.train_split}[::{self.every}]"
        reduced: dict[str, Scalar] = {
            "backbone.name": MINI_BACKBONE,
            "backbone.zero_init_last": False,
            "projector.hidden_width": min(recipe.projector.hidden_width, MINI_WIDEST),
            "projector.output_width": min(recipe.projector.output_width, MINI_PROJECTION),
            "views.size": min(recipe.views.size, MINI_PIXELS),
            "data.pretrain_split": train,
            "data.train_split": train,
            "train.epochs": epochs,
            "train.batch_size": min(recipe.train.batch_size, MINI_BATCH),
            "optim.warmup_epochs": recipe.optim.warmup_epochs * self.epochs_share,
            "runtime.workers": 0,
            "runtime.channels_last": True,
            "runtime.knn_every_epochs": 0,
            "runtime.log_every_steps": 20,
            "runtime.checkpoint_every_epochs": max(1, epochs // CHECKPOINTS),
        }
        momentum = dict(recipe.target.options).get("momentum")
        if isinstance(momentum, float):
            reduced["target.momentum"] = max(0.0, round(1 - (1 - momentum) / MINI_LAG, 6))
        widest = dict(recipe.predictor.options).get("hidden_width")
        if isinstance(widest, int):
            reduced["predictor.hidden_width"] = min(widest, MINI_WIDEST)
        return reduced


def sized(
    plan: Plan, cells: Sequence[Cell], *, available: int, seconds_per_image: float, seconds_each: float, jobs: int
) -> Plan:
    """The plan with as many images and epochs as its budget allows.

    Args:
        available: training images there are.
        seconds_per_image: of training, on one core.
        seconds_each: that a run takes beside its training: start, decoding, probe.
        jobs: runs at a time.

    Raises:
        UsageError: where the budget does not hold the smallest grid: 640 images for two epochs.
    """
    assert plan.budget_minutes is not None
    epochs = [cell.settings().train.epochs for cell in cells]
    shortest, runs = min(epochs), len(cells) * plan.seeds
    # A grid costs: runs * seconds_each + images seen by a shortest run * seconds_per_image * lengths.
    lengths = plan.seeds * sum(epochs) / shortest
    seen = (60 * plan.budget_minutes * jobs - runs * seconds_each) / seconds_per_image / lengths
    every = max(1, round(available / min(available, max(seen / MINI_EPOCHS, FEWEST_IMAGES))))
    images = -(-available // every)
    shortest_epochs = int(seen // images)
    if shortest_epochs < 2:
        raise _too_few(plan, runs, jobs, runs * seconds_each + 2 * images * seconds_per_image * lengths)
    return replace(
        plan,
        images=images,
        every=every,
        epochs_share=shortest_epochs / shortest,
        images_per_second=round(1 / seconds_per_image, 1),
    )


def check_budget(plan: Plan, cells: Sequence[Cell], *, jobs: int) -> None:
    """Raise UsageError for a budget that no machine can meet, before anything is opened or measured."""
    minutes, runs = plan.budget_minutes, len(cells) * plan.seeds
    if minutes is None:
        return
    POSITIVE.check("budget_minutes", minutes)
    if 60 * minutes * jobs < runs * LEAST_SECONDS:
        raise _too_few(plan, runs, jobs, runs * LEAST_SECONDS)


def _too_few(plan: Plan, runs: int, jobs: int, seconds: float) -> UsageError:
    return UsageError(
        f"{plan.budget_minutes:g} minutes are too few for {runs} runs, {jobs} at a time, which need"
        f" {math.ceil(seconds / 60 / jobs)} at least; raise --budget-minutes, or choose fewer --cells or --seeds"
    )
