"""What the host learns of a device a step late, so that it does not wait for all the work that it has asked for."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ssl_hub.model.devices import can_pin


class Answers:
    """A few numbers on a device, on their way to the host: asked for after one step, read after the next.

    By then the device has come to them, and still has the step since then to do.
    """

    def __init__(self, device: torch.device, count: int) -> None:
        pinned = can_pin(device)
        self._here = [torch.zeros(count, pin_memory=pinned) for _ in range(2)]
        self._views = [here.numpy() for here in self._here]  # of the same memory; to look at it is no operation
        self._arrived = None if device.type == "cpu" else [torch.Event(device.type) for _ in range(2)]
        self._turn, self.asked = 0, False

    def ask(self, numbers: Tensor) -> None:
        """Send ``numbers`` [count], float32 on the device; what was asked for before must have been read."""
        assert not self.asked, "read() comes first"
        self._turn, self.asked = 1 - self._turn, True
        self._here[self._turn].copy_(numbers, non_blocking=True)
        if self._arrived is not None:
            self._arrived[self._turn].record()

    def read(self) -> Sequence[float] | None:
        """What was asked for last, once; waits until it is there. None where nothing is on its way."""
        if not self.asked:
            return None
        if self._arrived is not None:
            self._arrived[self._turn].synchronize()
        self.asked = False
        return [float(value) for value in self._views[self._turn]]
