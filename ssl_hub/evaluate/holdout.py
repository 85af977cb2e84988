"""The part of a training split on which choices are made, so that the test split is looked at once."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

TIE = 1e-4  # relative difference of cross entropies below which they are equal: ten times the tolerance of a fit


def stratified_holdout(
    labels: NDArray[np.int64], share: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sorted rows (kept, held out): ``share`` of all rows, spread over the classes by their sizes, by ``seed`` alone.

    Together ``round(share * len(labels))`` rows, by largest remainders, except that a class gives at least one row and
    never its last; so a class with one row keeps it, and the second part is empty where every class has one.
    """
    generator = np.random.default_rng(seed)
    sizes = np.unique(labels, return_counts=True)[1]
    quotas = share * sizes
    counts = np.floor(quotas).astype(np.int64)
    missing = round(share * len(labels)) - int(counts.sum())
    counts[np.argsort(counts - quotas, kind="stable")[:missing]] += 1
    counts = np.minimum(sizes - 1, np.maximum(1, counts))
    by_class = np.split(np.argsort(labels, kind="stable"), np.cumsum(sizes)[:-1])
    held = [generator.permutation(rows)[:count] for rows, count in zip(by_class, counts, strict=True)]
    is_held = np.zeros(len(labels), np.bool_)
    is_held[np.concatenate(held)] = True
    return np.flatnonzero(~is_held), np.flatnonzero(is_held)


def stratified_folds(labels: NDArray[np.int64], folds: int, seed: int) -> NDArray[np.int64]:
    """The fold, 0 to ``folds`` - 1, of each row: every class, and all rows together, spread as evenly as can be."""
    generator = np.random.default_rng(seed)
    dealt = np.lexsort((generator.random(len(labels)), labels))  # by class, in random order within
    found = np.empty(len(labels), np.int64)
    found[dealt] = np.arange(len(labels)) % folds
    return found


def is_better(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Whether an (accuracy, cross entropy) is better than another: by accuracy, then by a lower cross entropy.

    By less than :data:`TIE` it is not: with features that tell nothing apart every candidate is equal up to rounding,
    which differs between processors. Going through candidates in their order and keeping what is better then keeps the
    first of equals.
    """
    if one[0] != other[0]:
        return one[0] > other[0]
    ours, theirs = (math.inf if math.isnan(loss) else loss for _, loss in (one, other))
    return ours < theirs and not math.isclose(ours, theirs, rel_tol=TIE, abs_tol=TIE**2)
