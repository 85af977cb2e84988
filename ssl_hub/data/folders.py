"""Folders of image files: ``[split/]class/image.jpg``, or a flat folder of unlabelled images."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import numpy as np

from ssl_hub.data.endings import ARCHIVES, ending_of, expected_endings, image_endings
from ssl_hub.data.images import Source
from ssl_hub.data.passed_over import BESIDE_SPLITS, PassedOver
from ssl_hub.data.paths import Paths, shown
from ssl_hub.data.reading import Reading
from ssl_hub.data.splits import HELD_OUT, is_fold, meaning, resolve_split, speaking_of_splits, split_names
from ssl_hub.data.stored import Files
from ssl_hub.errors import UsageError

_LEVELS = 3  # of folders that hold one folder alone, as unpacked archives do, above the split folders
_NOT_OURS = frozenset(  # what systems leave
    ("lost+found", "@eaDir", "$RECYCLE.BIN", "System Volume Information", "__MACOSX", "__pycache__")
)
_TEXTS = frozenset(  # files without an ending that people lay beside images
    ("authors", "changelog", "changes", "citation", "copying", "copyright", "info", "licence", "license", "makefile",
     "manifest", "md5sum", "md5sums", "notice", "readme", "sha256sum", "sha256sums", "version")
)  # fmt: skip
PICTURES = frozenset(("image", "images", "img", "imgs", "jpegimages"))
ABOUT_PICTURES = frozenset(
    ("annotation", "annotations", "label", "labels", "mask", "masks", "segmentation", "segmentationclass",
     "segmentationobject")
)  # fmt: skip


class ImageFolder:
    """Images below ``root``: class folders, below split folders or not, or a flat folder of unlabelled images.

    Classes are the names of the class folders, sorted; every split uses those of ``train`` where it has any, and folds
    those of all folds, so that a split that lacks a class keeps the others' labels. Hidden files and folders, and files
    that are not images, are passed over and counted.
    """

    def __init__(self, root: Path, reading: Reading) -> None:
        reading.refuse_columns(f"image folder '{root}'")
        self.root = _with_splits(root)
        self.name = str(root)
        self.recorded = root.resolve().name  # where data lies is nobody else's business
        self.values = reading.values
        self._together = reading.together
        self._folders = _split_folders(self.root)
        self.splits = {split: folder.name for split, folder in self._folders.items()} or {"train": ""}

    def open(self, split: str) -> Source:
        """Raises :class:`UsageError` for a missing split, an empty class folder, a class that ``train`` lacks, images
        beside class folders, splits below classes, links that lead nowhere, or no images at all."""
        if not self._folders:
            return self._whole(split)
        passed, taken = PassedOver(), self._folders.values()
        beside = [name for name in _listing(self.root, PassedOver())[0] if self.root / name not in taken]
        # A folder beside the split folders is had by its own name, and no split stands for it: train_mini, extra.
        found = split if split in beside else resolve_split(split, self.splits, self.name)
        for name in beside:
            if name not in {found, *self._together}:
                holds_images = any(images for images, _ in _images_below(self.root / name, PassedOver()))
                passed.add(BESIDE_SPLITS if holds_images else "folder without images", name)
        folds = [folder for name, folder in self._folders.items() if is_fold(name)] if is_fold(found) else []
        train = [self._folders["train"]] if found != "train" and "train" in self._folders else folds
        classes = sorted({name for folder in train for name in _listing(_unwrapped(folder), PassedOver())[0]})
        folder = _unwrapped(self._folders.get(found, self.root / found))
        _refuse_splits(folder)
        return self._source(folder, found, classes, passed)

    def _whole(self, split: str) -> Source:
        whole = self._source(self.root, "train", [], PassedOver())
        if split == "train":
            return whole
        if whole.classes is None:
            raise UsageError(
                f"{self.name} is a flat folder of {len(whole)} unlabelled images, all of it split 'train': "
                f"there is no split {split!r}"
            )
        raise UsageError(
            f"{self.name} has no split folders, so all of it is split 'train' and there is no split {split!r}; lay it "
            f"out as {self.name}/train/<class>/ and {self.name}/{split}/<class>/, or ask for 'train' to get all of it"
        )

    def _source(self, folder: Path, split: str, reference: list[str], passed: PassedOver) -> Source:
        class_folders, loose = _listing(folder, passed)
        if class_folders and loose:
            raise UsageError(
                f"{folder} holds {len(loose)} images ({loose[0]}, ...) beside the class folder {class_folders[0]!r}; "
                "move the images into class folders, or the folders away"
            )
        if not class_folders and not loose:
            raise _without_images(folder, passed)
        if not class_folders:
            source = Source(self.recorded, split, Files(folder, loose, self.values))
        else:
            _refuse_annotations(folder, class_folders)
            source = self._labelled(folder, split, class_folders, reference or class_folders, passed)
        source.passed_over = passed
        return source

    def _labelled(
        self, folder: Path, split: str, class_folders: list[str], classes: list[str], passed: PassedOver
    ) -> Source:
        place = {name: index for index, name in enumerate(classes)}
        counts: list[int] = []

        def paths() -> Iterator[str]:
            for name in class_folders:
                if name not in place:
                    raise UsageError(
                        f"split {split!r} of {self.name} has class {name!r}, which split 'train' lacks; 'train' has "
                        f"{len(classes)} classes: {', '.join(classes[:10])}{', ...' if len(classes) > 10 else ''}"
                    )
                inside = _images_of_class(folder / name, passed)
                counts.append(len(inside))
                yield from (f"{name}{os.sep}{path}" for path in inside)

        images = Files(folder, Paths(paths()), self.values)
        labels = np.repeat([place[name] for name in class_folders], counts)
        return Source(self.recorded, split, images, classes=[*map(shown, classes)], labels=labels)


def _with_splits(root: Path) -> Path:
    """``root``, or the folder of splits that it holds alone, as in ``archive/data/train``."""
    folder = root
    for _ in range(_LEVELS):
        folders, images = _listing(folder, PassedOver())
        if images or len(folders) != 1 or meaning(folders[0]):
            break
        folder = folder / folders[0]
        if _split_folders(folder):
            return folder
    return root


def _unwrapped(split: Path) -> Path:
    """The inner of two folders of one name where there is nothing else, as in ``seg_train/seg_train``."""
    folders, images = _listing(split, PassedOver())
    return split / folders[0] if folders == [split.name] and not images else split


def _split_folders(root: Path) -> dict[str, Path]:
    """Split folders by name; empty where ``root`` holds classes or images, one of which may be called ``train``."""
    folders, _ = _listing(root, PassedOver())
    named = speaking_of_splits(folders)
    is_layout = _are_splits(named, folders) or any(_listing(root / name, PassedOver())[0] for name in named)
    return {split: root / name for split, name in split_names(named).items()} if is_layout else {}


def _are_splits(named: Collection[str], folders: Collection[str]) -> bool:
    """Whether those of ``folders`` that speak of splits are such by the names alone, and no classes."""
    spoken = {meaning(name) for name in named}
    return len(named) == len(folders) or ("train" in spoken and not spoken.isdisjoint(HELD_OUT))


def _listing(folder: Path, passed: PassedOver) -> tuple[list[str], list[str]]:
    """Sorted names of the folders and of the images in ``folder``; the rest is passed over."""
    folders, images, endings = [], [], frozenset(image_endings())
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                name, ending = entry.name, ending_of(entry.name)
                if name.startswith(".") or name in _NOT_OURS:
                    passed.add("hidden", name)
                elif ending in endings and _is(entry, os.DirEntry.is_file):
                    images.append(name)
                elif _is(entry, os.DirEntry.is_dir):
                    folders.append(name)
                elif ending not in endings:
                    passed.add(ending or ("text" if name.lower() in _TEXTS else "without an ending"), name)
                elif entry.is_symlink():
                    raise UsageError(
                        f"{entry.path} is a link to {os.readlink(entry.path)}, which does not exist; restore that, or "
                        "remove the link"
                    )
                else:
                    passed.add("not a file", name)
    except OSError as error:
        raise UsageError(f"cannot read the folder {folder}: {error.strerror}") from None
    return sorted(folders), sorted(images)


def _is(entry: os.DirEntry[str], kind: Callable[[os.DirEntry[str]], bool]) -> bool:
    try:
        return kind(entry)
    except OSError as error:
        raise UsageError(f"cannot follow {entry.path}: {error.strerror}; remove it, or point it elsewhere") from None


def _images_of_class(folder: Path, passed: PassedOver) -> list[str]:
    found: list[str] = []
    here = PassedOver()
    for path, inner in _images_below(folder, here):
        if {"train"} < {meaning(name) for name in speaking_of_splits(inner)}:
            raise UsageError(
                f"class folder {folder} holds folders called as splits ({', '.join(inner[:3])}); lay them out as "
                f"<split>/{folder.name}/, or give the folder that holds them if they are the splits"
            )
        found += path
    if not found:
        beside = f" ({here.words()})" if here else ""
        raise UsageError(
            f"class folder {folder} has no images{beside}; add files ending in {expected_endings()}, or remove it"
        )
    for reason, some in here.items():
        passed.add(reason, os.path.join(folder.name, some.example), some.number)
    return found


def _images_below(folder: Path, passed: PassedOver) -> Iterator[tuple[list[str], list[str]]]:
    """Images of ``folder`` and of the visible folders in it, by folder in a fixed order, with the names of the folders
    in each.

    Paths are relative to ``folder``.
    """
    folders, images = _listing(folder, passed)
    yield images, folders
    for name in folders:
        inner = folder / name
        if inner.is_symlink() and folder.resolve().is_relative_to(inner.resolve()):
            raise UsageError(f"{inner} is a link to a folder that it lies in; remove it")
        for paths, below in _images_below(inner, passed):
            yield [f"{name}{os.sep}{path}" for path in paths], below


def _refuse_annotations(folder: Path, class_folders: list[str]) -> None:
    if found := pictures_and_annotations(class_folders):
        one, other = found
        raise UsageError(
            f"{folder} holds {one!r} beside {other!r}: pictures and what is drawn or said about them, not classes; "
            f"give {folder / one}"
        )


def pictures_and_annotations(folders: Collection[str]) -> tuple[str, str] | None:
    """One folder of each kind where these hold both, as ``images`` beside ``masks``."""
    lower = {name.lower(): name for name in folders}
    pictures, about = lower.keys() & PICTURES, lower.keys() & ABOUT_PICTURES
    return (lower[min(pictures)], lower[min(about)]) if pictures and about else None


def _refuse_splits(folder: Path) -> None:
    """Where ``folder`` is a split, and its classes would be splits: ``fold1/train`` and ``fold1/test``."""
    class_folders = _listing(folder, PassedOver())[0]
    named = speaking_of_splits(class_folders)
    if len(named) > 1 and _are_splits(named, class_folders):
        raise UsageError(
            f"{folder}, which is called as a split, holds folders called as splits ({', '.join(named[:3])}) where "
            f"classes are expected; give {folder} where these are the splits"
        )


def _without_images(folder: Path, passed: PassedOver) -> UsageError:
    if not passed.keys().isdisjoint(ARCHIVES):
        return UsageError(
            f"{folder} holds .tar files, which pre-training alone reads, as a stream: set data.stream=true; to measure "
            "on them, unpack them"
        )
    beside = f" ({passed.words()})" if passed else ""
    return UsageError(f"no images in {folder}{beside}; expected files ending in {expected_endings()}")
