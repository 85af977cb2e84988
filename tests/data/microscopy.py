"""A made-up microscopy folder as laboratories leave it: 12 bits in files of 16, nested, and not all in order."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image


def tiff(seed: int, *, most: int = 4000, side: int = 64) -> bytes:
    """Grey cells on a dark ground, values up to ``most`` in 16 bits."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:side, :side]
    image = rng.normal(100, 20, (side, side))
    for centre_y, centre_x, size in rng.uniform((0, 0, 3), (side, side, 8), (5, 3)):
        image += (most - 300) * np.exp(-((y - centre_y) ** 2 + (x - centre_x) ** 2) / (2 * size**2))
    stream = io.BytesIO()
    Image.fromarray(np.clip(image, 0, most).astype(np.uint16)).save(stream, "TIFF")
    return stream.getvalue()


def microscopy(root: Path, *, count: int = 12) -> Path:
    """``Training`` and ``Testing`` of two classes, wells below them; a copy over splits, a broken file, and others."""
    for split, number in (("Training", count), ("Testing", count // 3)):
        for label, treatment in enumerate(("control", "treated")):
            for i in range(number):
                folder = root / split / treatment / f"well {i % 3}"
                folder.mkdir(parents=True, exist_ok=True)
                name = f"field_{i:03}.tif"
                (folder / name).write_bytes(tiff(1000 * len(split) + 100 * label + i))
    first = root / "Training" / "control" / "well 0" / "field_000.tif"
    (root / "Testing" / "control" / "well 1" / "copy of 0.tif").write_bytes(first.read_bytes())
    (root / "Training" / "treated" / "well 1" / "field_001.tif").write_bytes(first.read_bytes()[:200])
    (root / "Training" / "control" / "well 2" / "stack.czi").write_bytes(b"ZISRAWFILE")
    (root / "Training" / "control" / "well 2" / "settings.xml").write_text("<settings/>")
    (root / "Training" / "Thumbs.db").write_bytes(b"x")
    return root
