"""A checkpoint of another project as a release of this one."""

from __future__ import annotations

import os
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from ssl_hub.atomic import expanded
from ssl_hub.config import Recipe
from ssl_hub.errors import UsageError
from ssl_hub.hub import store
from ssl_hub.hub.importers.checkpoint import Tensors
from ssl_hub.hub.importers.heads import fit, fit_predictor
from ssl_hub.hub.importers.project import Parts, Source
from ssl_hub.hub.importers.reading import AUTO, CheckpointParts, imported_link, read_parts
from ssl_hub.hub.importers.stem import Decider, Padding, Stem, stem_of
from ssl_hub.model import backbones, files, lineage, release
from ssl_hub.model.backbones import class_names
from ssl_hub.model.parts import with_overrides
from ssl_hub.model.probe_head import ProbeHead
from ssl_hub.model.results import installed_versions
from ssl_hub.model.siamese import Siamese, build
from ssl_hub.zoo import as_modified, get_recipe, run_name


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What an import made of a file; config.json and recipe.json say the same."""

    folder: Path
    imported_from: dict[str, str]  # source, file, sha256, branch, and what is known of its training
    licence: str
    stem: Stem | None  # None for models that do not begin as a ResNet does
    recipe: Recipe
    decided_by: dict[str, Decider]  # stem, normalisation: by the user or the source, or assumed to be the recipe's
    left_out: dict[str, str]  # projector, predictor, target -> why it is not in the release

    def __str__(self) -> str:
        views, origin = self.recipe.views, self.imported_from
        code = origin.get("code_licence")
        lines = {
            "source": f"{origin['source']}, {origin['branch']} branch of {origin['file']}",
            "licence": self.licence + (f" (the project's code: {code})" if code else ""),
            "stem": f"{self.stem or self.recipe.backbone.name}, {self._by('stem', '--padding')}",
            "images": f"mean {views.mean}, std {views.std}, {self._by('normalisation', 'views.mean= views.std=')}",
            **{role: f"left out: {reason}" for role, reason in self.left_out.items()},
            "release": str(self.folder),
        }
        return "\n".join(f"{key:11}{value}" for key, value in lines.items())

    def _by(self, what: str, option: str) -> str:
        by = self.decided_by[what]
        return f"by the {by}" if by != "assumed" else f"ASSUMED: no file says it; {option} states it"


def import_checkpoint(
    file: str | Path,
    recipe: str | Recipe,
    *,
    source: str = AUTO,
    which: release.Branch = "online",
    name: str | None = None,
    to: str | Path | None = None,
    licence: str | None = None,
    padding: Padding | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Imported:
    """Turn another project's checkpoint into a release that loads, evaluates and publishes as one trained here.

    The backbone must be the recipe's, tensor by tensor. Projector, predictor and target come along where they are the
    recipe's too. Mean and standard deviation of the images, and what the stem does beyond its shape, are what the user
    states, else what the source is known for, else assumed to be the recipe's and said to be. The release says that it
    was imported, from what, and under which licence.

    Args:
        file: written by ``torch.save``, or safetensors. Nothing in it is executed.
        recipe: what to file it under: a registered name, or a recipe.
        source: a name in ``SOURCES``, or ``auto`` to go by the names in the file.
        which: the branch that becomes the release's backbone.
        name: of the release; by default the recipe's.
        to: the store; by default the user's.
        licence: of the weights, where it is not the source's.
        padding: of the stem of a ResNet in pixels, or ``same`` for convolutions that pad as TensorFlow's do.
        overrides: dotted settings of the recipe, as in :func:`ssl_hub.get_recipe`.

    Raises:
        UsageError: unknown source or recipe; a file that cannot be read without running code; tensors that do not all
            fit, with counts, first names and shapes; another stem, naming both; no such branch; NaN; or a release of
            that name that is there already. The store is as it was then.
    """
    settings = dict(overrides or {})
    registered = get_recipe(recipe) if isinstance(recipe, str) else recipe
    chosen = as_modified(with_overrides(registered, settings))
    if which not in release.BRANCHES:
        raise UsageError(f"which is {which!r}, expected 'online' or 'target'")
    folder = _free_folder(name or run_name(chosen), store.home() if to is None else expanded(to))
    read = read_parts(expanded(file), chosen.backbone.name, source=source, which=which)
    siamese = build(chosen)
    stem, stem_by = read.load_into(siamese.encoder.backbone, padding=padding)
    if read.top_layer:
        warnings.warn(
            f"{read.path} may be supervised: {read.top_layer} is a linear layer on the backbone; it is left out, and if"
            " it is a classifier, the rest was trained with labels",
            stacklevel=2,
        )
    chosen, normalisation_by = _normalised(chosen, read, settings)
    method, left_out = _method(siamese, chosen, read)
    facts = read.facts
    imported = Imported(
        folder=folder,
        imported_from=facts,
        licence=licence or read.origin.licence,
        stem=stem,
        recipe=replace(chosen, summary=_summary(facts, chosen.backbone.name), expected=()),
        decided_by={"stem": stem_by, "normalisation": normalisation_by},
        left_out=left_out,
    )
    _write(imported, siamese.encoder.backbone, method, _head(read.parts, read.origin))
    return imported


def _summary(facts: Mapping[str, str], backbone: str) -> str:
    training = f"trained by {facts['method']}" if "method" in facts else "how it was trained is not known to ssl_hub"
    if "classifier" in facts:
        training = f"trained with labels of {facts['classifier']}"
    return f"Imported from {facts['source']}, not trained here: {backbone}, {training}"


def _head(parts: Parts, origin: Source) -> ProbeHead | None:
    """The classifier that came with the weights, or None without one."""
    weight, bias = (parts.classifier.get(name) for name in ("weight", "bias"))
    if weight is None or bias is None or origin.labels is None:
        return None
    settings = {"protocol": "imported", "source": origin.name}
    return ProbeHead(weight.float(), bias.float(), tuple(class_names(origin.labels)), origin.labels, settings)


def _write(imported: Imported, backbone: nn.Module, method: Tensors, head: ProbeHead | None) -> None:
    """Write the release, all of it or nothing."""
    recipe, stem = imported.recipe, imported.stem
    assumed = {what: by == "assumed" for what, by in imported.decided_by.items()}
    about = {
        lineage.LINEAGE: [imported_link(imported.imported_from, imported.licence, assumed)],
        "licence": imported.licence,
        "stem": None if stem is None else asdict(stem),
        "decided_by": imported.decided_by,
    }
    config = backbones.timm_config(recipe.backbone.name, backbone, recipe.views)
    if stem is not None and stem != stem_of(backbone):
        config["model_args"] = {"stem_padding": stem.padding}
    config["ssl_hub"] = {**release.description(recipe), **about}
    with _staged(imported.folder) as staged:
        release.write_recipe(staged, recipe, {**about, "versions": installed_versions()})
        release.write_tensors(staged / files.METHOD, method)
        release.write_tensors(staged / files.MODEL, backbone.state_dict())
        release.write_config(staged, config)
        if head is not None:
            head.save(staged)
        files.seal(staged)
        if head is not None:
            release.add_classifier(staged, head.weight, head.bias, head.classes)


def _free_folder(name: str, home: Path) -> Path:
    """The folder of a release to be, which must not be there yet."""
    if not re.fullmatch(store.NAME, name):
        raise UsageError(f"name is {name!r}, expected letters, digits, '.', '_' and '-', and no '.' at its start")
    folder = home / name
    if folder.exists():
        raise UsageError(f"{folder} is there already; give another name, or remove it with `ssl-hub remove {name}`")
    return folder


def _normalised(recipe: Recipe, read: CheckpointParts, settings: Mapping[str, Any]) -> tuple[Recipe, Decider]:
    """The recipe with the images' mean and std, and who decided them; its own are assumed."""
    if {"views.mean", "views.std"} & settings.keys():
        return recipe, "user"
    stated = read.normalisation_of(recipe.data)
    if stated is None:
        return recipe, "assumed"
    return replace(recipe, views=replace(recipe.views, mean=stated[0], std=stated[1])), "source"


