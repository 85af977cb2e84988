"""Weights by name, for whoever starts from them: timm's, a run's or release's, or another project's checkpoint.

    timm       resnet50.a1_in1k, timm:resnet50@a1_in1k
    run        a run folder, or its name in the store; RUN@STEP, or one that is not finished: a checkpoint's
    release    a folder, a name in the store or bundled with the package
    hub        hf-hub:OWNER/NAME
    file       FILE, FILE::SOURCE, FILE::SOURCE::target; a source is one of the importers'

:func:`pretrained` opens the first four as models; evaluation and fine-tuning take them from there. :func:`initial` is
what ``backbone.init`` of a recipe names, for the recipe's backbone.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ssl_hub.atomic import expanded
from ssl_hub.config import Recipe
from ssl_hub.errors import UsageError
from ssl_hub.hub import store
from ssl_hub.hub.here import Place
from ssl_hub.hub.importers.reading import AUTO, imported_link, read_parts
from ssl_hub.hub.importers.stem import stem_of
from ssl_hub.hub.remote import PREFIX
from ssl_hub.hub.snapshot import find_snapshot
from ssl_hub.model import backbones, files
from ssl_hub.model.lineage import INITIALISED_FROM as INITIALISED_FROM
from ssl_hub.model.lineage import LINEAGE, UNKNOWN, lineage_of
from ssl_hub.model.loading import load_into
from ssl_hub.model.metrics import METRICS
from ssl_hub.model.reading import read_json
from ssl_hub.model.release import BRANCHES, load_strictly, read_config, read_facts, read_recipe
from ssl_hub.model.stages import classifier_names

TIMM, PARTS = "timm:", "::"
SUFFIXES = {".safetensors", *files.PICKLES}

Kind = Literal["timm", "run", "release", "hub", "file"]
Colours = tuple[float, float, float]


@dataclass(frozen=True, kw_only=True)
class Pretrained:
    """A model with its weights: features [B, C] of [B, 3, S, S], in eval mode."""

    kind: Kind
    name: str
    model: nn.Module
    licence: str
    folder: Path | None = None  # of a release
    config: dict[str, Any] | None = None  # config.json of a release

    @property
    def origin(self) -> dict[str, Any]:
        """What they are, as a start of training: kind, name, licence, and how they came to be."""
        origin: dict[str, Any] = {"kind": self.kind, "name": self.name, "licence": self.licence}
        if self.folder is not None and self.config is not None:
            origin[LINEAGE] = lineage_of(self.config, read_recipe(self.folder), read_facts(self.folder))
        return origin


@dataclass(frozen=True, kw_only=True)
class Initial:
    """The weights that a recipe's backbone starts from, under its names; and how images came in when they were trained,
    where that is known."""

    tensors: Mapping[str, Tensor]
    normalisation: tuple[Colours, Colours] | None
    value_range: str | None  # data.range of a release
    origin: dict[str, Any]  # kind, name, licence, sha256, ...: for recipe.json, config.json and the card


def is_pretrained(name: str) -> bool:
    """Whether a name is spelt as one of timm's weights: a tag behind an architecture, after ``timm:`` or not."""
    base, tag = _timm_parts(name)
    return bool(tag) and (name.startswith(TIMM) or backbones.is_known(base))


def is_of_timm(name: str) -> bool:
    """Whether timm's weights are meant: a name that :func:`is_pretrained` and that no release on this machine has."""
    return is_pretrained(name) and _release_here(name) is None


def _release_here(name: str) -> Place | None:
    return None if name.startswith((TIMM, PREFIX)) else next((p for p in store.places(name) if p.found), None)


def pretrained(name: str, *, image_size: int | None = None) -> Pretrained:
    """Open a model that has weights of its own. ``image_size`` is for those of timm.

    Raises UsageError that says what was looked for and where, or which tensors did not load.
    """
    text = str(name)
    found = _release_here(text)
    if found is None and is_pretrained(text):
        return _of_timm(text, image_size)
    folder = store.resolve(text)
    config = read_config(folder)
    licence = str(config["ssl_hub"].get("licence", UNKNOWN))
    fetched = store.repository_of(text) if found is None else None
    kind: Kind = "hub" if fetched else "run" if (folder / METRICS).is_file() else "release"
    # Folders of the cache are called by commits.
    shown = f"{PREFIX}{fetched.id}@{folder.name}" if fetched else folder.name
    model = store.load(folder)
    return Pretrained(kind=kind, name=shown, model=model, licence=licence, folder=folder, config=config)


