"""One process at a time in a folder: a lock of the kernel's, which ends with those who hold it, however they end."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from ssl_hub.errors import UsageError

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
        if _is_at(path, file):
            path.unlink()
        file.close()


def _taken(path: Path) -> TextIO:
    while True:
        file = path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
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


def _is_at(path: Path, file: TextIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except OSError:
        return False


def _let_go() -> None:
    """In a forked process, such as a worker, which would hold the folders for as long as it outlives this one."""
    while _held:
        _held.pop().close()


os.register_at_fork(after_in_child=_let_go)
