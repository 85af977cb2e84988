"""How well a run's features tell a user's own labels apart, while it trains: few labels, and no test split touched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from accelerate import Accelerator
from torch import nn

from ssl_hub.config import Recipe
from ssl_hub.data.images import decoded
from ssl_hub.data.sources import Source, open_source
from ssl_hub.errors import UsageError
from ssl_hub.evaluate import cross_validation
from ssl_hub.evaluate.agreement import everywhere, same_data
from ssl_hub.evaluate.cross_validation import Rows, dealt
from ssl_hub.evaluate.extraction import warn_of_what_was_left_out
from ssl_hub.evaluate.features import Features, extract
from ssl_hub.evaluate.knn import knn
from ssl_hub.evaluate.labels import labels_of
from ssl_hub.evaluate.linear import linear_probe
from ssl_hub.evaluate.overlap import copies_in
from ssl_hub.evaluate.protocols import Cached
from ssl_hub.evaluate.subject import transform_of
from ssl_hub.model.results import Result
from ssl_hub.train.outcome import AccuracyMonitor, KNNMonitor, thinned
from ssl_hub.train.together import on_main, same_buffers

FOLDS, SEED = 5, 0
IMAGES = 5_000  # at most, evenly spaced over the split
QUICK = Cached(strengths=(1.0, 0.1, 0.01), holdout=0.2)


def accuracy_monitor(recipe: Recipe, accelerator: Accelerator) -> AccuracyMonitor:
    """On the labels that the user gives, else on the recipe's own data."""
    return KNNMonitor(recipe) if recipe.runtime.monitor_data is None else LabelMonitor(recipe, accelerator)


class LabelMonitor:
    """kNN and a quick linear probe on labelled images that the recipe need not know, by cross-validation in five folds.

    Each image is classified once, by the labels of the other four folds, so a few hundred labels are enough and no
    image speaks for itself. Raises UsageError, before training, where the data cannot be measured on.
    """

    unmeasurable: str | None = None

    def __init__(self, recipe: Recipe, accelerator: Accelerator) -> None:
        runtime = recipe.runtime
        assert runtime.monitor_data is not None
        data, column = runtime.monitor_data, runtime.monitor_label_column
        source = everywhere(
            accelerator,
            lambda: _labelled(
                open_source(data, runtime.monitor_split, label_column=column, value_range=recipe.data.range)
            ),
        )
        same_data(accelerator, source)
        warn_of_what_was_left_out([source])
        self._fold_of = dealt(labels_of(source), FOLDS, SEED, copies_in(source, accelerator))
        self._source = decoded(source)
        self._recipe = recipe
        self.name = f"{len(source)} labelled images of {source.name} ({source.split}), {FOLDS} folds"

    def measure(self, backbone: nn.Module, accelerator: Accelerator) -> dict[str, float]:
        """Top-1 in percent of both, each with its 95 % interval over the images; nothing but on the main process.

        Collective over processes.
        """
        same_buffers(backbone, accelerator)
        transform, runtime = transform_of(self._recipe), self._recipe.runtime
        features = extract(backbone, self._source, transform, workers=runtime.workers, accelerator=accelerator)
        found: dict[str, float] = {}
        on_main(accelerator, lambda: found.update(cross_validated(features, self._fold_of, k=runtime.knn_k)))
        return found


def cross_validated(features: Features, fold_of: Rows, *, k: int, seed: int = SEED) -> dict[str, float]:
    """``knn_top1``, ``knn_low``, ``knn_high`` and the same of ``probe``, in percent, over all rows of labelled
    features."""
    assert features.classes is not None
    present, y = np.unique(features.y, return_inverse=True)  # a class without images is no class to be missed
    features = replace(features, y=y, classes=tuple(features.classes[place] for place in present))
    rows = features.rows
    measures: dict[str, Callable[[Rows, Rows], list[Result]]] = {
        "knn": lambda fitted, judged: knn(rows(fitted), rows(judged), k=k),
        "probe": lambda fitted, judged: linear_probe(rows(fitted), rows(judged), QUICK, seed=seed)[1],
    }
    found: dict[str, float] = {}
    for name, measure in measures.items():
        top1 = cross_validation.cross_validated(fold_of, measure, split=features.split)[0]
        assert top1.interval is not None
        found |= {f"{name}_top1": top1.value, f"{name}_low": top1.interval[0], f"{name}_high": top1.interval[1]}
    return found


def _labelled(source: Source) -> Source:
    """The images with a label, thinned; UsageError where folds of them say nothing."""
    where = f"runtime.monitor_data {source.name} ({source.split})"
    known = source
    if source.labels is not None and (source.labels < 0).any():
        known = source.subset(np.flatnonzero(source.labels >= 0))
    known = thinned(known, IMAGES)
    classes, counts = np.unique([] if known.labels is None else known.labels, return_counts=True)
    if len(classes) < 2:
        raise UsageError(
            f"{where} shows {len(classes)} classes in its {len(source)} images, expected two or more: give data with"
            " labels, such as a folder for each class"
        )
    if few := int((counts < FOLDS).sum()):
        raise UsageError(
            f"{few} of {len(classes)} classes of {where} have under {FOLDS} images, and measuring takes {FOLDS} folds;"
            " add images to them, or take those classes away"
        )
    return known
