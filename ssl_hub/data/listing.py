"""What lies in a folder: its folders, its images, and what is passed over."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from ssl_hub.data.endings import ending_of, image_endings, kind_of
from ssl_hub.data.passed_over import PassedOver
from ssl_hub.errors import UsageError

_NOT_OURS = frozenset(  # what systems leave
    ("lost+found", "@eaDir", "$RECYCLE.BIN", "System Volume Information", "__MACOSX", "__pycache__")
)


def listing(folder: Path, passed: PassedOver) -> tuple[list[str], list[str]]:
    """Sorted names of the folders and of the images in ``folder``; the rest is passed over."""
    folders: list[str] = []
    images: list[str] = []
    for name, is_folder in _entries(folder, passed):
        (folders if is_folder else images).append(name)
    return sorted(folders), sorted(images)


def folder_alone(folder: Path, passed: PassedOver) -> str | None:
    """The name of the one folder in ``folder``, where no image lies beside it; where many do, that is known soon."""
    alone: str | None = None
    for name, is_folder in _entries(folder, passed):
        if not is_folder or alone is not None:
            return None
        alone = name
    return alone


def _entries(folder: Path, passed: PassedOver) -> Iterator[tuple[str, bool]]:
    """Names of folders and of images as the system gives them, and which of the two it is."""
    endings = frozenset(image_endings())
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                name, ending = entry.name, ending_of(entry.name)
                if name.startswith(".") or name in _NOT_OURS:
                    passed.add("hidden", name)
                elif ending in endings and _is(entry, os.DirEntry.is_file):
                    yield name, False
                elif _is(entry, os.DirEntry.is_dir):
                    yield name, True
                elif ending not in endings:
                    passed.add(kind_of(name), name)
                elif entry.is_symlink():
                    raise UsageError(
                        f"{entry.path} is a link to {os.readlink(entry.path)}, which does not exist; restore that, or "
                        "remove the link"
                    )
                else:
                    passed.add("not a file", name)
    except OSError as error:
        raise UsageError(f"cannot read the folder {folder}: {error.strerror}") from None


def _is(entry: os.DirEntry[str], kind: Callable[[os.DirEntry[str]], bool]) -> bool:
    try:
        return kind(entry)
    except OSError as error:
        raise UsageError(f"cannot follow {entry.path}: {error.strerror}; remove it, or point it elsewhere") from None


def images_below(folder: Path, passed: PassedOver) -> Iterator[tuple[list[str], list[str]]]:
    """Images of ``folder`` and of the visible folders in it, by folder in a fixed order, with the names of the folders
    in each.

    Paths are relative to ``folder``.
    """
    folders, images = listing(folder, passed)
    yield images, folders
    for name in folders:
        inner = folder / name
        if inner.is_symlink() and folder.resolve().is_relative_to(inner.resolve()):
            raise UsageError(f"{inner} is a link to a folder that it lies in; remove it")
        for paths, below in images_below(inner, passed):
            yield [f"{name}{os.sep}{path}" for path in paths], below
