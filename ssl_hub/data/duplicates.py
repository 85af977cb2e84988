"""Images of the same content, inside a split and across splits, found by the hash of their files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ssl_hub.data.images import Source, decoding_threads
from ssl_hub.data.inventory import Progress, without_progress
from ssl_hub.data.look import digest
from ssl_hub.errors import UsageError

CHEAP_BYTES = 256 * 2**20
"""Data up to this size is compared without being asked: reading it takes a second or two."""

_EXAMPLES = 3
_UNREADABLE = b""


def stored_bytes(source: Source, most: int = CHEAP_BYTES) -> int:
    """Bytes of a source's images as they are stored; the sum stops soon after it exceeds ``most``."""
    total = 0
    for position in range(len(source)):
        try:
            encoded = source.stored(position)
            if encoded is None:
                total += source.array(position).nbytes
            else:
                total += len(encoded[0]) if isinstance(encoded[0], bytes) else Path(encoded[0]).stat().st_size
        except (OSError, UsageError):
            continue
        if total > most:
            break
    return total


def duplicates(sources: Mapping[str, Source], progress: Progress = without_progress) -> dict[str, Any]:
    """Of the images of each split, those whose content an earlier image of the split has (``within``), and for each
    pair of splits the images of the second whose content the first has (``across``), with their number and examples.
    """
    first_of = {split: _first_places(source, progress) for split, source in sources.items()}
    within, across = {}, []
    for split, (first, again) in first_of.items():
        pairs = [(first[content], place) for content, place in again]
        if pairs:
            within[split] = _found(pairs, sources[split], sources[split])
    splits = list(sources)
    for number, one in enumerate(splits):
        for other in splits[number + 1 :]:
            mine, (its, again) = first_of[one][0], first_of[other]
            every = [*its.items(), *again]
            pairs = sorted((mine[content], place) for content, place in every if content in mine)
            if pairs:
                across.append({"splits": [one, other], **_found(pairs, sources[one], sources[other])})
    return {"within": within, "across": across}


def _first_places(source: Source, progress: Progress) -> tuple[dict[bytes, int], list[tuple[bytes, int]]]:
    """Contents to the first place that each has, and the places after that. What cannot be read has no content."""
    first: dict[bytes, int] = {}
    again: list[tuple[bytes, int]] = []
    for place, content in enumerate(progress(_digests(source), len(source), f"{source.split}, contents")):
        if content == _UNREADABLE:
            continue
        if first.setdefault(content, place) != place:
            again.append((content, place))
    return first, again


def content_of(source: Source, position: int) -> bytes:
    """What is the same for two images of the same content alone; empty for one that cannot be read."""
    try:
        encoded = source.stored(position)
        if encoded is None:
            pixels = source.array(position)
            encoded = np.ascontiguousarray(pixels).tobytes() + str(pixels.shape).encode(), ""
        return digest(encoded)
    except UsageError:
        return _UNREADABLE


def _digests(source: Source) -> Iterable[bytes]:
    with ThreadPoolExecutor(decoding_threads(2**20)) as pool:
        for start in range(0, len(source), 1024):
            yield from pool.map(partial(content_of, source), range(start, min(start + 1024, len(source))))


def _found(pairs: list[tuple[int, int]], one: Source, other: Source) -> dict[str, Any]:
    examples = [[one.id(first), other.id(second)] for first, second in pairs[:_EXAMPLES]]
    return {"images": len({second for _, second in pairs}), "examples": examples}
