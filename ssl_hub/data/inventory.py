"""What a split of a dataset is, found out once: counts, what was passed over, and what a sample of its images is like.

Everything is plain JSON, as recipe.json and the report take it. The cheap form names every file and decodes a sample,
a thousandth of an epoch's decoding of photographs (a fortieth, of thumbnails of 32 pixels); the thorough form decodes
all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ssl_hub.data.endings import ending_of
from ssl_hub.data.images import Source, decoding_threads
from ssl_hub.data.look import Look, look_at, look_at_pixels
from ssl_hub.data.value_range import AUTO, ValueRange
from ssl_hub.errors import UsageError

_SAMPLE = (8, 64)  # images that are decoded at least and at most, and one of so many between
_ONE_OF = 200
_EXAMPLES = 5
_WITH_VALUES = 512  # images whose values are kept, at most, for percentiles
_MASK = re.compile(r"[^/][-_. ](mask|masks|seg|segmentation|gt|depth|labelids|annotation)\.\w+$", re.IGNORECASE)
_NONE = np.empty(0, np.float32)

Progress = Callable[[Iterable[Any], int, str], Iterable[Any]]
"""Wraps an iterable of so many items under a name, as ``tqdm`` does."""


def without_progress(items: Iterable[Any], total: int, name: str) -> Iterable[Any]:
    return items


def inventory(
    source: Source, *, values: ValueRange = AUTO, thorough: bool = False, progress: Progress = without_progress
) -> dict[str, Any]:
    """The inventory of one split.

    Keys: ``images``; ``classes`` (images by class name) and ``unlabelled``, both None for data without labels;
    ``endings`` (images by ending; empty without file names); ``companions`` (the number and an example of images called
    as masks are, or None); ``passed_over`` (by reason, each with its number and an example); and ``looked_at``, which
    :func:`summary` describes.
    """
    positions = range(len(source)) if thorough else sample_of(len(source))
    looks = progress(_looks(source, positions, values), len(positions), source.split)
    names = source.names() or ()
    labels = source.labels
    counts = None if labels is None or source.classes is None else np.bincount(labels + 1, minlength=1)
    return {
        "images": len(source),
        "classes": None if counts is None else _by_class(source.classes or (), counts),
        "unlabelled": None if counts is None else int(counts[0]),
        "endings": dict(Counter(map(ending_of, names)).most_common()),
        "companions": _companions(names),
        "passed_over": source.passed_over.as_json(),
        "looked_at": summary(looks, values),
    }


def look_over(source: Source, values: ValueRange = AUTO) -> dict[str, Any]:
    """:func:`summary` of a sample of the images."""
    return summary(_looks(source, sample_of(len(source)), values), values)


def for_the_record(inventory: dict[str, Any]) -> dict[str, Any]:
    """An inventory as recipe.json has it, which is published: without names of files, which may be those of people.

    Of its classes there is how many there are, and the fewest, median and most images.
    """
    classes, beside, seen = inventory["classes"], inventory["companions"], inventory["looked_at"]
    return {
        **inventory,
        "classes": None if not classes else {"number": len(classes), "images": _spread(np.array([*classes.values()]))},
        "companions": None if beside is None else {"number": beside["number"]},
        "passed_over": {reason: {"number": some["number"]} for reason, some in inventory["passed_over"].items()},
        "looked_at": {**seen, "unreadable": {"number": seen["unreadable"]["number"]}},
    }


def in_words(recorded: Any) -> str:
    """One line of what :func:`for_the_record` gave: ``23 images of 2 classes, 64 x 64 pixels, 16 bits a channel``.

    Empty where it is none, as in a run of a stream or of an older version.
    """
    if not isinstance(recorded, dict) or "images" not in recorded:
        return ""
    parts = [f"{recorded['images']:,} images"]
    if recorded.get("classes"):
        parts[0] += f" of {recorded['classes']['number']} classes"
    seen = recorded.get("looked_at", {})
    if "width" in seen:
        middle = f"{seen['width'][1]} x {seen['height'][1]} pixels"
        parts.append(middle if seen["sizes"] == 1 else f"{middle} in the middle")
        parts.append(
            " and ".join("floats" if bits == "float" else f"{bits} bits" for bits in seen["bits"]) + " a channel"
        )
    return ", ".join(parts)


def sample_of(count: int) -> list[int]:
    """Evenly spaced places of ``count`` images: one of 200, at least 8 and at most 64."""
    least, most = _SAMPLE
    size = min(count, max(least, min(most, count // _ONE_OF)))
    return sorted({*np.linspace(0, count - 1, size).round().astype(int).tolist()}) if count else []


def _companions(names: Iterable[str]) -> dict[str, Any] | None:
    called = [name for name in names if _MASK.search(name)]
    return {"number": len(called), "example": called[0]} if called else None


def summary(looks: Iterable[Look], values: ValueRange = AUTO) -> dict[str, Any]:
    """Images that were looked at, together.

    ``images`` is their number, ``unreadable`` the number and some errors of those that cannot be read. Of the others:
    ``width``, ``height`` and ``shorter`` (side): lowest, median, highest; ``longest_to_shortest``, the largest ratio of
    sides; ``sizes``, how many there are; ``frames``, the most that one holds; ``modes`` and ``bits`` a channel
    (``float`` for floats): images by each.

    ``values`` are the lowest and highest stored, of images of more than 8 bits where there are such, else of all;
    ``percentiles`` (0.1 and 99.9) leave out single pixels; ``range`` is what counts as black and white,
    ``range_is_set`` whether by ``data.range``, and ``used`` the share of it between the values.
    """
    seen = list(looks)
    good = [look for look in seen if not look.error]
    wide = [look for look in good if look.bits not in (1, 8)]
    found: dict[str, Any] = {
        "images": len(seen),
        "unreadable": {
            "number": len(seen) - len(good),
            "examples": [look.error for look in seen if look.error][:_EXAMPLES],
        },
    }
    if not good:
        return found
    sides = np.array([(look.width, look.height) for look in good])
    low, high = _range(wide or good, values)
    measured = [look for look in wide or good if look.low <= look.high]
    ends = (min(look.low for look in measured), max(look.high for look in measured)) if measured else (low, high)
    return found | {
        "width": _spread(sides[:, 0]),
        "height": _spread(sides[:, 1]),
        "shorter": _spread(sides.min(axis=1)),
        "longest_to_shortest": round(float((sides.max(axis=1) / sides.min(axis=1)).max()), 1),
        "sizes": len({*map(tuple, sides.tolist())}),
        "frames": max(look.frames for look in good),
        "modes": dict(Counter(look.mode for look in good).most_common()),
        "bits": dict(Counter(str(look.bits) if look.bits else "float" for look in good).most_common()),
        "values": list(ends),
        "percentiles": _percentiles(measured) or list(ends),
        "range": [low, high],
        "range_is_set": values != AUTO,
        "used": round(max(0.0, min(ends[1], high) - max(ends[0], low)) / (high - low), 4),
    }


def _looks(source: Source, positions: Sequence[int], values: ValueRange) -> Iterator[Look]:
    def look(position: int) -> Look:
        try:
            encoded = source.stored(position)
            return look_at_pixels(source.array(position)) if encoded is None else look_at(encoded, values)
        except UsageError as error:
            return Look(error=str(error))

    every = -(-len(positions) // _WITH_VALUES)
    with ThreadPoolExecutor(decoding_threads(2**20)) as pool:
        for start in range(0, len(positions), 256):  # a few at a time: what has been looked at would wait in memory
            for number, seen in enumerate(pool.map(look, positions[start : start + 256]), start):
                yield seen if number % every == 0 else seen._replace(values=_NONE)


def _by_class(classes: Sequence[str], counts: np.ndarray) -> dict[str, int]:
    numbers = np.zeros(len(classes), np.int64)
    numbers[: len(counts) - 1] = counts[1:]
    return dict(zip(classes, numbers.tolist(), strict=True))


def _spread(numbers: np.ndarray) -> list[int]:
    return [int(numbers.min()), int(np.median(numbers)), int(numbers.max())]


def _range(looks: Sequence[Look], values: ValueRange) -> tuple[float, float]:
    """What becomes black and white of these images, all of more than 8 bits or none."""
    bits = {look.bits for look in looks}
    if bits <= {1, 8}:
        return 0.0, 255.0
    if values.low is not None and values.high is not None:
        return values.low, values.high
    return (0.0, 1.0) if bits == {0} else (0.0, 65535.0)


def _percentiles(looks: Sequence[Look]) -> list[float]:
    """0.1 and 99.9 %, of values that each image gave some of."""
    if not looks:
        return []
    low, high = np.percentile(np.concatenate([look.values for look in looks if len(look.values)]), (0.1, 99.9))
    return [float(low), float(high)]
