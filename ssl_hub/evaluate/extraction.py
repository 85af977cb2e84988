"""Which images a classifier is fitted to and on which it is judged, and how they go through a backbone."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from accelerate import Accelerator
from numpy.typing import NDArray

from ssl_hub.config import Data, Recipe
from ssl_hub.data.inventory import look_over
from ssl_hub.data.sources import Source, open_source
from ssl_hub.data.value_range import ValueRange
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.agreement import everywhere, same_data
from ssl_hub.evaluate.holdout import stratified_holdout
from ssl_hub.evaluate.labels import Labels, check_labels, labels_of
from ssl_hub.evaluate.overlap import copies_in
from ssl_hub.limits import COUNT, SEED, SIDE, VALUE_RANGE, ZERO_OR_MORE, check, number, or_none, whole
from ssl_hub.processes import speaks
from ssl_hub.zoo.advice import dim_in_words, is_dim, is_wide, of_what_was_left_out, suggested_range


@dataclass(frozen=True, kw_only=True)
class Extraction:
    """Where images come from and how they go through the backbone.

    Splits and columns left out are those of the release's recipe when ``data`` is what it was trained on, else
    ``train``, ``test`` and what the column types say. ``range`` is ``data.range``; left out, it is that of the release,
    else ``auto``. ``seed`` draws a random initialisation, and the images of ``holdout`` and ``folds``.

    With ``holdout``, a share, no test split is opened: a stratified part of the training split is judged, and the rest
    fitted to. With ``folds`` each image of the training split is judged once, by a fit to the other folds.
    ``allow_overlap`` lets images be judged that are fitted to, and marks the result.
    """

    train_split: str | None = None
    test_split: str | None = None
    image_column: str | None = None
    label_column: str | None = None
    range: str | None = None
    image_size: int | None = None
    batch_size: int = 256
    workers: int = 4
    seed: int = 0
    holdout: float | None = None
    folds: int | None = None
    allow_overlap: bool = False

    def __post_init__(self) -> None:
        check(self, EXTRACTION)
        asked = {"test_split": self.test_split, "holdout": self.holdout, "folds": self.folds}
        given = [f"{name} {value}" for name, value in asked.items() if value is not None]
        if len(given) > 1:
            raise UsageError(f"got {' and '.join(given)}; each says which images are judged, so give one of them")

    @property
    def dealt_by(self) -> int | None:
        """The seed that says which images are judged; None for a test split."""
        return None if self.holdout is None and self.folds is None else self.seed


EXTRACTION = {
    "range": or_none(VALUE_RANGE),
    "image_size": or_none(SIDE),
    "batch_size": COUNT,
    "workers": ZERO_OR_MORE,
    "seed": SEED,
    "holdout": or_none(number(0.001, 0.999, fix="0.2 is usual")),
    "folds": or_none(whole(2, fix="5 is usual")),
}


def known_of(recipe: Recipe | None, data: str | None) -> tuple[str, Data]:
    """The data that is meant, by default what ``recipe`` trained on, and what is known of its splits and columns.
    UsageError where no data is."""
    own = None if recipe is None else recipe.data
    name = own.name if data is None and own is not None else data
    if name is None:
        raise UsageError("this model does not say what it was trained on; give data: a name, a path or a Hub id")
    return name, own if own is not None and own.name == name else Data()


def sources_of(
    recipe: Recipe | None,
    values: str,
    data: str | None,
    extraction: Extraction,
    accelerator: Accelerator | None = None,
) -> tuple[Source, Source]:
    """What is fitted to and what is judged, of ``data``, by default of what ``recipe`` trained on; the same on all
    processes. ``values`` is the range of the model. With folds, both are the whole that is dealt into them.

    Raises UsageError for what cannot be opened, and for labels that cannot be split.
    """
    name, known = known_of(recipe, data)
    columns: dict[str, Any] = {
        "image_column": extraction.image_column or known.image_column,
        "label_column": extraction.label_column or known.label_column,
        "value_range": extraction.range or values,
    }
    splits = [extraction.train_split or known.train_split]
    if extraction.holdout is None and extraction.folds is None:
        splits.append(extraction.test_split or known.test_split)
    opened = everywhere(accelerator, lambda: [open_source(name, split, **columns) for split in splits])
    for source in opened:
        same_data(accelerator, source)
    warn_of_dim_images(opened[0], columns["value_range"])
    warn_of_what_was_left_out(opened)
    if extraction.holdout is not None:
        return held_out(opened[0], extraction.holdout, extraction.seed, accelerator)
    return opened[0], opened[-1]


def warn_of_dim_images(source: Source, value_range: str) -> None:
    """Look at a sample, and say on stderr where its images are nearly of one grey in this range: a number that is
    measured on them, with a model whose range is another's, is wrong and says nothing by itself."""
    if not speaks():
        return
    seen = look_over(source, ValueRange.parse(value_range))
    if "values" in seen and is_wide(seen) and is_dim(seen):
        told = dim_in_words(source.split, seen)
        print(f"warning: {told}; their range is {suggested_range(seen)} (--range, data.range)", file=sys.stderr)


