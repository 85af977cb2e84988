"""Files that hold many images each (parquet, arrow, tar), by the split that their names speak of."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath

from ssl_hub.data.endings import image_endings
from ssl_hub.data.splits import meaning, split_names, words_of

DEPTH = 3  # folders below the root that are looked into: data/<configuration>/<split>/
# As `datasets` names them; any name may be a split's.
_SHARD = re.compile(r"(?P<split>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<rest>.*)")


def files_by_split(root: Path, endings: str | tuple[str, ...]) -> dict[str, list[str]]:
    """Files below ``root`` with one of these endings, as :func:`by_split`; empty where there are none."""
    return by_split({path.relative_to(root): str(path) for path in sorted(_files(root, endings, DEPTH))})


def by_split(files: Mapping[PurePath, str]) -> dict[str, list[str]]:
    """Files, given by their paths below the root, by split, each split's sorted.

    As in ``datasets``, a file belongs to the split that its own name is sharded by (``extra-00000-of-00002``), else to
    the one that a folder above it or its own name speaks of (``train/0.parquet``, ``my-train-0.parquet``). What speaks
    of none is a split called after its folder or the start of its name, as ``extra.parquet`` beside
    ``train.parquet`` is; where no file speaks of any, all are ``train``.
    """
    own: dict[str, list[str]] = {}
    for path, file in files.items():
        own.setdefault(_own_name(path), []).append(file)
    if not any(meaning(name) for name in own):
        return {"train": sorted(file for its in own.values() for file in its)} if own else {}
    return {split: own[name] for split, name in split_names(own).items()}


def missing_files(files: Iterable[str]) -> list[str]:
    """Names of the files that are not among ``files`` and, by their names, belong to them: ``x-00001-of-00002`` where
    ``x-00000-of-00002`` is there."""
    there: dict[tuple[str, int, str], set[int]] = {}
    for file in files:
        if shard := _SHARD.fullmatch(file):
            its = there.setdefault((shard["split"], int(shard["count"]), shard["rest"]), set())
            its.add(int(shard["number"]))
    return [
        f"{PurePath(split).name}-{number:05}-of-{count:05}{rest}"
        for (split, count, rest), its in there.items()
        for number in range(count)
        if number not in its
    ]


def _own_name(path: PurePath) -> str:
    sharded = _SHARD.fullmatch(path.stem)
    if sharded:
        return sharded["split"]
    folders = [part for part in path.parts[:-1] if part != "data"]
    for folder in reversed(folders):
        if meaning(folder):
            return folder
    word = next((word for word in words_of(path.stem) if meaning(word)), None)
    return word or (folders[-1] if folders else path.stem.partition("-")[0])


def _files(folder: Path, endings: str | tuple[str, ...], depth: int) -> list[Path]:
    """Files with such endings; a folder below the first whose first files are images is left alone: it may be huge."""
    found: list[Path] = []
    inner: list[Path] = []
    images = image_endings()
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith((".", "__")):
                    continue
                name = entry.name.lower()
                if name.endswith(endings):
                    found.append(Path(entry.path))
                elif name.endswith(images):
                    if depth < DEPTH and not found:
                        return []
                elif depth > 0 and entry.is_dir():
                    inner.append(Path(entry.path))
    except OSError:  # what cannot be listed is named by the reading of the folder itself
        return found
    return found + [file for other in inner for file in _files(other, endings, depth - 1)]
