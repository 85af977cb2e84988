"""How far an accuracy on a sample of images may be from the accuracy on all such images."""

from __future__ import annotations

import math
from statistics import NormalDist

from ssl_hub.errors import UsageError


def wilson(percent: float, images: int, confidence: float = 0.95) -> tuple[float, float]:
    """The score interval of a proportion, in percent (Wilson 1927, J. Am. Stat. Assoc. 22, 209-212).

    ``percent`` of ``images`` were right. Unlike the normal approximation it stays within 0..100 and is no point at
    either end. It speaks of the images alone: not of the seed, nor of the choice of training images.
    """
    if images < 1 or not 0 <= percent <= 100 or not 0 < confidence < 1:
        raise UsageError(
            f"{percent} % of {images} images at confidence {confidence}: expected 0 to 100, one image or more, and a"
            " confidence between 0 and 1"
        )
    z, p = NormalDist().inv_cdf((1 + confidence) / 2), percent / 100
    middle = p + z * z / (2 * images)
    half = z * math.sqrt(p * (1 - p) / images + z * z / (4 * images * images))
    scale = 100 / (1 + z * z / images)
    # At the ends one side is the end itself, up to rounding.
    return (0.0 if p == 0 else scale * (middle - half)), (100.0 if p == 1 else scale * (middle + half))
