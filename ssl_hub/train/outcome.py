"""What a run is worth: the kNN monitor while it trains, the measurements and the summary when it ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np
from accelerate import Accelerator
from torch import nn

from ssl_hub.config import Data, Recipe
from ssl_hub.data.bad_images import without_bad
from ssl_hub.data.images import decoded
from ssl_hub.data.sources import Source, open_part
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.features import extract
from ssl_hub.evaluate.intervals import wilson
from ssl_hub.evaluate.knn import knn
from ssl_hub.evaluate.labels import check_several, labels_of
from ssl_hub.evaluate.linear import linear_probe
from ssl_hub.evaluate.measurement import listed
from ssl_hub.evaluate.overlap import refuse_overlap
from ssl_hub.evaluate.record import Recorder
from ssl_hub.evaluate.subject import transform_of
from ssl_hub.evaluate.work import Work
from ssl_hub.hub.store import home
from ssl_hub.model.release import add_classifier
from ssl_hub.model.results import Result, append_results
from ssl_hub.train.together import on_main, same_buffers

BANK, QUERIES = 20_000, 5_000  # images of the kNN monitor at most, evenly spaced over the splits
PROBED_IMAGES = 200_000  # training images up to which a run probes itself at its end
TOO_MANY = f"more than {PROBED_IMAGES:,} training images; probe it with a command of its own"


def labelled_pair(recipe: Recipe) -> tuple[Source, Source]:
    """The labelled train and test splits of the recipe's data, of several classes; :class:`UsageError` says why there
    are none."""
    data = recipe.data
    if data.stream:
        raise UsageError("the data is a stream; probe with data that can be opened as a whole")
    train, test = (open_part(data, split) for split in (data.train_split, data.test_split))
    for source in (train, test):
        unknown = len(source) if source.labels is None else int((source.labels < 0).sum())
        if unknown:
            raise UsageError(f"{unknown} of {len(source)} images of {source.name} ({source.split}) have no label")
    check_several(labels_of(train))
    return train, test


def readable(source: Source, data: Data) -> Source:
    """The source without its unreadable images, where the recipe's data puts up with them."""
    return without_bad(source, data.max_bad_images) if data.on_bad_image == "skip" else source


class AccuracyMonitor(Protocol):
    """How well features tell classes apart while they are trained."""

    name: str  # of what it is measured on, for people
    unmeasurable: str | None  # why the data can measure no backbone, where it cannot

    def measure(self, backbone: nn.Module, accelerator: Accelerator) -> dict[str, float]:
        """``knn_top1`` in percent with its 95 % interval, ``knn_low`` and ``knn_high``, maybe more; empty where nothing
        can be measured, and maybe on other processes than the main one. Collective."""
        ...


class KNNMonitor:
    """kNN accuracy of the backbone on the recipe's own data, on at most 20,000 bank images and 5,000 queries."""

    def __init__(self, recipe: Recipe) -> None:
        self.name = f"{recipe.data.test_split} split"  # of the queries
        self._recipe = recipe
        self._pair: tuple[Source, Source] | None = None
        self.unmeasurable: str | None = None
        try:
            train, test = labelled_pair(recipe)
        except UsageError as error:
            self.unmeasurable = str(error)
            return
        if recipe.runtime.knn_every_epochs > 0:
            bank, queries = thinned(train, BANK), thinned(test, QUERIES)
            try:
                refuse_overlap(bank, queries, way_out="")
            except UsageError as error:
                self.unmeasurable = str(error)
                return
            self._pair = decoded(readable(bank, recipe.data)), decoded(readable(queries, recipe.data))

    def measure(self, backbone: nn.Module, accelerator: Accelerator) -> dict[str, float]:
        if self._pair is None:
            return {}
        same_buffers(backbone, accelerator)
        transform, workers = transform_of(self._recipe), self._recipe.runtime.workers
        bank, queries = (
            extract(backbone, source, transform, workers=workers, accelerator=accelerator) for source in self._pair
        )
        top1 = knn(bank, queries, k=self._recipe.runtime.knn_k)[0].value
        low, high = wilson(top1, len(queries))
        return {"knn_top1": top1, "knn_low": low, "knn_high": high}


def thinned(source: Source, limit: int) -> Source:
    """At most ``limit`` images of a source, evenly spaced."""
    if len(source) <= limit:
        return source
    return source.subset(np.linspace(0, len(source) - 1, limit).round().astype(np.int64))


def measure(
    backbone: nn.Module, recipe: Recipe, folder: Path, accelerator: Accelerator, *, collapsed: bool
) -> tuple[list[Result], str | None]:
    """kNN and linear probe of a finished run on its own data, recorded in the run folder. Collective over processes.

    Returns the results, on the main process, and why there are none where there are none: the training is done and
    saved by now, so data that cannot be probed is no error.
    """
    try:
        pair = labelled_pair(recipe)
        if len(pair[0]) > PROBED_IMAGES:
            return [], TOO_MANY
        train, test = (readable(source, recipe.data) for source in pair)
        return _probed(backbone, (train, test), recipe, folder, accelerator, collapsed=collapsed), None
    except UsageError as error:
        return [], str(error)


def _probed(
    backbone: nn.Module,
    pair: tuple[Source, Source],
    recipe: Recipe,
    folder: Path,
    accelerator: Accelerator,
    *,
    collapsed: bool,
) -> list[Result]:
    same_buffers(backbone, accelerator)
    shared = refuse_overlap(*pair, accelerator=accelerator, way_out="")
    transform, workers = transform_of(recipe), recipe.runtime.workers
    recorder = Recorder(backbone, *pair, shared, Work(device=accelerator.device, accelerator=accelerator))
    train, test = (extract(backbone, source, transform, workers=workers, accelerator=accelerator) for source in pair)
    results: list[Result] = []

    def act() -> None:
        nearest = knn(train, test, k=recipe.runtime.knn_k)
        head, probed = linear_probe(train, test, seed=recipe.train.seed)
        results.extend(replace(result, collapsed=collapsed) for result in recorder.complete(nearest + probed))
        head.save(folder)  # whatever head is there belongs to an older backbone
        add_classifier(folder, head.weight, head.bias, head.classes)
        append_results(folder, results)

    on_main(accelerator, act)
    return results


def summary(recipe: Recipe, folder: Path, results: list[Result], unmeasured: str | None, *, collapsed: bool) -> str:
    """The last words of a run: what was measured, what was published, and what to do next."""
    lines = [f"done: {recipe.name} in {folder}"]
    lines += [f"  {line}" for line in listed(results)]
    own = recipe.runtime.monitor_data
    if unmeasured is not None and own is None:
        lines.append(f"  not probed: {unmeasured}")
    lines += [
        f"  published {e.value} %{f' (std {e.std})' if e.std is not None else ''}  {e.metric}, {e.source}"
        for e in recipe.expected
    ]
    if collapsed:
        lines.append("  the features have collapsed: this is no useful backbone")
    data = recipe.data.name if unmeasured in (None, TOO_MANY) else own or "DATA_WITH_LABELS"
    name = folder.name if folder.parent == home() else str(folder)
    lines += [
        "next:",
        f'  model = ssl_hub.load("{name}")' + ("" if results else "        # features of a frozen backbone"),
        f"  ssl-hub probe {name} --data {data}",
    ]
    return "\n".join(lines)
