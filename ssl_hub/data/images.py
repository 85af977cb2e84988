"""Images with their labels: :class:`Source`, several as one, and all of one decoded."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from ssl_hub.data.passed_over import BESIDE_SPLITS, PassedOver
from ssl_hub.data.paths import shown
from ssl_hub.data.stored import Files, Images, Pixels
from ssl_hub.errors import UsageError
from ssl_hub.processes import share_of_cores

if TYPE_CHECKING:
    from ssl_hub.data.bad_images import BadImages


class _Joined:
    """Several sources' images, one after the other."""

    def __init__(self, parts: Sequence[Source]) -> None:
        self.parts = parts
        self.ends = np.cumsum([len(part) for part in parts])

    def __len__(self) -> int:
        return int(self.ends[-1])

    def __getitem__(self, position: int) -> Image.Image:
        part, inner = self.find(position)
        return part.image(inner)

    def array(self, position: int) -> NDArray[np.uint8]:
        part, inner = self.find(position)
        return part.array(inner)

    def stored(self, position: int) -> tuple[str | bytes, str] | None:
        part, inner = self.find(position)
        return part.stored(inner)

    def file_paths(self) -> Sequence[str] | None:
        found: list[str] = []
        for part in self.parts:
            paths = part.paths()
            if paths is None:
                return None
            found += [f"{part.split}/{path}" for path in paths]
        return found

    def origins(self) -> Iterator[Hashable]:
        return (origin for part in self.parts for origin in part.origins())

    def sizes(self) -> NDArray[np.int64]:
        return np.concatenate([part.sizes() for part in self.parts])

    def find(self, position: int) -> tuple[Source, int]:
        part = int(np.searchsorted(self.ends, position, side="right"))
        return self.parts[part], position - (int(self.ends[part - 1]) if part else 0)


class Source:
    """One split of a dataset: ``len(source)`` images, and labels where it has any. Map-style and picklable.

    ``classes`` are class names in label order, the same for every split of a dataset, and None for unlabelled data;
    ``labels`` is int64 ``[N]``, -1 where a label is unknown, and None for unlabelled data.
    """

    def __init__(
        self,
        name: str,
        split: str,
        images: Images,
        *,
        classes: Sequence[str] | None = None,
        labels: ArrayLike | None = None,
    ) -> None:
        if (classes is None) != (labels is None):
            raise UsageError(f"data {name!r} gives classes without labels or labels without classes; give both or none")
        self.name = name
        self.split = split
        self.bad: BadImages | None = None  # where unreadable images are stood in for, those met so far
        self.passed_over = PassedOver()  # what was found beside the images
        self.classes = None if classes is None else tuple(classes)
        self.labels: NDArray[np.int64] | None = None if labels is None else np.asarray(labels, np.int64)
        self._images = images
        self._positions: NDArray[np.int64] | None = None
        if self.labels is not None and self.classes is not None:
            if self.labels.shape != (len(images),):
                raise UsageError(f"data {name!r} has {len(images)} images but labels of shape {self.labels.shape}")
            if self.labels.size and not -1 <= self.labels.min() <= self.labels.max() < len(self.classes):
                outside = self.labels.min() if self.labels.min() < -1 else self.labels.max()
                raise UsageError(f"data {name!r} has label {outside}, expected -1 (unknown) to {len(self.classes) - 1}")

    def __len__(self) -> int:
        return len(self._images if self._positions is None else self._positions)

    def image(self, index: int) -> Image.Image:
        """Image ``index``, upright RGB. Raises :class:`UsageError` naming the file where it cannot be read."""
        return self._images[self._position(index)]

    def array(self, index: int) -> NDArray[np.uint8]:
        """Image ``index`` as uint8 ``[H, W, 3]``, which is sooner there than :meth:`image` for most JPEG files."""
        images, position = self._images, self._position(index)
        array = getattr(images, "array", None)
        return np.array(images[position]) if array is None else array(position)

    def stored(self, index: int) -> tuple[str | bytes, str] | None:
        """Image ``index`` as it is stored, a path or a file's bytes, and what names it; None where it is pixels.

        Raises :class:`UsageError` where it is missing.
        """
        stored = getattr(self._images, "stored", None)
        return None if stored is None else stored(self._position(index))

    def encoded(self, index: int) -> bytes:
        """Image ``index`` as it is stored: the bytes of its file, or of its pixels; empty where they cannot be read."""
        try:
            stored = self.stored(index)
            if stored is None:
                return np.array(self._images[self._position(index)]).tobytes()
            return stored[0] if isinstance(stored[0], bytes) else Path(stored[0]).read_bytes()
        except (OSError, UsageError):
            return b""

    def paths(self) -> Sequence[str] | None:
        """The files' paths below their root, in order; None where images are no files of their own."""
        return self._named("file_paths")

    def origins(self) -> Iterator[Hashable]:
        """What names each image whatever is opened: two images of one name are one, and None names nothing. Two of
        different names may have the same content."""
        origins = getattr(self._images, "origins", None)
        made: Iterator[Hashable] = iter([None] * len(self._images)) if origins is None else origins()
        if self._positions is None:
            return made
        every = list(made)
        return (every[position] for position in self._positions.tolist())

    def sizes(self) -> NDArray[np.int64]:
        """Bytes of each image as it is stored, int64 ``[N]``, not read for it; 0 of pixels, -1 of what is missing."""
        sizes = getattr(self._images, "sizes", None)
        every: NDArray[np.int64] = np.zeros(len(self._images), np.int64) if sizes is None else sizes()
        return every if self._positions is None else every[self._positions]

    def id(self, index: int) -> str:
        """What names image ``index`` in its data: the path of a file below its root, else its place in the split.

        It is text whatever the name: bytes that are not UTF-8 are escaped.
        """
        images, position = self._images, self._position(index)
        if isinstance(images, Files):
            return shown(images.paths[position])
        if isinstance(images, _Joined):
            part, inner = images.find(position)
            return f"{part.split}/{part.id(inner)}"
        return str(position)

    def _position(self, index: int) -> int:
        if not 0 <= index < len(self):
            raise IndexError(f"image {index} of {len(self)}")
        return int(index if self._positions is None else self._positions[index])

    def subset(self, indices: Any) -> Source:
        """The source of these images alone, in this order; ``indices`` is anything that indexes a numpy array."""
        plain = isinstance(indices, (slice, list, np.ndarray))
        chosen = np.arange(len(self))[indices if plain else np.asarray(indices, np.int64)]
        part = copy.copy(self)
        part._positions = chosen if self._positions is None else self._positions[chosen]
        part.labels = None if self.labels is None else self.labels[chosen]
        return part

    def places(self) -> NDArray[np.int64]:
        """Which images of the whole split these are."""
        return np.arange(len(self)) if self._positions is None else self._positions

    def names(self) -> Sequence[str] | None:
        """The images' file names, with folders where they lie in some; None where they have none."""
        return self._named("names")

    def _named(self, kind: str) -> Sequence[str] | None:
        every: Sequence[str] | None = getattr(self._images, kind, lambda: None)()
        return every if every is None or self._positions is None else [every[i] for i in self._positions.tolist()]

    @property
    def root(self) -> Path | None:
        """The folder that the file names start from, where there is one."""
        return self._images.root if isinstance(self._images, Files) else None

    @property
    def value_range(self) -> Any:
        """Black and white of images of more than 8 bits, None of data that holds pixels."""
        images = self._images
        return images.parts[0].value_range if isinstance(images, _Joined) else getattr(images, "values", None)

    def pixels(self) -> NDArray[np.uint8] | None:
        """All images as uint8 ``[N, H, W, 3]`` where they are held so, else None: see :func:`decoded`."""
        if not isinstance(self._images, Pixels):
            return None
        return self._images.pixels if self._positions is None else self._images.pixels[self._positions]

    def __repr__(self) -> str:
        kind = "unlabelled" if self.classes is None else f"{len(self.classes)} classes"
        return f"Source({self.name!r}, split={self.split!r}, {len(self)} images, {kind})"


