"""What a training step spends its time on, and the share that is not forward or backward.

python benchmarks/step_cost.py
python benchmarks/step_cost.py --recipe directpred-digits --steps 200

The real run, prepared and journalled as ``ssl_hub.pretrain`` does it, with a clock around each part. Readings for the
log cost the same whenever they are taken, so they are taken at every step and counted at the recipe's own interval; a
checkpoint is saved once and counted likewise. Overhead is everything but forward, backward and the optimiser's step,
views aside, which are reported as data.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ssl_hub
from ssl_hub.data.images import Source
from ssl_hub.data.sources import SOURCES
from ssl_hub.data.stored import Pixels
from ssl_hub.train.journal import Journal
from ssl_hub.train.prepare import Job, prepare
from ssl_hub.train.together import agreed

CIFAR_IMAGES = 50_000
RECIPES = {"directpred-r18-cifar10-100ep": 4, "directpred-digits": 100}  # and how many steps to time


@SOURCES.register("noise-32")
def noise(split: str) -> Source:
    """Images of CIFAR's size."""
    pixels = np.random.default_rng(0).integers(0, 256, (4096, 32, 32, 3), dtype=np.uint8)
    return Source("noise-32", split, Pixels(pixels))


class Clock:
    """Seconds spent in each named part of the step that is open; nested parts count for themselves alone."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now, self.steps = now, list[dict[str, float]]()
        self._open: list[float] = []

    def timed(self, part: str, action: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            self._open.append(0.0)
            began = self.now()
            try:
                return action(*arguments, **options)
            finally:
                whole = self.now() - began
                inside = self._open.pop()
                if self._open:
                    self._open[-1] += whole
                if self.steps:
                    self.steps[-1][part] = self.steps[-1].get(part, 0.0) + whole - inside

        return wrapped

    def wrap(self, owner: Any, name: str, part: str) -> None:
        setattr(owner, name, self.timed(part, getattr(owner, name)))

    def waits(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The same, with the time until each micro-batch is there counted as data."""
        take = self.timed("data", lambda source: next(source, None))
        while (pair := take(batches)) is not None:
            yield pair

    def median(self, part: str) -> float:
        return statistics.median(step.get(part, 0.0) for step in self.steps)


def instrument(clock: Clock, job: Job, journal: Journal) -> None:
    trainer = job.trainer
    clock.wrap(trainer, "advance", "rest of the step")  # what is in none of the others
    clock.wrap(trainer.model, "forward", "forward")
    clock.wrap(job.accelerator, "backward", "backward")
    clock.wrap(trainer.optimizer, "step", "optimiser")
    clock.wrap(trainer.siamese.predictor, "observe", "predictor")
    clock.wrap(trainer.siamese.predictor, "refresh", "predictor")
    clock.wrap(trainer.siamese.target, "update", "EMA")
    clock.wrap(journal, "after_step", "monitor and log")


def measure(
    name: str,
    steps: int,
    batch_size: int | None,
    warmup_steps: int,
    folder: Path,
    now: Callable[[], float],
    data_name: str | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Seconds and shares of each part of a step; ``data_name`` instead of noise, ``settings`` of the run time."""
    recipe = ssl_hub.get_recipe(name)
    runtime = replace(recipe.runtime, log_every_steps=1, knn_every_epochs=0, **settings)
    train = replace(recipe.train, max_steps=steps + warmup_steps, batch_size=batch_size or recipe.train.batch_size)
    builtin = recipe.data.name in SOURCES
    data = recipe.data if builtin else replace(recipe.data, name=data_name or "noise-32")
    began = now()
    setup = replace(recipe, runtime=runtime, train=train, data=data)
    with prepare(setup, folder, resume=False, overwrite=False, allow_change=()) as job:
        preparing = now() - began
        journal, clock = Journal(job), Clock(now)
        instrument(clock, job, journal)
        for done, micro_batches in enumerate(job.batches()):
            if done >= warmup_steps:
                clock.steps.append({})
            report = job.trainer.advance(clock.waits(micro_batches))
            journal.after_step(report)
            agreed(job.accelerator, [False, False, False])
        journal.close()
        began = now()
        job.save(last=True)  # written here: all of its cost
        saving = now() - began
    steps_per_epoch = job.loader.steps_per_epoch if builtin else CIFAR_IMAGES // train.batch_size
    parts = {part: clock.median(part) for part in sorted({part for step in clock.steps for part in step})}
    reading = parts.pop("monitor and log")
    parts["monitor and log"] = reading / recipe.runtime.log_every_steps
    parts["checkpoint"] = saving / (steps_per_epoch * recipe.runtime.checkpoint_every_epochs)
    total = sum(parts.values())
    work = sum(parts[part] for part in ("forward", "backward", "optimiser"))
    return {
        "recipe": name,
        "batch": train.batch_size,
        "steps": len(clock.steps),
        "threads": torch.get_num_threads(),
        "step_ms": 1e3 * total,
        "parts_ms": {part: 1e3 * seconds for part, seconds in sorted(parts.items(), key=lambda item: -item[1])},
        "reading_ms": 1e3 * reading,
        "preparing_s": preparing,
        "outside_share": (total - parts["forward"] - parts["backward"]) / total,
        "data_share": parts["data"] / total,
        "overhead_share": (total - work - parts["data"]) / total,
        "overhead_share_logging_every_step": (total - work - parts["data"] - parts["monitor and log"] + reading)
        / total,
    }


def show(row: dict[str, Any]) -> None:
    print(f"\n{row['recipe']}, batch {row['batch']}, {row['threads']} thread(s), {row['steps']} steps, medians\n")
    print("| part | ms | share (%) |\n|---|---|---|")
    for part, milliseconds in row["parts_ms"].items():
        print(f"| {part} | {milliseconds:.3f} | {100 * milliseconds / row['step_ms']:.2f} |")
    print(f"| step | {row['step_ms']:.2f} | 100 |")
    print(
        f"\noverhead {100 * row['overhead_share']:.2f} % (with a reading at every step"
        f" {100 * row['overhead_share_logging_every_step']:.2f} %), data {100 * row['data_share']:.2f} %"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", nargs="+", default=list(RECIPES), help="on small images")
    parser.add_argument("--steps", type=int, help="to time")
    parser.add_argument("--warmup-steps", type=int, default=2)
    parser.add_argument("--batch-size", type=int, help="default: the recipe's")
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="of this process instead of the wall's: with one thread, on a busy machine",
    )
    arguments = parser.parse_args()
    now = time.process_time if arguments.cpu_time else time.perf_counter
    rows = []
    for name in arguments.recipe:
        with tempfile.TemporaryDirectory() as folder:
            steps = arguments.steps or RECIPES.get(name, 20)
            run = Path(folder) / "run"
            rows.append(measure(name, steps, arguments.batch_size, arguments.warmup_steps, run, now))
        show(rows[-1])
    print("\n" + json.dumps(rows))


if __name__ == "__main__":
    main()
