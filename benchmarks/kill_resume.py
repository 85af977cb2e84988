"""Runs killed at random moments and resumed until they end, byte for byte against the run that nobody touched.

python benchmarks/kill_resume.py --kills 50
python benchmarks/kill_resume.py --kills 5 --methods directpred partitions

Each method trains on a flat folder of digits without labels, so that the files of the release are those of training
alone. Every run is a real process, forked from one that has imported everything, and killed with SIGKILL: at a random
moment, or, for half of the kills, when the file of a checkpoint or of the release is being written. Prints a row for
each method and a line of JSON; exits with 1 where any byte differs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # no thread may exist when we fork; set before torch is imported

import ssl_hub
from ssl_hub.data.sources import open_source
from ssl_hub.model.metrics import METRICS, read_metrics
from ssl_hub.train import run

pretrain = ssl_hub.pretrain  # imported here, once, and not by every process
METHODS: dict[str, tuple[str, dict[str, object]]] = {
    "directpred": ("directpred-digits", {}),
    "byol": ("byol-digits", {}),
    "byol-linear": ("byol-linear-digits", {}),
    "simsiam": ("simsiam-digits", {}),
    "symmetric": ("byol-linear-digits", {"predictor.kind": "symmetric"}),
    "freq5": ("directpred-digits", {"predictor.freq": 5}),
    "partitions": ("directpred-digits", {"predictor.partitions": 3}),
}
IMAGES, BATCH, STEPS = 40, 8, 60  # an epoch is 5 steps, and each leaves a checkpoint
SETTINGS: dict[str, object] = {
    "train.batch_size": BATCH,
    "train.max_steps": STEPS,
    "runtime.log_every_steps": 1,
    "runtime.knn_every_epochs": 0,
    "runtime.checkpoint_every_epochs": 1,
}
RELEASE = ("model.safetensors", "method.safetensors", "config.json")
COMPARED = ("step", "epoch", "loss", "lr", "momentum", "grad_norm", "feature_std")  # of metrics.jsonl
STARTED, SAVING, PUBLISHING, STEPPING = "before a step", "during a save", "during the release", "during a step"
AIMS = (5, 4, 1)  # at any moment, at a checkpoint, at the release


def write_images(folder: Path) -> Path:
    """A flat folder of digits."""
    source = open_source("digits", "train")
    folder.mkdir()
    for index in range(IMAGES):
        source.image(index).save(folder / f"{index:03d}.png")
    return folder


def start(method: str, data: Path, output: Path) -> int:
    """Train in a forked process, resuming what ``output`` holds; returns its id."""
    resume = (output / "recipe.json").exists()
    if not resume:
        shutil.rmtree(output, ignore_errors=True)  # killed before it was a run
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        file = os.open(log(output), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, 1)
        os.dup2(file, 2)
        recipe, overrides = METHODS[method]
        pretrain(recipe, data=str(data), output=output, resume=resume, overrides={**SETTINGS, **overrides})
        code = 0
    finally:
        if code:
            sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
        os._exit(code)


def finished(child: int) -> bool:
    """Whether the process has ended; an error of its own is one of ours."""
    ended, status = os.waitpid(child, os.WNOHANG)
    if ended and os.waitstatus_to_exitcode(status):
        raise SystemExit(f"training failed with exit code {os.waitstatus_to_exitcode(status)}; see its log")
    return bool(ended)


def written(child: int, output: Path, what: str) -> bool:
    """Whether the process is writing a checkpoint or a file of the release, or was when it was killed."""
    if what == SAVING:
        return any((output / run.CHECKPOINTS).glob(f".*.{child}.part"))
    return any((output / f".{name}.{child}.part").exists() for name in RELEASE)


def kill(child: int, output: Path, *, after: float, aim: str, said_before: int) -> str | None:
    """Kill the process ``after`` seconds from now, and then as soon as it does what is aimed at.

    Returns what it was doing, or None where it ended first.
    """
    due, aimed = time.perf_counter() + after, aim != STEPPING
    while time.perf_counter() < due or (aimed and not written(child, output, aim)):
        if finished(child):
            return None
        time.sleep(0 if aimed else 0.001)
    if aimed:
        time.sleep(random.uniform(0, 0.003))  # anywhere in the write, the flush and the rename
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        return None
    for what in (SAVING, PUBLISHING):
        if written(child, output, what):
            return what
    announced = b"\n  run     " in log(output).read_bytes()[said_before:]  # what a run says when it is ready
    return STEPPING if announced else STARTED


def log(output: Path) -> Path:
    return output.with_suffix(".log")


def outcome(output: Path) -> dict[str, Any]:
    """Everything that must be the same."""
    readings = [[reading.get(key) for key in COMPARED] for reading in read_metrics(output)]
    return {**{name: (output / name).read_bytes() for name in RELEASE}, METRICS: readings}


def attempt(method: str, data: Path, output: Path, kills: int, seconds: float) -> tuple[Counter[str], int]:
    """One run, killed up to ``kills`` times; what it was doing each time, and how often it was started."""
    moments: Counter[str] = Counter()
    starts = 0
    while True:
        starts += 1
        said = log(output).stat().st_size if log(output).exists() else 0
        child = start(method, data, output)
        if moments.total() == kills:
            while not finished(child):
                time.sleep(0.01)
            return moments, starts
        aim = random.choices([STEPPING, SAVING, PUBLISHING], weights=AIMS)[0]
        moment = kill(child, output, after=random.uniform(0, 0.7 * seconds), aim=aim, said_before=said)
        if moment is None:
            return moments, starts
        moments[moment] += 1


def measure(method: str, data: Path, folder: Path, kills: int) -> dict[str, Any]:
    """Kill ``method`` at least ``kills`` times, over as many runs as that takes."""
    began = time.perf_counter()
    straight = folder / f"{method}-straight"
    child = start(method, data, straight)
    while not finished(child):
        time.sleep(0.005)
    seconds = time.perf_counter() - began
    expected, moments = outcome(straight), Counter[str]()
    runs, starts, different = 0, 0, set[str]()
    while moments.total() < kills:
        output = folder / f"{method}-{runs}"
        found, started = attempt(method, data, output, kills - moments.total(), seconds)
        moments, runs, starts = moments + found, runs + 1, starts + started
        got = outcome(output)
        wrong = {name for name in expected if got[name] != expected[name]}
        different |= wrong
        if not wrong:
            shutil.rmtree(output)
    return {
        "method": method,
        "kills": moments.total(),
        "runs": runs,
        "starts": starts,
        "moments": dict(moments),
        "straight_seconds": round(seconds, 2),
        "seconds": round(time.perf_counter() - began, 1),
        "different": sorted(different),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50, help="for each method")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seed", type=int, default=0, help="of the moments, as far as a clock can repeat them")
    parser.add_argument("--output", type=Path, help="keep runs that differ here (default: a temporary folder)")
    parser.add_argument("--steps", type=int, default=STEPS, help="of each run")
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    SETTINGS["train.max_steps"] = arguments.steps
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.output or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        data = write_images(folder / "images")
        columns = (STEPPING, SAVING, PUBLISHING, STARTED)
        print(f"| method | kills | {' | '.join(columns)} | runs | byte-identical |\n|{'---|' * 8}")
        rows = []
        for method in arguments.methods:
            row = measure(method, data, folder, arguments.kills)
            rows.append(row)
            counts = " | ".join(str(row["moments"].get(column, 0)) for column in columns)
            verdict = "no: " + ", ".join(row["different"]) if row["different"] else "yes"
            print(f"| {method} | {row['kills']} | {counts} | {row['runs']} | {verdict} |", flush=True)
    print(json.dumps({"version": ssl_hub.__version__, "seed": arguments.seed, "methods": rows}))
    return int(any(row["different"] for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
