"""SIGTERM and SIGINT: finish the step, save, and leave with a code that a scheduler can requeue on."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any, Self

import torch
from accelerate import Accelerator

REQUEUE = 75  # sysexits' EX_TEMPFAIL, "try again"


class Interrupted(SystemExit):
    """Raised after a signal, once the run is saved; exits with :data:`REQUEUE`."""

    def __init__(self) -> None:
        super().__init__(REQUEUE)


class StopSignal:
    """Context in which a first SIGTERM or SIGINT is noted rather than obeyed; a second SIGINT interrupts at once."""

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

    def anywhere(self, accelerator: Accelerator) -> bool:
        """Whether any process was signalled. Collective: all processes stop after the same step."""
        if accelerator.num_processes == 1:
            return self._received
        flag = torch.tensor([float(self._received)], device=accelerator.device)
        return bool(accelerator.reduce(flag, reduction="sum").item() > 0)
