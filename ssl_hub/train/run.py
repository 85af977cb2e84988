"""The run folder: claimed before training starts, described by recipe.json."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from ssl_hub.atomic import is_leftover
from ssl_hub.config import Recipe
from ssl_hub.errors import UsageError
from ssl_hub.model.release import RECIPE, write_recipe

CHECKPOINTS = "checkpoints"


def claim(folder: Path, *, resume: bool, overwrite: bool) -> None:
    """Check that a run may be written to ``folder``, before anything is created.

    Raises UsageError for a run that exists already (unless resumed or overwritten), a folder of something else, nothing
    to resume, and a place that cannot be written.
    """
    if resume and overwrite:
        raise UsageError("--resume and --overwrite exclude each other; choose one")
    is_run = (folder / RECIPE).exists()
    if resume and not is_run:
        raise UsageError(f"nothing to resume in {folder}: it has no {RECIPE}; drop --resume to start a run there")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; choose another --output")
    if is_run and not (resume or overwrite):
        raise UsageError(
            f"{folder} holds a run already; continue it with --resume, replace it with --overwrite,"
            " or choose another --output"
        )
    if not is_run and folder.is_dir() and any(not is_leftover(path) for path in folder.iterdir()):
        raise UsageError(f"{folder} is not empty and holds no run; choose another --output")
    nearest = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    try:
        with tempfile.TemporaryFile(dir=nearest):  # permissions alone do not tell: a read-only disk, /proc, root
            pass
    except OSError as error:
        raise UsageError(
            f"cannot write to {nearest} ({error.strerror}); choose another --output or set SSL_HUB_HOME"
        ) from None


def start(folder: Path, recipe: Recipe | None, facts: dict[str, Any], *, overwrite: bool) -> None:
    """Create the folder, empty, and write recipe.json."""
    if overwrite and folder.exists():
        shutil.rmtree(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot create {folder}: {error.strerror}; choose another --output") from error
    write_recipe(folder, recipe, facts)


def git_commit() -> str | None:
    """Commit of the source tree this package runs from, or None where it is not in one."""
    here = Path(__file__).parent
    try:
        done = subprocess.run(["git", "-C", str(here), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
