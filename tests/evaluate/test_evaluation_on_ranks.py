"""Extraction and every probe on three real processes, of different processors, are those of one but for rounding.

22 images are 22 features and 22 predictions. What is compared is what is determined: of a fit the objective at its
optimum, of training its weights, of both the choices and each decision that rounding cannot turn.
"""

import os

import pytest
import torch
from torch.nn import functional

from ssl_hub.evaluate.features import extract
from ssl_hub.evaluate.logistic import TOLERANCE
from ssl_hub.evaluate.protocols import PROTOCOLS
from ssl_hub.evaluate.standardise import Scaling
from ssl_hub.evaluate.work import ALONE
from tests import warm
from tests.evaluate import on_ranks
from tests.evaluate.test_head_training import TRANSFORM, Backbone, coloured


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    ended = warm.ranks([on_ranks.__file__, str(folder)], 3, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert [rank.returncode for rank in ended] == [0, 0, 0], ended
    return [torch.load(folder / f"rank{rank}.pt", weights_only=True) for rank in range(3)]


@pytest.fixture(scope="module")
def alone():
    return on_ranks.probes(ALONE)


@pytest.mark.parametrize("count", [1, 2, 22])
def test_three_ranks_extract_each_row_once_and_in_order(ranks, count):
    alone = on_ranks.extracted(None)
    for found in (rank["extracted"] for rank in ranks):
        assert found[f"x{count}"].shape == (count, 5)
        torch.testing.assert_close(found[f"x{count}"], alone[f"x{count}"], rtol=0, atol=1e-6)
        assert torch.equal(found[f"y{count}"], alone[f"y{count}"])


def test_an_image_that_one_rank_cannot_read_is_an_error_on_all_of_them(ranks):
    assert [rank["extracted"]["error"] for rank in ranks] == ["cannot read photo 21.jpg"] * 3


@pytest.fixture(scope="module")
def features():
    return [
        extract(Backbone(), coloured(count, seed=seed, split=split), TRANSFORM)
        for count, seed, split in ((on_ranks.TRAIN, 0, "train"), (on_ranks.TEST, 1, "test"))
    ]


def scores(found, of):
    return torch.from_numpy(of.x).double() @ found["weight"].double().T + found["bias"].double()


@pytest.mark.parametrize("name", PROTOCOLS.names())
def test_three_processes_are_one(name, ranks, alone, features):
    assert [found["ranks"] for found in ranks] == [3, 3, 3]
    expected, of_ranks = alone[name], [rank["probes"][name] for rank in ranks]
    agree = same_optimum if name == "cached" else same_training
    for found in of_ranks:
        assert found["settings"] == of_ranks[0]["settings"]
        for choice in ("lr", "strength", "holdout_size", "chosen_by", "converged"):
            assert found["settings"].get(choice) == expected["settings"].get(choice)
        agree(found, expected, features[0])
        same_decisions(found, expected, features[1])


def same_optimum(found, expected, train):
    """A fit ends where half its squared gradient, which estimates the distance to the optimum, is below TOLERANCE."""
    assert found["settings"]["converged"]
    ours, theirs = (objective(head, train) for head in (found, expected))
    assert ours == pytest.approx(theirs, rel=10 * TOLERANCE)


def objective(found, train):
    """Mean cross entropy and penalty, of a head of raw features."""
    weight = found["weight"].double() * torch.from_numpy(Scaling.of(train.x).scale)
    loss = functional.cross_entropy(scores(found, train), torch.from_numpy(train.y))
    return float(loss + found["settings"]["strength"] / 2 * weight.square().sum())


def same_training(found, expected, train):
    """A feature of size 1/2 that varies by 1/50 has a rounding of 25 x 6e-8 once scaled; a dozen steps add theirs."""
    ours, theirs = scores(found, train), scores(expected, train)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5 * float(theirs.abs().max()))


def same_decisions(found, expected, test):
    """Each accuracy counts 22 images, and is the other's but for images as near a border as the heads differ."""
    ours, theirs = scores(found, test), scores(expected, test)
    ranked = theirs.sort(dim=1, descending=True).values
    moved = (ours - theirs).abs().amax(dim=1)
    for metric, top in (("top1", 1), ("top5", 5)):
        counted = [values / 100 * on_ranks.TEST for values in (found["values"][metric], expected["values"][metric])]
        assert counted == pytest.approx([round(count) for count in counted], abs=1e-9)
        at_a_border = int((ranked[:, top - 1] - ranked[:, top] <= 2 * moved).sum())
        assert abs(counted[0] - counted[1]) <= at_a_border + 1e-9
    assert found["values"].keys() == expected["values"].keys()


def test_neighbours_are_those_of_one_process(ranks):
    alone = on_ranks.neighbours(None)
    for found in ranks:  # of 500 images one may be at a border
        assert found["knn"] == pytest.approx(alone, abs=0.2)


def test_features_that_are_not_finite_on_one_process_are_an_error_on_all(ranks):
    assert all("not finite" in found["error"] for found in ranks)
    assert len({found["error"] for found in ranks}) == 1
