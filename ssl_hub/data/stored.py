"""The collections of images that a :class:`~ssl_hub.data.images.Source` may stand on: files, and an array."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ssl_hub.data.decoding import decode, decode_array
from ssl_hub.data.paths import Paths
from ssl_hub.data.value_range import AUTO, ValueRange
from ssl_hub.errors import UsageError


class Images(Protocol):
    """A picklable sequence of RGB images, each made when it is asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, position: int, /) -> Image.Image: ...


class Files:
    """Images of files: ``root / path`` for each relative path."""

    def __init__(self, root: Path, paths: Sequence[str], values: ValueRange = AUTO) -> None:
        self.root = root
        self.paths = paths if isinstance(paths, Paths) else Paths(paths)
        self.values = values

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, position: int) -> Image.Image:
        return decode(*self.stored(position), self.values)

    def array(self, position: int) -> NDArray[np.uint8]:
        return decode_array(*self.stored(position), self.values)

    def stored(self, position: int) -> tuple[str | bytes, str]:
        path = str(self.root / self.paths[position])
        return path, path

    def names(self) -> Sequence[str]:
        """Each file's path below the root."""
        return self.paths

    file_paths = names

    def origins(self) -> Iterator[Hashable]:
        """What names each file whatever is opened: two images of one name are one."""
        root = os.path.realpath(self.root)
        return (os.path.join(root, path) for path in self.paths)

    def sizes(self) -> NDArray[np.int64]:
        """Bytes of each file, -1 where it cannot be asked."""
        with ThreadPoolExecutor(16) as pool:  # which wait, where the files are on another machine
            starts = range(0, len(self), 1024)
            return np.concatenate([*pool.map(self._sizes, starts), np.empty(0, np.int64)])

    def _sizes(self, start: int) -> NDArray[np.int64]:
        found = []
        for position in range(start, min(start + 1024, len(self))):
            try:
                found.append(os.stat(self.stored(position)[0]).st_size)
            except OSError:
                found.append(-1)
        return np.array(found, np.int64)


class Pixels:
    """Images of an array: uint8 ``[N, H, W, 3]``, RGB."""

    def __init__(self, pixels: NDArray[np.uint8]) -> None:
        if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[3] != 3:
            raise UsageError(f"images are {pixels.dtype} {list(pixels.shape)}, expected uint8 [N, height, width, 3]")
        self.pixels = pixels

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, position: int) -> Image.Image:
        return Image.fromarray(self.pixels[position])
