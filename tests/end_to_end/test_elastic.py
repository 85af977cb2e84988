"""Ranks that die are started again by torchrun and end as if nothing had been; ranks that differ do not start."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from ssl_hub.model.metrics import read_metrics
from tests import warm
from tests.end_to_end.test_launchers import (
    ROOT,
    TORCHRUN,
    TRAIN,
    environment,
    facts,
    on_ranks,
    train,
    weights,
)

DYING = str(ROOT / "tests" / "end_to_end" / "dying.py")
STEPS = 20
SHORT = [
    f"train.max_steps={STEPS}", "train.batch_size=32", "runtime.log_every_steps=1", "runtime.knn_every_epochs=0",
    "runtime.checkpoint_minutes=0",
]  # fmt: skip
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # and so the same sums whoever else is at work


def test_a_rank_that_dies_once_changes_nothing(tmp_path):
    straight = on_ranks(2, TRAIN, "directpred-digits", *SHORT, "--output", str(tmp_path / "a" / "r"))
    assert straight.returncode == 0, straight.stderr
    at = random.randrange(1, STEPS)
    elastic = [*TORCHRUN[:-1], "--max-restarts", "2", "--nproc_per_node", "2", DYING]
    done = subprocess.run(
        [*elastic, "directpred-digits", *SHORT, "--output", str(tmp_path / "b" / "r")],
        capture_output=True, text=True, timeout=900, env=environment(DIES_AT=str(at), **ONE_THREAD),
    )  # fmt: skip
    assert done.returncode == 0, f"died at {at}: {done.stderr}"
    one, two = tmp_path / "a" / "r", tmp_path / "b" / "r"
    resumed = facts(two)["resumed"]
    assert len(resumed) == 1 and at - 1 <= resumed[0]["at_step"] <= at
    assert weights(one) == weights(two)
    assert [r["loss"] for r in read_metrics(one)] == [r["loss"] for r in read_metrics(two)]
    values = [[r["value"] for r in json.loads((run / "results.json").read_text())] for run in (one, two)]
    assert values[0] == values[1]


@pytest.fixture
def copies(tmp_path):
    """Two nodes' copies of one data set: the second was written in another order."""
    for node, order in (("0", range(40)), ("1", reversed(range(40)))):
        folder = tmp_path / f"node{node}" / "photos"
        folder.mkdir(parents=True)
        for index in order:
            Image.linear_gradient("L").resize((16, 16)).rotate(9 * index).convert("RGB").save(
                folder / f"{index:03d}.png"
            )
    return tmp_path


ON_ITS_OWN_COPY = """
import os, sys
from ssl_hub.cli import main
os.chdir(f"node{os.environ['RANK']}")
raise SystemExit(main(["train", *sys.argv[1:]]))
"""


def on_two_copies(copies: Path, *arguments: str) -> list[subprocess.CompletedProcess[str]]:
    script = copies / "train.py"
    script.write_text(ON_ITS_OWN_COPY)
    settings = ["train.batch_size=8", "train.max_steps=2", "runtime.knn_every_epochs=0", *arguments]
    words = [str(script), "byol-digits", "--data", "photos", "--output", str(copies / "run"), *settings]
    return warm.ranks(words, 2, env=environment(**ONE_THREAD), cwd=copies)


def test_copies_in_another_order_train_as_one(copies):
    ended = on_two_copies(copies)
    assert [rank.returncode for rank in ended] == [0, 0], ended
    assert facts(copies / "run")["images"] == 40


def remove_some(node):
    for index in range(8):
        (node / f"{index:03d}.png").unlink()


def rename_one(node):
    (node / "003.png").rename(node / "x.png")


def remove_all(node):
    for path in node.iterdir():
        path.unlink()


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        pytest.param(
            remove_some,
            "40 images on rank 0, 32 images on rank 1; give every node the same copy",
            marks=pytest.mark.slow,
        ),
        (rename_one, "40 images on rank 0, 40 images on rank 1, and not the same ones"),
        pytest.param(remove_all, "no images in", marks=pytest.mark.slow),
    ],
)
def test_copies_that_differ_are_refused_on_both(copies, harm, said):
    harm(copies / "node1" / "photos")
    ended = on_two_copies(copies)
    assert [rank.returncode for rank in ended] == [2, 2], ended
    (line,) = [line for rank in ended for line in rank.stderr.splitlines() if line.startswith("error: ")]
    assert said in line
    assert not (copies / "run").exists()


@pytest.mark.slow
def test_an_isotropic_loss_with_a_weight_held_between_refreshes_trains_on_two_processes(tmp_path):
    arguments = ["directpred-digits", *SHORT, "loss.kind=iso", "predictor.freq=5", "train.max_steps=7"]
    done = on_ranks(2, TRAIN, *arguments, "--output", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="srun's variables are Linux's")
def test_tasks_that_nothing_has_joined_are_refused(tmp_path):
    done = train("byol-digits", "--output", str(tmp_path / "run"), SLURM_NTASKS="2", SLURM_PROCID="0")
    assert done.returncode == 2 and "SLURM_NTASKS=2 and no WORLD_SIZE" in done.stderr
    assert os.listdir(tmp_path) == []
