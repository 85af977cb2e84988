"""Pairs of rows that are near: all of them, exactly, whatever the blocks and the engine."""

import numpy as np
import pytest
import torch

from ssl_hub.errors import UsageError
from ssl_hub.evaluate import near_pairs
from ssl_hub.evaluate.near_pairs import pairs_over


def full(one, other, threshold):
    """The pairs by one matrix of cosines in double precision."""
    cosines = torch.nn.functional.cosine_similarity(
        torch.from_numpy(one).double()[:, None], torch.from_numpy(other).double()[None], dim=2
    ).numpy()
    return {(a, b): cosines[a, b] for a, b in np.argwhere(cosines >= threshold).tolist()}


@pytest.fixture(params=["torch", "faiss"])
def engine(request):
    if request.param == "faiss":
        pytest.importorskip("faiss", reason="the engine faiss needs faiss-cpu, of the extra [bench]")
    return request.param


@pytest.fixture
def rows():
    draw = np.random.default_rng(0)
    x = draw.normal(size=(61, 5)).astype(np.float32) * draw.uniform(0.1, 100, (61, 1)).astype(np.float32)
    x[7] = 0
    x[50] = 3 * x[2]
    return x


@pytest.mark.parametrize("blocks", [(1024, 8192), (7, 10), (10, 7)])
def test_all_pairs_whatever_the_blocks(rows, engine, blocks, monkeypatch):
    monkeypatch.setattr(near_pairs, "ROWS", blocks[0])
    monkeypatch.setattr(near_pairs, "COLUMNS", blocks[1])
    inside = pairs_over(rows, None, 0.8, engine=engine)
    expected = {pair: s for pair, s in full(rows, rows, 0.8).items() if pair[0] < pair[1]}
    assert [(a, b) for a, b, _ in inside] == sorted(expected) and (2, 50) in expected
    assert np.allclose(inside.similarity, [expected[pair] for pair in sorted(expected)], atol=1e-6)
    across = pairs_over(rows[:30], rows[20:], 0.8, engine=engine)
    assert [(a, b) for a, b, _ in across] == sorted(full(rows[:30], rows[20:], 0.8))


def test_a_zero_vector_is_near_nothing_and_none_may_be_found(engine):
    assert len(pairs_over(np.zeros((3, 4), np.float32), None, 0.5, engine=engine)) == 0
    assert len(pairs_over(np.eye(4, dtype=np.float32), None, 0.5, engine=engine)) == 0


def test_more_pairs_than_anybody_looks_at_are_an_error(engine, monkeypatch):
    monkeypatch.setattr(near_pairs, "MOST", 40)
    pairs_over(np.ones((9, 3), np.float32), None, 0.9, engine=engine)  # 36
    with pytest.raises(UsageError, match="over 40 pairs have a similarity of at least 0.9; raise the threshold, and"):
        pairs_over(np.ones((10, 3), np.float32), None, 0.9, engine=engine)
