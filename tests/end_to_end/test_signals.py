"""Real commands with real workers, signalled as schedulers and launchers do: all processes at once, or the launcher.

That what was stopped goes on to the same files is what ``benchmarks/term_resume.py`` counts, a small part of it here.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from ssl_hub.model.metrics import read_metrics
from tests import warm
from tests.data.encoded import png, write_tar
from tests.end_to_end.pictures import mixed_pictures
from tests.end_to_end.test_launchers import ACCELERATE, ROOT, TORCHRUN, TRAIN, environment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals are caught in the middle of things, by /proc")

SLOW = pytest.mark.slow
CLI = ["-m", "ssl_hub.cli"]
SETTINGS = [
    "train.batch_size=4", "train.epochs=300", "views.size=32", "runtime.workers=2", "runtime.log_every_steps=1",
    "runtime.knn_every_epochs=0",
]  # fmt: skip


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mixed_pictures(tmp_path_factory.mktemp("small") / "pictures", train=10)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Too large for evaluation to decode them in threads."""
    return mixed_pictures(tmp_path_factory.mktemp("large") / "pictures", train=10, sides=(130, 180))


class Command:
    """A command in a session of its own: Python's words, warm, or a whole command line."""

    def __init__(self, words: list[str], *, warmly: bool = True) -> None:
        options = {"start_new_session": True, "env": environment(OMP_NUM_THREADS="1")}
        if warmly:
            self.process = warm.started(words, **options)
        else:
            self.process = subprocess.Popen(
                words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **options
            )
        self._seen: list[psutil.Process] = []

    def wait_for(self, ready: Callable[[], bool]) -> None:
        until = time.monotonic() + 900
        while not ready():
            assert self.process.poll() is None, self.process.communicate()[1]
            assert time.monotonic() < until, "no progress"
            time.sleep(0.005)

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def signal(self, number: int, *, to: str) -> None:
        """To the process ``alone``, to its ``group``, or to ``all`` that it has started."""
        self._seen = self.children()
        if to == "group":
            os.killpg(self.process.pid, number)
            return
        for process in [psutil.Process(self.process.pid), *(self._seen if to == "all" else [])]:
            with suppress(psutil.NoSuchProcess):  # it has ended since
                process.send_signal(number)

    def ended(self) -> tuple[int, str]:
        """Its exit code and what it said, once nothing that it started is left."""
        _, said = self.process.communicate(timeout=900)
        _, alive = psutil.wait_procs(self._seen, timeout=60)
        assert alive == []
        return self.process.returncode, said


def training(data: Path, run: Path) -> list[str]:
    return [TRAIN, "directpred-digits", *SETTINGS, "--data", str(data), "--output", str(run)]


def trained_to(run: Path, step: int) -> Callable[[], bool]:
    return lambda: len(read_metrics(run)) >= step


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, pytest.param(signal.SIGINT, marks=SLOW)])
def test_a_run_whose_whole_group_is_signalled_saves(number, small, tmp_path):
    run = tmp_path / "run"
    command = Command(training(small, run))
    command.wait_for(trained_to(run, 7))
    command.signal(number, to="group")
    code, said = command.ended()
    assert code == 75, said
    (step,) = re.findall(r"^stopped by a signal at step (\d+), saved; continue with --resume$", said, re.MULTILINE)
    assert [path.name for path in (run / "checkpoints").iterdir()] == [f"step-{int(step):08d}.pt"]
    assert "Traceback" not in said and "DataLoader" not in said


@pytest.mark.parametrize("to", ["alone", pytest.param("all", marks=SLOW)])
def test_a_run_on_two_processes_saves_when_torchrun_is_signalled(to, small, tmp_path):
    run = tmp_path / "run"
    command = Command([*TORCHRUN, "2", *training(small, run)], warmly=False)
    command.wait_for(trained_to(run, 7))
    command.signal(signal.SIGTERM, to=to)
    code, said = command.ended()
    assert code == 1, said  # torchrun's own, whatever the processes end with
    assert re.search(r"^stopped by a signal at step \d+, saved; continue with --resume$", said, re.MULTILINE), said
    assert len(list((run / "checkpoints").iterdir())) == 1
    assert "DataLoader worker" not in said


