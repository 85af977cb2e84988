"""Each image of one split judged once, by a fit to the folds that it is not in: for labels too few for two splits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ssl_hub.errors import UsageError
from ssl_hub.evaluate.holdout import stratified_folds
from ssl_hub.evaluate.intervals import wilson
from ssl_hub.evaluate.labels import Labels
from ssl_hub.model.results import Result

Rows = NDArray[np.int64]
COUNTS = ("train_size", "bank_size", "k", "holdout_size")  # which differ by an image or two: the fewest are recorded


def dealt(labels: Labels, folds: int, seed: int, copies: Sequence[Sequence[int]] = ()) -> NDArray[np.int64]:
    """The fold of each image [N] of labelled images, as evenly by class as can be, drawn by ``seed``; images that are
    ``copies`` of each other, by their places, are in one fold.

    Raises UsageError for more folds than images that differ.
    """
    fold_of = stratified_folds(labels.y, folds, seed)
    for places in copies:
        fold_of[places] = fold_of[places[0]]
    if len(np.unique(fold_of)) < folds:
        different = len(labels.y) - sum(len(places) - 1 for places in copies)
        raise UsageError(f"{labels.name} has {different} images for {folds} folds, expected more; give fewer folds")
    return fold_of


def cross_validated(fold_of: Rows, measure: Callable[[Rows, Rows], list[Result]], *, split: str) -> list[Result]:
    """What ``measure(fitted, judged)`` gives for the rows of each fold, as one result for each metric over all images.

    Its interval is over the images; ``by_fold`` in the settings has the percentage of each fold.
    """
    folds = int(fold_of.max()) + 1
    found = [measure(np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)) for fold in range(folds)]
    return [_together(results, split=split, folds=folds) for results in zip(*found, strict=True)]


def _together(results: Sequence[Result], *, split: str, folds: int) -> Result:
    first = results[0]
    sizes = [result.images or 0 for result in results]
    images, right = sum(sizes), sum(round(r.value * size / 100) for r, size in zip(results, sizes, strict=True))
    percent = 100.0 * right / images
    settings: dict[str, Any] = {}
    for name in first.settings:
        values = [result.settings.get(name) for result in results]
        if name in COUNTS and None not in values:
            settings[name] = min(v for v in values if v is not None)
        elif all(value == values[0] for value in values):
            settings[name] = values[0]
    for name in ("train_split", "bank_split"):
        if name in settings:
            settings[name] = f"{split}, all folds but one"
    return replace(
        first,
        value=percent,
        split=f"{split}, {folds} folds",
        settings=settings | {"folds": folds, "by_fold": [result.value for result in results]},
        images=images,
        interval=wilson(percent, images),
        per_class={
            name: [sum(r.per_class[name][place] for r in results) for place in (0, 1)] for name in first.per_class
        },
    )