def joined(parts: Sequence[Source], name: str, split: str) -> Source:
    """One source of several splits of a dataset; images of unlabelled parts get label -1.

    Raises :class:`UsageError` where two labelled parts do not have the same classes.
    """
    labelled = [part for part in parts if part.classes is not None]
    for part in labelled:
        if part.classes != labelled[0].classes:
            raise UsageError(f"splits {labelled[0].split!r} and {part.split!r} of {name} have different classes")
    labels = [np.full(len(part), -1, np.int64) if part.labels is None else part.labels for part in parts]
    classes, of_all = (labelled[0].classes, np.concatenate(labels)) if labelled else (None, None)
    whole = Source(name, split, _Joined(parts), classes=classes, labels=of_all)
    for part in parts:
        for reason, some in part.passed_over.items():
            if reason != BESIDE_SPLITS or reason not in whole.passed_over:  # it is of the data, and each part says it
                whole.passed_over.add(reason, some.example, some.number)
    return whole


def decoded(source: Source, limit_bytes: int = 4 * 2**30) -> Source:
    """The same source with its images decoded and held in memory, for data that is read many times.

    The source itself comes back where that would exceed ``limit_bytes`` or where images differ in size.
    """
    if len(source) == 0 or source.pixels() is not None:
        return source
    first = np.asarray(source.image(0))
    if len(source) * first.size > limit_bytes:
        return source
    pixels = np.empty((len(source), *first.shape), np.uint8)

    def fill(positions: range) -> bool:
        for position in positions:
            image = np.asarray(source.image(position))
            if image.shape != first.shape:
                return False
            pixels[position] = image
        return True

    chunks = [range(i, min(i + 64, len(source))) for i in range(0, len(source), 64)]
    with ThreadPoolExecutor(decoding_threads(first.size)) as pool:
        for i in range(0, len(chunks), 16):  # a few at a time, so that a different size soon ends it
            if not all(list(pool.map(fill, chunks[i : i + 16]))):
                return source
    return Source(source.name, source.split, Pixels(pixels), classes=source.classes, labels=source.labels)


def decoding_threads(image_bytes: int) -> int:
    """Threads to decode images of this size with: one where they are so small that threads wait for each other."""
    return 1 if image_bytes < 3 * 64 * 64 else min(8, share_of_cores())
