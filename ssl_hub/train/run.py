"""The run folder: claimed before training starts, described by recipe.json, logged to metrics.jsonl."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from ssl_hub.atomic import is_leftover, replace_file
from ssl_hub.codec import to_dict
from ssl_hub.config import Recipe
from ssl_hub.errors import UsageError
from ssl_hub.model.release import RECIPE, write_recipe

METRICS, CHECKPOINTS = "metrics.jsonl", "checkpoints"


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


def start(folder: Path, recipe: Recipe, facts: dict[str, Any], *, overwrite: bool) -> None:
    """Create the folder, empty, and write recipe.json."""
    if overwrite and folder.exists():
        shutil.rmtree(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot create {folder}: {error.strerror}; choose another --output") from error
    write_recipe(folder, recipe, facts)


def changes(old: Recipe, new: Recipe) -> list[str]:
    """Dotted names of the settings that differ, those of ``runtime`` aside: they change nothing that is learnt."""
    ignored = ("runtime", "summary", "expected", "notes", "name")
    before, after = (
        {k: v for k, v in flat(to_dict(recipe)).items() if k.split(".")[0] not in ignored} for recipe in (old, new)
    )
    return sorted(key for key in before.keys() | after.keys() if before.get(key, ...) != after.get(key, ...))


def flat(plain: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings under dotted names."""
    items: dict[str, Any] = {}
    for key, value in plain.items():
        items |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return items


class Metrics:
    """metrics.jsonl: one JSON object a line, flushed as it is written."""

    def __init__(self, folder: Path, *, from_step: int) -> None:
        """Open for appending; lines of later steps, which a resumed run will write again, are dropped first."""
        path = folder / METRICS
        if path.exists():
            kept = [line for line in _complete_lines(path) if json.loads(line)["step"] <= from_step]
            replace_file(path, "".join(line + "\n" for line in kept).encode())
        self._file = path.open("a", encoding="utf-8")

    def write(self, record: dict[str, Any]) -> None:
        self._file.write(json.dumps(record, allow_nan=True) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _complete_lines(path: Path) -> list[str]:
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            json.loads(line)
        except ValueError:
            continue  # a killed process can leave half a line
        lines.append(line)
    return lines


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The records of metrics.jsonl, in order; none where there is no file. Half a line from a kill is left out."""
    path = folder / METRICS
    return [json.loads(line) for line in _complete_lines(path)] if path.exists() else []


def git_commit() -> str | None:
    """Commit of the source tree this package runs from, or None where it is not in one."""
    here = Path(__file__).parent
    try:
        done = subprocess.run(["git", "-C", str(here), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
