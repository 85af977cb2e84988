"""Extraction and every probe on three real processes are those of one, up to the rounding of sums.

22 images are 22 features and 22 predictions.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ssl_hub.evaluate.protocols import PROTOCOLS
from ssl_hub.evaluate.work import ALONE
from tests.evaluate import on_ranks

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "3"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [*launch, str(Path(on_ranks.__file__)), str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
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


@pytest.mark.parametrize("name", PROTOCOLS.names())
def test_three_processes_are_one(name, ranks, alone):
    assert [found["ranks"] for found in ranks] == [3, 3, 3]
    expected = alone[name]
    for found in (rank["probes"][name] for rank in ranks):
        assert torch.equal(found["weight"], ranks[0]["probes"][name]["weight"])
        assert found["settings"] == ranks[0]["probes"][name]["settings"]
        assert found["values"] == expected["values"]
        # An optimum is flat where the penalty is weak: its loss is known to 1e-7, its weights to less.
        close = (1e-3 if name == "cached" else 1e-5) * float(expected["weight"].abs().max())
        torch.testing.assert_close(found["weight"], expected["weight"], rtol=0, atol=close)
        torch.testing.assert_close(found["bias"], expected["bias"], rtol=0, atol=close)
        for choice in ("lr", "strength", "holdout_size", "chosen_by"):
            assert found["settings"].get(choice) == expected["settings"].get(choice)
    # Each accuracy is a whole number of 22 images: no padding was counted, none left out.
    images = expected["values"]["top1"] / 100 * on_ranks.TEST
    assert images == pytest.approx(round(images), abs=1e-9)


def test_neighbours_are_those_of_one_process(ranks):
    assert [found["knn"] for found in ranks] == [on_ranks.neighbours(None)] * 3


def test_features_that_are_not_finite_on_one_process_are_an_error_on_all(ranks):
    assert all("not finite" in found["error"] for found in ranks)
    assert len({found["error"] for found in ranks}) == 1