def initial(recipe: Recipe) -> Initial:
    """What ``backbone.init`` of a recipe names, fit for its backbone, position embeddings for its size of images.

    Raises UsageError for what is none of the things that it may name, saying where it was looked for; another
    architecture, naming both; and weights that do not all fit, naming the tensors with their shapes. A classifier alone
    is left out.
    """
    assert recipe.backbone.init is not None
    name = _release_of(recipe.backbone.init)
    if (snapshot := find_snapshot(name)) is not None:
        _check_architecture(recipe, snapshot.recipe.backbone.name)
        model, views = _backbone_of(recipe), snapshot.recipe.views
        load_into(model, snapshot.backbone()[0].state_dict(), where=f"backbone.init {name}")
        return _initial(model, (views.mean, views.std), snapshot.origin, snapshot.recipe.data.range)
    if PARTS in name or Path(name).suffix in SUFFIXES or (expanded(name).is_file() and not is_pretrained(name)):
        return _of_file(name, recipe)
    _check_is_meant(name)
    if is_pretrained(name):
        _check_architecture(recipe, _timm_parts(name)[0])  # before anything is downloaded
    found = pretrained(name, image_size=recipe.views.size if is_pretrained(name) else None)
    config: dict[str, Any] = found.model.pretrained_cfg  # type: ignore[assignment]
    theirs = found.model.made_by.name if found.config is None else found.config["architecture"]  # type: ignore[union-attr]
    _check_architecture(recipe, str(theirs))
    if found.folder is not None:
        files.check_unchanged(found.folder, files.TO_LOAD)
    # A stem's padding is in no shape. (Those of timm's own architectures are what they are.)
    if (padding := ((found.config or {}).get("model_args") or {}).get("stem_padding", 1)) != 1:
        raise UsageError(
            f"{name} pads its stem by {padding}, and {recipe.backbone.name} as it is trained here by 1: its features"
            " would not be the same"
        )
    model = _backbone_of(recipe)
    if (theirs := backbones.pool_of(found.model)) != (ours := backbones.pool_of(model)):
        raise UsageError(
            f"{name} pools by {theirs!r}, and {recipe.backbone.name} as it is trained here by {ours!r}: its features"
            " would not be the same"
        )
    load_into(model, found.model.state_dict(), where=f"backbone.init {name}")
    value_range = None if found.config is None else str(found.config["ssl_hub"].get("range", "auto"))
    return _initial(model, (_three(config["mean"]), _three(config["std"])), found.origin, value_range)


def _release_of(name: str) -> str:
    """The folder of a release, where the name is that of the weights' file in it: how images come in is beside it."""
    path = expanded(name.removesuffix(f"{PARTS}{AUTO}"))
    config = path.parent / files.CONFIG
    if path.name != files.MODEL or not config.is_file():
        return name
    with suppress(UsageError):
        settings = read_json(config)
        if isinstance(settings, dict) and "architecture" not in settings:  # transformers' own
            return name
    return str(path.parent)


def sha256_of(tensors: Mapping[str, Tensor]) -> str:
    """The sha256 of names, types, shapes and bytes of tensors, in the order of their names: however they are stored,
    the same weights have the same."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _of_timm(name: str, image_size: int | None) -> Pretrained:
    """Weights of timm, all of which are loaded but their classifier's. From the Hub or its cache on this machine."""
    base, tag = _timm_parts(name)
    named = f"{base}.{tag}"
    with torch.random.fork_rng(devices=[]):
        try:
            whole = backbones.create_for(named, image_size, pretrained=True, num_classes=None)
        except backbones.NotToBeHad as error:
            from ssl_hub.hub.answers import not_to_be_had

            where = backbones.repository_of(named), backbones.address_of(named)
            raise not_to_be_had(named, error.__cause__, *where) from None
        model = backbones.create_for(named, image_size)
    beside = classifier_names(named, image_size=image_size)
    # timm itself drops a classifier and then loads whatever of the rest is there.
    body = {key: tensor for key, tensor in whole.state_dict().items() if key not in beside}
    load_strictly(model, body, where=f"the weights of {named}")
    licence = str(getattr(model, "pretrained_cfg", {}).get("license") or UNKNOWN)
    return Pretrained(kind="timm", name=named, model=model.eval(), licence=licence)


