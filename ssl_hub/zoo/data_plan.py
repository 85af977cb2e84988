"""How to train on a dataset, by its inventory: a recipe, and the settings that suit this many images of this size."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ssl_hub.zoo import RECIPES
from ssl_hub.zoo.advice import FEWEST_IMAGES, goes_beyond, is_dim, is_wide, opened, suggested_range

_GREY = ("1", "L", "LA", "I", "F", "I;16", "I;16B", "I;16L")
_FEWEST_STEPS = 4_000  # of a run that is to learn something
_PHOTOGRAPH = 24  # pixels of the shorter side from which weights of ImageNet help, see benchmarks/own_images.py
_ENLARGED = 64  # pixels of their views, at least: weights of ImageNet know larger things
_WEIGHTS = "resnet50.a1_in1k"
_SMALL_DATA = 100_000  # images below which a small backbone and smaller views do
_FEW_PHOTOGRAPHS = 10_000  # fewer teach less than weights of ImageNet know, see benchmarks/own_images.py


@dataclass(frozen=True)
class Plan:
    """How to train on a dataset: a recipe, the settings to change in it, and why."""

    recipe: str
    settings: dict[str, str]
    reasons: tuple[str, ...]
    continued: Plan | None = None  # the same from weights that are there, for a small number of photographs
    continue_first: bool = False  # whether that is the better advice: there are very few

    def with_columns(self, columns: Mapping[str, str | None]) -> Plan:
        """The same plan for data of which these columns were named."""
        named = {f"data.{key}": value for key, value in columns.items() if value is not None}
        continued = None if self.continued is None else self.continued.with_columns(columns)
        return replace(self, settings=named | self.settings, continued=continued)

    def command(self, data: str) -> str:
        """The command that trains so, into a folder that is named after the data and, from weights, says so."""
        shown = f"'{data}'" if re.search(r"[^\w./@:-]", data) else data
        words = [f"{key}='{value}'" if "," in value else f"{key}={value}" for key, value in self.settings.items()]
        named = re.sub(r"[^\w.-]+", "-", Path(data).name).strip("-.") or "mine"
        output = f"runs/{named}{'-from-weights' * ('backbone.init' in self.settings)}"
        return " ".join(["ssl-hub train", self.recipe, f"--data {shown}", *words, f"--output {output}"])

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def plan(survey: Mapping[str, Any]) -> Plan | None:
    """The recipe, sizes and numbers that suit this many images of this size.

    None where none could be looked at, where there are fewer than eight, and where ``train`` cannot be opened.
    """
    splits = dict(opened(survey))
    if "train" in survey["splits"] and "train" not in splits:
        return None  # another split would be trained on in its place
    known = splits.get("train") or next(iter(splits.values()))
    seen, images = known["looked_at"], known["images"]
    if "shorter" not in seen or (images is not None and images < FEWEST_IMAGES):
        return None
    own = [name for name in RECIPES.names("directpred-*") if RECIPES[name].data.name == survey["data"]]
    if own and not survey["is_path"]:  # a folder may be called anything
        return Plan(own[0], {}, ("a recipe for this very data",))
    side = seen["shorter"][1]
    name, size = _recipe_for(side, images)
    recipe = RECIPES[name]
    settings: dict[str, str] = {}
    reasons = [f"views of {size} pixels, as the shorter side is {side} (median)"]
    wanted = "+".join(split for split in ("train", "unlabeled") if split in splits) or next(iter(splits))
    if wanted != recipe.data.pretrain_split:
        settings["data.pretrain_split"] = wanted
    if survey["stream"]:
        settings["data.stream"] = "true"
    if size != recipe.views.size:
        settings["views.size"] = str(size)
    if images is not None:
        batch = min(recipe.train.batch_size, 2 ** max(1, int(math.log2(max(images // 4, 2)))))
        if batch != recipe.train.batch_size:
            settings["train.batch_size"] = str(batch)
            reasons.append(f"batches of {batch}, so that {images:,} images fill four or more")
        epochs = -(-_FEWEST_STEPS * batch // images)
        if epochs > recipe.train.epochs:
            settings["train.epochs"] = str(-(-epochs // 10) * 10)
            reasons.append(f"{settings['train.epochs']} epochs, for {_FEWEST_STEPS:,} steps")
    else:
        settings["train.max_steps"] = "100000"
        reasons.append("100,000 steps, as a stream does not say how many images it has")
    if is_wide(seen) and (is_dim(seen) or goes_beyond(seen)):
        settings["data.range"] = suggested_range(seen)
        reasons.append(f"values from {seen['values'][0]:g} to {seen['values'][1]:g}")
    elif survey["range"] != "auto" and is_wide(seen):
        settings["data.range"] = survey["range"]
    if set(seen["modes"]) <= set(_GREY):
        settings |= {f"views.{view}.{key}": "0" for view in ("view1", "view2") for key in ("saturation", "hue", "grey")}
        reasons.append("no change of colour, as images are grey")
    if any(split_known["looked_at"]["unreadable"]["number"] for split_known in splits.values()):
        settings["data.on_bad_image"] = "skip"
    reasons.append(f"{recipe.backbone.name} and the rest as {name}, whose images are alike in size")
    few = images is not None and images < _SMALL_DATA and side >= _PHOTOGRAPH
    continued = _continued(settings, size, images) if few and images else None
    is_better = continued is not None and images is not None and images < _FEW_PHOTOGRAPHS
    return Plan(name, settings, tuple(reasons), continued, is_better)


def _continued(settings: Mapping[str, str], size: int, images: int) -> Plan:
    """Training that goes on from ImageNet weights on the same images."""
    recipe = RECIPES["directpred-own"]
    kept = {key: value for key, value in settings.items() if key.startswith(("data.", "views.view"))}
    kept |= {"backbone.init": _WEIGHTS, "views.size": str(max(size, _ENLARGED))}
    if recipe.train.batch_size > images // 4:
        kept["train.batch_size"] = str(2 ** max(1, int(math.log2(max(images // 4, 2)))))
    return Plan(recipe.name, kept, ("from weights that have seen many others, where there are few images",))


def _recipe_for(side: int, images: int | None) -> tuple[str, int]:
    """A recipe whose images are alike in size, and how large the views should be."""
    if side < 24:
        return "directpred-digits", 16
    if side < 56:
        return "directpred-r18-cifar10-100ep", 32
    if side < 160:
        return "directpred-r18-stl10-100ep", 64 if side < 88 else 96
    if images is not None and images < _SMALL_DATA:
        return "directpred-r18-stl10-100ep", 128 if side < 320 else 160
    return "directpred-r50-60ep", 224
