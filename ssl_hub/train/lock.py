"""One process at a time in a folder: a lock of the kernel's, which ends with those who hold it, however they end."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from ssl_hub.errors import UsageError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LOCK = ".lock"
_held: list[TextIO] = []


@contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Hold a folder, which is created, for this process and those that it passes the file descriptor to.

    Those may outlive it, and then keep the folder; processes that it forks do not. Raises UsageError while another
    holds the folder. Where the file system knows no locks nothing is held.
    """
    path = folder / LOCK
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = _taken(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; choose another folder") from error
    _held.append(file)
    try:
        yield file.fileno()
    finally:
        _held.remove(file)
        _remove(path, file)


def _taken(path: Path) -> TextIO:
    while True:
        file = path.open("a+", encoding="utf-8")
        try:
            _take(file)
        except (BlockingIOError, PermissionError):  # of Linux and of Windows
            file.seek(0)
            holder = file.read()
            file.close()
            raise UsageError(
                f"another process{holder and f' ({holder})'}, or one that it started, is training in {path.parent};"
                " wait for it, or stop it first"
            ) from None
        except OSError:
            pass  # a file system without locks
        if _is_at(path, file):  # not the file of one who has just left, or whose folder was moved
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            return file
        file.close()


def _take(file: TextIO) -> None:
    """Raises OSError where another has the lock, or where there are no locks."""
    if sys.platform == "win32":
        file.seek(2**30)  # others cannot read what is locked, so not where the number of the process stands
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def handed_on(lock: int) -> list[int]:
    """What a process that is started takes over so as to hold the folder too: a descriptor, nothing on Windows."""
    return [] if sys.platform == "win32" else [lock]


def _is_at(path: Path, file: TextIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except OSError:
        return False


def _remove(path: Path, file: TextIO) -> None:
    """The file away while it is held, so that it is nobody's who came next; Windows removes none that is open."""
    if sys.platform == "win32":
        file.close()
        with suppress(OSError):  # another has opened it
            path.unlink()
    else:
        if _is_at(path, file):
            path.unlink()
        file.close()


def _let_go() -> None:
    """In a forked process, such as a worker, which would hold the folders for as long as it outlives this one."""
    while _held:
        _held.pop().close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
