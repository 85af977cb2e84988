"""Which results speak for a model and which are set aside, with the reason: asked wherever one number is picked.

Whether two numbers that both count may stand side by side is for :mod:`ssl_hub.evaluate.measurement` to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ssl_hub.atomic import expanded
from ssl_hub.errors import UsageError
from ssl_hub.model.recipe_file import read_recipe
from ssl_hub.model.results import Result, read_results

FITTED = ("train_split", "bank_split")  # what settings call the split that a classifier was fitted to

OTHER_WEIGHTS = "measured on other weights than these"

_RESTRICTED = re.compile(r"\s*[\[@,]")  # what follows a split's name where a part of it is meant


class Aside(NamedTuple):
    """A result that does not count, and why."""

    result: Result
    reason: str


class Standing(NamedTuple):
    """Results that count, in their order, and the others."""

    counted: list[Result]
    aside: list[Aside]


def is_part(split: str) -> bool:
    """Whether a split's name is that of a part: ``val[:100]``, ``train@1percent.txt``, ``train, 20 % held out``."""
    return _RESTRICTED.search(split) is not None


def bases(split: str) -> set[str]:
    """The whole splits that a name takes images from: ``{"train", "val"}`` of ``train[:10%]+val``."""
    return {_RESTRICTED.split(part.strip(), maxsplit=1)[0] for part in split.split("+")}


def kind_of(result: Result) -> str:
    """``knn``, ``linear`` or ``finetune``: what a protocol's name starts with."""
    return result.protocol.partition("-")[0]


def fitted_split(result: Result) -> str | None:
    """The split that the classifier was fitted to, of the same data; None where it is not said, or of other data."""
    if "train_dataset" in result.settings:
        return None
    return next((str(result.settings[name]) for name in FITTED if name in result.settings), None)


def on_data(results: Iterable[Result], data: str) -> list[Result]:
    """Those on ``data``, a name or a path, by a classifier that was fitted there too."""
    names = {data, Path(data).name, expanded(data).resolve().name}
    return [r for r in results if r.dataset in names and "train_dataset" not in r.settings]


def objection(result: Result, train_split: str = "train") -> str | None:
    """Why a number says nothing of images that were not seen, or None.

    ``train_split`` is what the model itself was trained on. Of a part of a training split the record has to say that
    nobody fitted to its images.
    """
    if result.outdated:
        return OTHER_WEIGHTS
    if result.overlap and not result.published:
        of = "" if result.images is None else f" of {result.images:,}"
        return f"{result.overlap:,}{of} images of {result.split} are among those that it was fitted to"
    trained = bases(fitted_split(result) or train_split) | bases(train_split)
    if not bases(result.split) & trained or "train_dataset" in result.settings:
        return None
    if not is_part(result.split):
        return f"measured on the training split ({result.split})"
    if result.overlap is None:
        return f"measured on a part of the training split ({result.split}), and not known to be of other images"
    return None


def trained_on(folder: Path) -> str:
    """The labelled split that the model in a folder was trained on; ``train`` where its recipe does not say."""
    try:
        recipe = read_recipe(folder)
    except UsageError:
        recipe = None
    return "train" if recipe is None else recipe.data.train_split


def standing_in(folder: Path) -> Standing:
    """What counts of the results in a folder. UsageError where they are damaged."""
    return standing(read_results(folder), train_split=trained_on(folder))


def standing(results: Iterable[Result], *, train_split: str = "train") -> Standing:
    """What counts of the results of one model.

    A part of a split gives way to a whole one that was measured in the same way, kNN by kNN; and of what was measured
    on two versions of the weights, the newest measurement's count.
    """
    results = list(results)
    newest = max((r for r in results if r.backbone is not None), key=lambda r: r.when, default=None)
    whole: dict[tuple[str, str, str], str] = {}
    reasons: list[str | None] = []
    for result in results:
        reason = objection(result, train_split)
        if reason is None and newest is not None and result.backbone not in (None, newest.backbone):
            reason = OTHER_WEIGHTS
        if reason is None and not is_part(result.split):
            whole.setdefault(_measured(result), result.split)
        reasons.append(reason)
    counted, aside = [], []
    for result, reason in zip(results, reasons, strict=True):
        if reason is None and is_part(result.split) and (split := whole.get(_measured(result))):
            reason = f"on a part of a split ({result.split}), where all of {split} was measured"
        if reason is None:
            counted.append(result)
        else:
            aside.append(Aside(result, reason))
    return Standing(counted, aside)


def _measured(result: Result) -> tuple[str, str, str]:
    return kind_of(result), result.metric, result.dataset
