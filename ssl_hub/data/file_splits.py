"""Files that hold many images each (parquet, arrow, tar), by the split that their names speak of."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path, PurePath

from ssl_hub.data.endings import image_endings
from ssl_hub.data.splits import fold_in, meaning, split_names, words_of
from ssl_hub.errors import UsageError

DEPTH = 3  # folders below the root that are looked into: data/<configuration>/<split>/
_MANY = 100
# Folders that say of what is in them that it is a piece: part-0, 007, year=2024.
_PIECE = re.compile(
    r"(?:parts?|shards?|chunks?|pieces?|batch|node|rank|worker|disk)[\W_]*\d+|0\d+|\w+=.+", re.IGNORECASE
)
# As `datasets` names them; any name may be a split's.
_SHARD = re.compile(r"(?P<split>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<rest>.*)")


def files_below(root: Path, endings: str | tuple[str, ...]) -> dict[PurePath, str]:
    """Files below ``root`` with one of these endings by their paths from it on, sorted."""
    return {path.relative_to(root): str(path) for path in sorted(_files(root, endings, DEPTH))}


def by_split(files: Mapping[PurePath, str], where: str) -> dict[str, list[str]]:
    """Files, given by their paths below the root, by split, each split's sorted.

    As in ``datasets``, a file belongs to the split that its own name is sharded by (``extra-00000-of-00002``), or that
    a folder above it or its own name speaks of (``train/0.parquet``, ``my-train-0.parquet``). What speaks of none is a
    split called after its folder or the start of its name, as ``extra.parquet`` beside ``train.parquet`` is; where no
    file speaks of any, all are ``train``.

    Raises :class:`UsageError` where a split would be joined of what may be configurations, ``en/train.parquet`` and
    ``de/train.parquet``: of folders that are not called as pieces of one are (``part-0``, ``year=2024``).
    """
    splits = _grouped(files)
    for split, paths in splits.items():
        _refuse_configurations(split, paths, where)
    return {split: sorted(files[path] for path in paths) for split, paths in splits.items()}


def _grouped(files: Iterable[PurePath]) -> dict[str, list[PurePath]]:
    own: dict[str, list[PurePath]] = {}
    for path in files:
        own.setdefault(_own_name(path)[0], []).append(path)
    if not any(map(meaning, own)) and sum(fold_in(name) is not None for name in own) < 2:
        return {"train": [path for its in own.values() for path in its]} if own else {}
    return {split: own[name] for split, name in split_names(own).items()}


def meanings_of(files: Iterable[str]) -> list[str]:
    """The splits that paths of files speak of, as ``train`` and ``validation``, by the parts in which they differ."""
    paths = [PurePath(file) for file in files]
    levels = zip(*(path.parent.parts for path in paths), strict=False)
    shared = len([*takewhile(lambda level: len({*level}) == 1, levels)])
    names = {_own_name(PurePath(*path.parts[shared:]))[0] for path in paths}
    return sorted({split for name in names if (split := meaning(name))})


def _refuse_configurations(split: str, paths: Sequence[PurePath], where: str) -> None:
    places: dict[tuple[str, ...], PurePath] = {}
    widths = {len(part) for path in paths for part in path.parts[:-1] if re.fullmatch(r"0\d+", part)}
    for path in paths:
        name, depth = _own_name(path)
        if not (meaning(name) or fold_in(name)):
            return
        outer = [at for at, part in enumerate(path.parts[:-1]) if meaning(name) and meaning(part) == meaning(name)]
        within = path.parts[: outer[0] + 1] if outer else path.parts[:depth]
        kept = tuple(part for part in within if part != "data" and not _is_piece(part, widths))
        fold = fold_in(path.stem) if depth == len(path.parts) - 1 and meaning(name) else None
        place = PurePath(*(within[:-1] if outer and within[-1] == name else within))
        places.setdefault((*kept, fold or ""), path if fold else place)
    if len(places) > 1 and not _are_one_set(paths):
        named = sorted(map(str, places.values()))
        are_files = PurePath(named[-1]) in paths
        one = "move each to a folder of its own" if are_files else f"give the folder of one, as {where}/{named[-1]}"
        raise UsageError(
            f"split {split!r} lies in {len(named)} places of {where} that may hold different data "
            f"({', '.join(named[:4])}{', ...' if len(named) > 4 else ''}); {one}, or, where they belong together, "
            f"move its files, with their folders, into a folder {split}"
        )


def _is_piece(folder: str, widths: Collection[int]) -> bool:
    """Whether a folder is called as a piece is; numbers are of the ``widths`` of those that begin with 0."""
    return _PIECE.fullmatch(folder) is not None or (folder.isdecimal() and len(folder) in widths)


def _are_one_set(paths: Sequence[PurePath]) -> bool:
    """Whether files are different shards of one numbering, wherever they lie."""
    shards = [shard for path in paths if (shard := _SHARD.fullmatch(path.name))]
    sets, numbers = {(shard["split"], shard["count"]) for shard in shards}, {shard["number"] for shard in shards}
    return len(sets) == 1 and len(numbers) == len(paths)


def missing_by_split(root: Path, endings: str | tuple[str, ...]) -> dict[str, list[str]]:
    """Of each split's files below ``root``, :func:`missing_files`."""
    files = files_below(root, endings)
    return {split: missing_files(map(files.__getitem__, paths)) for split, paths in _grouped(files).items()}


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


def _own_name(path: PurePath) -> tuple[str, int]:
    """What says of a file which split it is of, and which of its path's parts that is: the last for its own name."""
    last, stem = len(path.parts) - 1, path.stem
    sharded = _SHARD.fullmatch(stem)
    folders = [(part, place) for place, part in enumerate(path.parts[:-1]) if part != "data"][::-1]
    word = next((word for word in words_of(stem) if meaning(word)), None)
    fold = fold_in(stem)
    candidates = [
        *([(sharded["split"], last)] if sharded and meaning(sharded["split"]) else []),
        *(folder for folder in folders if meaning(folder[0])),
        *([(word, last)] if word else []),
        *(folder for folder in folders if fold_in(folder[0])),
        *([(fold, last)] if fold else []),
        *([(sharded["split"], last)] if sharded else []),
        *folders,
        (stem.partition("-")[0], last),
    ]
    return candidates[0]


def _files(folder: Path, endings: str | tuple[str, ...], depth: int) -> list[Path]:
    """Files with such endings; a folder below the first that begins with many images is left alone: it may be huge."""
    found: list[Path] = []
    inner: list[Path] = []
    images, seen = image_endings(), 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith((".", "__")):
                    continue
                name = entry.name.lower()
                if name.endswith(endings):
                    found.append(Path(entry.path))
                elif name.endswith(images):
                    seen += 1
                    if depth < DEPTH and not found and seen == _MANY:
                        return []
                elif depth > 0 and entry.is_dir():
                    inner.append(Path(entry.path))
    except OSError:  # what cannot be listed is named by the reading of the folder itself
        return found
    return found + [file for other in inner for file in _files(other, endings, depth - 1)]
