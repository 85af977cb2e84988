"""The run folder: claimed before training starts, held while it lasts; the run it replaces is kept until then."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

from accelerate import Accelerator

from ssl_hub.atomic import is_leftover, sweep
from ssl_hub.errors import UsageError
from ssl_hub.model import files
from ssl_hub.model.checkpoints import CHECKPOINTS as CHECKPOINTS
from ssl_hub.model.release import CONFIG, MODEL, RECIPE, read_facts, read_recipe, write_recipe
from ssl_hub.model.results import installed_versions, now
from ssl_hub.processes import typed
from ssl_hub.train import checkpoint
from ssl_hub.train.lock import LOCK, locked
from ssl_hub.train.together import Alike, on_main
from ssl_hub.train.writing import writing

FINISHED, JOB = "finished", "job"  # facts: when a run was, and what started it
Command = Literal["train", "finetune"]  # that writes a run
Resume = bool | Literal["auto"]
"""Whether a run goes on where it stands; ``auto``: if there is one, and if it is not finished."""


class Finished(Alike):
    """There is nothing left to do in a run that was to go on if need be."""


def settled(folder: Path, *, resume: Resume, overwrite: bool, restart: str | None) -> tuple[Resume, bool]:
    """``resume`` and ``overwrite`` as they apply to what is in the folder.

    ``restart`` names the job that this process belongs to, where the job was started before and is started again, by
    torchrun or by a scheduler: it goes on with what it has begun, whatever it was started with. So does
    ``resume="auto"``, which starts a run where there is none.
    """
    if resume == "auto" and overwrite:
        raise UsageError("--resume auto and --overwrite exclude each other; choose one")
    if restart is None and resume != "auto":
        return resume, overwrite
    is_run = os.path.exists(folder / RECIPE)  # Path.exists raises for a name that is too long
    if overwrite and not (is_run and read_facts(folder).get(JOB) == restart):
        return False, True  # what is there is not what this job has begun
    return ("auto" if is_run else False), False


def is_finished(folder: Path) -> bool:
    """Whether the run there was trained, released and measured to its end."""
    released = all((folder / name).is_file() for name in (CONFIG, MODEL))
    return released and read_facts(folder).get(FINISHED) is not None


def finish(folder: Path) -> None:
    """Note that nothing is left to do. Raises UsageError where the release that the run has written is not there."""
    gone = [name for name in (RECIPE, CONFIG, MODEL) if not (folder / name).is_file()]
    if gone:
        raise UsageError(
            f"{folder / gone[0]} was removed while the run was finishing; its release is lost: train again"
        )
    write_recipe(folder, read_recipe(folder), {**read_facts(folder), FINISHED: now()})
    files.record(folder, RECIPE)


def claim(folder: Path, *, resume: Resume, overwrite: bool, command: Command = "train") -> None:
    """Check that ``command`` may write a run to ``folder``, before anything is created.

    Raises UsageError for a run that exists already (unless resumed or overwritten), a folder of something else, nothing
    to resume or another command's run, and a place that cannot be written.
    """
    if resume and overwrite:
        raise UsageError("--resume and --overwrite exclude each other; choose one")
    try:
        replaced = replaced_by(folder)
        is_run, is_replacing = (folder / RECIPE).exists(), replaced.exists()
    except OSError as error:  # too long a name, or a place that may not be looked at
        raise UsageError(f"cannot use {folder} ({error.strerror}); choose another --output") from None
    note = f"; the run that an --overwrite had begun to replace is in {replaced}" if is_replacing else ""
    if resume and not is_run:
        raise UsageError(f"nothing to resume in {folder}: it has no {RECIPE}{note}; drop --resume to start a run there")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; choose another --output")
    if (is_run or is_replacing) and not (resume or overwrite):
        raise UsageError(
            f"{folder} holds a run already{note}; continue it with --resume, replace it with --overwrite,"
            " or choose another --output"
        )
    if resume:
        _check_resumable(folder, command, finished=resume == "auto" and is_finished(folder))
    if not is_run and folder.is_dir() and not all(path.name == LOCK or is_leftover(path) for path in folder.iterdir()):
        raise UsageError(f"{folder} is not empty and holds no run; choose another --output")
    nearest = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    try:
        with tempfile.TemporaryFile(dir=nearest):  # permissions alone do not tell: a read-only disk, /proc, root
            pass
    except OSError as error:
        raise UsageError(
            f"cannot write to {nearest} ({error.strerror}); choose another --output or set SSL_HUB_HOME"
        ) from None


def _check_resumable(folder: Path, command: Command, *, finished: bool) -> None:
    writer = "finetune" if "finetuned_from" in read_facts(folder) else "train"
    if writer == "train" and read_recipe(folder) is None:
        raise UsageError(f"{folder} holds a model that no run of ours trained; there is nothing to resume")
    if writer != command:
        raise UsageError(
            f"{folder} holds a run of `ssl-hub {writer}`; that command resumes it, not `ssl-hub {command}`"
        )
    if not finished and (folder / CONFIG).exists() and not checkpoint.existing(folder / CHECKPOINTS):
        raise UsageError(
            f"{folder} holds a finished run without checkpoints, so there is nothing to resume from; --overwrite"
            " trains it anew"
        )


@contextmanager
def held(
    folder: Path, accelerator: Accelerator, *, resume: Resume, overwrite: bool, command: Command = "train"
) -> Iterator[None]:
    """Keep other processes out of a run folder, which is empty at first or that of the run to resume.

    The run that is replaced is set aside. It goes when the new one has a checkpoint (:func:`save`), and comes back
    where the new one ends before that. However a run ends, it lets go of its folder when what it writes there beside
    training (:func:`save`) is whole. Collective over processes; the main one does it. Raises UsageError, everywhere,
    where another process is training in the folder or it can no longer be claimed.
    """
    with ExitStack() as stack:
        on_main(
            accelerator,
            lambda: stack.enter_context(_held(folder, resume=resume, overwrite=overwrite, command=command)),
        )
        yield


@contextmanager
def _held(folder: Path, *, resume: Resume, overwrite: bool, command: Command) -> Iterator[None]:
    folder = folder.resolve()  # a link stays what it is
    with ExitStack() as locks:
        locks.enter_context(locked(folder))
        claim(folder, resume=resume, overwrite=overwrite, command=command)  # again: others may have been here since
        if _is_worth_keeping(folder):
            _forget_replaced(folder)  # where a kill came between the first checkpoint and this
        if (folder / RECIPE).exists() and overwrite:
            _set_aside(folder)
            locks.enter_context(locked(folder))
        sweep(folder)
        try:
            yield
        finally:
            if (error := writing.ended()) is not None:  # of a run that has ended with an error of its own
                print(f"warning: {error}", file=sys.stderr)
            _put_back(folder)


def replaced_by(folder: Path) -> Path:
    """Where the run that a new one replaces is, until the new one has a checkpoint."""
    real = folder.resolve()
    return real.with_name(f".{real.name}.replaced")


def _is_worth_keeping(folder: Path) -> bool:
    return (folder / CONFIG).exists() or bool(checkpoint.existing(folder / CHECKPOINTS))


def _set_aside(folder: Path) -> None:
    replaced = replaced_by(folder)
    if Path.cwd().is_relative_to(folder):
        raise UsageError(f"the current folder is {Path.cwd()}; go elsewhere to replace {folder}")
    if replaced.exists():  # and what has begun to replace it got nowhere
        shutil.rmtree(folder)
        return
    try:
        folder.rename(replaced)
    except OSError as error:
        raise UsageError(
            f"cannot set the run in {folder} aside as {replaced} ({error.strerror}); choose another --output"
        ) from error


def _forget_replaced(folder: Path) -> None:
    shutil.rmtree(replaced_by(folder), ignore_errors=True)


def _put_back(folder: Path) -> None:
    """The run that was set aside, where it still is: a run that leaves a checkpoint has removed it."""
    replaced = replaced_by(folder)
    if replaced.exists() and not _is_worth_keeping(folder):
        shutil.rmtree(folder, ignore_errors=True)
        (replaced / LOCK).unlink(missing_ok=True)
        replaced.rename(folder)
        print(f"nothing was saved; the run that was to be replaced is in {folder} as before", file=sys.stderr)


def save(
    folder: Path,
    state: dict[str, Any],
    accelerator: Accelerator,
    *,
    keep: int,
    permanent: bool = False,
    last: bool = False,
) -> bool:
    """:func:`checkpoint.save`; a run that this one replaces is no longer needed then. Collective over processes."""
    return checkpoint.save(
        folder / CHECKPOINTS, state, accelerator, keep=keep, permanent=permanent, last=last,
        then=lambda: _forget_replaced(folder),
    )  # fmt: skip


def facts_of(before: Mapping[str, Any], processes: int, job: str | None) -> dict[str, Any]:
    """What every run records of how it came about; the first command and its date stay as they were ``before``."""
    return {
        "processes": processes,
        JOB: job,
        "versions": installed_versions(),
        "git_commit": git_commit(),
        "command": before.get("command", shlex.join(typed(sys.argv))),
        "started": before.get("started", now()),
    }


def git_commit() -> str | None:
    """Commit of the source tree this package runs from, or None where it is not in one."""
    here = Path(__file__).parent
    try:
        done = subprocess.run(
            ["git", "-C", str(here), "rev-parse", "HEAD"], capture_output=True, encoding="utf-8", timeout=5
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
