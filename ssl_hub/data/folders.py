"""Folders of image files: ``[split/]class/image.jpg``, or a flat folder of unlabelled images."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from ssl_hub.data.decoding import EXTENSIONS
from ssl_hub.data.images import Files, Source
from ssl_hub.data.splits import HELD_OUT, resolve_split
from ssl_hub.errors import UsageError

_SPLITS = ("train", *HELD_OUT, "unlabeled", "unlabelled")


def folder_source(root: Path, split: str) -> Source:
    """Images below ``root``: class folders, below split folders or not, or a flat folder of unlabelled images.

    Classes are the names of the class folders, sorted; every split uses those of ``train`` where it has any, so a split
    that lacks a class keeps the others' labels. Hidden files and folders and files that are not images are ignored.

    Raises :class:`UsageError` for a missing split, an empty class folder, a class that ``train`` lacks, images beside
    class folders, or no images at all.
    """
    name = str(root)
    splits = _split_folders(root)
    if not splits:
        whole = _labelled_or_flat(root, name, "train", None)
        if split == "train":
            return whole
        if whole.classes is None:
            raise UsageError(
                f"{name} is a flat folder of {len(whole)} unlabelled images, all of it split 'train': "
                f"there is no split {split!r}"
            )
        raise UsageError(
            f"{name} has no split folders, so all of it is split 'train' and there is no split {split!r}; "
            f"lay it out as {name}/train/<class>/ and {name}/{split}/<class>/, or ask for 'train' to get all of it"
        )
    found = resolve_split(split, splits, name)
    reference = _class_folders(splits["train"]) if "train" in splits and found != "train" else []
    return _labelled_or_flat(splits[found], name, found, [folder.name for folder in reference] or None)


def _labelled_or_flat(folder: Path, name: str, split: str, reference: list[str] | None) -> Source:
    class_folders, loose = _class_folders(folder), sorted(_image_names(folder))
    if class_folders and loose:
        raise UsageError(
            f"{folder} holds {len(loose)} images ({loose[0]}, ...) beside the class folder {class_folders[0].name!r}; "
            "move the images into class folders, or the folders away"
        )
    if not class_folders:
        if not loose and any(folder.glob("*.tar")):
            raise UsageError(f"{folder} holds .tar files, which are read as a stream; set data.stream=true")
        if not loose:
            raise UsageError(f"no images in {folder}; expected files ending in {', '.join(EXTENSIONS)}")
        return Source(name, split, Files(folder, loose))
    classes = reference or [c.name for c in class_folders]
    paths: list[str] = []
    labels: list[int] = []
    for class_folder in class_folders:
        if class_folder.name not in classes:
            raise UsageError(
                f"split {split!r} of {name} has class {class_folder.name!r}, which split 'train' lacks; "
                f"'train' has {len(classes)} classes: {', '.join(classes[:10])}{', ...' if len(classes) > 10 else ''}"
            )
        inside = _images_below(class_folder)
        if not inside:
            raise UsageError(
                f"class folder {class_folder} has no images; add files ending in {', '.join(EXTENSIONS)}, or remove it"
            )
        paths += [os.path.join(class_folder.name, path) for path in inside]
        labels += [classes.index(class_folder.name)] * len(inside)
    return Source(name, split, Files(folder, paths), classes=classes, labels=np.array(labels))


def _split_folders(root: Path) -> dict[str, Path]:
    """Split folders by name; empty where ``root`` holds classes or images, one of which may be called ``train``."""
    folders = _class_folders(root)
    named = [folder for folder in folders if folder.name in _SPLITS]
    all_named = len(named) == len(folders)
    is_layout = all_named or any(_class_folders(folder) for folder in named)
    return {folder.name: folder for folder in named} if is_layout else {}


def _class_folders(folder: Path) -> list[Path]:
    return [folder / name for name in sorted(e.name for e in _visible(folder) if _is(e, os.DirEntry.is_dir))]


def _image_names(folder: Path) -> Iterator[str]:
    for entry in _visible(folder):
        if entry.name.lower().endswith(EXTENSIONS) and _is(entry, os.DirEntry.is_file):
            yield entry.name


def _visible(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from (entry for entry in entries if entry.name[0] != ".")
    except OSError as error:
        raise UsageError(f"cannot read the folder {folder}: {error.strerror}") from None


def _is(entry: os.DirEntry[str], kind: Callable[[os.DirEntry[str]], bool]) -> bool:
    try:
        return kind(entry)
    except OSError as error:
        raise UsageError(f"cannot follow {entry.path}: {error.strerror}; remove it, or point it elsewhere") from None


def _images_below(folder: Path) -> list[str]:
    """Paths relative to ``folder`` of the images in it and in its visible folders, in a fixed order."""
    paths = sorted(_image_names(folder))
    for inner in _class_folders(folder):
        if inner.is_symlink() and folder.resolve().is_relative_to(inner.resolve()):
            raise UsageError(f"{inner} is a link to a folder that it lies in; remove it")
        paths += [os.path.join(inner.name, path) for path in _images_below(inner)]
    return paths
