"""Stopping a run: signals are noted, all processes stop alike, and the exit code is one to requeue on."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Self

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list

from ssl_hub.errors import UsageError

REQUEUE = 75  # sysexits' EX_TEMPFAIL, "try again"


class Interrupted(SystemExit):
    """Raised after a signal, once the run is saved; exits with :data:`REQUEUE`."""

    def __init__(self) -> None:
        super().__init__(REQUEUE)


class StopSignal:
    """Context in which a first SIGTERM or SIGINT is noted, and makes this true; a second SIGINT interrupts at once."""

    def __init__(self) -> None:
        self._received = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                self._previous[number] = signal.signal(number, self._note)
        except ValueError:
            pass  # not the main thread: signals stay with whoever runs us
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._received and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._received = True

    def __bool__(self) -> bool:
        return self._received


def agreed(accelerator: Accelerator, flags: Sequence[bool]) -> list[bool]:
    """Each flag as true everywhere if it is true anywhere, in one small collective: processes must act alike."""
    if accelerator.num_processes == 1:
        return list(flags)
    total = accelerator.reduce(torch.tensor(flags, dtype=torch.float32, device=accelerator.device), reduction="sum")
    return [value > 0 for value in total.tolist()]


def on_main(accelerator: Accelerator, act: Callable[[], object]) -> None:
    """Act on the main process while the others wait. Raises its UsageError on all of them: none waits for ever."""
    failure: list[UsageError | None] = [None]
    if accelerator.is_main_process:
        try:
            act()
        except UsageError as error:
            failure = [error]
    broadcast_object_list(failure)
    if failure[0] is not None:
        raise failure[0]
