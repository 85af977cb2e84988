"""Opening data by what it is called: name, layout, splits, the part that is meant, its images and labels.

Another built-in dataset is one function ``split -> Source`` registered in :data:`SOURCES`.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from ssl_hub.config import Data
from ssl_hub.data.file_lists import listed
from ssl_hub.data.images import Source, joined
from ssl_hub.data.layouts import find_layout
from ssl_hub.data.reading import Reading
from ssl_hub.data.registered import SOURCES
from ssl_hub.data.splits import Part, parse_split, warn_of_others
from ssl_hub.data.value_range import ValueRange
from ssl_hub.errors import UsageError

__all__ = ["SOURCES", "Source", "open_part", "open_source"]


def open_source(
    data: str,
    split: str,
    *,
    image_column: str | None = None,
    label_column: str | None = None,
    value_range: str = "auto",
) -> Source:
    """The images, and labels where there are any, of one split of ``data``.

    ``data`` is the first of these that fits: (1) a name in :data:`SOURCES`; (2) a path that exists: an image folder
    (``[split/]class/image``, or flat and unlabelled), parquet or arrow files named by split, or a folder that
    ``save_to_disk`` of ``datasets`` wrote; (3) a Hub dataset, ``owner/name[:config][@revision]``, which ``datasets``
    downloads or takes from its cache.

    ``split`` may join several with ``+``, as in ``train+unlabeled``, and take a part of each: ``train[:10%]`` and
    ``train[::10]`` as slices do, ``train@1percent.txt`` those that a text file names (see ``file_lists``). Names of
    held-out splits stand for each other. Columns are for tables alone and found by type where not named.
    ``value_range`` is ``data.range`` of a recipe; see :class:`~ssl_hub.data.value_range.ValueRange`.

    Raises :class:`UsageError` that says what was found and how to fix it.
    """
    parts = parse_split(split)
    together = frozenset(part.name for part in parts)
    layout = find_layout(data, Reading(image_column, label_column, ValueRange.parse(value_range), together))
    wholes = [layout.open(part.name) for part in parts]
    opened = [_taken(whole, part) for whole, part in zip(wholes, parts, strict=True)]
    if data not in SOURCES:
        warn_of_others(split, {whole.split for whole in wholes}, layout.splits, layout.name)
    _refuse_twice(split, [whole.split for whole in wholes], opened)
    return opened[0] if len(opened) == 1 else joined(opened, opened[0].name, "+".join(part.split for part in opened))


def open_part(data: Data, split: str) -> Source:
    """A split of a recipe's data, read as the recipe says."""
    columns = {"image_column": data.image_column, "label_column": data.label_column}
    return open_source(data.name, split, **columns, value_range=data.range)


def _refuse_twice(split: str, names: list[str], opened: list[Source]) -> None:
    """Raise where parts share images: ``test+test``, or ``val+test`` of data that has only one of them."""
    for (name, one), (again, other) in combinations(zip(names, opened, strict=True), 2):
        if name == again and (both := len(np.intersect1d(one.places(), other.places()))):
            raise UsageError(
                f"split {split!r} of {one.name} takes {both:,} of the {name} images twice; name each image once"
            )


def _taken(whole: Source, part: Part) -> Source:
    source = whole
    if part.bounds:
        source = whole.subset(part.taken(len(whole)))
        source.split = whole.split + part.bounds
        if len(source) == 0:
            raise UsageError(f"split {part.name + part.bounds!r} of {whole.name} takes none of its {len(whole)} images")
    return source if part.file_list is None else listed(source, part.file_list)
