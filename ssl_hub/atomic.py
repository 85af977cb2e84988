"""Files that are either the old ones or the new ones, whatever happens in between."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ssl_hub.errors import UsageError


def expanded(path: str | Path) -> Path:
    """The path with ``~`` and ``~user`` in place. Raises UsageError where there is no such user, and for empty text, as
    of a variable that is not set, which pathlib takes for the current folder."""
    if path == "":
        raise UsageError("got '' for a path; write the path out, or '.' for the current folder")
    try:
        return Path(path).expanduser()
    except RuntimeError:
        user = Path(path).parts[0].removeprefix("~")
        raise UsageError(
            f"no user {user} for {str(path)!r}; write the folder out, or ./~{user} for one of that name"
        ) from None


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for files that nobody keeps. Raises UsageError where none can be made."""
    try:
        made = tempfile.TemporaryDirectory()
    except OSError as error:
        raise UsageError(f"cannot make a temporary folder ({error.strerror or error}); set TMPDIR to a place") from None
    with made as folder:
        yield Path(folder)


def is_leftover(path: Path) -> bool:
    """Whether this is a file that a killed writer left unfinished."""
    return path.name.startswith(".") and path.name.endswith(".part")


def sweep(folder: Path) -> None:
    """Remove what killed writers left unfinished in ``folder`` and below."""
    for leftover in filter(is_leftover, folder.rglob("*.part")):
        leftover.unlink(missing_ok=True)


def make_folder(folder: Path, *, parents: bool = True) -> None:
    """Make a folder, unless it is there. Raises UsageError where that cannot be, and, without ``parents``, where the
    one that is to hold it is gone: what belongs to that has gone with it."""
    try:
        folder.mkdir(parents=parents, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {folder} ({error.strerror}); choose another place") from None


def refuse_missing_folder(path: Path) -> None:
    """Raise UsageError, before any work, where the folder that a file is to go to does not exist."""
    if not path.parent.is_dir():
        raise UsageError(f"the folder {path.parent} does not exist; create it, or choose another place for {path.name}")


def replace_file(path: Path, content: bytes | Callable[[Path], None]) -> None:
    """Put ``content`` in place of ``path``: written beside it, flushed to the disk, then renamed over it in one step.

    ``content`` may be a function that writes the file at the path it is given. Raises UsageError where the disk is full
    or the folder cannot be written; what stood at ``path`` before is still there then.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        if callable(content):
            content(aside)
        else:
            aside.write_bytes(content)
        with aside.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(aside, path)
        if hasattr(os, "O_DIRECTORY"):  # not on Windows; elsewhere the rename itself must reach the disk too
            folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror or error}; free some space or choose a writable folder"
        ) from error
    finally:
        with suppress(OSError):
            aside.unlink()
