"""Images that are there twice, or nearly: in a split and across splits, by their content and by a model's features."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import nn

from ssl_hub.data.overlap import content_of
from ssl_hub.data.sources import Source
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.embedding import features_of, open_split
from ssl_hub.evaluate.features import Features
from ssl_hub.evaluate.mild_changes import Calibration, calibrate
from ssl_hub.evaluate.near_pairs import NONE, Pairs, pairs_over
from ssl_hub.evaluate.picture_rows import row_of, stacked
from ssl_hub.evaluate.similarity_index import kept
from ssl_hub.evaluate.subject import Subject, open_model
from ssl_hub.limits import number

SHOWN = 20  # pairs in the text
IN_A_ROW, ROWS = 3, 8  # pairs in a sheet


@dataclass(frozen=True)
class Pair:
    """Two images: ``split/id`` of each, the cosine of their features, and whether the content is the same."""

    first: str
    second: str
    similarity: float
    same: bool


@dataclass(frozen=True, eq=False)
class NearDuplicates:
    """What was found: in ``source`` itself (``inside``), and between it and ``against`` (``across``)."""

    source: Source
    against: Source | None
    threshold: float
    calibration: Calibration | None  # where the threshold was chosen
    inside: Pairs
    across: Pairs
    same_inside: NDArray[np.bool_]  # of each pair, whether the content is the same
    same_across: NDArray[np.bool_]

    def pairs(self) -> list[Pair]:
        """All pairs, the most similar first; those of the same content before all others."""
        found = [Pair(_name(self.source, a), _name(other, b), s, same) for a, b, s, other, same in self._all()]
        return sorted(found, key=lambda pair: (not pair.same, -pair.similarity, pair.first, pair.second))

    def dropped(self) -> NDArray[np.int64]:
        """Rows of ``source`` to leave out, ascending: what is near an image of ``against``, which stays whole; and of
        the rest, in order, what is near one that stays. So no two that stay are near, and each that goes is near one
        that stays."""
        gone = np.zeros(len(self.source), bool)
        gone[self.across.first] = True
        for first, second, _ in self.inside:
            if not gone[first]:  # by the first, ascending: what is before it is decided
                gone[second] = True
        return np.flatnonzero(gone)

    def kept(self) -> NDArray[np.int64]:
        """The other rows."""
        return np.setdiff1d(np.arange(len(self.source)), self.dropped())

    def as_json(self) -> dict[str, Any]:
        return {
            "split": _title(self.source),
            "images": len(self.source),
            "against": None if self.against is None else _title(self.against),
            "threshold": self.threshold,
            "calibration": None if self.calibration is None else asdict(self.calibration),
            "pairs": [asdict(pair) for pair in self.pairs()],
            "dropped": [self.source.id(row) for row in self.dropped().tolist()],
        }

    def text(self) -> str:
        """For people: how many, how the threshold was chosen, and the most similar pairs of each kind."""
        same = int(self.same_inside.sum() + self.same_across.sum())
        near = len(self.inside) + len(self.across) - same
        where = f"{_title(self.source)}, {len(self.source):,} images"
        where += "" if self.against is None else f", and {_title(self.against)}, {len(self.against):,}"
        chosen = "" if self.calibration is None else f"\nthreshold: {self.calibration.text()}"
        pairs = self.pairs()
        shown = [p for p in pairs if p.same][: SHOWN // 2] + [p for p in pairs if not p.same][:SHOWN]
        lines = [f"  {p.similarity:.4f}  {'same' if p.same else 'near'}  {p.first}  {p.second}" for p in shown]
        more = [f"  and {len(pairs) - len(shown):,} pairs more: --json has all"] if len(pairs) > len(shown) else []
        across = len(np.unique(self.across.first))
        leaked = "" if self.against is None else f", {across:,} of them for images of {_title(self.against)}"
        return "\n".join(
            [
                f"{where}: {same:,} pairs of the same content, {near:,} nearly (cosine at least {self.threshold:.4f})"
                + chosen,
                *lines,
                *more,
                f"without duplicates: {len(self.kept()):,} of {len(self.source):,} images; "
                f"{len(self.dropped()):,} left out{leaked}",
            ]
        )

    def sheet(self) -> Image.Image:
        """Pairs that are not of the same content, evenly spaced from the least to the most similar: where they stop
        being the same picture, the threshold belongs. Raises UsageError where there are none."""
        found = [(similarity, a, b, other) for a, b, similarity, other, same in self._all() if not same]
        if not found:
            raise UsageError(f"no two images have a cosine of {self.threshold:.4f} or more, so nothing is drawn")
        found.sort(key=lambda one: one[:3])
        places = np.unique(np.linspace(0, len(found) - 1, IN_A_ROW * ROWS).round().astype(int)).tolist()
        images = []
        for similarity, a, b, other in (found[place] for place in places):
            images += [(self.source.image(a), f"{_name(self.source, a)}\n{similarity:.4f}")]
            images += [(other.image(b), _name(other, b))]
        wide = 2 * IN_A_ROW
        return stacked([row_of(images[start : start + wide], apart=2) for start in range(0, len(images), wide)])

    def _all(self) -> Iterator[tuple[int, int, float, Source, bool]]:
        kinds = [(self.inside, self.source, self.same_inside), (self.across, self.against, self.same_across)]
        for pairs, other, equal in kinds:
            for (a, b, similarity), same in zip(pairs, equal.tolist(), strict=True):
                assert other is not None, "nothing lies across to no split"
                yield a, b, similarity, other, same


def near_duplicates(
    model: str | Path | nn.Module,
    data: str | None = None,
    *,
    split: str = "train",
    against: str | None = None,
    threshold: float | None = None,
    index: str | Path | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
    batch_size: int = 256,
    workers: int = 4,
    show_progress: bool = False,
) -> NearDuplicates:
    """Pairs of images whose features have a cosine of at least ``threshold``: within a split, and with another.

    Args:
        model: as in :func:`ssl_hub.knn`; ``pixels`` compares the images themselves, shrunk.
        data: a registered name, path or Hub dataset id; by default what the release was pre-trained on.
        against: the other split, such as the one that is tested on.
        threshold: from -1 to 1; left out, it is chosen, see :mod:`ssl_hub.evaluate.mild_changes`.
        index: a folder where features are kept, and taken from the next time.
        show_progress: say on stderr what is taken from the index.

    Raises:
        UsageError: a threshold out of range, ``against`` with images of the split itself, over a million pairs, or
            what opening model and data raises.
    """
    if threshold is not None:
        number(-1, 1, fix="left out, it is chosen").check("threshold", threshold)
    subject = open_model(model)
    columns = {"image_column": image_column, "label_column": label_column}
    source = open_split(subject, data, split, **columns)
    other = None if against is None else open_split(subject, data, against, **columns)
    if other is not None and (other.name, other.split) == (source.name, source.split):
        raise UsageError(
            f"against is {against!r}, which is {_title(source)} itself; pairs within a split are found without it"
        )
    if other is not None and (both := len({*source.origins()} & {*other.origins()} - {None})):
        raise UsageError(
            f"{both:,} images of {_title(source)} are in {_title(other)} too, and each would be its own duplicate;"
            " choose parts that share none"
        )
    take = partial(features_of, subject, batch_size=batch_size, workers=workers)
    features = take if index is None else partial(_from_index, index, subject, take, show_progress)
    mine = features(source)
    calibration = calibrate(source, mine, take) if threshold is None else None
    least = threshold if calibration is None else calibration.threshold
    assert least is not None
    inside = pairs_over(mine.x, None, least)
    across = NONE if other is None else pairs_over(mine.x, features(other).x, least)
    same = _same(source, source, inside), _same(source, other or source, across)
    return NearDuplicates(source, other, least, calibration, inside, across, *same)


def _from_index(
    index: str | Path, subject: Subject, take: Callable[[Source], Features], show_progress: bool, of: Source
) -> Features:
    found, state = kept(index, subject, of, partial(take, of))
    if show_progress:
        print(f"index of {_title(of)}: {state}", file=sys.stderr)
    return found


def _same(one: Source, other: Source, pairs: Pairs) -> NDArray[np.bool_]:
    """Which pairs have the same content. Only images in pairs are read: equal images are always near."""
    of_one = {row: content_of(one, row) for row in np.unique(pairs.first).tolist()}
    of_other = {row: content_of(other, row) for row in np.unique(pairs.second).tolist()}
    equal = [of_one[a] == of_other[b] != b"" for a, b, _ in pairs]
    return np.array(equal, bool)


def _title(source: Source) -> str:
    return f"{Path(source.name).name}/{source.split}"


def _name(source: Source, row: int) -> str:
    return f"{source.split}/{source.id(row)}"
