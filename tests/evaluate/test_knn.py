"""The nearest-neighbour classifier: equal to its definition, whole or in chunks, and honest in its corners."""

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from ssl_hub.errors import UsageError
from ssl_hub.evaluate.features import Features
from ssl_hub.evaluate.knn import knn, knn_classify, largest

LETTERS = tuple("abcdefghij")


def random_problem(seed=0, bank=60, queries=23, width=8, classes=7):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(bank, width)).astype(np.float32) * rng.uniform(0.1, 10, size=(bank, 1)).astype(np.float32)
    return x, rng.integers(0, classes, bank), rng.normal(size=(queries, width)).astype(np.float32)


def by_definition(train_x, train_y, test_x, k, temperature, num_classes):
    """Sum of exp(cosine / temperature) over the k nearest, one query at a time, in float64."""
    train_x, test_x = train_x.astype(np.float64), test_x.astype(np.float64)
    scores = np.zeros((len(test_x), num_classes))
    for row, query in enumerate(test_x):
        cosine = train_x @ query / (np.linalg.norm(train_x, axis=1) * np.linalg.norm(query))
        for neighbour in np.argsort(-cosine)[:k]:
            scores[row, train_y[neighbour]] += math.exp(cosine[neighbour] / temperature)
    return scores


def features(x, y, classes=LETTERS, split="train", dataset="d"):
    return Features(np.asarray(x), np.asarray(y), classes, dataset, split)


@pytest.mark.parametrize("k", [1, 5, 60])
@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_scores_equal_the_definition_up_to_one_factor_a_query(k, temperature):
    x, y, q = random_problem()
    scores = knn_classify(x, y, q, k=k, temperature=temperature, num_classes=7).double().numpy()
    expected = by_definition(x, y, q, k, temperature, 7)
    np.testing.assert_allclose(
        scores / scores.sum(1, keepdims=True), expected / expected.sum(1, keepdims=True), atol=1e-5
    )
    assert ((scores > 0) == (expected > 0)).all()


@pytest.mark.parametrize("chunk_size", [1, 7, 22, 23, 1000])
def test_chunks_change_nothing(chunk_size):
    x, y, q = random_problem(1)
    whole = knn_classify(x, y, q, k=9, num_classes=7, chunk_size=10**6)
    torch.testing.assert_close(
        knn_classify(x, y, q, k=9, num_classes=7, chunk_size=chunk_size), whole, atol=1e-4, rtol=0
    )  # 8 products rounded at 6e-8, over a temperature of 0.07, of nine votes


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_length_of_features_does_not_matter(scale):
    x, y, q = random_problem(2)
    expected = knn_classify(x, y, q, k=9, num_classes=7)
    torch.testing.assert_close(knn_classify(x * scale, y, q / scale, k=9, num_classes=7), expected, atol=1e-4, rtol=0)


def test_zero_vectors_in_bank_and_queries_are_finite():
    x, y, q = random_problem()
    x[:5], q[:2] = 0, 0
    scores = knn_classify(x, y, q, k=60, num_classes=7)
    assert scores.isfinite().all() and (scores.sum(1) > 0).all()


@pytest.mark.parametrize("temperature", [1e-4, 1e4])
def test_extreme_temperatures_neither_overflow_nor_lose_the_nearest(temperature):
    x, y, q = random_problem()
    scores = knn_classify(x, y, q, k=1, temperature=temperature, num_classes=7)
    assert scores.sum(1).tolist() == [1.0] * len(q)
    scores = knn_classify(x, y, q, k=60, temperature=temperature, num_classes=7)
    assert scores.isfinite().all() and (scores.sum(1) >= 1).all()


def test_k_is_clipped_to_the_bank_and_recorded_as_used():
    x, y, q = random_problem(bank=12)
    (clipped,) = {r.settings["k"] for r in knn(features(x, y), features(q, np.zeros(len(q)), split="test"), k=200)}
    assert clipped == 12
    scores = [knn_classify(x, y, q, k=k, num_classes=7) for k in (12, 200)]
    assert torch.equal(*scores)


def test_a_query_of_the_bank_finds_itself_first():
    x, y, _ = random_problem()
    assert next(r.value for r in knn(features(x, y), features(x, y), k=1)) == 100.0


