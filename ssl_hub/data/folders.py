"""Folders of image files: ``[split/]class/image.jpg``, or a flat folder of unlabelled images."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np

from ssl_hub.data.annotations import pictures_and_annotations
from ssl_hub.data.endings import ARCHIVES, expected_endings
from ssl_hub.data.images import Source
from ssl_hub.data.listing import folder_alone, images_below, listing
from ssl_hub.data.passed_over import ALIKE_BELOW, AROUND_CLASSES, BESIDE_SPLITS, PassedOver
from ssl_hub.data.paths import Paths, shown
from ssl_hub.data.reading import Reading
from ssl_hub.data.splits import (
    HELD_OUT,
    is_fold,
    meaning,
    named_after_one,
    resolve_split,
    speaking_of_splits,
    split_names,
)
from ssl_hub.data.stored import Files
from ssl_hub.errors import UsageError

_LEVELS = 3  # of folders that hold one folder alone, as unpacked archives do, above the split folders or the classes


class ImageFolder:
    """Images below ``root``: class folders, below split folders or not, or a flat folder of unlabelled images.

    Classes are the names of the class folders, sorted; every split uses those of ``train`` where it has any, and folds
    those of all folds, so that a split that lacks a class keeps the others' labels. A folder that holds all classes and
    nothing else is none, as EuroSAT's ``2750``. Hidden files and folders, and files that are not images, are passed
    over and counted.
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
        beside = [name for name in listing(self.root, PassedOver())[0] if self.root / name not in taken]
        # A folder beside the split folders is had by its own name, and no split stands for it: train_mini, extra.
        found = split if split in beside else resolve_split(split, self.splits, self.name)
        for name in beside:
            if name not in {found, *self._together}:
                passed.add(BESIDE_SPLITS if _holds_images(self.root / name) else "folder without images", name)
        folds = [folder for name, folder in self._folders.items() if is_fold(name)] if is_fold(found) else []
        train = [self._folders["train"]] if found != "train" and "train" in self._folders else folds
        inner = [self._of_classes(folder, PassedOver()) for folder in train]
        classes = sorted({name for folder in inner for name in listing(folder, PassedOver())[0]})
        around = {its.relative_to(_unwrapped(of)).parts for of, its in zip(train, inner, strict=True)} - {()}
        folder = self._of_classes(self._folders.get(found, self.root / found), passed, classes, around)
        _refuse_splits(folder)
        return self._source(folder, found, classes, passed)

    def _of_classes(
        self, split: Path, passed: PassedOver, classes: Collection[str] = (), around: Collection[tuple[str, ...]] = ()
    ) -> Path:
        """The folder of a split's classes or images. ``classes`` and folders ``around`` them are those of train."""
        if folder_alone(unwrapped := _unwrapped(split), PassedOver()) is None:
            return unwrapped  # as almost always: the other splits need not be listed
        others = (listing(_unwrapped(other), PassedOver())[0] for other in self._folders.values() if other != split)
        named = {name for names in others if len(names) > 1 for name in names}
        return _around_classes(unwrapped, named.union(classes), around, passed)

    def _whole(self, split: str) -> Source:
        passed = PassedOver()
        whole = self._source(_around_classes(self.root, (), (), passed), "train", [], passed)
        if split == "train":
            if alike := _alike_below(whole):
                passed.add(ALIKE_BELOW, alike)
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
        class_folders, loose = listing(folder, passed)
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
        _refuse_splits_below(folder, class_folders)
        labels = np.repeat([place[name] for name in class_folders], counts)
        return Source(self.recorded, split, images, classes=[*map(shown, classes)], labels=labels)


def _with_splits(root: Path) -> Path:
    """``root``, or the folder of splits that it holds alone, as in ``archive/data/train``."""
    folder = root
    for _ in range(_LEVELS):
        name = folder_alone(folder, PassedOver())
        if name is None or meaning(name):
            break
        folder = folder / name
        if _split_folders(folder):
            return folder
    return root


def _unwrapped(split: Path) -> Path:
    """The inner of two folders of one name where there is nothing else, as in ``seg_train/seg_train``."""
    return split / split.name if folder_alone(split, PassedOver()) == split.name else split


def _around_classes(
    root: Path, classes: Collection[str], around: Collection[tuple[str, ...]], passed: PassedOver
) -> Path:
    """``root``, or what it holds alone where that is a folder of classes, some levels down, or is called as the folders
    ``around`` those of train are. One of the ``classes`` is none."""
    folder, seen = root, PassedOver()
    for _ in range(_LEVELS):
        try:
            name = folder_alone(folder, seen)
            if name is None or name in classes:
                return root
            folder = folder / name
            is_found = _holds_classes(folder)
        except UsageError:
            return root  # what is broken is named where it is read
        within = folder.relative_to(root)
        if within.parts in around or is_found:
            passed.add_all(seen)
            passed.add(AROUND_CLASSES, str(within))
            return folder
    return root


