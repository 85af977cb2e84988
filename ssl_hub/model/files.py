"""The files of a release by name, and hashes.json: the sha256 of each, since nothing else notices a changed byte.

The card and its pictures are left out of hashes.json: people edit them where they are published.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from ssl_hub.atomic import replace_file
from ssl_hub.errors import UsageError

RECIPE, CONFIG, MODEL, METHOD = "recipe.json", "config.json", "model.safetensors", "method.safetensors"
RESULTS_FILE, HEADS_FOLDER, HASHES = "results.json", "heads", "hashes.json"
TO_LOAD = (CONFIG, RECIPE, MODEL)  # what a backbone needs
PICKLES = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".tar"}  # suffixes of files that can run code when read
FORMAT = 1  # of hashes.json


def release_files(folder: Path) -> list[str]:
    """Names of the files in ``folder`` that make up a release, heads included; no card, log or checkpoint."""
    heads = sorted(path for path in folder.glob(f"{HEADS_FOLDER}/*") if path.suffix in (".safetensors", ".json"))
    names = [RECIPE, CONFIG, MODEL, METHOD, RESULTS_FILE, *(f"{HEADS_FOLDER}/{path.name}" for path in heads)]
    return [name for name in names if (folder / name).is_file()]


def sha256(path: Path) -> str:
    """Hexadecimal sha256 of a file's bytes. UsageError where it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None


def hashes_of(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """``{name: sha256}`` of the files that exist."""
    return {name: sha256(folder / name) for name in sorted(names) if (folder / name).is_file()}


def as_json(hashes: dict[str, str]) -> bytes:
    """The content of hashes.json."""
    return (json.dumps({"format": FORMAT, "sha256": dict(sorted(hashes.items()))}, indent=2) + "\n").encode()


def seal(folder: Path) -> None:
    """Write hashes.json for the release as it stands."""
    replace_file(folder / HASHES, as_json(hashes_of(folder, release_files(folder))))


def record(folder: Path, *names: str) -> None:
    """Note the hashes of files just written, where hashes are kept. What is noted of the others stays: a file that was
    damaged or lost since is still not the one that was written."""
    noted = read_hashes(folder)
    if noted is not None:
        others = {name: digest for name, digest in noted.items() if name not in names}
        replace_file(folder / HASHES, as_json(others | hashes_of(folder, names)))


def read_hashes(folder: Path) -> dict[str, str] | None:
    """What was noted, or None where nothing was. Raises UsageError where the file is damaged."""
    path = folder / HASHES
    if not path.exists():
        return None
    from ssl_hub.model.reading import read_json  # which needs names of files from here

    try:
        noted = read_json(path)["sha256"]
        return {str(name): str(digest) for name, digest in noted.items()}
    except (UsageError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{path} holds no hashes ({error}); delete it if the other files are as they should be"
        ) from None


def check_unchanged(folder: Path, names: Iterable[str]) -> None:
    """Raise UsageError that names those of these files that are not what was noted."""
    if differing := changed(folder, names):
        others = f" (nor {', '.join(differing[1:])})" if differing[1:] else ""
        raise UsageError(
            f"{folder / differing[0]} is not the file that {HASHES} lists{others}; restore it, or, if you changed it"
            f" and mean it, delete {HASHES}"
        )


def check_whole(folder: Path, names: Iterable[str]) -> None:
    """As :func:`check_unchanged`, and UsageError where one that was noted is missing."""
    names, noted = [*names], read_hashes(folder) or {}
    for name in names:
        if name in noted and not (folder / name).is_file():
            raise UsageError(f"{folder / name} is missing, and {HASHES} lists it; restore it, or fetch it again")
    check_unchanged(folder, names)


def readable(size: int) -> str:
    """A size in bytes as people say it: ``813 B``, ``12.3 kB``, ``94.3 MB``."""
    for power, unit in ((2, "MB"), (1, "kB")):
        if size >= 0.9995 * 1000**power:
            return f"{size / 1000**power:.1f} {unit}"
    return f"{size} B"


def changed(folder: Path, names: Iterable[str]) -> list[str]:
    """Those of ``names`` that exist and are not what was noted, or were not noted. None where nothing was noted."""
    noted = read_hashes(folder)
    if noted is None:
        return []
    return [name for name, digest in hashes_of(folder, names).items() if noted.get(name) != digest]