@pytest.mark.slow
@pytest.mark.parametrize("to", ["alone", "group"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_run_saves_when_accelerate_launch_is_signalled(number, to, small, tmp_path):
    run = tmp_path / "run"
    command = Command([*ACCELERATE, *training(small, run)], warmly=False)
    command.wait_for(trained_to(run, 7))
    command.signal(number, to=to)
    code, said = command.ended()
    assert code == -number  # the launcher itself dies of it
    assert re.search(r"^stopped by a signal at step \d+, saved; continue with --resume$", said, re.MULTILINE), said


def test_a_run_that_is_signalled_while_it_opens_leaves_nothing(small, tmp_path):
    run = tmp_path / "run"
    command = Command([sys.executable, *training(small, run)], warmly=False)
    command.wait_for(lambda: listens(command.process.pid))
    command.signal(signal.SIGTERM, to="group")
    assert command.ended() == (75, "stopped by SIGTERM; start it again to go on\n")
    assert not run.exists()


def listens(pid: int) -> bool:
    """Whether the process has a handler for SIGUSR1."""
    (caught,) = re.findall(r"^SigCgt:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(encoding="utf-8"), re.MULTILINE)
    return bool(int(caught, 16) >> (signal.SIGUSR1 - 1) & 1)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["knn", "timm:resnet50", "--image-size", "160"], marks=SLOW),
        ["probe", "timm:resnet18", "--image-size", "64", "--protocol", "simsiam", "epochs=1000"],
        pytest.param(["embed", "timm:resnet50", "--out", "{folder}/out.parquet"], marks=SLOW),
    ],
    ids=lambda arguments: arguments[0],
)  # fmt: skip
def test_an_evaluation_that_is_signalled_ends_in_one_line(arguments, large, tmp_path):
    arguments = [word.format(folder=tmp_path) for word in arguments]
    command = Command([*CLI, *arguments, "--data", str(large), "--batch-size", "4", "--workers", "2"])
    command.wait_for(lambda: len(command.children()) == 2)
    time.sleep(0.3)
    command.signal(signal.SIGTERM, to="group")
    code, said = command.ended()
    assert code == 75, said
    assert said.splitlines()[-1].endswith("stopped by SIGTERM; start it again to go on")
    assert "Traceback" not in said and "DataLoader" not in said
    assert list(tmp_path.iterdir()) == []


def test_fine_tuning_that_is_signalled_saves(small, tmp_path):
    run = tmp_path / "run"
    arguments = ["finetune", "init:directpred-digits", "--data", str(small), "--workers", "2", "--output", str(run)]
    command = Command([*CLI, *arguments, "epochs=500", "batch_size=4", "lr=0.01"])
    command.wait_for(lambda: any((run / "checkpoints").glob("step-*.pt")))
    command.signal(signal.SIGTERM, to="group")
    code, said = command.ended()
    assert code == 75, said
    assert re.search(r"stopped at step \d+, saved; continue with --resume$", said, re.MULTILINE)
    assert "Traceback" not in said and "DataLoader" not in said


def test_training_on_a_stream_that_is_signalled_saves(tmp_path):
    for shard in range(2):
        members = {f"{index:03}.png": png(10 * index, (40, 30)) for index in range(12)}
        write_tar(tmp_path / f"train-{shard:03}.tar", members)
    run, data = tmp_path / "run", str(tmp_path / "train-*.tar")
    settings = [*SETTINGS, "data.stream=true", "train.max_steps=1000"]
    command = Command([TRAIN, "byol-digits", *settings, "--data", data, "--output", str(run)])
    command.wait_for(trained_to(run, 7))
    command.signal(signal.SIGTERM, to="group")
    code, said = command.ended()
    assert code == 75, said
    assert "stopped by a signal at step" in said and "Traceback" not in said


@pytest.mark.slow
def test_stopped_runs_end_as_the_run_that_nobody_touched():
    benchmark = str(ROOT / "benchmarks" / "term_resume.py")
    command = [sys.executable, benchmark, "--signals", "2", "--processes", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment())
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads(done.stdout.splitlines()[-1])["rows"]
    assert row["signals"] == 2 and row["starts"] == 2 + row["runs"] and row["different"] == []
    assert {
        "model.safetensors",
        "method.safetensors",
        "config.json",
        "recipe.json",
        "results.json",
        "metrics.jsonl",
    } <= {*row["files"]}