def _holds_classes(folder: Path) -> bool:
    folders, images = listing(folder, PassedOver())
    return len(folders) > 1 and not images and all(_holds_images(folder / name) for name in folders)


def _holds_images(folder: Path) -> bool:
    return any(images for images, _ in images_below(folder, PassedOver()))


def _alike_below(source: Source) -> str:
    """What may be splits under names that are no words for them, in words: classes that all hold folders of the same
    names, and nothing beside them."""
    inside: dict[str, set[str]] = {}
    for path in (source.paths() or ()) if source.classes else ():
        parts = path.split(os.sep, 2)
        if len(parts) < 3:
            return ""
        inside.setdefault(parts[0], set()).add(parts[1])
    names = next(iter(inside.values()), set())
    if len(inside) < 2 or len(names) < 2 or any(its != names for its in inside.values()):
        return ""
    several, alike = (", ".join(repr(shown(name)) for name in sorted(some)[:3]) for some in (inside, names))
    return f"{several} hold folders of the same names: {alike}"


def _split_folders(root: Path) -> dict[str, Path]:
    """Split folders by name; empty where ``root`` holds classes or images, one of which may be called ``train``."""
    folders, _ = listing(root, PassedOver())
    one, others = named_after_one(folders) or ("", [])
    if one and _hold_its_classes(root / one, [root / name for name in others]):
        return {"train": root / one} | {split: root / name for split, name in split_names(others).items()}
    named = speaking_of_splits(folders)
    is_layout = _are_splits(named, folders) or any(listing(root / name, PassedOver())[0] for name in named)
    return {split: root / name for split, name in split_names(named).items()} if is_layout else {}


def _hold_its_classes(train: Path, others: Collection[Path]) -> bool:
    """Whether ``train`` holds classes, and each of the others some of them or images alone."""
    classes, loose = listing(train, PassedOver())
    theirs = [listing(other, PassedOver()) for other in others]
    return (
        len(classes) > 1
        and not loose
        and all({*classes}.issuperset(folders) and not (folders and images) for folders, images in theirs)
    )


def _are_splits(named: Collection[str], folders: Collection[str]) -> bool:
    """Whether those of ``folders`` that speak of splits are such by the names alone, and no classes."""
    spoken = {meaning(name) for name in named}
    return len(named) == len(folders) or ("train" in spoken and not spoken.isdisjoint(HELD_OUT))


def _images_of_class(folder: Path, passed: PassedOver) -> list[str]:
    found: list[str] = []
    here = PassedOver()
    for path, inner in images_below(folder, here):
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


def _refuse_annotations(folder: Path, class_folders: list[str]) -> None:
    if found := pictures_and_annotations(class_folders):
        one, other = found
        raise UsageError(
            f"{folder} holds {one!r} beside {other!r}: pictures and what is drawn or said about them, not classes; "
            f"give {folder / one}"
        )


def _refuse_splits(folder: Path) -> None:
    """Where ``folder`` is a split, and its classes would be splits: ``fold1/train`` and ``fold1/test``."""
    class_folders = listing(folder, PassedOver())[0]
    named = speaking_of_splits(class_folders)
    if len(named) > 1 and _are_splits(named, class_folders):
        raise UsageError(
            f"{folder}, which is called as a split, holds folders called as splits ({', '.join(named[:3])}) where "
            f"classes are expected; give {folder} where these are the splits"
        )


def _refuse_splits_below(folder: Path, class_folders: Collection[str]) -> None:
    """Where the classes would be ``2020`` and ``2021``, of which each holds a ``train`` and nothing else."""
    spoken: set[str] = set()
    for name in class_folders:
        folders, images = listing(folder / name, PassedOver())
        if images or not folders or not all(map(meaning, folders)) or len(speaking_of_splits(folders)) < len(folders):
            return
        spoken |= {*folders}
    if len(class_folders) > 1 and "train" in map(meaning, spoken):
        one = next(iter(class_folders))
        raise UsageError(
            f"{folder} holds {', '.join(map(repr, [*class_folders][:3]))}, in which there are folders called as splits "
            f"alone ({', '.join(sorted(spoken)[:3])}), where classes are expected; give one, as {folder / one}, or lay "
            "them out as <split>/<class>/"
        )


def _without_images(folder: Path, passed: PassedOver) -> UsageError:
    if not passed.keys().isdisjoint(ARCHIVES):
        return UsageError(
            f"{folder} holds .tar files, which pre-training alone reads, as a stream: set data.stream=true; to measure "
            "on them, unpack them"
        )
    beside = f" ({passed.words()})" if passed else ""
    return UsageError(f"no images in {folder}{beside}; expected files ending in {expected_endings()}")
