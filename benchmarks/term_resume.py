"""Runs told to stop at random moments and resumed until they end, file for file against the run that nobody touched.

python benchmarks/term_resume.py --signals 30
python benchmarks/term_resume.py --signals 3 --processes 2 --number SIGUSR1

Each run trains on JPEGs of mixed sizes, which two worker processes decode over and over, on one process or, with
torchrun, on two; it measures a backbone at its end. The signal goes to every process at once, launcher and workers too,
as schedulers send it: a fifth of the time while the run opens, else at any moment from its first step to its last
measurement. Prints a row for each number of processes and a line of JSON; exits with 1 where a file differs, a process
outlives its run, or a run ends otherwise than it should. ``kill_resume.py`` does the same with SIGKILL.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from kill_resume import COMPARED, log
from safetensors import safe_open

import ssl_hub
from ssl_hub.data.sources import open_source
from ssl_hub.model.metrics import METRICS, read_metrics
from ssl_hub.stopping import REQUEUE

ROOT = Path(__file__).parents[1]
IMAGES, STEPS = {"train": 24, "test": 6}, 50
SETTINGS = [
    "train.batch_size=8", f"train.max_steps={STEPS}", "train.epochs=100", "views.size=32", "runtime.workers=2",
    "runtime.log_every_steps=1", "runtime.knn_every_epochs=4", "runtime.knn_k=3",
]  # fmt: skip
OPENING, STEPPING, FINISHING, EARLY = "while it opens", "between steps", "after the last step", "before Python listens"
SAID = {
    OPENING: r"^stopped by \w+; start it again to go on$",
    STEPPING: r"^stopped by a signal at step \d+, saved; continue with --resume$",
    FINISHING: r"^stopped by a signal after training, which is saved; finish with --resume$",
}
# From run to run, or by having been resumed, by their nature.
DIFFERENT = {"date", "started", "finished", "resumed", "changed", "seconds", "command", "job", "git_commit"}


def write_pictures(folder: Path) -> Path:
    """Two classes of digits in two splits, as JPEGs of 40 to 119 pixels a side."""
    rng = np.random.default_rng(0)
    for split, count in IMAGES.items():
        source = open_source("digits", split)
        for index in range(2 * count):
            file = folder / split / f"class-{index % 2}" / f"{index:03d}.jpg"
            file.parent.mkdir(parents=True, exist_ok=True)
            width, height = rng.integers(40, 120, 2).tolist()
            source.image(index).resize((width, height)).save(file)
    return folder


def start(processes: int, data: Path, output: Path) -> subprocess.Popen[bytes]:
    """The one command of a scheduler, in a session of its own."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    command = [sys.executable, *(torchrun if processes > 1 else []), str(ROOT / "recipes" / "train.py")]
    command += ["directpred-digits", *SETTINGS, "--data", str(data), "--output", str(output), "--resume", "auto"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with log(output).open("ab") as file:
        return subprocess.Popen(command, stdout=file, stderr=file, env=environment, start_new_session=True)


def announced(output: Path, said_before: int) -> bool:
    """Whether a run has said that it is ready to train."""
    return b"\n  run     " in log(output).read_bytes()[said_before:]


def stop(run: subprocess.Popen[bytes], output: Path, number: int, *, opening: float, rest: float) -> str | None:
    """Signal a run and all that it has started at a random moment; what it was doing, or None where it ended first."""
    said_before = log(output).stat().st_size
    early = random.random() < 0.2
    due = time.monotonic() + (random.uniform(0, opening) if early else float("inf"))
    while time.monotonic() < due:
        if run.poll() is not None:
            return None
        if due == float("inf") and announced(output, said_before):
            due = time.monotonic() + random.uniform(0, rest)
        time.sleep(0.002)
    if run.poll() is not None:
        return None
    everyone = [psutil.Process(run.pid), *psutil.Process(run.pid).children(recursive=True)]
    for process in everyone:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)
    code = run.wait(120)
    _, alive = psutil.wait_procs(everyone, timeout=15)
    if alive:
        raise SystemExit(f"{len(alive)} processes have outlived their run: {[p.pid for p in alive]}; see {log(output)}")
    text = log(output).read_bytes()[said_before:].decode()
    if code == 0 or re.search(r"^done: |is finished: nothing to do$", text, re.MULTILINE):
        return None  # it was over but for Python's end
    moment = next((name for name, line in SAID.items() if re.search(line, text, re.MULTILINE)), None)
    torchrun = "torch/distributed/run.py" in text  # which has an exit code and a traceback of its own
    if moment is None and (code == -number or torchrun) and not announced(output, said_before):
        return EARLY
    if moment is None or (code != REQUEUE and not torchrun) or "DataLoader worker" in text:
        raise SystemExit(f"stopped with exit code {code}; see {log(output)}")
    return moment


