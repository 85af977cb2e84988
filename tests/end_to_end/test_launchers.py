"""The real launchers, in real processes: accelerate launch, torchrun, kills and bad input."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from PIL import Image

import ssl_hub
from ssl_hub.model.metrics import read_metrics
from ssl_hub.processes import share_of_cores
from tests import warm
from tests.warm import ROOT

TRAIN = str(ROOT / "recipes" / "train.py")
ACCELERATE = [sys.executable, "-m", "accelerate.commands.launch", "--quiet"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node"]
SHORT = ["train.max_steps=4", "runtime.log_every_steps=1", "runtime.knn_k=5"]


def environment(**changes: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("OMP_NUM_THREADS", "SSL_HUB_HOME")}
    return {**kept, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", **changes}


def launch(command: list[str], *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, TRAIN, *arguments], capture_output=True, text=True, timeout=900, env=environment(**changes)
    )


def train(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """``python recipes/train.py``, warm."""
    return warm.run([TRAIN, *arguments], env=environment(**changes))


def on_ranks(world: int, *words: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """``torchrun --standalone --nproc_per_node WORLD WORDS`` without torchrun, warm: what all ranks have said."""
    ended = warm.ranks([*words], world, env=environment(OMP_NUM_THREADS="1", **changes))
    code = next((rank.returncode for rank in ended if rank.returncode), 0)
    said = ("".join(getattr(rank, stream) for rank in ended) for stream in ("stdout", "stderr"))
    return subprocess.CompletedProcess(words, code, *said)


def facts(folder: Path) -> dict[str, object]:
    return json.loads((folder / "recipe.json").read_text())["run"]


def test_accelerate_launch_trains_probes_and_leaves_a_release(tmp_path):
    done = launch(ACCELERATE, "directpred-digits", *SHORT, SSL_HUB_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    name = "directpred-digits-train.max_steps-4"  # four steps are not what the recipe says
    folder = tmp_path / name
    assert re.search(r"linear-cached +top1", done.stderr)
    assert f'ssl_hub.load("{name}")' in done.stderr
    assert "modified (train.max_steps=4)" in done.stderr
    assert {p.name for p in folder.iterdir()} == {
        "checkpoints", "config.json", "hashes.json", "heads", "method.safetensors", "metrics.jsonl",
        "model.safetensors", "recipe.json", "results.json",
    }  # fmt: skip
    results = json.loads((folder / "results.json").read_text())
    assert {(r["protocol"], r["metric"]) for r in results} == {
        (p, m) for p in ("knn", "linear-cached") for m in ("top1", "top5")
    }
    # accelerate launch sets one thread; nobody asked for that, so all cores work.
    assert facts(folder)["threads_per_process"] == share_of_cores()
    assert [r["step"] for r in read_metrics(folder)] == [0, 1, 2, 3, 4]  # the first is the accuracy of the start
    model = ssl_hub.load(folder, head="digits")
    assert model(torch.zeros(2, 3, 16, 16)).shape == (2, 10)
    again = train("directpred-digits", *SHORT, SSL_HUB_HOME=str(tmp_path))
    assert again.returncode == 2
    assert "holds a run already; continue it with --resume" in again.stderr


@pytest.mark.parametrize(
    "recipe",
    [
        "directpred-digits",
        "byol-digits",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("byol-linear-digits", "simsiam-digits")),
    ],
)
def test_two_processes_train_one_model(recipe, tmp_path):
    arguments = [recipe, *SHORT, "--output", str(tmp_path / "run")]
    done = launch([*TORCHRUN, "2"], *arguments) if recipe == "directpred-digits" else on_ranks(2, TRAIN, *arguments)
    assert done.returncode == 0, done.stderr
    run = facts(tmp_path / "run")
    assert run["processes"] == 2
    assert run["batch_size"] == {"total": 64, "per_process": 32, "accumulation": 1}
    assert "warning: BN sees 32 images at a time, not the recipe's 64" in done.stderr
    assert done.stderr.count("done: ") == 1
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert len(results) == 4
    # Each process has measured its share of the images with the statistics of BN that are released, not with its own.
    again = ssl_hub.knn(tmp_path / "run", k=5)
    assert [result.value for result in again] == [r["value"] for r in results if r["protocol"] == "knn"]
    assert ssl_hub.load(tmp_path / "run")(torch.zeros(1, 3, 16, 16)).shape == (1, 128)


def test_one_process_where_two_were_asked_for_is_said_and_users_threads_are_kept(tmp_path):
    command = [*ACCELERATE, "--cpu", "--num_processes", "2"]
    arguments = ["byol-digits", "train.max_steps=1", "runtime.knn_every_epochs=0", "--output", str(tmp_path / "run")]
    done = launch(command, *arguments, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    assert "warning: the launcher was asked for 2 processes and 1 runs" in done.stderr
    assert facts(tmp_path / "run")["threads_per_process"] == 1


@pytest.fixture
def photos(tmp_path):
    """Two class folders of 20 x 16 pixel photographs, and an empty folder."""
    for split, count in (("train", 6), ("test", 3)):
        for label in ("cat", "dog"):
            folder = tmp_path / "photos" / split / label
            folder.mkdir(parents=True)
            for i in range(count):
                Image.effect_noise((20, 16), 10 * i + 20).convert("RGB").save(folder / f"{i}.jpg")
    (tmp_path / "empty").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["directpred-digit"], "unknown recipe 'directpred-digit'; did you mean 'directpred-digits'"),
        (["byol-digits", "predictor.wdth=3"], "predictor 'mlp' has no option 'wdth'"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)  # test_cli and test_run try such in one process
            for case in (
                (["byol-digits", "--data", "{root}/missing"], "data path '{root}/missing' does not exist"),
                (["byol-digits", "--data", "{root}/empty"], "no images in {root}/empty"),
                (["byol-digits", "optim.lr=fast"], "optim.lr is 'fast', expected float"),
                (["byol-digits", "--data", "{root}/photos"], "batch_size 64 is larger than the 12 images of photos"),
                (["byol-digits", "--output", "/proc/run"], "cannot write to /proc"),
                (["byol-digits", "--output", "{root}/photos"], "is not empty and holds no run"),
                (["byol-digits", "--output", "{root}/new", "--resume"], "nothing to resume in {root}/new"),
                (["byol-digits", "train.batch_size=63", "train.accumulation=2"], "batch_size 63 does not split evenly"),
                (["byol-digits", "train.epochs=0"], "train.epochs is 0, expected a whole number of at least 1"),
                (["byol-digits", "backbone.name=resnet18_cifr"], "unknown backbone 'resnet18_cifr'"),
            )
        ),
    ],
)
def test_bad_input_is_one_line_before_training(photos, arguments, message):
    arguments = [a.format(root=photos) for a in arguments]
    if "--output" not in arguments:
        arguments += ["--output", str(photos / "run")]
    done = train(*arguments)
    assert done.returncode == 2
    assert message.format(root=photos) in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.strip().count("\n") == 0
    assert not (photos / "run").exists()
    assert not (photos / "new").exists()


def test_photographs_in_folders_train_through_workers_and_probe(photos):
    run = photos / "run"
    settings = ["train.batch_size=4", "train.epochs=1", "runtime.workers=1", "views.size=32", "runtime.knn_k=3"]
    extra = photos / "photos" / "train" / "cat" / "wide.jpg"
    Image.effect_noise((60, 20), 50).convert("RGB").save(extra)  # sizes differ: not resident
    done = train("directpred-digits", *settings, "--data", str(photos / "photos"), "--output", str(run))
    assert done.returncode == 0, done.stderr
    assert "decoded by 1 workers" in done.stderr
    results = json.loads((run / "results.json").read_text())
    assert {r["dataset"] for r in results} == {"photos"}
    assert (run / "heads" / "photos.safetensors").exists()


def test_flat_folder_trains_without_labels(photos):
    flat = photos / "photos" / "train" / "dog"
    settings = ["train.batch_size=4", "train.epochs=1"]
    done = train("byol-digits", *settings, "--data", str(flat), "--output", str(photos / "run"))
    assert done.returncode == 0, done.stderr
    assert "is a flat folder of" in done.stderr and "there is no split 'test'" in done.stderr
    assert not (photos / "run" / "results.json").exists()
    assert ssl_hub.load(photos / "run")(torch.zeros(1, 3, 16, 16)).shape == (1, 128)


RESUMED = [
    "train.epochs=2",
    "runtime.knn_every_epochs=0",
    "runtime.log_every_steps=1",
    "runtime.checkpoint_every_epochs=1",
]


def weights(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ("method.safetensors",)} | {
        "backbone": b"".join(t.numpy().tobytes() for _, t in sorted(ssl_hub.load(folder).state_dict().items()))
    }


def started(command: list[str], folder: Path) -> subprocess.Popen[str]:
    """A run that has made 25 of its 40 steps: in the middle of the second epoch, with a checkpoint of the first."""
    arguments = [*command, TRAIN, "directpred-digits", *RESUMED, "--output", str(folder)]
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, env=environment())
    metrics, deadline = folder / "metrics.jsonl", time.monotonic() + 900
    while not metrics.exists() or metrics.read_text().count("\n") < 25:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline, "no progress"
        time.sleep(0.01)
    return process


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)], ids=["term", "kill"]
)
def test_training_does_not_outlive_its_launcher(number, tmp_path):
    launcher = started(ACCELERATE, tmp_path / "run")
    (trainer,) = psutil.Process(launcher.pid).children()
    launcher.send_signal(number)
    _, stderr = launcher.communicate(timeout=900)  # ends when the trainer, which shares the pipe, has ended too
    assert not trainer.is_running() or trainer.status() == psutil.STATUS_ZOMBIE
    (step,) = re.findall(r"stopped by a signal at step (\d+), saved; continue with --resume", stderr)
    assert int(step) < 40
    assert any(step in path.name for path in (tmp_path / "run" / "checkpoints").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["term", "kill"])
def test_stopped_run_resumes_to_the_same_bytes(number, tmp_path):
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    assert launch([sys.executable], "directpred-digits", *RESUMED, "--output", str(straight)).returncode == 0
    process = started([sys.executable], stopped)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=900)
    if number == signal.SIGTERM:
        assert process.returncode == 75
        assert re.search(r"stopped by a signal at step \d+, saved; continue with --resume", stderr)
    else:
        assert process.returncode == -signal.SIGKILL
    assert not (stopped / "model.safetensors").exists()
    refused = launch(
        [sys.executable], "directpred-digits", *RESUMED, "optim.lr=1", "--resume", "--output", str(stopped)
    )
    assert refused.returncode == 2
    assert "started with another optim.lr" in refused.stderr
    resumed = launch([sys.executable], "directpred-digits", *RESUMED, "--resume", "--output", str(stopped))
    assert resumed.returncode == 0, resumed.stderr
    assert weights(stopped) == weights(straight)
    assert [r["step"] for r in read_metrics(stopped)] == list(range(1, 41))
    same = ("step", "epoch", "loss", "lr", "momentum", "grad_norm", "feature_std")
    assert [[r[k] for k in same] for r in read_metrics(stopped)] == [
        [r[k] for k in same] for r in read_metrics(straight)
    ]
