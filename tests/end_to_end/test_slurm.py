"""recipes/slurm/train.sbatch as Slurm would run it, on two CPU processes: signalled, requeued, finished."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

from ssl_hub.model.metrics import read_metrics
from tests.end_to_end import slurm
from tests.end_to_end.pictures import mixed_pictures
from tests.end_to_end.test_launchers import ROOT, environment, facts

SCRIPT = ROOT / "recipes" / "slurm" / "train.sbatch"
STEPS = 40
SETTINGS = [
    "train.batch_size=8", f"train.max_steps={STEPS}", "views.size=32", "runtime.workers=2", "runtime.log_every_steps=1",
    "runtime.knn_every_epochs=0", "runtime.knn_k=3",
]  # fmt: skip


def on_path(folder: Path) -> str:
    """A PATH on which srun and scontrol are the stand-ins, and python is the one that runs the tests."""
    folder.mkdir()
    commands = {name: f'"{sys.executable}" "{slurm.__file__}" {name}' for name in ("srun", "scontrol")}
    for name, command in {**commands, "python": f'"{sys.executable}"'}.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (folder / name).chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def test_a_job_that_is_signalled_is_requeued_until_it_is_finished(tmp_path):
    run, requeued = tmp_path / "run", tmp_path / "requeued"
    data = mixed_pictures(tmp_path / "pictures")
    path = on_path(tmp_path / "bin")

    def job(restart: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", str(SCRIPT), "directpred-digits", *SETTINGS, "--data", str(data), "--output", str(run)],
            cwd=ROOT, stderr=subprocess.PIPE, text=True,
            env=environment(
                PATH=path, REQUEUED=str(requeued), SLURM_JOB_ID="4711", SLURM_JOB_NODELIST="localhost",
                SLURM_NTASKS="2", SLURM_RESTART_COUNT=str(restart), ACCELERATE_MIXED_PRECISION="no",
                OMP_NUM_THREADS="1",
            ),
        )  # fmt: skip

    first = job(0)
    while len(read_metrics(run)) < 7:
        assert first.poll() is None, first.stderr.read()
        time.sleep(0.02)
    (step,) = psutil.Process(first.pid).children()  # srun
    for process in step.children(recursive=True):  # as Slurm does: ranks and whatever they have started
        with suppress(psutil.NoSuchProcess):  # it has ended since
            process.send_signal(signal.SIGUSR1)
    _, said = first.communicate(timeout=900)
    assert first.returncode == 75, said
    (at,) = re.findall(r"stopped by a signal at step (\d+), saved; continue with --resume", said)
    assert 7 <= int(at) < STEPS and "Traceback" not in said
    assert requeued.read_text() == "4711\n"

    second = job(1)
    _, said = second.communicate(timeout=900)
    assert second.returncode == 0, said
    assert f"resumed at {at}" in said
    assert [reading["step"] for reading in read_metrics(run)] == list(range(1, STEPS + 1))
    assert facts(run)["processes"] == 2

    third = job(2)
    _, said = third.communicate(timeout=900)
    assert third.returncode == 0 and "is finished: nothing to do" in said, said
    assert requeued.read_text() == "4711\n"
