"""Files that hold many images each (parquet, arrow, tar), by the split that their names speak of."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePath

from ssl_hub.data.endings import image_endings
from ssl_hub.data.splits import meaning, split_names, words_of

_DEPTH = 3  # folders below the root that are looked into: data/<configuration>/<split>/
_SHARD = re.compile(r"(?P<split>.+)-\d{5}-of-\d{5}.*")  # as `datasets` names them; any name may be a split's


def files_by_split(root: Path, ending: str) -> dict[str, list[str]]:
    """Files below ``root`` with this ending, by split, each split's sorted; empty where there are none.

    As in ``datasets``, a file belongs to the split that its own name is sharded by (``extra-00000-of-00002``), else to
    the one that a folder above it or its own name speaks of (``train/0.parquet``, ``my-train-0.parquet``). What speaks
    of none is a split called after its folder or the start of its name, as ``extra.parquet`` beside
    ``train.parquet`` is; where no file speaks of any, all are ``train``.
    """
    own: dict[str, list[str]] = {}
    for path in sorted(_files(root, ending, _DEPTH)):
        own.setdefault(_own_name(path.relative_to(root)), []).append(str(path))
    if not any(meaning(name) for name in own):
        return {"train": sorted(file for files in own.values() for file in files)} if own else {}
    return {split: own[name] for split, name in split_names(own).items()}


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


def _files(folder: Path, ending: str, depth: int) -> list[Path]:
    """Files with the ending; a folder below the first whose first files are images is left alone, as it may be huge."""
    found: list[Path] = []
    inner: list[Path] = []
    images = image_endings()
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith((".", "__")):
                    continue
                name = entry.name.lower()
                if name.endswith(ending):
                    found.append(Path(entry.path))
                elif name.endswith(images):
                    if depth < _DEPTH and not found:
                        return []
                elif depth > 0 and entry.is_dir():
                    inner.append(Path(entry.path))
    except OSError:  # what cannot be listed is named by the reading of the folder itself
        return found
    return found + [file for other in inner for file in _files(other, ending, depth - 1)]
