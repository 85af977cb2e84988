"""What a name means on this machine, in order: a folder, the store, the package."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ssl_hub.atomic import expanded
from ssl_hub.errors import UsageError
from ssl_hub.hub.remote import PREFIX
from ssl_hub.model.files import CONFIG, HASHES, RECIPE

NAME = r"[\w-][\w.-]*"
BUNDLED = Path(__file__).parents[1] / "bundled"
UNFINISHED = f"a run that is not finished: it has no {CONFIG} yet"
CLOSED = "cannot be looked at"
LOST = f"a release whose {CONFIG}, which {HASHES} lists, is missing or no file"
MENDED_BY = {UNFINISHED: "go on training it: `ssl-hub resume {}`", LOST: "restore it, or fetch it again"}


def home() -> Path:
    """The store: ``$SSL_HUB_HOME``, else ``ssl_hub`` in the user's cache (``$XDG_CACHE_HOME``, else ``~/.cache``)."""
    if chosen := os.environ.get("SSL_HUB_HOME"):
        return expanded(chosen)
    return expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "ssl_hub"


@dataclass(frozen=True)
class Place:
    """One place where a name is looked for; ``state`` says in words what is there, or why it was not asked."""

    kind: Literal["folder", "store", "bundled", "hub"]
    location: str
    found: bool
    state: str
    damaged: bool = False  # what is there is used, and will not load


def name_of(name: str | Path) -> str:
    if not isinstance(name, (str, os.PathLike)) or not str(name):
        raise UsageError(f"got {name!r}, expected the name of a release or the path of its folder")
    return str(name)


def places_of(text: str) -> list[Place]:
    """Where the name may be on this machine; nothing for a name of the Hub."""
    if text.startswith(PREFIX):
        return []
    folder = place_at("folder", expanded(text))
    if is_path(text):
        return [folder]
    places = [folder, place_at("store", home() / text), place_at("bundled", BUNDLED / text)]
    if re.fullmatch(NAME, text) or any(place.found for place in places):
        return places
    if re.fullmatch(f"{NAME}@.+", text):
        return [Place("store", str(home() / text), False, "holds no revisions: not asked")]
    raise UsageError(f"no folder {text!r}, and it is no release name: those have letters, digits, '.', '_' and '-'")


def is_path(text: str) -> bool:
    return text.startswith((".", "/", "~")) or "/" in text


def place_at(kind: Literal["folder", "store", "bundled"], folder: Path) -> Place:
    try:
        if (folder / CONFIG).is_file():
            return Place(kind, str(folder), True, "a release")
        if (folder / RECIPE).is_file():
            state = LOST if (folder / HASHES).is_file() else UNFINISHED
        elif folder.is_dir():
            state = f"has no {CONFIG}: no release"
        else:
            state = "no release folder" if kind == "folder" else "not there"
    except OSError as error:  # too long a name, or a place that may not be looked at
        state = f"{CLOSED} ({error.strerror})"
    return Place(kind, str(folder), False, state)


def has_file(folder: Path, name: str) -> bool:
    try:
        return (folder / name).is_file()
    except OSError:
        return False
