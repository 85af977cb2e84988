"""What is known of a project's checkpoints, and the registry of projects. What a source does not say is assumed, and
marked so."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypedDict, Unpack

from ssl_hub.config import Data
from ssl_hub.errors import UsageError
from ssl_hub.hub.importers.checkpoint import Tensors
from ssl_hub.hub.importers.stem import Stem
from ssl_hub.model.lineage import UNKNOWN
from ssl_hub.registry import Registry

Colours = tuple[float, float, float]
Normalisation = tuple[Colours, Colours]  # mean and standard deviation of values in 0..1

PLAIN = "plain"  # the source of weights that no project is known to have written


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The tensors of a checkpoint by role; heads are numbered as layers of a Sequential. Empty: not there."""

    backbone: Tensors
    projector: Tensors = field(default_factory=dict)
    predictor: Tensors = field(default_factory=dict)
    target_backbone: Tensors = field(default_factory=dict)
    target_projector: Tensors = field(default_factory=dict)
    classifier: Tensors = field(default_factory=dict)  # weight [K, C] and bias [K] of labels that it was trained with


@dataclass(frozen=True, kw_only=True)
class Source:
    """A project and its checkpoints."""

    name: str
    split: Callable[[Tensors], Parts]
    marks: tuple[str, ...]  # each must begin some name; none: found by no names
    licence: str = UNKNOWN  # of weights that are the project's own or bound by its licence
    code: str | None = None  # else the licence of its code, which says nothing of weights that others trained with it
    stems: tuple[Stem, ...] = ()  # of its ResNets, told apart by the size of the first kernel
    pads_same: bool = False  # its convolutions pad as TensorFlow's do
    normalisation: Mapping[str, Normalisation] = field(default_factory=dict)  # of its images by data set; `*`: of all
    method: str | None = None  # what its code trains, where that is one method alone
    labels: str | None = None  # what the classes of its classifier are, by timm's name

    def knows(self, tensors: Tensors) -> bool:
        return bool(self.marks) and all(any(re.match(mark, name) for name in tensors) for mark in self.marks)

    def method_of(self, parts: Parts) -> str | None:
        """What trained this checkpoint. BYOL's has a target."""
        return None if self.method == "byol" and not parts.target_backbone else self.method

    def normalisation_of(self, data: Data) -> Normalisation | None:
        return self.normalisation.get(data.name, self.normalisation.get("*"))


SOURCES: Registry[Source] = Registry("source")


class Facts(TypedDict, total=False):
    """What :func:`source` takes: the fields of :class:`Source`."""

    licence: str
    code: str | None
    stems: tuple[Stem, ...]
    pads_same: bool
    normalisation: Mapping[str, Normalisation]
    method: str | None
    labels: str | None


def source(
    name: str, *marks: str, **facts: Unpack[Facts]
) -> Callable[[Callable[[Tensors], Parts]], Callable[[Tensors], Parts]]:
    """Register the function that follows, which splits tensors by role; ``facts`` are fields of :class:`Source`."""

    def add(split: Callable[[Tensors], Parts]) -> Callable[[Tensors], Parts]:
        SOURCES.add(name, Source(name=name, split=split, marks=marks, **facts))
        return split

    return add


def detect(tensors: Tensors, *, where: str) -> Source:
    """The source whose marks are all there; ``plain`` where none's are. UsageError where several are."""
    known = [SOURCES[name] for name in SOURCES.names() if SOURCES[name].knows(tensors)]
    if len(known) > 1:
        raise UsageError(f"{where} could be from {' or '.join(s.name for s in known)}; say which (SOURCE)")
    return known[0] if known else SOURCES[PLAIN]
