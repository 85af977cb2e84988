"""Images that splits share or hold twice: the same file, the same row, or the same content under other names.

It costs a look at every file's size, 12 kilobytes of those whose size another file has too, and a whole read of those
alone that agree in these; tables know sizes without reading. So of a million photographs next to nothing is read.
Images that were stored anew, as another format or size, are not the same to it: ``ssl-hub duplicates`` finds those.
"""

from __future__ import annotations

import hashlib
import io
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ssl_hub.data.images import Source, decoding_threads
from ssl_hub.data.inventory import Progress, without_progress
from ssl_hub.data.look import digest
from ssl_hub.errors import UsageError

SHOWN = 2
_EXAMPLES = 3  # of duplicates
_PIECE = 4096  # bytes at the start, in the middle and at the end that are compared first

Place = tuple[int, int]  # which source, and which of its images


@dataclass(frozen=True)
class Overlap:
    """``images`` of the ``of`` that are judged are among those fitted to; ``examples`` are ids (fitted, judged)."""

    images: int
    of: int
    examples: tuple[tuple[str, str], ...] = ()
    places: tuple[int, ...] = ()  # of the images among those that are judged, ascending


def overlap(fitted: Source, judged: Source) -> Overlap:
    """The images of ``judged`` that ``fitted`` has too."""
    found: dict[int, int] = {}  # a place in judged: one in fitted
    there = {origin: place for place, origin in enumerate(judged.origins()) if origin is not None}
    if there:
        at = ((there[origin], place) for place, origin in enumerate(fitted.origins()) if origin in there)
        found.update(at)
    rest = np.setdiff1d(np.arange(len(judged)), np.fromiter(found, np.int64, len(found)))
    for group in _alike([fitted, judged.subset(rest)], between=True) if len(rest) else ():
        first = next(place for which, place in group if which == 0)
        found.update({int(rest[place]): first for which, place in group if which == 1})
    examples = [(fitted.id(found[place]), judged.id(place)) for place in sorted(found)[:SHOWN]]
    return Overlap(len(found), len(judged), tuple(examples), tuple(sorted(found)))


def copies(source: Source) -> list[list[int]]:
    """The places of the images of each content that a split has more than once, ascending."""
    return [[place for _, place in group] for group in _alike([source], between=False)]


def duplicates(sources: Mapping[str, Source], progress: Progress = without_progress) -> dict[str, Any]:
    """Of the images of each split, those whose content an earlier image of the split has (``within``), and for each
    pair of splits the images of the second whose content the first has (``across``), with their number and examples.
    """
    splits, opened = list(sources), list(sources.values())
    pairs: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)  # of two splits, images of one content
    for group in _alike(opened, between=False, progress=progress):
        first: dict[int, int] = {}
        for which, place in group:
            for other, earlier in first.items():
                pairs[other, which].append((earlier, place))
            first.setdefault(which, place)
    within, across = {}, []
    for (one, other), places in sorted(pairs.items()):
        examples = [[opened[one].id(earlier), opened[other].id(place)] for earlier, place in sorted(places)[:_EXAMPLES]]
        found = {"images": len({place for _, place in places}), "examples": examples}
        if one == other:
            within[splits[one]] = found
        else:
            across.append({"splits": [splits[one], splits[other]], **found})
    return {"within": within, "across": across}


def content_of(source: Source, position: int) -> bytes:
    """What is the same for two images of the same content alone; empty for one that cannot be read."""
    try:
        encoded = source.stored(position)
        if encoded is None:
            pixels = source.array(position)
            encoded = np.ascontiguousarray(pixels).tobytes() + str(pixels.shape).encode(), ""
        return digest(encoded)
    except UsageError:
        return b""


def _alike(sources: Sequence[Source], *, between: bool, progress: Progress = without_progress) -> list[list[Place]]:
    """Groups of images of one content, in order: of both sources where ``between``, else of at least two images."""
    places = _of_common_size(sources, between)
    pieces = _each(lambda at: _pieces(sources[at[0]], at[1]), places, progress)
    places = [place for group in _grouped(places, pieces, between) for place in group]
    return _grouped(places, _each(lambda at: content_of(sources[at[0]], at[1]), places, progress), between)


def _of_common_size(sources: Sequence[Source], between: bool) -> list[Place]:
    """Images whose size another has, of the other source where ``between``. In arrays, as there may be millions."""
    sizes = [source.sizes() for source in sources]
    if between:
        wanted = np.intersect1d(sizes[0], sizes[1])
    else:
        values, counts = np.unique(np.concatenate(sizes), return_counts=True)
        wanted = values[counts > 1]
    wanted = wanted[wanted >= 0]
    return [
        (which, place) for which, own in enumerate(sizes) for place in np.flatnonzero(np.isin(own, wanted)).tolist()
    ]


def _grouped(places: Sequence[Place], keys: Sequence[bytes], between: bool) -> list[list[Place]]:
    """The places by their key, where it is one of both sources, or of two images; an empty key is none."""
    groups: dict[bytes, list[Place]] = defaultdict(list)
    for place, key in zip(places, keys, strict=True):
        if key:
            groups[key].append(place)
    several = [group for group in groups.values() if len(group) > 1]
    return [group for group in several if not between or len({which for which, _ in group}) > 1]


def _each(take: Callable[[Place], bytes], places: Sequence[Place], progress: Progress) -> list[bytes]:
    chunks = [places[start : start + 256] for start in range(0, len(places), 256)]
    with ThreadPoolExecutor(decoding_threads(2**20)) as pool:
        keys = (key for keys in pool.map(lambda chunk: [*map(take, chunk)], chunks) for key in keys)
        return list(progress(keys, len(places), "contents"))


def _pieces(source: Source, place: int) -> bytes:
    """What two images of one content share, from little of it; empty for one that cannot be read."""
    try:
        stored = source.stored(place)
        if stored is None:
            return content_of(source, place)
        content = stored[0]
        with io.BytesIO(content) if isinstance(content, bytes) else Path(content).open("rb") as file:
            return _sampled(file)
    except (OSError, UsageError):
        return b""


def _sampled(file: BinaryIO) -> bytes:
    """A digest of its start, its middle and its end."""
    size = file.seek(0, io.SEEK_END)
    sampled = hashlib.blake2b(digest_size=16)
    for start in (0, size // 2, max(0, size - _PIECE)):
        file.seek(start)
        sampled.update(file.read(_PIECE))
    return sampled.digest()
