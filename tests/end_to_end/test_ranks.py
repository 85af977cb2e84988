"""The same training on one process, on two, and with accumulation; checkpoints that change their number of processes.

``ranks.py`` is what trains. Without BN all three give one result; what holds with BN is tested as such.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import ssl_hub
from ssl_hub.cli import main
from ssl_hub.config import Views
from ssl_hub.data.images import Source
from ssl_hub.data.loaders import TrainLoader
from ssl_hub.data.stored import Pixels
from ssl_hub.data.views import TwoViews
from ssl_hub.model.metrics import read_metrics
from ssl_hub.model.predictors import PREDICTORS
from tests.end_to_end import ranks
from tests.end_to_end.test_launchers import TRAIN, facts, on_ranks

EXACT, CASES, POISONED = ranks.EXACT, ranks.CASES, ranks.POISONED
FIRST = "encoder.backbone.0.weight"


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    """What each of two real processes ended with, for all cases."""
    folder = tmp_path_factory.mktemp("ranks")
    done = on_ranks(2, ranks.__file__, str(folder))
    assert done.returncode == 0, done.stderr
    return [torch.load(folder / f"rank{rank}.pt", weights_only=True) for rank in range(2)]


def assert_same(one, two, *, buffers: bool = True) -> None:
    """Equal parameters, statistics and schedules, to 1e-10."""
    for name in ("step", "lr", "momentum", "skipped"):
        assert one[name] == two[name], name
    for branch in ranks.BRANCHES:
        assert one[branch].keys() == two[branch].keys()
        for name, tensor in one[branch].items():
            if buffers or not name.endswith(("running_mean", "running_var", "num_batches_tracked")):
                torch.testing.assert_close(two[branch][name], tensor, rtol=1e-10, atol=1e-10)


def test_every_predictor_is_covered():
    missing = set(PREDICTORS.names()) - {case.predictor for case in CASES.values()}
    assert missing == set(), (
        "give it a case in tests/end_to_end/ranks.py; in EXACT where nothing depends on the micro-batch"
    )


@pytest.mark.parametrize("name", CASES)
def test_every_rank_holds_the_same_bits(name, two_ranks):
    zero, one = (found[name] for found in two_ranks)
    for branch in ranks.BRANCHES:
        for key, tensor in zero[branch].items():
            if "running_" not in key:  # of BN: process 0's are broadcast at the next forward, and are those saved
                assert torch.equal(one[branch][key], tensor), key


@pytest.mark.parametrize("name", EXACT)
def test_any_split_of_the_batch_gives_one_result(name, two_ranks):
    whole = ranks.train(EXACT[name])
    start = ranks.trainer(EXACT[name]).siamese.encoder.state_dict()
    moved = max(float((whole["online"][f"encoder.{k}"] - v).abs().max()) for k, v in start.items())
    assert moved > 1e-2  # the comparison is not one of two models at rest
    assert_same(whole, two_ranks[0][name])
    assert_same(whole, ranks.train(EXACT[name], accumulation=2))


@pytest.mark.parametrize("name", ranks.BATCH_NORM)
def test_two_processes_equal_two_micro_batches_where_bn_sees_16(name, two_ranks):
    accumulated = ranks.train(CASES[name], accumulation=2)
    assert_same(accumulated, two_ranks[0][name], buffers=False)
    whole = ranks.train(CASES[name])
    assert not torch.allclose(
        whole["online"]["encoder.backbone.0.weight"], accumulated["online"]["encoder.backbone.0.weight"]
    )


@pytest.mark.parametrize("name", ranks.GATHERED)
def test_what_is_gathered_equals_one_process_and_not_its_micro_batches(name, two_ranks):
    whole, accumulated = ranks.train(CASES[name]), ranks.train(CASES[name], accumulation=2)
    assert_same(whole, two_ranks[0][name])
    assert not torch.allclose(whole["online"][FIRST], accumulated["online"][FIRST])


def test_partitions_split_at_the_mean_of_one_process(two_ranks):
    """Two processes with the same 16 images are one process with them; with different ones they split differently."""
    case = CASES["partitions"]
    assert_same(ranks.train(case, rows=ranks.BATCH // 2), two_ranks[0]["repeated"]["partitions"])
    whole, shared = ranks.train(case), two_ranks[0]["partitions"]
    assert whole["lr"] == shared["lr"]
    assert not torch.allclose(
        whole["online"]["encoder.backbone.0.weight"], shared["online"]["encoder.backbone.0.weight"]
    )


@pytest.mark.parametrize("name", CASES)
def test_statistics_cross_processes_in_one_collective_a_step(name, two_ranks):
    statistics = (
        "direct",
        "optimal",
        "newton_schulz",
        "stiefel",
    )  # F, with a mean, a cross term or the sides of splits
    expected = int(CASES[name].predictor in statistics)
    assert [found[name]["all_reduces_per_step"] for found in two_ranks] == [expected, expected]


@pytest.mark.parametrize("name", CASES)
def test_nan_on_one_process_skips_the_step_on_all(name, two_ranks):
    for found in two_ranks:
        assert [i for i, skipped in enumerate(found["poisoned"][name]["skipped"]) if skipped] == [POISONED]
        assert all(t.isfinite().all() for branch in ranks.BRANCHES for t in found["poisoned"][name][branch].values())
    if name in EXACT or name in ranks.GATHERED:
        assert_same(ranks.train(CASES[name], poisoned=True), two_ranks[0]["poisoned"][name])
    elif name in ranks.BATCH_NORM:
        accumulated = ranks.train(CASES[name], poisoned=True, accumulation=2)
        assert_same(accumulated, two_ranks[0]["poisoned"][name], buffers=False)


def test_learning_rates_of_forty_steps(two_ranks):
    found = two_ranks[1]["direct"]
    assert found["step"] == len(found["lr"]) == 40
    assert found["lr"] == ranks.train(CASES["direct"])["lr"]
    assert found["momentum"][-1] == 1.0


def test_ranks_share_no_view_and_together_see_what_one_process_sees():
    image = np.random.default_rng(0).integers(0, 256, (1, 16, 16, 3), dtype=np.uint8)
    source = Source("one image", "train", Pixels(image.repeat(16, axis=0)))

    def views(rank: int, world: int, epoch: int = 0, seed: int = 0) -> torch.Tensor:
        loader = TrainLoader(
            source, TwoViews(Views(size=16), seed=seed), batch_size=8, rank=rank, world=world, seed=seed, device="cpu"
        )
        return torch.stack([torch.stack(pair, dim=1) for step in loader.epoch(epoch) for pair in step]).flatten(1, 2)

    zero, one, whole = views(0, 2), views(1, 2), views(0, 1)
    assert (torch.cat([zero, one], dim=1) - whole).abs().max() < 1e-5  # smaller batches may round otherwise
    assert torch.equal(views(1, 2), one)
    every = torch.cat([whole, views(0, 1, epoch=1), views(0, 1, seed=1)]).flatten(2).flatten(0, 1)
    assert len(every.unique(dim=0)) == len(every)  # 96 views of one picture, no two alike


# A backbone and projector without BN, so that the number of processes changes nothing but rounding.
WITHOUT_BN = [
    "backbone.name=test_convnext", "views.size=32", "projector.layers=1", "train.batch_size=32", "train.epochs=1",
    "data.test_split=nothing", "runtime.log_every_steps=1", "runtime.knn_every_epochs=0", "optim.lr=0.01",
]  # fmt: skip


def run(processes: int, folder: Path, steps: int, *, resume: bool = False) -> None:
    settings = ["directpred-digits", *WITHOUT_BN, f"train.max_steps={steps}", "--output", str(folder)]
    settings += ["--resume", "--allow-change", "train.max_steps"] if resume else []
    if processes == 1:
        assert main(settings, launcher="train") == 0
    else:
        done = on_ranks(processes, TRAIN, *settings)
        assert done.returncode == 0, done.stderr
    assert facts(folder)["processes"] == processes


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    folder = tmp_path_factory.mktemp("straight") / "run"
    run(1, folder, 20)
    return folder


@pytest.mark.parametrize(("before", "after"), [(2, 1), pytest.param(1, 2, marks=pytest.mark.slow)])
def test_resume_on_another_number_of_processes(before, after, straight, tmp_path):
    folder = tmp_path / "run"
    run(before, folder, 10)
    run(after, folder, 20, resume=True)
    lines, expected = read_metrics(folder), read_metrics(straight)
    assert [line["step"] for line in lines] == list(range(1, 21))
    for name in ("lr", "momentum", "epoch"):
        assert [line[name] for line in lines] == [line[name] for line in expected]
    one, two = load_file(straight / "method.safetensors"), load_file(folder / "method.safetensors")
    one |= ssl_hub.load(straight).state_dict()
    two |= ssl_hub.load(folder).state_dict()
    # The root turns float32's rounding of a zero eigenvalue of F, 6e-8, into 2e-4 in the predictor.
    assert relative_distance(one.pop("predictor.weight"), two.pop("predictor.weight")) < 1e-3
    assert relative_distance(flat(one), flat(two)) < 1e-5


def flat(tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensors[name].double().flatten() for name in sorted(tensors)])


def relative_distance(one: torch.Tensor, two: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(one - two) / torch.linalg.vector_norm(one))
