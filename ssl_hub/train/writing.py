"""What is written beside training: a copy of the state, by one thread, while the steps go on.

A write ends in a rename, so what stood there before stays until the new file is whole, and what is due next waits for
it: at most one is under way, and one copy in memory. Every end of a run waits too (:func:`ssl_hub.train.run.held`). The
thread touches the CPU's memory and files alone: collectives, and the device, are the main thread's.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ssl_hub.model.devices import can_pin, is_queued
from ssl_hub.stopping import deferred


@torch.no_grad()
def copied(state: Any) -> Any:
    """The same dictionaries, lists, tuples and tensors anew, on the CPU: what happens to the state does not show there.

    From an accelerator into pinned memory. The host waits once, for all tensors.
    """
    devices: set[torch.device] = set()
    copy = _copied(state, devices)
    for device in filter(is_queued, devices):
        torch.accelerator.synchronize(device)
    return copy


def _copied(value: Any, devices: set[torch.device]) -> Any:
    if isinstance(value, Tensor):
        devices.add(value.device)
        pinned = can_pin(value.device)
        return torch.empty_like(value, device="cpu", pin_memory=pinned).copy_(value, non_blocking=pinned)
    if isinstance(value, dict):
        return {key: _copied(inner, devices) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_copied(inner, devices) for inner in value)
    return value  # a number or text


class Beside:
    """One act at a time in a thread of its own, which ends with it.

    The thread keeps no process from exiting: who is to wait for it does so here. (An executor's would, and would stay
    when there is nothing to do.)
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def begin(self, act: Callable[[], object]) -> None:
        """Start an act. The one before must have been waited for."""
        assert self._thread is None, "wait() comes first"
        self._thread = threading.Thread(target=self._run, args=(act,), name="writing", daemon=True)
        with deferred():  # the kernel may hand a signal to any thread that takes it: this one is born without
            self._thread.start()

    def _run(self, act: Callable[[], object]) -> None:
        try:
            act()
        except BaseException as error:  # the training thread's to raise
            self._error = error

    def join(self) -> None:
        """Return when no act is under way."""
        if (thread := self._thread) is not None:
            thread.join()

    def ended(self) -> BaseException | None:
        """:meth:`join`, and what the act raised, once."""
        self.join()
        self._thread, error, self._error = None, self._error, None
        return error

    def wait(self) -> None:
        """:meth:`join`. Raises what the act raised, once."""
        if (error := self.ended()) is not None:
            raise error


writing = Beside()  # of this process, which is in one run at a time
# A process is forked, as workers are, when no write is under way: a lock that its thread held would stay held in the
# child for ever, and the file that it writes open. Processes that are spawned do not come here.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=writing.join)
