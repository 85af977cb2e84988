"""What saving a run costs its training: a checkpoint that is waited for against one that is written beside the steps.

python benchmarks/checkpoint_share.py
python benchmarks/checkpoint_share.py --recipe byol-r50-300ep --rounds 3

Real trainers on random views of 32 px, in one process. Each round saves both ways and takes the same steps after it, in
turns that each begin with the other. *Blocked* is how long the call that saves keeps the steps waiting, by the wall's
clock and in processor time of the training thread; *share* is that of the wall's time from the save to the end of the
steps and of the write. *In all* is the processor time of a save without steps, until it is whole, with that of the
writing thread. Memory is the peak of such a save over what was there before.
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
SIZE, BATCH, MEGABYTE = 32, 16, 2**20
WAITED, BESIDE = "waited for", "beside"


class Run:
    """A trainer whose optimiser has its state, and a folder for its checkpoints."""

    def __init__(self, name: str, folder: Path) -> None:
        recipe = ssl_hub.get_recipe(name)
        self.folder, self.accelerator = folder, Accelerator(cpu=True)
        self.trainer = Trainer(build(recipe), recipe.optim, self.accelerator, lr=1e-3, total_steps=10**6)
        self.views = torch.randn(2, BATCH, 3, SIZE, SIZE)
        self.steps(2)

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.trainer.advance([tuple(self.views)])

    def save(self, *, last: bool) -> None:
        checkpoint.save(self.folder, self.trainer.state_dict(), self.accelerator, keep=1, last=last)

    def round(self, way: str, steps: int) -> dict[str, float]:
        began, busy = time.perf_counter(), time.thread_time()
        self.save(last=way == WAITED)
        blocked = {"wall": time.perf_counter() - began, "cpu": time.thread_time() - busy}
        self.steps(steps)
        writing.wait()  # for what the steps did not cover
        whole, all_threads = time.perf_counter() - began, time.process_time()
        self.alone(way)
        return {**blocked, "whole": whole, "in_all": time.process_time() - all_threads}

    def alone(self, way: str) -> None:
        self.save(last=way == WAITED)
        writing.wait()

    def megabytes(self) -> float:
        (newest,) = checkpoint.existing(self.folder)
        return newest.stat().st_size / MEGABYTE


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


def measure(name: str, folder: Path, rounds: int) -> dict[str, Any]:
    run = Run(name, folder)
    began = time.perf_counter()
    run.steps(2)
    step = (time.perf_counter() - began) / 2
    began = time.perf_counter()
    run.save(last=True)
    steps = 1 + int(1.5 * (time.perf_counter() - began) / step)  # enough to cover the write
    order = [WAITED, BESIDE]
    memory = {way: peak_over(lambda way=way: run.alone(way)) for way in order}
    found: dict[str, list[dict[str, float]]] = {way: [] for way in order}
    for _ in range(rounds):
        order.reverse()
        for way in order:
            found[way].append(run.round(way, steps))
    return {"recipe": name, "megabytes": run.megabytes(), "steps": steps, "memory": memory, "rounds": found}


def shown(row: dict[str, Any], way: str) -> list[Any]:
    rounds = row["rounds"][way]
    blocked, cpu, in_all = (1e3 * statistics.median(one[what] for one in rounds) for what in ("wall", "cpu", "in_all"))
    share = 100 * statistics.median(one["wall"] / one["whole"] for one in rounds)
    return [row["recipe"], row["megabytes"], way, row["steps"], blocked, cpu, share, in_all, row["memory"][way]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", nargs="+", default=list(RECIPES))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=Path, help="write on this disk (default: that of temporary files)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory(dir=arguments.output) as folder:
        for name in arguments.recipe:
            rows.append(measure(name, Path(folder) / name, arguments.rounds))
    print(f"\nA save and the steps after it, medians of {arguments.rounds} rounds; {machine()}\n")
    print_table(
        [
            "recipe", "MB", "save", "steps", "blocked, wall (ms)", "blocked, processor (ms)", "share (%)",
            "in all, processor (ms)", "memory (MB)",
        ],
        [shown(row, way) for row in rows for way in (WAITED, BESIDE)],
    )  # fmt: skip
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