def _method(siamese: Siamese, recipe: Recipe, read: CheckpointParts) -> tuple[Tensors, dict[str, str]]:
    """The content of method.safetensors: the heads and the target that are the recipe's; and why others are not."""
    fitted: dict[str, Tensors | str] = {
        "projector": fit(read.parts.projector, siamese.encoder.projector.state_dict()),
        "predictor": fit_predictor(read.parts.predictor, siamese.predictor.state_dict()),
        "target": _target(siamese, read),
    }
    method: Tensors = {}
    left_out: dict[str, str] = {}
    for role, tensors in fitted.items():
        if isinstance(tensors, str):
            left_out[role] = tensors
        else:
            release.check_finite(f"{read.where}, {role}", tensors)
            method |= {f"{role}.{name}": tensor for name, tensor in tensors.items()}
    return method, left_out


def _target(siamese: Siamese, read: CheckpointParts) -> Tensors | str:
    parts, where = read.parts, f"{read.where}, target"
    network = siamese.target.network
    if not parts.target_backbone:
        return "none in the file"
    if network is None:
        return "the recipe has none"
    projector = fit(parts.target_projector, siamese.encoder.projector.state_dict())
    if isinstance(projector, str):
        return f"its projector does not fit: {projector}"
    backbone = network.get_submodule("backbone")
    found = read.backbone(parts.target_backbone, backbone.state_dict(), where=where)
    release.load_strictly(backbone, found, where=where)
    network.get_submodule("projector").load_state_dict(projector, strict=True)
    return network.state_dict()


@contextmanager
def _staged(folder: Path) -> Iterator[Path]:
    """A hidden folder that becomes ``folder`` when all is written, and is removed where that fails."""
    staged = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    try:
        staged.mkdir(parents=True)
        yield staged
        staged.rename(folder)
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(staged, ignore_errors=True)
