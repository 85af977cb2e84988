"""How near two pictures of the same thing are in a model's features: what tells near-duplicates from other images.

No number suits all: in most networks features are not negative, so that any two images have a cosine of 0.5 or of 0.95,
by the model. So it is measured on the data. Some images are changed as copies are on their way through the world, and
for the same images the nearest other image is looked up. The threshold is what tells one from the other best: the share
of copies that it finds, less ten times the share of images whose nearest other it takes for a copy, is greatest. (Ten
times, because most of many images are no duplicates: on CIFAR-10, at equal weights, nearly all were other images.)
A nearest other that is nearer than half of the copies is taken for a true duplicate and counts for neither, or data
with many duplicates would have a threshold above them all; unless most images have such, and the model is to blame.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageEnhance

from ssl_hub.data.images import Source
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.features import Features
from ssl_hub.evaluate.near_pairs import unit

SAMPLE = 200  # images that are changed
HIGHEST = 1 - 1e-5  # of the threshold: cosines of equal images differ from 1 by how float32 rounds
WRONG = 10  # missed copies that weigh as much as one other image taken for a copy
CLEAR = 0.9  # the least of the weighed difference where the threshold can be left alone
COLUMNS = 8192  # images that are compared at a time


@dataclass(frozen=True)
class Calibration:
    """A threshold, and what it does on the images that it was measured on.

    ``copies`` is the share of the changed copies at or above it, ``others`` the share of the images whose nearest image
    of another content is: a near-duplicate, or one that this model does not tell apart.
    """

    threshold: float
    images: int
    copies: float
    others: float
    doubtful: bool  # whether the model hardly tells them apart

    def text(self) -> str:
        said = (
            f"chosen on {self.images} images: it finds {self.copies:.0%} of their mildly changed copies, and for "
            f"{self.others:.1%} of them another image is as near"
        )
        return said + ("; this model hardly tells them apart here: look at --sheet, give --threshold" * self.doubtful)


def changed(image: Image.Image) -> list[Image.Image]:
    """Two mild changes of an RGB image: three quarters of its size in a JPEG file of quality 60; and 4 % off each
    border, a tenth brighter."""
    size = max(1, round(image.width * 0.75)), max(1, round(image.height * 0.75))
    small = image.resize(size, Image.Resampling.LANCZOS)
    file = io.BytesIO()
    small.save(file, "JPEG", quality=60)
    across, down = round(image.width * 0.04), round(image.height * 0.04)
    trimmed = image.crop((across, down, image.width - across, image.height - down))
    return [Image.open(file).convert("RGB"), ImageEnhance.Brightness(trimmed).enhance(1.1)]


def calibrate(source: Source, features: Features, extract: Callable[[Source], Features]) -> Calibration:
    """The threshold for images of ``source``, whose ``features`` are known; ``extract`` gives those of changed ones.

    Raises UsageError where the model gives most images the same features, changed or not: there is no threshold.
    """
    rows = np.unique(np.linspace(0, len(source) - 1, SAMPLE).round().astype(int))
    made = [copy for row in rows.tolist() for copy in changed(source.image(row))]
    own = unit(features.x[rows]).numpy()
    theirs = unit(extract(Source(source.name, "changed", made)).x).numpy()
    cosines = (own.repeat(2, axis=0) * theirs).sum(axis=1)
    others, equal = _nearest_other(own, features.x)
    collapsed = (cosines >= HIGHEST).mean() > 0.5 and (equal > len(source) / 2).mean() > 0.5
    if collapsed or not own.any(axis=1).mean() > 0.5:
        raise UsageError(
            f"the model gives most images of {source.name} the same features, so it tells no duplicates from others: it"
            " has collapsed, or its weights are not what they should be"
        )
    copies = np.minimum(cosines, HIGHEST)
    alike = others >= np.median(copies)
    unlike = others if alike.mean() > 0.5 else others[~alike]

    def told(threshold: float) -> float:
        return float((copies >= threshold).mean()) - WRONG * int((unlike >= threshold).sum()) / len(rows)

    threshold = max(np.unique(copies).tolist(), key=lambda t: (told(t), -t))
    found, taken = float((copies >= threshold).mean()), float((others >= threshold).mean())
    return Calibration(threshold, len(rows), found, taken, told(threshold) < CLEAR)


def _nearest_other(
    own: NDArray[np.float32], every: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The cosine of each row's nearest of ``every``, those aside that are the same (itself among them); and how many
    are."""
    nearest, equal = np.full(len(own), -1, np.float32), np.zeros(len(own), np.int64)
    for start in range(0, len(every), COLUMNS):
        cosines = own @ unit(every[start : start + COLUMNS]).numpy().T
        equal += (cosines >= HIGHEST).sum(axis=1)
        cosines[cosines >= HIGHEST] = -1
        nearest = np.maximum(nearest, cosines.max(axis=1))
    return nearest, equal
