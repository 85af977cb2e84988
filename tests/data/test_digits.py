"""The built-in digits: fixed for ever, stratified, and not classified by raw pixels."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from ssl_hub.data.sources import open_source
from ssl_hub.errors import UsageError


def test_splits_are_stratified_and_complete() -> None:
    train, test = open_source("digits", "train"), open_source("digits", "test")
    assert (len(train), len(test)) == (1297, 500)
    assert train.classes == test.classes == tuple("0123456789")
    assert train.labels is not None and test.labels is not None
    total = np.bincount(train.labels) + np.bincount(test.labels)
    assert np.bincount(test.labels) / total == pytest.approx(np.full(10, 500 / 1797), abs=0.005)
    assert train.image(0).mode == "RGB" and train.image(0).size == (16, 16)


def test_pixels_never_change() -> None:
    # Numbers measured on these images are only comparable while this holds.
    pixels = np.concatenate([open_source("digits", split).pixels()[..., 0] for split in ("train", "test")])
    assert hashlib.sha256(pixels.tobytes()).hexdigest()[:16] == "74ed9994df558919"


def test_scikit_learn_is_not_imported_for_them() -> None:
    code = "import sys; from ssl_hub.data.digits import digits; digits('train'); sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_raw_pixels_are_a_poor_classifier() -> None:
    train, test = open_source("digits", "train"), open_source("digits", "test")
    flat = [source.pixels()[..., 0].reshape(len(source), -1) / 255 for source in (train, test)]
    accuracy = LogisticRegression(C=0.3, max_iter=200).fit(flat[0], train.labels).score(flat[1], test.labels)
    assert 0.65 < accuracy < 0.75


def test_unknown_split() -> None:
    with pytest.raises(UsageError, match="data 'digits' has no split 'unlabeled'; it has test, train"):
        open_source("digits", "train+unlabeled")
