"""What saving a run costs its training: a checkpoint that is waited for against one that is written beside the steps.

python benchmarks/checkpoint_share.py
python benchmarks/checkpoint_share.py --recipe byol-r50-300ep --steps elsewhere --rounds 5

The state of a real trainer. What stands for a step is 0.1 s of matrix products, which take the same processor as the
writing thread (*here*), or a wait of 0.1 s, as for an accelerator (*elsewhere*). Each round has the same steps three
times, in turns that each begin with another: without a save, after one that is waited for, after one that is written
beside them. *Blocked* is how long the call that saves keeps the steps waiting, by the wall's clock and in processor
time of the training thread; *share* is that of the wall's time until steps and write have ended; *slower* is that
time over the steps alone. *In all* is the processor time of the process over that of the steps alone. Memory is the
peak of a save over what was there before.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from side_by_side import machine, print_table

import ssl_hub
from ssl_hub.model.siamese import build
from ssl_hub.train import checkpoint
from ssl_hub.train.step import Trainer
from ssl_hub.train.writing import writing

RECIPES = ("directpred-r18-cifar10-100ep", "byol-r50-300ep")
SIZE, MEGABYTE, STEP = 32, 2**20, 0.1
NONE, WAITED, BESIDE = "none", "waited for", "beside"
HERE, ELSEWHERE = "here", "elsewhere"


class Run:
    """A trainer whose optimiser has its state, and a folder for its checkpoints."""

    def __init__(self, name: str, folder: Path) -> None:
        recipe = ssl_hub.get_recipe(name)
        self.folder, self.accelerator = folder, Accelerator(cpu=True)
        self.trainer = Trainer(build(recipe), recipe.optim, self.accelerator, lr=1e-3, total_steps=10**6)
        self.trainer.advance([tuple(torch.randn(2, 2, 3, SIZE, SIZE))])
        self.save(WAITED)

    def save(self, way: str) -> None:
        if way != NONE:
            checkpoint.save(self.folder, self.trainer.state_dict(), self.accelerator, keep=1, last=way == WAITED)

    def whole_save(self, way: str) -> None:
        self.save(way)
        writing.wait()

    def round(self, way: str, where: str, steps: int) -> dict[str, float]:
        began, busy, all_threads = time.perf_counter(), time.thread_time(), time.process_time()
        self.save(way)
        blocked, cpu = time.perf_counter() - began, time.thread_time() - busy
        for _ in range(steps):
            step(where)
        writing.wait()  # for what the steps did not cover
        return {
            "blocked": blocked,
            "cpu": cpu,
            "whole": time.perf_counter() - began,
            "in_all": time.process_time() - all_threads,
        }


def step(where: str) -> None:
    if where == ELSEWHERE:
        time.sleep(STEP)
        return
    until, matrix = time.thread_time() + STEP, torch.ones(256, 256)
    while time.thread_time() < until:
        matrix @ matrix


def peak_over(act: Callable[[], Any]) -> float | None:
    """MB that the process held at most, over what it held before; None where the kernel does not tell."""
    try:
        ctypes.CDLL(None).malloc_trim(0)  # what steps have freed would hide what a copy takes
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # forget the peak
        before = _held("VmRSS")
        act()
        return _held("VmHWM") - before
    except (OSError, AttributeError):
        return None


def _held(what: str) -> float:
    line = next(
        line for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines() if line.startswith(what)
    )
    return int(line.split()[1]) / 1024


def seconds(act: Callable[[], Any]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def measure(name: str, folder: Path, where: str, rounds: int) -> dict[str, Any]:
    run = Run(name, folder)
    # More than cover a write, as far as the two can be told beforehand.
    steps = 1 + int(1.5 * seconds(lambda: run.save(WAITED)) / seconds(lambda: step(where)))
    memory = {way: peak_over(lambda way=way: run.whole_save(way)) for way in (WAITED, BESIDE)}
    order = [NONE, WAITED, BESIDE]
    found: dict[str, list[dict[str, float]]] = {way: [] for way in order}
    for _ in range(rounds):
        order.append(order.pop(0))
        for way in order:
            found[way].append(run.round(way, where, steps))
    (newest,) = checkpoint.existing(folder)
    megabytes = newest.stat().st_size / MEGABYTE
    return {"recipe": name, "megabytes": megabytes, "where": where, "steps": steps, "memory": memory, "rounds": found}


def shown(row: dict[str, Any], way: str) -> list[Any]:
    pairs = list(zip(row["rounds"][way], row["rounds"][NONE], strict=True))
    numbers = [
        1e3 * statistics.median(one["blocked"] for one, _ in pairs),
        1e3 * statistics.median(one["cpu"] for one, _ in pairs),
        100 * statistics.median(one["blocked"] / one["whole"] for one, _ in pairs),
        100 * statistics.median(one["whole"] / alone["whole"] - 1 for one, alone in pairs),
        1e3 * statistics.median(one["in_all"] - alone["in_all"] for one, alone in pairs),
    ]
    return [row["recipe"], row["megabytes"], row["where"], row["steps"], way, *numbers, row["memory"][way]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", nargs="+", default=list(RECIPES))
    parser.add_argument("--steps", nargs="+", choices=[HERE, ELSEWHERE], default=[HERE, ELSEWHERE])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, help="write on this disk (default: that of temporary files)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"\nA save and the steps after it, medians of {arguments.rounds} rounds; {machine()}\n")
    rows = []
    for name in arguments.recipe:
        for where in arguments.steps:
            with tempfile.TemporaryDirectory(dir=arguments.output) as folder:
                rows.append(measure(name, Path(folder), where, arguments.rounds))
            print_table(
                [
                    "recipe", "MB", "steps", "number", "save", "blocked (ms)", "blocked, processor (ms)", "share (%)",
                    "slower (%)", "in all, processor (ms)", "memory (MB)",
                ],
                [shown(rows[-1], way) for way in (WAITED, BESIDE)],
            )  # fmt: skip
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
