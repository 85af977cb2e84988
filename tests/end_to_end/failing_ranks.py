"""A short run on several processes, on one of which something goes wrong; see test_together.

RANK=1 LOCAL_RANK=1 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29500 python failing_ranks.py CASE RUN

Ranks are started by hand, so that no launcher ends the others.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
from accelerate import Accelerator, InitProcessGroupKwargs

from ssl_hub.cli import main
from ssl_hub.errors import UsageError
from ssl_hub.evaluate import features
from ssl_hub.train import checkpoint, loop, outcome, step, together

RANK = int(os.environ.get("RANK", 0))
TIMEOUT, LONG, HANG = 5.0, 12.0, 120.0  # seconds: of collectives, where they are short; others that take longer
SETTINGS = [
    "train.max_steps=4", "runtime.log_every_steps=1", "runtime.checkpoint_every_epochs=1", "runtime.knn_k=5",
    "--resume", "auto",
]  # fmt: skip


def failing(rank: int, error: BaseException, real: Callable[..., Any], at: int = 1) -> Callable[..., Any]:
    """``real``, which raises on one rank at its ``at``-th call."""
    calls = [0]

    def call(*arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        if rank == RANK and calls[0] == at:
            raise error
        return real(*arguments, **options)

    return call


def data() -> None:
    """An image that cannot be read, while the other waits for gradients."""
    step.Trainer.advance = failing(1, UsageError("cannot read photo 7.jpg"), step.Trainer.advance, 2)


def launched() -> None:
    """The same, and a launcher signals the main process when the other has ended."""
    step.Trainer.advance = failing(1, UsageError("cannot read photo 7.jpg"), step.Trainer.advance, 2)
    together.Meeting._all_know = _signalled(together.Meeting._all_know)


def started() -> None:
    """The same before the first step, where a signal ends a process at once."""
    step.Trainer.__init__ = failing(1, UsageError("cannot read photo 7.jpg"), _signalled(step.Trainer.__init__, 1.5))


def _signalled(real: Callable[..., Any], after: float = 0) -> Callable[..., Any]:
    """``real``, to which the main process comes with a SIGTERM."""

    def call(*arguments: Any, **options: Any) -> Any:
        if RANK == 0:
            time.sleep(after)
            os.kill(os.getpid(), signal.SIGTERM)
        return real(*arguments, **options)

    return call


def bug() -> None:
    """The same with an error that nobody foresaw, in the middle of a step."""
    real = torch.Tensor.backward
    torch.Tensor.backward = failing(1, KeyError("width"), real, 2)


def save() -> None:
    """A disk that is full when the main process saves."""
    checkpoint.replace_file = failing(0, UsageError("cannot write step-4.pt: No space left on device"), None)


def save_bug() -> None:
    """The main process fails in a save in a way that nobody foresaw."""
    checkpoint.replace_file = failing(0, RuntimeError("no such operator"), None)


def slow_save() -> None:
    """One process fails while the main one writes a checkpoint, which takes longer than the grace to end in."""
    SETTINGS.append("runtime.checkpoint_minutes=0")
    together.GRACE_SECONDS = 0.2
    checkpoint.replace_file = _after(0, 3.0, checkpoint.replace_file)
    step.Trainer.advance = failing(1, UsageError("cannot read photo 7.jpg"), step.Trainer.advance, 2)


def probe() -> None:
    """The main process fails in the last probe, with the others waiting for it."""
    outcome.linear_probe = failing(0, ZeroDivisionError("division by zero"), None)


def extract() -> None:
    """One process fails in its share of an evaluation."""
    real = features._share_of_features
    features._share_of_features = failing(1, UsageError("cannot read photo 9.jpg"), real)


def term() -> None:
    """One process alone is told to stop, when training is done and the probe begins."""

    def call(*arguments: Any, **options: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return real(*arguments, **options)

    real = loop.measure
    if RANK == 1:
        loop.measure = call


def gone() -> None:
    """One process ends without a word, while the other waits for gradients."""
    if RANK == 1:
        step.Trainer.advance = lambda *_: os.kill(os.getpid(), signal.SIGKILL)


def stuck() -> None:
    """One process never comes to a collective, which has a time-out."""
    step.Trainer.advance = _after(1, HANG, step.Trainer.advance)


def nothing() -> None:
    """All goes well."""


def looking() -> None:
    """All goes well, and whenever a thread looks for failures, the store takes a second to answer."""
    real = together.TCPStore.check

    def slow(store: Any, keys: list[str]) -> bool:
        if threading.current_thread() is not threading.main_thread():
            with suppress(torch.distributed.DistStoreError):
                store.wait(["never"], timedelta(seconds=1))
        return bool(real(store, keys))

    together.TCPStore.check = slow


def long() -> None:
    """The main process probes for longer than a collective may take."""
    outcome.linear_probe = _after(0, LONG, outcome.linear_probe)


def _after(rank: int, seconds: float, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        time.sleep(seconds if rank == RANK else 0)
        return real(*arguments, **options)

    return call


if __name__ == "__main__":
    case, run = sys.argv[1:]
    if case in ("long", "stuck"):  # accelerate keeps the process group of its first object
        Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(seconds=TIMEOUT))])
    globals()[case]()
    raise SystemExit(main(["directpred-digits", *SETTINGS, "--output", run], launcher="train"))
