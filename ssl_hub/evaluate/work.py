"""How an evaluation is carried out, none of which changes a result beyond rounding."""

from __future__ import annotations

import sys
from typing import NamedTuple

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast


class Work(NamedTuple):
    """Images at a time, decoding processes, device, processes that share the work, and whether to say how far it is."""

    batch_size: int = 256  # images that go through the backbone at a time, on one process
    workers: int = 4
    device: torch.device = torch.device("cpu")
    accelerator: Accelerator | None = None
    show_progress: bool = False

    @property
    def rank(self) -> int:
        return 0 if self.accelerator is None else self.accelerator.process_index

    @property
    def world(self) -> int:
        return 1 if self.accelerator is None else self.accelerator.num_processes

    def titled(self, what: str) -> str | None:
        """``what`` where this process is to show progress, else None."""
        return what if self.show_progress and self.rank == 0 else None

    def say(self, what: str) -> None:
        """Print ``what`` on stderr where this process is to show progress."""
        if self.titled(what) is not None:
            print(what, file=sys.stderr)

    def summed(self, values: torch.Tensor) -> torch.Tensor:
        """The sum over processes, the same on all of them. Collective."""
        if self.accelerator is None or self.world == 1:
            return values
        total: torch.Tensor = self.accelerator.reduce(values, reduction="sum")
        return total

    def of_first(self, values: torch.Tensor) -> torch.Tensor:
        """The values of process 0, on all: for what would be decided otherwise where a processor rounds otherwise.

        Collective.
        """
        if self.world == 1:
            return values
        first: torch.Tensor = broadcast(values.clone())
        return first


ALONE = Work()
"""On this process, on the CPU."""
