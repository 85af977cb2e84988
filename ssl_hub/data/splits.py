"""What splits are called: the words that name one, which split is meant by a name, and which part of it.

The one place for such names. Folders, tables and shards ask it, so the same name means the same split in all of them.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from ssl_hub.errors import UsageError

# Those of `datasets.data_files`, which a test compares: importing it would cost every process a second. VOC's
# `trainval`, STL-10's images without labels, and what people write beside come to them.
WORDS = {
    "train": ("train", "training", "trainval", "trn"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation", "tst", "holdout"),
    "unlabeled": ("unlabeled", "unlabelled"),
}
HELD_OUT = (*WORDS["validation"], *WORDS["test"])
"""Names of the split that is not trained on; each stands for another where it is absent, and none for ``train``."""

_OWN = ("train", "test", "validation", "val", "valid", "unlabeled", "unlabelled")  # kept as they are written
_STAND_IN = ("validation", "val", "valid", "dev", "test")
_MEANING = {word: split for split, words in WORDS.items() for word in words}
_UNION = "trainval"  # holds what train and val hold

_HELD_OUT = re.compile(r"(?:hold|held)[\W_]?out", re.IGNORECASE)
_BETWEEN_WORDS = re.compile(r"[\W\d_]+|(?<=[a-z])(?=[A-Z])")  # more than the "-._ 0-9" of `datasets`, and camelCase
_FOLD = re.compile(r"(?:k[\W_]?)?folds?[\W_]*\d+|(?:cv|split)[\W_]*\d+", re.IGNORECASE)
# Of a part of a name, and without the others' words: split_000.parquet may be any piece.
_FOLD_OF_FILES = re.compile(r"(?<![a-z])(?:k[\W_]?)?folds?[\W_]*\d+", re.IGNORECASE)
# What may stand beside the word and says nothing else: train_images, test set, val2017, trainA.
_FILLERS = frozenset(
    ("a", "b", "c", "all", "crop", "cropped", "data", "dataset", "file", "files", "final", "folder", "full", "image",
     "images", "img", "imgs", "jpeg", "jpegs", "jpg", "new", "original", "photo", "photos", "pic", "pics", "picture",
     "pictures", "png", "raw", "resized", "sample", "samples", "set", "small", "split")
)  # fmt: skip


def meaning(name: str) -> str | None:
    """The split that a name speaks of: ``train`` for ``Training``, ``train_images`` or ``trainA``; None for others."""
    return next((_MEANING[word] for word in words_of(name) if word in _MEANING), None)


def words_of(name: str) -> list[str]:
    """Lower-case words of a name without its numbers; ``trainset`` counts as two."""
    words: list[str] = []
    for word in filter(None, _BETWEEN_WORDS.split(_HELD_OUT.sub("holdout", name))):
        fused = re.fullmatch(rf"({'|'.join(_MEANING)})({'|'.join(_FILLERS)})", word.lower())
        words += fused.groups() if fused else [word.lower()]
    return words


def alike(names: Collection[str]) -> dict[str, list[str]]:
    """The names of splits by what they mean; without special ones, and without ``trainval``, which is no other part of
    ``train``."""
    found: dict[str, list[str]] = {}
    for name in names:
        if _UNION not in words_of(name) and not _is_special(name):
            found.setdefault(meaning(name) or name, []).append(name)
    return found


def _is_special(name: str) -> bool:
    """Whether a name says more than which split it is of: ``train_mini``, ``val_hard``."""
    return not _FILLERS.issuperset(_beside(name))


def _beside(name: str) -> tuple[str, ...]:
    """The words of a name that speak of no split."""
    return tuple(word for word in words_of(name) if word not in _MEANING)


def speaking_of_splits(names: Collection[str]) -> list[str]:
    """Those of the folder names ``names`` that speak of a split and of nothing else.

    Besides the word there may be fillers, as in ``train_images``, or what the name of another split has too, as in
    ``mnist_train`` and ``mnist_test``. So ``test_tube`` beside ``beaker`` is a class. Folds, ``fold1`` and ``fold2``,
    are splits of their own names.
    """
    spoken = {name: split for name in names if (split := meaning(name))}
    rest = {name: _beside(name) for name in spoken}
    splits_with = {words: {spoken[name] for name in spoken if rest[name] == words} for words in {*rest.values()}}
    folds = [name for name in names if name not in spoken and is_fold(name)]
    spoken_alone = [name for name, words in rest.items() if len(splits_with[words]) > 1 or _FILLERS.issuperset(words)]
    return spoken_alone + (folds if len(folds) > 1 else [])


def named_after_one(names: Collection[str]) -> tuple[str, list[str]] | None:
    """The one of the folder names that says nothing of a split, and the others, where all are called as it is with a
    word for a held-out split: ``rps`` beside ``rps-test-set``, ``horse`` beside ``validation-horse``. (But ``tube``
    beside ``test_tube``: what begins so may be a thing.)"""
    one, *more = [name for name in names if meaning(name) is None] or [""]
    words, others = words_of(one), [name for name in names if name != one]

    def holds(name: str) -> bool:
        its = words_of(name)
        after, before = its[len(words) :], its[: -len(words)]
        if its[: len(words)] == words:
            return not {*HELD_OUT}.isdisjoint(after) and {*HELD_OUT, *_FILLERS}.issuperset(after)
        return its[-len(words) :] == words and bool(before) and {*WORDS["validation"]}.issuperset(before)

    return (one, others) if words and others and not more and all(map(holds, others)) else None


def is_fold(name: str) -> bool:
    return _FOLD.fullmatch(name) is not None


def fold_in(name: str) -> str | None:
    """What a file's or folder's name says of a fold: ``fold1`` of ``data-fold1-000``."""
    found = _FOLD_OF_FILES.search(name)
    return found[0] if found else None


def split_names(names: Collection[str]) -> dict[str, str]:
    """Names of splits to what the data calls them: ``{"train": "Training", "val": "val"}``.

    A usual name is kept as it is, another becomes the split that it means, and where several mean the same (``trainA``
    and ``trainB``, ``val`` and ``val_hard``) each keeps its own.
    """
    usual = {name: _usual(name) for name in names}
    counts, meant = Counter(usual.values()), Counter(map(meaning, names))
    shared = {n for n, split in usual.items() if counts[split] > 1 or (n.lower() not in _OWN and meant[meaning(n)] > 1)}
    return {name if name in shared and name != split else split: name for name, split in usual.items()}


def _usual(name: str) -> str:
    lower = name.lower()
    return lower if lower in _OWN else meaning(name) or name


def resolve_split(split: str, available: Collection[str], where: str, *, joins: bool = True) -> str:
    """The available split that ``split`` means. Raises :class:`UsageError` listing what ``where`` has.

    An exact name wins, then what the data itself calls so, then one that means the same where the name says nothing
    else: ``train`` is not ``train_mini``. Public data names its held-out split ``test``, ``validation``,
    ``val``, ``valid``, ``dev`` or ``eval``; where the one asked for is absent, validation names are preferred to each
    other before ``test``, and neither stands for several that mean the same (``testA`` and ``testB``). ``joins`` says
    whether ``+`` may join several.
    """
    called = [name for name, its in available.items() if its == split] if isinstance(available, Mapping) else []
    special = _is_special(split)
    for name in (split, *called, *([] if special else [_usual(split), meaning(split)])):
        if name is not None and name in available:
            return name
    same = [name for name in available if meaning(name) is not None and meaning(name) == meaning(split)]
    if not special and _usual(split) in HELD_OUT:
        for other in _STAND_IN:
            if other in (same or available):
                return other
    together = sorted(same or [name for name in available if is_fold(name)])
    joined = f"; several are joined by '+', as {'+'.join(together)}" if joins and len(together) > 1 else ""
    raise UsageError(f"{where} has no split {split!r}; it has {', '.join(sorted(available)) or 'none'}{joined}")


def warn_of_others(
    split: str, taken: Collection[str], available: Collection[str], where: str, *, joins: bool = True
) -> None:
    """Warn of what means the same as the splits that were taken and is left out: ``Train`` beside ``train``. ``joins``
    as in :func:`resolve_split`."""
    kinds = [names for names in alike(available).values() if not {*names}.isdisjoint(taken)]
    others = sorted({name for names in kinds for name in names}.difference(taken))
    if others:
        fix = f"ask for {'+'.join([split, *others])}" if joins else "move them into one folder that is called so"
        warnings.warn(
            f"split {split!r} of {where} is {', '.join(sorted(taken))} alone: {', '.join(others)}, by the name of the "
            f"same split, is left out; where they belong together, {fix}",
            stacklevel=3,
        )


class Part(NamedTuple):
    """A part of a split, as ``name[start:stop:step]@file_list``: each of the two restrictions may be absent."""

    name: str
    bounds: str = ""  # as written, with its brackets
    file_list: Path | None = None

    def taken(self, count: int) -> slice:
        """The images of ``count`` that the bounds take. Percentages count in rounded images, as in ``datasets``."""
        return slice(*(_bound(text, count) for text in self.bounds[1:-1].split(":")))


def parse_split(split: str) -> list[Part]:
    """The parts that ``+`` joins in ``train[:10%]+unlabeled`` or ``train@1percent.txt``.

    Raises :class:`UsageError` where a name is missing or a slice is none.
    """
    parts = []
    for text in split.split("+"):
        selected, at, file = text.strip().partition("@")
        name, bracket, inside = selected.partition("[")
        if not name or (at and not file):
            raise UsageError(
                f"split {split!r} is not a name or names joined by '+', as in 'train' or 'train+unlabeled'"
            )
        if bracket and not re.fullmatch(r"(-?\d+%?)?:(-?\d+%?)?(:([1-9]\d*)?)?\]", inside):
            raise UsageError(f"split {selected!r} is no slice, as in 'train[:5000]', 'train[:10%]' or 'train[::10]'")
        parts.append(Part(name, bracket + inside, Path(file) if at else None))
    return parts


def _bound(text: str, count: int) -> int | None:
    if not text:
        return None
    return round(int(text[:-1]) * count / 100) if text.endswith("%") else int(text)
