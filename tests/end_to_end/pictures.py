"""A folder of small photographs of mixed sizes, which are not decoded once but by workers, over and over."""

from pathlib import Path

import numpy as np
from PIL import Image


def mixed_pictures(root: Path, *, train: int = 20, test: int = 4, sides: tuple[int, int] = (40, 120)) -> Path:
    """Two classes in two splits, ``train`` and ``test`` JPEGs a class, of so many pixels a side."""
    rng = np.random.default_rng(0)
    for split, count in (("train", train), ("test", test)):
        for label in ("cat", "dog"):
            folder = root / split / label
            folder.mkdir(parents=True)
            for index in range(count):
                height, width = rng.integers(*sides, 2).tolist()
                coarse = rng.integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), dtype=np.uint8)
                Image.fromarray(coarse).resize((width, height)).save(folder / f"{index}.jpg")
    return root
