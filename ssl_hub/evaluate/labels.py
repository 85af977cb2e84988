"""Whether a classifier can be fitted to one split and judged on another: asked before any work starts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ssl_hub.data.passed_over import NO_CLASSES
from ssl_hub.data.sources import Source
from ssl_hub.errors import UsageError

UNLABELLED = -1


class Labels(NamedTuple):
    """The labels of one split: ``y`` int64 [N], an index into ``classes`` or -1 where unknown."""

    name: str  # dataset/split
    y: NDArray[np.int64]
    classes: tuple[str, ...] | None
    unusable: str | None = None  # a column that holds something else than classes, by name and type


def labels_of(source: Source) -> Labels:
    """The labels of a source, all unknown where it has none."""
    y = np.full(len(source), UNLABELLED) if source.labels is None else source.labels
    column = source.passed_over.get(NO_CLASSES)
    return Labels(f"{source.name}/{source.split}", y, source.classes, None if column is None else column.example)


def check_labels(train: Labels, test: Labels) -> None:
    """Raise UsageError unless both splits are labelled throughout, by one list of classes."""
    for split in (train, test):
        unknown = int((split.y == UNLABELLED).sum())
        if split.classes is None or unknown:
            advice = "choose a labelled split (data.train_split, data.test_split)"
            if split.unusable is not None:
                advice = (
                    f"its column {split.unusable} names no class: several labels an image and real numbers"
                    " (multi-label classification, regression) are not supported; add a column with one class an image"
                )
            raise UsageError(f"{unknown} of {len(split.y)} images of {split.name} have no label; {advice}")
    if train.classes != test.classes:
        differing = sorted(set(train.classes or ()) ^ set(test.classes or ()))
        difference = f"not in both: {', '.join(differing[:5])}" if differing else "same names in another order"
        raise UsageError(
            f"{train.name} has {len(train.classes or ())} classes and {test.name} has {len(test.classes or ())} "
            f"({difference}); expected one class list for both splits"
        )


def check_trainable(train: Labels) -> None:
    """Raise UsageError where a labelled split has fewer images than classes, or shows one class alone."""
    assert train.classes is not None
    if len(train.y) < len(train.classes):
        raise UsageError(
            f"{train.name} has {len(train.y)} images for {len(train.classes)} classes, expected at least one per class;"
            " use a larger training split"
        )
    check_several(train)


def check_several(train: Labels) -> None:
    """Raise UsageError where a labelled split shows one class alone, which every image is then taken for."""
    assert train.classes is not None
    shown = np.unique(train.y)
    if len(shown) == 1:
        raise UsageError(
            f"all {len(train.y)} images of {train.name} are of class {train.classes[int(shown[0])]!r}, "
            "expected two or more; check the labels of the training split"
        )