def warn_of_what_was_left_out(sources: Sequence[Source]) -> None:
    """Say on stderr what may be missing of what is measured: shards, folders beside splits, files of other kinds."""
    if speaks():
        found = [one for source in sources for one in of_what_was_left_out(source.split, source.passed_over.as_json())]
        for finding in dict.fromkeys(found):
            if finding.harm > 1:
                print(f"warning: {finding.text}; {finding.fix}", file=sys.stderr)


def held_out(source: Source, share: float, seed: int, accelerator: Accelerator | None = None) -> tuple[Source, Source]:
    """A labelled source without, and with alone, a stratified ``share`` of its images, drawn by ``seed``. An image with
    a copy in the first part stays there. Collective over processes."""
    labels = labels_of(source)
    check_labels(labels, labels)
    held = np.zeros(len(source), np.bool_)
    held[stratified_holdout(labels.y, share, seed)[1]] = True
    for places in copies_in(source, accelerator):
        held[places] = held[places].all()
    if not held.any():
        raise UsageError(
            f"holdout {share:g} takes none of the {len(source)} images of {labels.name}: every class has one alone, or"
            " copies of one; give more labelled images, or hold none out"
        )
    rest, judged = source.subset(np.flatnonzero(~held)), source.subset(np.flatnonzero(held))
    rest.split, judged.split = (f"{source.split}, {100 * part:g} %{said}" for part, said in
                                ((1 - share, ""), (share, " held out")))  # fmt: skip
    return rest, judged


def fraction_of(source: Source, fraction: float, seed: int) -> Source:
    """A labelled source with a stratified part of its images alone, drawn by ``seed``."""
    assert source.labels is not None
    part = source.subset(stratified_holdout(source.labels, fraction, seed)[1])
    part.split = f"{source.split}, {100 * fraction:g} % of each class"
    return part


def absences(fitted: Labels, judged: Labels, fold_of: NDArray[np.int64] | None = None) -> list[str]:
    """What two labelled splits of one list of classes do not show, or the folds of one, in words."""
    assert fitted.classes is not None and judged.classes is not None
    shown = np.unique(judged.y)
    said = []
    if len(shown) == 1:
        only = judged.classes[int(shown[0])]
        said.append(f"all {len(judged.y):,} images of {judged.name} are of class {only!r}: the number is of it alone")
    elif missing := _named(judged.classes, set(range(len(judged.classes))) - set(shown.tolist())):
        said.append(f"of {len(judged.classes)} classes {judged.name} has no image of {missing}")
    if unknown := _named(judged.classes, set(shown.tolist()) - set(fitted.y.tolist())):
        said.append(f"no image of {fitted.name} is of {unknown}, so none of {judged.name} that is can be right")
    if fold_of is not None:
        alone = {label for label in shown.tolist() if len(np.unique(fold_of[judged.y == label])) == 1}
        if named := _named(judged.classes, alone):
            said.append(f"all images of {named} are in one fold, so none of them can be right")
    return said


def _named(classes: tuple[str, ...], places: set[int]) -> str:
    """``3 of them (a, b, c)``; empty for none."""
    names = [classes[place] for place in sorted(places)]
    return f"{len(names)} of them ({', '.join(names[:5])}{', ...' if len(names) > 5 else ''})" if names else ""
