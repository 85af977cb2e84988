"""What is in the store and in the package: listed, and removed from the store."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ssl_hub.errors import UsageError
from ssl_hub.hub.glance import problem_of
from ssl_hub.hub.here import BUNDLED, has_file, home
from ssl_hub.model.files import CONFIG, RECIPE
from ssl_hub.model.results import Result, read_results
from ssl_hub.registry import suggest
from ssl_hub.zoo import RECIPES


@dataclass(frozen=True)
class Holding:
    """A release or run on this machine.

    ``size`` is in bytes, checkpoints included; an unfinished run has no model; ``problem`` names what is damaged, as
    far as it shows without reading the weights.
    """

    name: str
    place: Literal["store", "bundled"]
    folder: Path
    size: int
    finished: bool
    results: list[Result]
    problem: str = ""


def list_releases() -> list[Holding]:
    """What ``ssl_hub.load`` finds by name without a network, and the runs in the store that are not finished."""
    stored = [_holding("store", folder) for folder in sorted(home().glob("[!.]*")) if _is_ours(folder)]
    return stored + [_holding("bundled", folder) for folder in sorted(BUNDLED.glob("*")) if _is_ours(folder)]


def _is_ours(folder: Path) -> bool:
    try:
        return (folder / CONFIG).is_file() or (folder / RECIPE).is_file()
    except OSError:  # it may be one, and is listed with this problem
        return True


def _holding(place: Literal["store", "bundled"], folder: Path) -> Holding:
    results, size, problem = [], 0, problem_of(folder)  # one damaged release hides no other
    with suppress(OSError):
        size = sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())
    with suppress(UsageError, OSError):
        results = read_results(folder)
    return Holding(folder.name, place, folder, size, has_file(folder, CONFIG), results, problem)


def find(name: str) -> Holding:
    """What the store holds under a name. Raises UsageError for what it does not hold, bundled releases included."""
    folder = home() / name
    if not name or "/" in name or name.startswith((".", "~")):
        raise UsageError(f"{name!r} is no name in the store {home()}; remove other folders yourself")
    if not _is_ours(folder):
        if _is_ours(BUNDLED / name):
            raise UsageError(f"{name!r} is bundled with the package; it goes when the package does")
        there = [holding.name for holding in list_releases() if holding.place == "store"]
        raise UsageError(f"nothing called {name!r} in the store {home()}{suggest(name, there)}")
    return _holding("store", folder)


def modifications(recipe: str) -> list[str]:
    """Names in the store that say that they are runs of a recipe with other settings: ``RECIPE-train.epochs-5``."""
    stored = [holding.name for holding in list_releases() if holding.place == "store"]
    return [name for name in stored if name.startswith(f"{recipe}-") and name not in RECIPES]


def remove(name: str) -> Holding:
    """Remove a release or run from the store, checkpoints and all; of a link, the link alone. Returns what it was."""
    holding = find(name)
    try:
        if holding.folder.is_symlink():
            holding.folder.unlink()
        else:
            shutil.rmtree(holding.folder)
    except OSError as error:
        raise UsageError(f"cannot remove {error.filename or holding.folder}: {error.strerror}") from None
    return holding