def plain(value: Any) -> Any:
    """What of a JSON file is to be the same."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items() if name not in DIFFERENT}
    return [plain(one) for one in value] if isinstance(value, list) else value


def outcome(output: Path) -> dict[str, Any]:
    """Everything of a finished run that must be the same: every file but the checkpoints of the way and the hashes."""
    files: dict[str, Any] = {}
    for path in sorted(output.rglob("*")):
        name = str(path.relative_to(output))
        if path.is_dir() or name in ("hashes.json", METRICS) or name.startswith("checkpoints/"):
            continue
        files[name] = plain(json.loads(path.read_text())) if path.suffix == ".json" else path.read_bytes()
        if name.startswith("heads/") and path.suffix == ".safetensors":  # which lists its metadata in any order
            with safe_open(path, "pt") as file:
                files[name] = [
                    file.metadata(),
                    {key: file.get_tensor(key).numpy().tobytes() for key in sorted(file.keys())},
                ]
    compared = (*COMPARED, "knn_top1")
    files[METRICS] = [{key: reading[key] for key in compared if key in reading} for reading in read_metrics(output)]
    return files


def measure(processes: int, data: Path, folder: Path, signals: int, number: int) -> dict[str, Any]:
    """Signal at least ``signals`` times, over as many runs as that takes."""
    began = time.monotonic()
    straight = folder / f"straight-{processes}"
    log(straight).touch()
    run = start(processes, data, straight)
    while not announced(straight, 0) and run.poll() is None:
        time.sleep(0.01)
    opening = time.monotonic() - began
    if run.wait():
        raise SystemExit(f"training failed; see {log(straight)}")
    rest = time.monotonic() - began - opening
    expected, moments = outcome(straight), Counter[str]()
    runs, starts, different = 0, 0, set[str]()
    while moments.total() < signals:
        output = folder / f"stopped-{processes}-{runs}"
        log(output).touch()
        while True:
            starts += 1
            run = start(processes, data, output)
            if moments.total() == signals:
                moment = None if run.wait() == 0 else "failed"
            else:
                moment = stop(run, output, number, opening=opening, rest=0.7 * rest)
            if moment is None:
                break
            moments[moment] += 1
        got = outcome(output)
        wrong = {name for name in {*expected, *got} if got.get(name) != expected.get(name)}
        different |= wrong
        runs += 1
        if not wrong:
            shutil.rmtree(output)
    return {
        "processes": processes,
        "signals": moments.total(),
        "runs": runs,
        "starts": starts,
        "moments": dict(moments),
        "files": sorted(expected),
        "straight_seconds": round(opening + rest, 1),
        "seconds": round(time.monotonic() - began),
        "different": sorted(different),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--signals", type=int, default=30, help="for each number of processes")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--number", default="SIGTERM", help="SIGTERM (default), SIGUSR1 or SIGINT")
    parser.add_argument("--seed", type=int, default=0, help="of the moments, as far as a clock can repeat them")
    parser.add_argument("--output", type=Path, help="keep runs that differ here (default: a temporary folder)")
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.output or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        data = write_pictures(folder / "pictures")
        columns = (*SAID, EARLY)
        print(f"| processes | signals | {' | '.join(columns)} | runs | the same files |\n|{'---|' * 8}")
        rows = []
        for processes in arguments.processes:
            row = measure(processes, data, folder, arguments.signals, getattr(signal, arguments.number))
            rows.append(row)
            counts = " | ".join(str(row["moments"].get(column, 0)) for column in columns)
            verdict = "no: " + ", ".join(row["different"]) if row["different"] else "yes"
            print(f"| {processes} | {row['signals']} | {counts} | {row['runs']} | {verdict} |", flush=True)
    print(json.dumps({"version": ssl_hub.__version__, "signal": arguments.number, "rows": rows}))
    return int(any(row["different"] for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
