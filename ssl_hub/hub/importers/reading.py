"""A checkpoint of another project, read by its source's rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ssl_hub.config import Data
from ssl_hub.errors import UsageError
from ssl_hub.hub.importers.backbone import classifier_of, find_backbone, resnet_of
from ssl_hub.hub.importers.checkpoint import Tensors, tensors_of
from ssl_hub.hub.importers.content import read_content
from ssl_hub.hub.importers.project import PLAIN, Normalisation, Parts, Source
from ssl_hub.hub.importers.sources import SOURCES, detect, plain
from ssl_hub.hub.importers.stated import Stated, check_same, stated
from ssl_hub.hub.importers.stem import Decider, Padding, Stem, settled_stem
from ssl_hub.model import release
from ssl_hub.model.backbones import class_names
from ssl_hub.model.files import sha256
from ssl_hub.model.lineage import UNKNOWN
from ssl_hub.model.loading import load_into
from ssl_hub.model.stages import classifier_names

AUTO = "auto"


@dataclass(frozen=True, kw_only=True)
class CheckpointParts:
    """A checkpoint of another project as it was read; ``where`` names it in errors."""

    path: Path
    origin: Source
    branch: release.Branch
    whole: Parts  # as the source splits it
    parts: Parts  # of the branch that was asked for
    where: str
    architecture: str  # of timm, that it is read for
    classifier: frozenset[str]  # the names of that architecture's own classifier
    stated: Stated
    top_layer: str | None  # a linear layer on the backbone, of a file that does not say what it is

    @property
    def facts(self) -> dict[str, str]:
        """What file it is, and what the source and the names say of the training, for the record."""
        found = {
            "source": self.origin.name,
            "file": self.path.name,
            "sha256": sha256(self.path),
            "branch": self.branch,
            "method": self.origin.method_of(self.whole),
            "classifier": self.origin.labels if self.parts.classifier else None,
            "top_layer": self.top_layer,
            "code_licence": self.origin.code,
        }
        return {key: value for key, value in found.items() if value is not None}

    def normalisation_of(self, data: Data) -> Normalisation | None:
        """Mean and std of the images: as the file's own settings say, else what the source is known for."""
        return self.stated.normalisation or self.origin.normalisation_of(data)

    def backbone(self, tensors: Tensors, own: Mapping[str, Tensor], *, where: str) -> Tensors:
        """Those of a model of the architecture, whose names and shapes are ``own``."""
        return find_backbone(tensors, own, architecture=self.architecture, classifier=self.classifier, where=where)

    def load_into(self, model: nn.Module, *, padding: Padding | None = None) -> tuple[Stem | None, Decider]:
        """Put the weights into a backbone: all fit, or a UsageError. Its stem, and who decided it."""
        architecture = self.architecture
        found = self.backbone(self.parts.backbone, model.state_dict(), where=self.where)
        try:
            stem = settled_stem(
                found, model, self.origin.stems, stated=padding, source_pads_same=self.origin.pads_same,
                architecture=architecture, where=self.where,
            )  # fmt: skip
            load_into(model, found, where=self.where)
        except UsageError as error:
            looks = resnet_of(found)
            if looks in (None, resnet_of(model.state_dict())):
                raise
            raise UsageError(f"this looks like {looks}, and the recipe's backbone is {architecture}: {error}") from None
        check_same(self.stated, model, where=self.where)
        return stem


def imported_link(facts: Mapping[str, str], licence: str, assumed: Mapping[str, bool]) -> dict[str, Any]:
    """The link of a lineage that says that weights were imported; see :attr:`CheckpointParts.facts`."""
    listed = [what for what, is_so in assumed.items() if is_so]
    return {"step": "imported", **facts, "licence": licence, "assumed": listed}


def read_parts(
    path: Path, architecture: str, *, source: str = AUTO, which: release.Branch = "online"
) -> CheckpointParts:
    """Read a checkpoint for a backbone as :func:`import_checkpoint` does, which see."""
    if source != AUTO and source not in SOURCES:
        raise UsageError(
            f"unknown source {source!r}; it is one of {', '.join(SOURCES.names())}, or {AUTO}: torchvision's and timm's"
            f" weights, and any backbone without a project, are {PLAIN!r}"
        )
    known = None if source == AUTO else SOURCES[source]
    content = read_content(path)
    tensors = tensors_of(content, path)
    origin = known or detect(tensors, where=str(path))
    where = f"{path} (read as {origin.name}, {which} branch)"
    try:
        whole = origin.split(tensors)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None
    if not whole.backbone:  # weights alone, of a project that the user has named
        whole = plain(tensors)
    if origin.labels is not None and not _knows_its_labels(whole, origin.labels):  # so somebody else trained it
        origin, whole = (
            replace(origin, labels=None, licence=UNKNOWN, code=origin.licence),
            replace(whole, classifier={}),
        )
    headless = origin.labels is None and not (whole.projector or whole.predictor)
    beside = classifier_names(architecture)
    return CheckpointParts(
        path=path,
        origin=origin,
        branch=which,
        whole=whole,
        parts=_branch(whole, which, where),
        where=where,
        architecture=architecture,
        classifier=beside,
        stated=stated(path, content, architecture),
        top_layer=classifier_of(whole.backbone, beside) if headless else None,
    )


def _knows_its_labels(whole: Parts, labels: str) -> bool:
    """Whether there is a classifier of as many classes as the project's own labels have."""
    weight = whole.classifier.get("weight")
    return weight is not None and len(weight) == len(class_names(labels))


def _branch(parts: Parts, which: release.Branch, where: str) -> Parts:
    """The parts of a checkpoint, ``backbone`` and ``projector`` being those of the branch asked for."""
    if which == "online":
        if parts.target_backbone and not parts.backbone:
            name = next(iter(parts.target_backbone))
            raise UsageError(
                f"{where}: no online network in it, but a target's ({name!r}); use which='target' (--which target, or"
                f" FILE::{AUTO}::target as backbone.init)"
            )
        return parts
    if not parts.target_backbone:
        raise UsageError(f"{where}: no target network in it (SimSiam has none); use which='online'")
    return Parts(backbone=parts.target_backbone, projector=parts.target_projector, predictor=parts.predictor)
