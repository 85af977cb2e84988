"""File lists: text files that name the images of a subset, such as SimCLR's 1 % and 10 % of ImageNet's labels."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ssl_hub.atomic import replace_file
from ssl_hub.data.images import Source
from ssl_hub.errors import UsageError

_SHOWN = 5  # names in one error line
_AMBIGUOUS = -1

# Tables of ImageNet append the WordNet id to the file's name: n01440764_10026_n01440764.JPEG.
_APPENDED_WORDNET_ID = re.compile(r"_n\d{8}(\.\w+)$")


def listed(source: Source, file: Path) -> Source:
    """The images of ``source`` that a text file names, one a line, in the source's order.

    A line is a file's name (``n01440764_10026.JPEG``) or as much of its path as tells it from others
    (``n01440764/n01440764_10026.JPEG``), up to the whole of it, with ``./`` before it or ``\\`` in it as other tools
    write them. Empty lines and those that start with ``#`` do not count.

    Raises :class:`UsageError` with counts and the first names where the list cannot be read, names an image twice or
    one that the source lacks, or where several images bear a name.
    """
    wanted = _lines(file)
    where = f"split {source.split!r} of {source.name}"
    names = source.names()
    if names is None:
        raise UsageError(f"{where} has no file names, which the file list {file} needs")
    root = "" if source.root is None else source.root.resolve().as_posix().strip("/")
    places = _places(names, set(wanted), root)
    unknown = [line for line in wanted if line not in places]
    if unknown:
        raise UsageError(
            f"file list {file} names {len(wanted)} images, {len(unknown)} of which are not in {where}: "
            f"{_first(unknown)}; {where} has {len(names)} images: {_first(names)}"
        )
    ambiguous = [line for line in wanted if places[line] == _AMBIGUOUS]
    if ambiguous:
        raise UsageError(
            f"{len(ambiguous)} names in file list {file} are those of several images of {where}: {_first(ambiguous)}; "
            "write them with their folders, as in class/name"
        )
    chosen = _distinct([places[line] for line in wanted], wanted, file)
    part = source.subset(chosen)
    part.split = f"{source.split}@{file.name}"
    return part


def _lines(file: Path) -> list[str]:
    try:
        lines = [line.strip() for line in _text(file.expanduser().read_bytes()).splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        cause = error.strerror if isinstance(error, OSError) else "not a text file"
        raise UsageError(
            f"file list {file} cannot be read ({cause}); give a text file with an image's name a line"
        ) from None
    wanted = [_plain(line) for line in lines if line and not line.startswith("#")]
    if not wanted:
        raise UsageError(f"file list {file} is empty; expected an image's name a line")
    return wanted


def _text(content: bytes) -> str:
    """UTF-8 with or without a byte-order mark, or UTF-16 with one, as PowerShell writes; names may be any bytes."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16")
    if b"\0" in content:
        raise UnicodeDecodeError("utf-8", content, content.index(b"\0"), len(content), "not text")
    return content.decode("utf-8-sig", "surrogateescape")


def _plain(line: str) -> str:
    """A path with ``/`` between folders and nothing before the first."""
    return re.sub(r"^(\./+)+", "", line.replace("\\", "/")).lstrip("/")


def _places(names: Sequence[str], wanted: Set[str], root: str) -> Mapping[str, int]:
    """Where in ``names`` each of ``wanted`` is that is the end of a path below ``root``; -1 where of several paths."""
    places: dict[str, int] = {}
    lengths = sorted({line.count("/") + 1 for line in wanted})  # in folders and a file
    above = root.split("/") if root else []
    for place, name in enumerate(names):
        name = name.replace("\\", "/")
        for variant in {name, _APPENDED_WORDNET_ID.sub(r"\1", name)}:
            parts = [*above, *variant.split("/")]
            for end in {"/".join(parts[-length:]) for length in lengths} & wanted:
                places[end] = place if places.get(end, place) == place else _AMBIGUOUS
    return places


def _distinct(chosen: list[int], wanted: list[str], file: Path) -> NDArray[np.int64]:
    positions, first, counts = np.unique(np.array(chosen, np.int64), return_index=True, return_counts=True)
    if (counts > 1).any():
        twice = [wanted[i] for i in first[counts > 1]]
        raise UsageError(f"file list {file} names {len(twice)} images more than once: {_first(twice)}")
    return positions


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


def write_list(source: Source, rows: NDArray[np.int64], path: Path) -> None:
    """Write a file list of these images (rows, ascending), which :func:`listed` reads back as exactly them.

    A line is a path below the data's root, or the whole path where that would name several.

    Raises :class:`UsageError` where the data has no file names, none are left, or a name cannot stand in a list.
    """
    names = source.names()
    if names is None:
        raise UsageError(f"split {source.split!r} of {source.name} has no file names, so no list can name its images")
    if not len(rows):
        raise UsageError(f"the list {path} would be empty; expected at least one image")
    ends = Counter(_ends(names))
    root = "" if source.root is None else source.root.resolve().as_posix()
    lines = [f"./{name}" if ends[_plain(name)] == 1 else f"{root}/{name}" for name in (names[row] for row in rows)]

    def write_checked(aside: Path) -> None:
        aside.write_bytes(b"".join(os.fsencode(line) + b"\n" for line in lines))
        if list(listed(source, aside).names() or ()) != [names[row] for row in rows.tolist()]:
            raise UsageError(f"the names in {source.name} cannot stand in a file list; rename them")

    replace_file(path, write_checked)


def _ends(names: Sequence[str]) -> Iterator[str]:
    """Every path that ends a name, its whole among them."""
    for name in names:
        for variant in {name, _APPENDED_WORDNET_ID.sub(r"\1", name)}:
            parts = _plain(variant).split("/")
            yield from ("/".join(parts[place:]) for place in range(len(parts)))
