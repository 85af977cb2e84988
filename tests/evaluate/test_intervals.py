"""Intervals cover what they are of as often as they say, by simulation."""

import numpy as np
import pytest
from scipy import stats

from ssl_hub.errors import UsageError
from ssl_hub.evaluate.intervals import paired, student, wilson

DRAWS = 20_000


def covered(low, high, truth):
    return 100 * np.mean((np.asarray(low) <= truth) & (truth <= np.asarray(high)))


@pytest.mark.parametrize("images", [40, 300, 5000])
@pytest.mark.parametrize("accuracy", [(5, 95), (50, 99)])
def test_wilson_covers_the_accuracy_on_all_images(images, accuracy):
    """Over accuracies, because of counts at one of them no interval covers a round percentage."""
    rng = np.random.default_rng(0)
    truth = rng.uniform(*accuracy, DRAWS)
    right = rng.binomial(images, truth / 100)
    of = {int(count): wilson(100 * int(count) / images, images) for count in np.unique(right)}
    low, high = np.array([of[int(count)] for count in right]).T
    assert 93 <= covered(low, high, truth) <= 97


@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
def test_students_interval_covers_the_mean_over_all_seeds(seeds):
    rng = np.random.default_rng(1)
    values = rng.normal(70, 1.5, (2000, seeds))
    ends = np.array([student(float(row.mean()), float(row.std(ddof=1)), seeds) for row in values])
    assert 93 <= covered(*ends.T, 70.0) <= 97


def test_the_paired_test_is_scipys_and_errs_in_one_case_of_twenty():
    rng = np.random.default_rng(2)
    differences = rng.normal(0, 1, (2000, 5))
    found = [paired(row.tolist()) for row in differences]
    assert 93 <= 100 * np.mean([p > 0.05 for *_, p in found]) <= 97
    known = stats.ttest_1samp(differences[0], 0)
    assert found[0] == pytest.approx((*known.confidence_interval(), known.pvalue))
    assert paired([1.0, 1.0]) == (1.0, 1.0, 0.0) and paired([0.0, 0.0]) == (0.0, 0.0, 1.0)


def test_no_interval_of_nothing():
    with pytest.raises(UsageError, match="50.0 % of 0 images: expected 0 to 100, of one image or more"):
        wilson(50.0, 0)
