"""The held-out part of a training split: its size, its spread over the classes, and what is never taken."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssl_hub.evaluate.holdout import is_better, stratified_folds, stratified_holdout
from ssl_hub.evaluate.intervals import wilson
from ssl_hub.evaluate.protocols import PROTOCOLS


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("sizes", [(1, 2, 3, 40), (1, 1), (10, 10), (500, 3)])
def test_a_partition_that_leaves_no_class_without_training_images(share, sizes):
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    kept, held = stratified_holdout(y, share, seed=0)
    assert sorted([*kept, *held]) == list(range(len(y)))
    for label, size in enumerate(sizes):
        out = int((y[held] == label).sum())
        assert min(size - 1, 1) <= out <= max(size - 1, 0)
        assert out == min(size - 1, 1) or abs(out - share * size) < 1 or out == size - 1


def test_byol_holds_out_10009_images_of_imagenet_and_about_ten_of_each_class():
    """With class sizes as uneven as ImageNet's: 732 to 1,300, most of them 1,300."""
    sizes = np.full(1000, 1300)
    small = np.linspace(732, 1299, 105).round().astype(int)
    sizes[: len(small)] = small
    sizes[len(small)] -= sizes.sum() - 1_281_167 if sizes.sum() > 1_281_167 else 0
    y = np.repeat(np.arange(1000), sizes)
    _, held = stratified_holdout(y, PROTOCOLS["byol"].holdout, seed=0)
    assert len(held) == round(10_009 / 1_281_167 * len(y))
    counts = np.bincount(y[held], minlength=1000)
    assert counts.min() >= 5 and counts.max() <= 11


def test_the_seed_decides():
    y = np.arange(100) % 5
    first, again, other = (stratified_holdout(y, 0.2, seed)[1] for seed in (0, 0, 1))
    assert (first == again).all() and (first != other).any()


@pytest.mark.parametrize(
    ("one", "other", "better"),
    [
        ((0.8, 9.0), (0.7, 0.1), True),  # accuracy first
        ((0.7, 0.1), (0.8, 9.0), False),
        ((0.8, 0.50), (0.8, 0.51), True),
        ((0.8, 0.51), (0.8, 0.50), False),
        ((0.8, 0.5), (0.8, 0.5 * (1 + 1e-6)), False),  # rounding, and where a fit stopped
        ((1.0, 0.0), (1.0, 1e-12), False),
        ((0.1, math.nan), (0.1, 2.3), False),
        ((0.1, 2.3), (0.1, math.nan), True),
    ],
)
def test_what_is_better_is_so_beyond_rounding(one, other, better):
    assert is_better(one, other) is better


@given(st.lists(st.integers(0, 4), min_size=5, max_size=60), st.integers(2, 6), st.integers(0, 3))
def test_folds_spread_every_class_and_all_rows_evenly(labels, folds, seed):
    y = np.array(labels)
    fold = stratified_folds(y, folds, seed)
    for part in (fold, *(fold[y == label] for label in set(labels))):
        counts = np.bincount(part, minlength=folds)
        assert counts.max() - counts.min() <= 1
    assert (fold == stratified_folds(y, folds, seed)).all()


@pytest.mark.parametrize(("right", "of"), [(0, 10), (10, 10), (7, 12), (350, 500)])
def test_wilson_interval_is_where_the_score_test_accepts(right, of):
    low, high = wilson(100 * right / of, of)
    for edge in (low / 100, high / 100):
        if 0 < edge < 1:  # |p - edge| is 1.96 standard errors as they would be at the edge
            assert abs(right / of - edge) == pytest.approx(1.959964 * (edge * (1 - edge) / of) ** 0.5, rel=1e-6)
    assert 0 <= low <= 100 * right / of <= high <= 100
