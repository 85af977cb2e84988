"""A run that is ready to train: where it stands, what each step gets, and its checkpoints."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from accelerate import Accelerator
from accelerate.utils import gather_object

from ssl_hub.config import Recipe
from ssl_hub.data.loaders import Loader
from ssl_hub.errors import UsageError
from ssl_hub.train import checkpoint, run
from ssl_hub.train.monitor import Monitor
from ssl_hub.train.outcome import AccuracyMonitor
from ssl_hub.train.step import Trainer

T = TypeVar("T")


class Stopwatch:
    """Seconds that passed inside iterators, since they were last taken."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def over(self, items: Iterable[T]) -> Iterator[T]:
        """The same items; the time until each is there counts."""
        iterator = iter(items)
        while True:
            started = time.perf_counter()
            try:
                item = next(iterator)
            except StopIteration:
                return
            finally:
                self._seconds += time.perf_counter() - started
            yield item

    def take(self) -> float:
        """The seconds so far; counting starts again at zero."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds


@dataclass(frozen=True)
class Job:
    """A run that is ready to train."""

    recipe: Recipe
    folder: Path
    accelerator: Accelerator
    loader: Loader
    trainer: Trainer
    monitor: Monitor
    accuracy: AccuracyMonitor
    facts: dict[str, Any]
    resumed: bool
    waiting: Stopwatch = field(default_factory=Stopwatch)  # for data

    @property
    def epoch(self) -> int:
        """The epoch that the last consumed batch belongs to, from 1."""
        return -(-self.trainer.position // self.loader.steps_per_epoch)

    @property
    def epochs(self) -> int:
        """The epoch that the run ends in where no step is skipped; ``train.max_steps`` may end it before the last."""
        return -(-self.trainer.total_steps // self.loader.steps_per_epoch)

    @property
    def at_epoch_end(self) -> bool:
        return self.trainer.position % self.loader.steps_per_epoch == 0

    @property
    def done(self) -> bool:
        trainer = self.trainer
        return trainer.step >= trainer.total_steps and not trainer.settle()  # the last step may have been skipped

    def batches(self) -> Iterator[Any]:
        """Micro-batches of each step, from where the trainer stands to its last step, over all epochs."""
        while not self.done:
            epoch, start = divmod(self.trainer.position, self.loader.steps_per_epoch)
            for micro_batches in self.loader.epoch(epoch, start):
                yield self.waiting.over(micro_batches)
                if self.done:
                    return

    def epoch_is(self, every: int) -> bool:
        """Whether this is the end of an epoch whose number ``every`` (0: none) divides."""
        return every > 0 and self.at_epoch_end and self.epoch % every == 0

    def bad_images(self) -> list[str]:
        """What was wrong with each unreadable image that any process met since the start. Collective."""
        mine = [] if self.loader.bad is None else list(self.loader.bad.found.values())
        return sorted(set(gather_object(mine)))

    def save(self, *, last: bool) -> bool:
        """Write a checkpoint of this step beside the next ones, or the ``last`` at once; whether a signal came
        meanwhile, and it is whole. Collective over processes."""
        runtime = self.recipe.runtime
        return run.save(
            self.folder,
            {**self.trainer.state_dict(), **self._of_each_process()},
            self.accelerator,
            keep=runtime.keep_checkpoints,
            permanent=self.epoch_is(runtime.keep_every_epochs),
            last=last,
        )

    def _of_each_process(self) -> dict[str, list[Any]]:
        """Collective."""
        bad = None if self.loader.bad is None else self.loader.bad.found
        states: list[Any] = gather_object([(self.loader.state(), self.monitor.state_dict(), bad)])
        data, monitors, bads = zip(*states, strict=True)
        return {"data": list(data), "monitor": list(monitors), "bad_images": list(bads)}

    def load(self) -> None:
        """Go on from the newest checkpoint, where there is one.

        Raises UsageError where it is not of this run, or has taken more steps than the run is to take.
        """
        state = checkpoint.restore(self.folder / run.CHECKPOINTS, self.trainer, self.accelerator)
        if state is None:
            return
        step, total = self.trainer.step, self.trainer.total_steps
        if step > total:
            raise UsageError(
                f"the run has taken {step} steps and is to take {total}; raise train.max_steps or train.epochs, or"
                " start another run with --output"
            )
        rank, processes = self.accelerator.process_index, self.accelerator.num_processes
        places = state.get("data", [])
        if any(places):  # of a stream, where each process reads its own part
            if len(places) != processes:
                raise UsageError(
                    f"the stream was read by {len(places)} processes and now by {processes}, which have no place in it"
                    f" to go on from; resume on {len(places)}"
                )
            self.loader.load_state(places[rank])
        if monitors := state.get("monitor"):
            self.monitor.load_state_dict(monitors[rank if len(monitors) == processes else 0])
        if self.loader.bad is not None and (bads := state.get("bad_images")):
            for found in [bads[rank]] if len(bads) == processes else bads:
                self.loader.bad.add(found or {})
