"""How far an accuracy on a sample of images, or over a few seeds, may be from that on all of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from statistics import NormalDist

from ssl_hub.errors import UsageError

UPPER = 0.975  # of the distribution lies below the upper end of a 95 % interval


def wilson(percent: float, images: int) -> tuple[float, float]:
    """The 95 % score interval of a proportion, in percent (Wilson 1927, J. Am. Stat. Assoc. 22, 209-212).

    ``percent`` of ``images`` were right. Unlike the normal approximation it stays within 0..100 and is no point at
    either end. It speaks of the images alone: not of the seed, nor of the choice of training images.
    """
    if images < 1 or not 0 <= percent <= 100:
        raise UsageError(f"{percent} % of {images} images: expected 0 to 100, of one image or more")
    z, p = NormalDist().inv_cdf(UPPER), percent / 100
    middle = p + z * z / (2 * images)
    half = z * math.sqrt(p * (1 - p) / images + z * z / (4 * images * images))
    scale = 100 / (1 + z * z / images)
    # At the ends one side is the end itself, up to rounding.
    return (0.0 if p == 0 else scale * (middle - half)), (100.0 if p == 1 else scale * (middle + half))


def student(mean: float, std: float, runs: int) -> tuple[float, float]:
    """The 95 % interval of a mean over ``runs`` (two or more) seeds with standard deviation ``std`` (n - 1), by
    Student's t: what other seeds would give, on the same images."""
    from scipy.special import stdtrit

    half = float(stdtrit(runs - 1, UPPER)) * std / math.sqrt(runs)
    return mean - half, mean + half


def paired(differences: Sequence[float]) -> tuple[float, float, float]:
    """Low and high end of the 95 % interval of the mean of paired differences (two or more), and the two-sided p of
    Student's paired test."""
    from scipy.special import stdtr

    mean, std = statistics.mean(differences), statistics.stdev(differences)
    low, high = student(mean, std, len(differences))
    if std == 0:
        return low, high, 1.0 if mean == 0 else 0.0
    t = mean / (std / math.sqrt(len(differences)))
    return low, high, float(2 * stdtr(len(differences) - 1, -abs(t)))