def _of_file(name: str, recipe: Recipe) -> Initial:
    """A checkpoint of another project, by its importer's rules."""
    text, *rest = name.split(PARTS)
    source, branch, *more = [*rest, *[AUTO, "online"][len(rest) :]]
    if more or branch not in BRANCHES:
        spelt = f"FILE, FILE{PARTS}SOURCE or FILE{PARTS}SOURCE{PARTS}target"
        raise UsageError(f"backbone.init is {name!r}, expected {spelt}")
    path = expanded(text)
    if not path.is_file():
        raise UsageError(f"backbone.init is {name!r}, and there is no file {path}")
    read = read_parts(path, recipe.backbone.name, source=source or AUTO, which=branch)  # type: ignore[arg-type]
    model = _backbone_of(recipe)
    stem, stem_by = read.load_into(model)
    if stem != stem_of(model):
        raise UsageError(
            f"{name} has a {stem}, and {recipe.backbone.name} a {stem_of(model)}: its features would change"
        )
    normalisation, licence = read.normalisation_of(recipe.data), read.origin.licence
    assumed = {"stem": stem_by == "assumed", "normalisation": normalisation is None}
    chain = [imported_link(read.facts, licence, assumed)]
    origin = {"kind": "file", "name": path.name, "licence": licence, LINEAGE: chain}
    return _initial(model, normalisation, origin)


def _backbone_of(recipe: Recipe) -> nn.Module:
    """The recipe's backbone, for weights to be loaded into. The random state stays as it is."""
    with torch.random.fork_rng(devices=[]):
        return backbones.create(recipe.backbone.name, image_size=recipe.views.size)


def _initial(
    model: nn.Module,
    normalisation: tuple[Colours, Colours] | None,
    origin: dict[str, Any],
    value_range: str | None = None,
) -> Initial:
    tensors = model.state_dict()
    hashed = {**origin, "sha256": sha256_of(tensors)}
    return Initial(tensors=tensors, normalisation=normalisation, value_range=value_range, origin=hashed)


def _check_is_meant(name: str) -> None:
    """Raise UsageError where a name is none of weights: where they were looked for, and what it may be."""
    text = name.removeprefix(TIMM)
    if is_pretrained(name) or name.startswith(PREFIX):
        return
    if name.startswith(TIMM) or backbones.is_known(text):
        tagged = [f"{text}.{tag}" for tag in backbones.tags_of(text.partition("@")[0])]
        there = f"timm's weights of it are {', '.join(tagged)}" if tagged else "timm has none of it"
        if name.startswith(TIMM) or not any(place.found for place in store.places(name)):
            raise UsageError(f"backbone.init is {name!r}, an architecture without weights: {there}")
        return
    try:
        store.resolve(name)
    except UsageError as error:
        folder = expanded(name)
        inside = sorted(n for n in os.listdir(folder) if Path(n).suffix in SUFFIXES) if os.path.isdir(folder) else []
        if inside:
            listed = ", ".join(inside[:4])
            raise UsageError(
                f"backbone.init is {name!r}, a folder that is no release: name one of its files ({listed})"
            ) from None
        raise UsageError(
            f"backbone.init is {name!r}: no checkpoint file, no weights of timm (ARCHITECTURE.TAG), and: {error}"
        ) from None


def _check_architecture(recipe: Recipe, theirs: str) -> None:
    name, ours = theirs.split(".")[0], recipe.backbone.name
    if name != ours:
        raise UsageError(
            f"backbone.init {recipe.backbone.init} is a {name}, and the recipe's backbone a {ours}: add"
            f" backbone.name={name}"
        )


def _timm_parts(name: str) -> tuple[str, str]:
    """Architecture and tag of ``timm:NAME@TAG`` or ``NAME.TAG``."""
    text = name.removeprefix(TIMM)
    base, _, tag = text.partition("@" if name.startswith(TIMM) and "@" in text else ".")
    return base, tag


def _three(values: Any) -> Colours:
    red, green, blue = (float(value) for value in values)
    return red, green, blue
