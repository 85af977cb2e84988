"""A release put into a folder, for those who share a disk: all of it, or what was there before."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from ssl_hub.errors import UsageError
from ssl_hub.hub.verify import check
from ssl_hub.model.files import CONFIG


def check_target(target: Path, run: Path) -> None:
    """Raise UsageError for the run's own folder, and for one of something else; finish what a killed push had begun."""
    if target.resolve().is_relative_to(run.resolve()):
        raise UsageError(f"{target} is the run itself, or in it; choose another folder")
    try:
        if not target.exists() and _replaced(target).exists():  # it was killed between two renames
            _replaced(target).rename(target)
        if target.exists() and not (target / CONFIG).is_file() and (not target.is_dir() or any(target.iterdir())):
            raise UsageError(f"{target} holds something that is no release; choose another folder")
    except OSError as error:
        raise UsageError(f"cannot use {target} ({error.strerror}); choose another folder") from None


def put(target: Path, staged: Mapping[str, Path | bytes], *, ours: Sequence[str]) -> None:
    """Have a folder hold these files, in the place of those that match ``ours``; others stay. It is checked first."""
    aside = target.with_name(f".{target.name}.part")
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        if target.exists():
            shutil.copytree(target, aside, symlinks=True, dirs_exist_ok=True)
        for path in [path for path in aside.rglob("*") if path.is_file()]:
            if any(fnmatchcase(path.relative_to(aside).as_posix(), name) for name in ours):
                path.unlink()
        for name, content in staged.items():
            (aside / name).parent.mkdir(exist_ok=True)
            (aside / name).write_bytes(content.read_bytes() if isinstance(content, Path) else content)
        check(aside)
        shutil.rmtree(_replaced(target), ignore_errors=True)
        if target.exists():
            target.rename(_replaced(target))
        aside.rename(target)
        shutil.rmtree(_replaced(target), ignore_errors=True)
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror or error}; choose another folder") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _replaced(target: Path) -> Path:
    return target.with_name(f".{target.name}.replaced")
