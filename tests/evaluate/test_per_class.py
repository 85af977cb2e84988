"""Recall, precision and confusion of each class, and the files that they are written to."""

import csv

import numpy as np
import pytest

from ssl_hub.evaluate.per_class import CONFUSION, PER_CLASS, PerClass

LABELS = np.array([0, 0, 0, 0, 1, 1, 3])
GUESSES = np.array([0, 0, 1, 1, 1, 1, 0])


@pytest.fixture
def found():
    return PerClass.of(GUESSES, LABELS, ["cat", "dog, small", "none such", "élan"])


def test_counts_are_by_own_class_and_guess(found):
    assert found.matrix.tolist() == [[2, 2, 0, 0], [0, 2, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]]
    cat, dog, absent, elan = found.rows()
    assert (cat["recall"], cat["precision"]) == (50, pytest.approx(200 / 3))
    assert (dog["recall"], dog["precision"]) == (100, 50)
    assert absent["recall"] is absent["precision"] is absent["low"] is None
    assert (elan["recall"], elan["precision"]) == (0, None)


def test_the_worst_come_first_with_what_they_are_taken_for(found):
    assert found.worst(2) == [
        "élan: 0.0 % of 1 images right, mostly taken for cat",
        "cat: 50.0 % of 4 images right, mostly taken for dog, small",
    ]


def test_files_can_be_read_back(found, tmp_path):
    found.write(tmp_path)
    rows = list(csv.DictReader((tmp_path / PER_CLASS).read_text().splitlines()))
    assert [row["class"] for row in rows] == list(found.classes)
    assert [row["recall"] for row in rows] == ["50.00", "100.00", "", "0.00"]
    matrix = list(csv.reader((tmp_path / CONFUSION).read_text().splitlines()))
    assert matrix[0][1:] == list(found.classes)
    assert [[int(cell) for cell in row[1:]] for row in matrix[1:]] == found.matrix.tolist()
