"""The processes of a run act alike: they agree on flags, wait for the main one however long it takes, and end together.

A collective cannot do the last two: it has a time-out, and one that a process never comes to holds the others where no
Python runs. So the processes also meet at a store, which the main one keeps: a process that fails says so there, and a
thread of each of the others looks twice a second.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch import Tensor, nn
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from ssl_hub.errors import UsageError
from ssl_hub.stopping import REQUEUE, Interrupted, disregard
from ssl_hub.train.answers import Answers
from ssl_hub.train.writing import writing

LOOK_SECONDS = 0.5
GRACE_SECONDS = 10.0  # in which a process that knows of a failure is to end by itself
FAILED, KNOW, LEFT = "failed", "know", "left"  # keys of the store
_GONE = re.compile(r"closed by peer|connection reset|broken pipe|timed out", re.IGNORECASE)  # gloo's words
_meetings: list[Meeting] = []  # at most one: a process is in one run at a time


class Alike(Exception):
    """An end that all processes come to by themselves, and need not be told of."""


def agreed(accelerator: Accelerator, flags: Sequence[bool]) -> list[bool]:
    """Each flag as true everywhere if it is true anywhere, in one small collective: processes must act alike."""
    if accelerator.num_processes == 1:
        return list(flags)
    return [value > 0 for value in _summed(accelerator, flags).tolist()]


class Agreement:
    """:func:`agreed` at every step of a run. With ``late``, where work is queued, no step waits for the answer: several
    processes act on a flag one step after it was raised. One process has nothing to wait for."""

    def __init__(self, accelerator: Accelerator, flags: int, *, late: bool) -> None:
        self._accelerator, self._flags = accelerator, flags
        self._answers = Answers(accelerator.device, flags) if late and accelerator.num_processes > 1 else None

    def __call__(self, flags: Sequence[bool]) -> list[bool]:
        assert len(flags) == self._flags, f"{len(flags)} flags, expected {self._flags}"
        if self._answers is None:
            return agreed(self._accelerator, flags)
        before = self._answers.read()
        self._answers.ask(_summed(self._accelerator, flags))
        return [value > 0 for value in before or [0.0] * self._flags]


def _summed(accelerator: Accelerator, flags: Sequence[bool]) -> Tensor:
    """How many processes have raised each flag. Collective."""
    raised = torch.zeros(len(flags), device=accelerator.device)
    for place, flag in enumerate(flags):
        if flag:  # not made of Python's numbers: an upload would have the host wait
            raised[place].fill_(1)
    return accelerator.reduce(raised, reduction="sum")


@torch.no_grad()
def same_buffers(model: nn.Module, accelerator: Accelerator) -> None:
    """Give all processes the main one's buffers, as they are saved. Collective.

    BN that is not synchronised gathers statistics of its own on each process, until the next step's forward pass: what
    processes measure together before that would be several models.
    """
    if accelerator.num_processes > 1:
        for buffer in model.buffers():
            dist.broadcast(buffer, 0)


def on_main(accelerator: Accelerator, act: Callable[[], object]) -> None:
    """Act on the main process while the others wait, however long. Raises its UsageError on all of them.

    Anything else that it raises ends the others too, where they are :func:`together`.
    """
    if accelerator.num_processes == 1:
        act()
    elif _meetings:
        _meetings[-1].on_main(act)
    else:
        complaint = [_complaint(act) if accelerator.is_main_process else None]
        broadcast_object_list(complaint)
        if complaint[0] is not None:
            raise UsageError(complaint[0])


def _complaint(act: Callable[[], object]) -> str | None:
    try:
        act()
    except UsageError as error:
        return str(error)
    return None


@contextmanager
def together(accelerator: Accelerator) -> Iterator[None]:
    """Context that the processes of a run leave together: an error or a signal that ends one of them ends all.

    All raise the UsageError or Interrupted of the one that failed first; of another error, the others raise a
    UsageError that names it. One that hangs in a collective is ended from its thread. Collective at its start and end.
    """
    if accelerator.num_processes == 1 or _meetings or dist.get_backend() == "fake":
        yield
        return
    meeting, alike = Meeting(accelerator), None
    _meetings.append(meeting)
    try:
        try:
            yield
        except Alike as end:
            alike = end
        meeting.part()
    except BaseException as error:
        meeting.fail(error)
    finally:
        meeting.end()
        _meetings.remove(meeting)
    if alike is not None:
        raise alike


class Meeting:
    """The store at which the processes of a run meet, and the thread that looks there for failures of the others."""

    def __init__(self, accelerator: Accelerator) -> None:
        self.rank, self.world = accelerator.process_index, accelerator.num_processes
        self.failure: dict[str, Any] | None = None  # that counts for all
        self.over = threading.Event()
        self._lock = threading.RLock()
        self._acts = 0
        served = _opened(0) if self.rank == 0 else None
        port = [0 if served is None else served.port]
        broadcast_object_list(port)
        self._store = served or _opened(port[0])
        self._thread = threading.Thread(target=self._watch, args=(self._store.clone(),), daemon=True)
        self._thread.start()

    def on_main(self, act: Callable[[], object]) -> None:
        """See the function of that name."""
        self._acts += 1
        key = f"act {self._acts}"
        if self.rank == 0:
            complaint = _complaint(act) or ""
            self._store.set(key, complaint)
        else:
            self._wait_until(lambda: self._store.check([key]))
            complaint = self._store.get(key).decode()
        if complaint:
            raise UsageError(complaint)

    def part(self) -> None:
        """Leave a run that went well. The main process, which keeps the store, is the last."""
        if self.rank == 0:
            self._wait_until(lambda: self._store.add(LEFT, 0) == self.world - 1)
        else:
            self.end()
            self._store.add(LEFT, 1)

    def end(self) -> None:
        """End the thread. Where a process exits while one is inside the store, C++ ends it with SIGABRT."""
        self.over.set()
        self._thread.join(GRACE_SECONDS)

    def fail(self, error: BaseException) -> NoReturn:
        """Tell the others of an error, unless another's came first, and raise what all of them raise.

        A launcher signals those that are left as soon as one has ended: that signal is not why they end.
        """
        if threading.current_thread() is threading.main_thread():
            disregard()
        try:
            first = self._know(json.loads(self._store.compare_set(FAILED, "", json.dumps(_told(error, self.rank)))))
            until = time.monotonic() + GRACE_SECONDS
            while self.rank == 0 and not self._all_know() and time.monotonic() < until:
                time.sleep(0.05)  # nobody finds the store gone before all have read why
        except dist.DistError:
            first = self._know(LOST)
        signalled = isinstance(error, (Interrupted, KeyboardInterrupt))
        if first["rank"] == self.rank or (signalled and first["kind"] == "signal"):
            raise _in_words(error)
        raise _raised(first) from None

    def _all_know(self) -> bool:
        known: int = self._store.add(KNOW, 0) + self._store.add(LEFT, 0)
        return known >= self.world

    def _know(self, failure: dict[str, Any]) -> dict[str, Any]:
        """Take note of the failure that counts for all, once, and let them know that this process does.

        Only the main process looks at the store after that: it may be gone.
        """
        with self._lock:
            if self.failure is None:
                self.failure = failure
                if failure is not LOST:
                    self._store.add(KNOW, 1)
            return self.failure

    def _watch(self, store: Any) -> None:
        """The thread of a process: from the failure of another on, it has a grace to end by itself, once a checkpoint
        that is being written is whole."""
        while not self.over.wait(LOOK_SECONDS):
            with self._lock:
                try:
                    if self.failure is None and not store.check([FAILED]):
                        continue
                    failure = self.failure or self._know(json.loads(store.get(FAILED)))
                except dist.DistError:
                    failure = self._know(LOST)
            writing.join()
            if not self.over.wait(2 * GRACE_SECONDS):
                error = _raised(failure)
                if self.rank == 0:
                    print(f"error: {error}", file=sys.stderr, flush=True)
                os._exit(REQUEUE if isinstance(error, Interrupted) else 2)
            return

    def _wait_until(self, arrived: Callable[[], bool]) -> None:
        pause = 0.001
        while self.failure is None:
            try:
                if arrived():
                    return
            except dist.DistError:  # the store is gone, which the thread finds out
                pass
            time.sleep(pause)  # not in the store, where a signal would have to wait
            pause = min(2 * pause, 0.1)
        raise _raised(self.failure)


LOST: dict[str, Any] = {"rank": 0, "kind": "error", "line": "it has ended without a word"}


def _opened(port: int) -> Any:
    """The store of the main process at ``port``; 0 opens it there, at a free one. Its port is ``store.port``."""
    return TCPStore(os.environ["MASTER_ADDR"], port, is_master=port == 0, wait_for_workers=False)


def _told(error: BaseException, rank: int) -> dict[str, Any]:
    """What the other processes are told of an error of this one."""
    error = _in_words(error)
    if isinstance(error, (Interrupted, KeyboardInterrupt)):
        return {"rank": rank, "kind": "signal", "line": ""}
    if isinstance(error, UsageError):
        return {"rank": rank, "kind": "usage", "line": str(error)}
    first = (str(error).splitlines() or [""])[0]
    return {"rank": rank, "kind": "error", "line": f"{type(error).__name__}: {first}"}


def _raised(failure: dict[str, Any]) -> BaseException:
    """What a process raises that is told of this failure of another."""
    if failure["kind"] == "signal":
        return Interrupted(f"stopped by a signal to process {failure['rank']}; start it again to go on")
    if failure["kind"] == "usage":
        return UsageError(failure["line"])
    return UsageError(f"process {failure['rank']} failed: {failure['line']}; all processes end with it")


def _in_words(error: BaseException) -> BaseException:
    """The error, or a UsageError where a collective says that a process is no longer there."""
    if isinstance(error, RuntimeError) and _GONE.search(str(error)):
        first = re.sub(r"^\[[^\]]*\] |\. This is typically.*", "", str(error).splitlines()[0])
        return UsageError(f"a process has ended without a word, or does not answer ({first}); all end with it")
    return error