@pytest.mark.parametrize("k", [1, 7, 29, 30])
def test_of_equals_the_first_is_taken(k):
    values = torch.randint(0, 4, (50, 30), generator=torch.Generator().manual_seed(0)).float()
    found, places = largest(values, k)
    ordered = values.sort(dim=1, descending=True, stable=True)
    assert torch.equal(found, ordered.values[:, :k])
    assert torch.equal(places.sort(dim=1).values, ordered.indices[:, :k].sort(dim=1).values)


def test_a_collapsed_backbone_votes_with_the_first_images_of_the_bank():
    same, labels = np.eye(8)[np.zeros(500, int)], np.random.default_rng(0).permutation(np.repeat(np.arange(10), 50))
    scores = knn_classify(same, labels, same[:3], k=20, num_classes=10)
    assert scores.tolist() == [np.bincount(labels[:20], minlength=10).tolist()] * 3


def test_everything_that_the_number_depends_on_stands_beside_it():
    x, y, q = random_problem()
    top1, top5 = knn(features(x, y), features(q, np.zeros(len(q)), split="test"), k=5, temperature=0.1)
    assert (top1.metric, top5.metric, top1.protocol, top1.dataset, top1.split) == ("top1", "top5", "knn", "d", "test")
    about = {"k": 5, "temperature": 0.1, "bank_size": 60, "bank_split": "train", "layer": "backbone"}
    assert top1.settings == top5.settings == about and top1.seed is None


def test_top5_needs_five_classes_and_never_counts_a_class_without_votes():
    # Nearest two rows are of classes 0 and 1; without the rule, any of the other eight could be a "top-5" answer.
    bank, query = features(np.eye(10), np.arange(10)), np.zeros((1, 10))
    query[0, :2] = 1, 0.5
    for label, expected in [(0, 100.0), (1, 100.0), (2, 0.0), (3, 0.0), (9, 0.0)]:
        top5 = knn(bank, features(query, [label], split="test"), k=2)[1]
        assert (top5.metric, top5.value) == ("top5", expected)
    four = [features(np.eye(4), np.arange(4), LETTERS[:4], split) for split in ("train", "test")]
    assert [r.metric for r in knn(*four, k=4)] == ["top1"]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"k": 0}, "k is 0, expected a whole number of at least 1"),
        ({"temperature": 0.0}, r"temperature is 0\.0, expected a number of at least 0\.0001"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"chunk_size": 0}, "chunk_size is 0"),
        ({"num_classes": 3}, r"bank labels run from 0 to 6, expected 0 to 2"),
        ({"test_x": np.zeros((2, 9))}, r"bank has shape \[60, 8\] and the queries \[2, 9\]"),
        ({"train_y": np.zeros(59, int)}, r"60 rows and labels of shape \[59\]"),
        ({"train_x": np.zeros((0, 8)), "train_y": np.zeros(0, int)}, "bank has 0 rows"),
    ],
)
def test_errors_say_what_was_got(changes, text):
    x, y, q = random_problem()
    given = {"train_x": x, "train_y": y, "test_x": q, "num_classes": 7, **changes}
    with pytest.raises(UsageError, match=text):
        knn_classify(**given)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's account of a process's memory")
def test_memory_is_bounded_by_a_chunk_times_the_bank_and_does_not_grow():
    """Unchunked, the similarities of 1,024 queries to 50,000 rows are 205 MB; one chunk of 64 is 13 MB.

    How many copies of a chunk a matrix product takes is its own affair: all together are well below the whole.
    """
    script = """
from pathlib import Path
import torch
from ssl_hub.evaluate.knn import knn_classify
torch.set_num_threads(1)
bank, labels, queries = torch.randn(50_000, 32), torch.randint(0, 9, (50_000,)), torch.randn(1024, 32)
def peak():  # of this process alone: getrusage begins with that of the process that started it
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
knn_classify(bank, labels, queries[:8], num_classes=9, chunk_size=8)
start = peak()
for _ in range(2):
    knn_classify(bank, labels, queries, num_classes=9, chunk_size=64)
    print(peak() - start)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    first, second = map(float, done.stdout.split())
    assert first < 100 and second - first < 15
