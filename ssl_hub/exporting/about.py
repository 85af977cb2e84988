"""What an exported file says of itself, as JSON: how images come in, what comes out, and where the weights are from."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ssl_hub.data.value_range import AUTO
from ssl_hub.data.views import EvalTransform
from ssl_hub.evaluate.subject import INIT, TIMM
from ssl_hub.exporting.formats import INPUT
from ssl_hub.exporting.program import Program, Subprogram
from ssl_hub.hub.markdown import public_name
from ssl_hub.hub.store import BUNDLED
from ssl_hub.hub.weights import sha256_of
from ssl_hub.model.release import read_facts
from ssl_hub.model.results import installed_versions

FORMAT = 1
NOT_STATED = "not stated"
OURS = "apache-2.0"  # of the releases that come with the package


def about(name: str, made: Subprogram) -> dict[str, Any]:
    """All that a file says of itself before it is checked."""
    program, transform = made.program, made.subject.transform
    values = "0 to 255" if program.kind == "uint8" else "normalised: (value / 255 - mean) / std"
    return {
        "format": FORMAT,
        "model": name,
        "input": {
            "name": INPUT,
            "type": "uint8" if program.kind == "uint8" else "float32",
            "shape": ["batch", 3, transform.size, transform.size],
            "values": f"RGB, {values}",
        },
        "outputs": _outputs(made),
        "classes": None if made.classes is None else list(made.classes),
        "preprocessing": preprocessing(transform, program.kind == "uint8"),
        "weights": _weights(name, made),
        "versions": installed_versions(),
    }


def preprocessing(transform: EvalTransform, normalised_inside: bool) -> dict[str, Any]:
    """How an image file becomes the program's input: these steps in this order.

    Upright and RGB; the shorter side to ``resize``, the longer one in proportion, rounded down; the square of ``size``
    in the middle; and, unless it is inside the program, ``/ 255`` and mean and standard deviation.
    """
    set_range = transform.values != AUTO
    return {
        "resize": transform.resize,
        "size": transform.size,
        "crop_pct": transform.size / transform.resize,
        "interpolation": transform.interpolation,
        "antialias": True,
        "normalisation": "inside" if normalised_inside else "beside",
        "mean": list(transform.mean),
        "std": list(transform.std),
        "value_range": [transform.values.low, transform.values.high] if set_range else "auto",
    }


@torch.no_grad()
def _outputs(made: Subprogram) -> list[dict[str, Any]]:
    program: Program = made.program
    shapes = [tuple(out.shape[1:]) for out in program(program.given(torch.zeros(1, 3, *[program.size] * 2).byte()))]
    return [
        {"name": name, "shape": ["batch", *shape], "stride": made.strides.get(name)}
        for name, shape in zip(program.names, shapes, strict=True)
    ]


def _weights(name: str, made: Subprogram) -> dict[str, Any]:
    """Where the weights are from, under which licence, and their hash."""
    model: nn.Module = made.subject.model
    timm_says: Any = getattr(model, "pretrained_cfg", None) or {}
    sha256 = sha256_of(model.state_dict())
    found: dict[str, Any] = {"architecture": timm_says.get("architecture"), "sha256": sha256}
    if made.subject.step is not None and made.subject.recipe is not None:
        found |= {"licence": NOT_STATED, "pretrained_on": public_name(made.subject.recipe.data.name)}
        return found | {"recipe": made.subject.recipe.name, "step": made.subject.step}
    if made.folder is None:  # timm tells of weights also where a model has none of them
        if not (name.startswith(TIMM) and "@" in name):
            random = name.startswith((TIMM, INIT))
            return found | {"source": "random" if random else "a model in memory", "licence": NOT_STATED}
        source = timm_says.get("hf_hub_id") or timm_says.get("url")
        licence = timm_says.get("license") or NOT_STATED
        return found | {"source": source, "tag": timm_says.get("tag"), "licence": licence}
    says: dict[str, Any] = (made.subject.config or {}).get("ssl_hub", {})
    facts, recipe = read_facts(made.folder), made.subject.recipe
    bundled = made.folder.parent == BUNDLED
    found["licence"] = says.get("licence") or (OURS if bundled else NOT_STATED)
    found |= {key: value for key, value in says.items() if key not in ("format", "licence")}
    if recipe is not None:
        found["pretrained_on"] = public_name(recipe.data.name)
        found |= {"recipe": recipe.name, "seed": recipe.train.seed}
    return found | {"trained_with": facts.get("versions")}
