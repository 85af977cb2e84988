"""Releases for the tests of the hub, and what is done to them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from ssl_hub.hub.store import load
from ssl_hub.model.probe_head import ProbeHead
from ssl_hub.model.release import add_classifier, save_release, write_recipe
from ssl_hub.model.results import Result, append_results
from ssl_hub.model.siamese import build
from ssl_hub.zoo import get_recipe

CLASSES = tuple("0123456789")


def make_release(folder: Path, **options: object) -> None:
    """The files of a run that training would leave, of an untrained model with a fitted head."""
    recipe = get_recipe("directpred-digits")
    torch.manual_seed(0)
    model = build(recipe)
    with torch.no_grad():
        for name, buffer in model.encoder.backbone.named_buffers():
            if name.endswith("running_mean"):
                buffer.normal_(0, 0.1)
    write_recipe(folder, recipe, {"seed": 0, "git_commit": None})
    save_release(folder, model, recipe, **options)  # type: ignore[arg-type]
    head = ProbeHead(torch.randn(10, 128), torch.randn(10), CLASSES, "digits", {"strength": 0.1})
    head.save(folder)
    add_classifier(folder, head.weight, head.bias, CLASSES)
    measured(folder, 90.8, protocol="linear-cached", seed=0)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def features(name: str | Path, **options: Any) -> torch.Tensor:
    """What a release, loaded by its name, makes of two images."""
    with torch.no_grad():
        return load(name, **options)(torch.linspace(-1, 1, 2 * 3 * 16 * 16).view(2, 3, 16, 16))


def flip(path: Path, place: int = -6) -> None:
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def rewrite(path: Path, change: Callable[[Any], object]) -> None:
    """Change the value that a file of JSON holds."""
    content = json.loads(path.read_bytes())
    change(content)
    path.write_bytes(json.dumps(content).encode())


def measured(run: Path, value: float = 12.5, **about: Any) -> None:
    """Add a number to a release: of kNN on the digits, where nothing else is said."""
    usual = {"metric": "top1", "dataset": "digits", "split": "test", "protocol": "knn"}
    append_results(run, [Result(value=value, **usual | about)])


def places(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """Paths to every value in some JSON, containers included."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))
