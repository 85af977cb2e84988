"""What an exported file says of itself, as JSON: how images come in, what comes out, and where the weights are from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ssl_hub.data.value_range import AUTO
from ssl_hub.data.views import EvalTransform
from ssl_hub.evaluate.subject import INIT, TIMM, Subject
from ssl_hub.exporting.formats import INPUT
from ssl_hub.exporting.program import Program, Subprogram
from ssl_hub.hub.markdown import public_name
from ssl_hub.hub.store import BUNDLED
from ssl_hub.hub.weights import sha256_of
from ssl_hub.model.lineage import LINEAGE, UNKNOWN, started
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
    if made.folder is None:
        return found | _not_of_a_release(name, made.subject, timm_says)
    says: dict[str, Any] = (made.subject.config or {}).get("ssl_hub", {})
    facts, recipe = read_facts(made.folder), made.subject.recipe
    bundled = made.folder.parent == BUNDLED
    found["licence"] = says.get("licence") or (OURS if bundled else NOT_STATED)
    found |= {key: value for key, value in says.items() if key not in ("format", "licence")}
    if recipe is not None:
        found["pretrained_on"] = public_name(recipe.data.name)
        found |= {"recipe": recipe.name, "seed": recipe.train.seed}
    return found | {"trained_with": facts.get("versions")}


def _not_of_a_release(name: str, subject: Subject, timm_says: Mapping[str, Any]) -> dict[str, Any]:
    """The same of a run at a step, of weights of timm, of random ones and of a model in memory. By what was opened, not
    by how its name is spelt; timm tells of weights also where a model has none of them."""
    origin = subject.origin
    if origin is None:
        random = name.startswith((TIMM, INIT))
        return {"source": "random" if random else "a model in memory", "licence": NOT_STATED}
    known = str(origin["licence"]).lower() != UNKNOWN
    told: dict[str, Any] = {"licence": origin["licence"] if known else NOT_STATED}
    if subject.step is not None and subject.recipe is not None:
        told |= {"pretrained_on": public_name(subject.recipe.data.name), "recipe": subject.recipe.name}
        return told | {"step": subject.step, LINEAGE: origin[LINEAGE]}
    if origin["kind"] == "timm" and subject.recipe is None:
        source = timm_says.get("hf_hub_id") or timm_says.get("url")
        return told | {"source": source, "tag": timm_says.get("tag")}
    return told | {"source": public_name(str(origin["name"])), LINEAGE: started(origin)}
