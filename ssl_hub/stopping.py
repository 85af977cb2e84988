"""Signals that ask a process to stop: a run notes them and saves, anything else ends, and workers leave it to both.

Schedulers, launchers and Ctrl-C signal whole process groups, often more than once. So one process decides, those that
work for it do not listen, and an end that has begun is not interrupted by the next signal.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait
from types import FrameType
from typing import Any, Self

# SIGUSR1 is what Slurm's --signal=USR1@SECONDS sends; Windows has SIGBREAK in its place.
ENDING = tuple(signal.Signals[name] for name in ("SIGTERM", "SIGUSR1", "SIGBREAK") if hasattr(signal, name))
STOPPING = (*ENDING, signal.SIGINT)
REQUEUE = 75  # sysexits' EX_TEMPFAIL, "try again"


class Interrupted(SystemExit):
    """Raised after a signal; exits with :data:`REQUEUE`. ``line`` is what is still to be said of it."""

    def __init__(self, line: str | None = None) -> None:
        super().__init__(REQUEUE)
        self.line = line


def _end(number: int, frame: FrameType | None) -> None:
    disregard()
    raise Interrupted(f"stopped by {signal.Signals(number).name}; start it again to go on")


def _pass(number: int, frame: FrameType | None) -> None:
    """Not SIG_IGN, which processes started from here would inherit."""


def _restore(handlers: dict[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: it was set outside Python


def disregard() -> None:
    """Take no notice of more of :data:`ENDING`: what has begun to end keeps its exit code. Ctrl-C still acts."""
    for number in ENDING:
        signal.signal(number, _pass)


@contextmanager
def interruptible() -> Iterator[None]:
    """Context that a first of :data:`ENDING` ends with :class:`Interrupted`, as Ctrl-C does with KeyboardInterrupt.

    Inside of it a :class:`StopSignal` takes the signals over. Outside the main thread, and in another one of these,
    nothing changes.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) in (_end, _pass):
        yield
        return
    previous = {number: signal.signal(number, _end) for number in ENDING}
    try:
        yield
    finally:
        _restore(previous)


class StopSignal:
    """Context in which a first signal of :data:`STOPPING` is noted, and makes this true; a second Ctrl-C interrupts.

    One that nobody has acted on when the context ends goes to :func:`interruptible`, where there is one around it.
    """

    def __init__(self) -> None:
        self._received: int | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        _NOTING.append(self)
        if threading.current_thread() is threading.main_thread():  # else signals stay with whoever runs us
            self._previous = {number: signal.signal(number, self._note) for number in STOPPING}
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        _NOTING.remove(self)
        _restore(self._previous)
        if self._received is not None and self._previous[signal.SIGTERM] is _end:
            if kind is None:
                signal.raise_signal(self._received)
            disregard()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._received = number

    def __bool__(self) -> bool:
        return self._received is not None


_NOTING: list[StopSignal] = []


def is_noted() -> bool:
    """Whether a :class:`StopSignal` has noted a signal that nobody has acted on: what waits need not wait longer."""
    return any(_NOTING)


@contextmanager
def deferred() -> Iterator[None]:
    """Context in which signals wait for its end; processes that are started in it are born with them blocked.

    Blocking alone would not make them wait: another thread of this process may take a signal, and Python then runs its
    handler here.
    """
    if sys.platform != "win32":
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    arrived: list[int] = []
    handlers: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {number: signal.signal(number, lambda n, _: arrived.append(n)) for number in STOPPING}
    try:
        yield
    finally:
        _restore(handlers)
        if sys.platform != "win32":
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for number in arrived:
            signal.raise_signal(number)


def start_tracker() -> None:
    """Start the process that multiprocessing's forkserver and spawn need, which unblocks signals where it is started.

    Inside :func:`deferred` it would do so under the workers that follow; and SIGUSR1 alone it does not block itself.
    """
    if multiprocessing.get_start_method() != "fork":
        from multiprocessing import resource_tracker

        with deferred():
            resource_tracker.ensure_running()


def end_with_parent(number: int) -> None:
    """Have the kernel send ``number`` to this process when the thread that started it ends. Linux only."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, number)


def serve() -> None:
    """In a worker process: signals are not for it, and it ends with the process that it works for, at once.

    Torch's workers look every few seconds whether that is still there, but not while they wait to hand over a batch.
    """
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None
    if multiprocessing.get_start_method() != "fork":  # the one that the kernel knows may be the fork server
        threading.Thread(target=_end_after, args=(parent.sentinel,), daemon=True).start()
        return
    if sys.platform != "win32":  # which never forks
        end_with_parent(signal.SIGKILL)
    if os.getppid() != parent.pid:
        os._exit(1)  # it has ended before the kernel was asked


def _end_after(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
