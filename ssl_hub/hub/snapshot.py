"""A run at one of its checkpoints, used before it is finished, or at an earlier step: ``RUN`` and ``RUN@STEP``."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from ssl_hub.atomic import expanded
from ssl_hub.config import Recipe
from ssl_hub.errors import UsageError
from ssl_hub.hub import store
from ssl_hub.model import checkpoints
from ssl_hub.model.files import CONFIG
from ssl_hub.model.health import PATIENCE
from ssl_hub.model.lineage import INITIALISED_FROM, LINEAGE, UNKNOWN, inherited, pretrained, started
from ssl_hub.model.parts import PLUGINS, check_plugins
from ssl_hub.model.recipe_file import read_run
from ssl_hub.model.release import check_finite, read_facts
from ssl_hub.model.siamese import build

AT = "@"


class Snapshot(NamedTuple):
    """One checkpoint of a pre-training run."""

    run: Path
    file: Path
    step: int
    recipe: Recipe

    @property
    def origin(self) -> dict[str, Any]:
        """What its weights are: kind, name, licence, and how they came to be."""
        facts = read_facts(self.run)
        start = facts.get(INITIALISED_FROM)
        chain = [*started(start, facts.get("seed")), pretrained(self.recipe, {**facts, "steps": self.step})]
        licence = UNKNOWN if start is None else inherited(str(start["licence"]))  # as its release will state it
        return {"kind": "run", "name": f"{self.run.name}{AT}{self.step}", "licence": licence, LINEAGE: chain}

    def backbone(self) -> tuple[nn.Module, bool]:
        """The online backbone of that step, in eval mode, and whether its features had collapsed by then."""
        check_plugins(read_facts(self.run).get(PLUGINS, {}))
        online = build(self.recipe)
        state = checkpoints.load(self.file)
        check_finite(self.file, state["online"])
        try:
            online.load_state_dict(state["online"])
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise UsageError(f"{self.file} is not of the run that recipe.json beside it describes ({reason})") from None
        collapsed = any(seen["low_in_a_row"] >= PATIENCE for seen in state.get("monitor", ()))
        return online.encoder.backbone.eval(), collapsed


def find_snapshot(name: str) -> Snapshot | None:
    """The checkpoint that is meant: the step that ``RUN@STEP`` names, or the newest of a run that has no release yet.

    None for what is neither: a release is evaluated as released. Raises UsageError, with the steps that there are,
    where the run has no such checkpoint, and for a fine-tuning run.
    """
    run, step = at_step(name)
    folder = _run(run)
    if folder is None or (step is None and (folder / CONFIG).is_file()):
        return None
    recipe, facts = read_run(folder)
    if recipe is None or "finetuned_from" in facts:
        raise UsageError(f"{folder} is a fine-tuning run; it can be evaluated when it is finished")
    return _at(folder, step, recipe)


def at_step(name: str) -> tuple[str, int | None]:
    """A run and a step of it, where the name is ``RUN@STEP`` and no folder's; or a checkpoint's file in a run."""
    head, at, tail = name.rpartition(AT)
    if at and tail.isdecimal() and not os.path.lexists(expanded(name)):
        return head, int(tail)
    path = Path(name)
    step = checkpoints.step_of(path)
    if step is not None and path.parent.name == checkpoints.CHECKPOINTS:
        return str(path.parent.parent), step
    return name, None


def _run(name: str) -> Path | None:
    with suppress(UsageError, OSError):  # no such run, or a name that no folder can have
        return store.run_folder(name)
    return None


def _at(folder: Path, step: int | None, recipe: Recipe) -> Snapshot:
    saved = {checkpoints.step_of(path): path for path in checkpoints.existing(folder / checkpoints.CHECKPOINTS)}
    steps = [number for number in saved if number is not None]
    if not steps:
        raise UsageError(f"{folder} is not finished and has no checkpoint yet; go on training it")
    chosen = max(steps) if step is None else step
    if chosen not in saved:
        raise UsageError(
            f"{folder} has no checkpoint of step {chosen}; it has {', '.join(map(str, sorted(steps)))}"
            " (runtime.keep_every_epochs keeps more)"
        )
    return Snapshot(folder, saved[chosen], chosen, recipe)
