"""Releases for the tests of the hub."""

from __future__ import annotations

from pathlib import Path

import torch

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
    result = Result(metric="top1", value=90.8, dataset="digits", split="test", protocol="linear-cached", seed=0)
    append_results(folder, [result])
