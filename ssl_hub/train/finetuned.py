"""The files that make a fine-tuned classifier a release: as those of a backbone, and the classifier in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from torch import nn

from ssl_hub.config import Views
from ssl_hub.data.sources import Source
from ssl_hub.evaluate.extraction import Extraction
from ssl_hub.evaluate.subject import Subject
from ssl_hub.hub.weights import sha256_of
from ssl_hub.model import backbones, files, lineage
from ssl_hub.model.parts import PLUGINS
from ssl_hub.model.probe_head import ProbeHead
from ssl_hub.model.release import FORMAT, MODEL, note_lineage, write_config, write_tensors
from ssl_hub.model.stages import linear_classifier
from ssl_hub.train.classifier import Finetuning

OF_THE_DATA = (
    "train_split", "test_split", "holdout", "allow_overlap", "image_column", "label_column", "range", "image_size",
    "seed",
)  # fmt: skip
KEPT = ("collapsed", "range", "left_out", "stem", "recipe", PLUGINS)  # of the source's config.json, and stays true


def config_of(
    subject: Subject, source: str, train: Source, command: Sequence[str], value_range: str | None = None
) -> dict[str, Any]:
    """config.json of the classifier that is to be: as the source's, or from what timm says where that is no release.

    ``subject`` is what training starts from, and ``command`` what does it. ``value_range`` is ``data.range`` where it
    was not the source's.
    """
    config = subject.config
    if config is None:
        transform, architecture = subject.transform, str(getattr(subject.model, "pretrained_cfg", {})["architecture"])
        config = backbones.timm_config(architecture, subject.model, Views(size=transform.size))
        config["pretrained_cfg"] |= {
            "crop_pct": transform.size / transform.resize,
            "interpolation": transform.interpolation,
            "mean": list(transform.mean),
            "std": list(transform.std),
        }
    assert train.classes is not None
    config["num_classes"] = config["pretrained_cfg"]["num_classes"] = len(train.classes)
    config["label_names"] = list(train.classes)
    tuned = {
        "step": "finetuned",
        "data": lineage.public_name(train.name),
        "split": train.split,
        "images": len(train),
        "classes": len(train.classes),
        "command": lineage.public_words(command),
    }
    origin = None if subject.origin is None else {**subject.origin, "sha256": sha256_of(subject.model.state_dict())}
    before = {key: value for key, value in config.get("ssl_hub", {}).items() if key in KEPT}
    licence = {} if origin is None else {"licence": lineage.inherited(str(origin["licence"]))}
    config["ssl_hub"] = {
        "collapsed": subject.collapsed,
        **before,
        **licence,
        "format": FORMAT,
        "summary": f"{lineage.public_name(source)} fine-tuned on {len(train)} images of {train.name}",
        "finetuned_on": train.name,
        lineage.LINEAGE: [*lineage.started(origin), tuned],
    }
    if value_range is not None:
        config["ssl_hub"]["range"] = value_range
    return config


def command_of(
    source: str, data: str | None, fraction: float, extraction: Extraction, settings: Finetuning
) -> list[str]:
    """The words of the command that fine-tunes so: what differs from the defaults, but how the work is done."""
    words = ["ssl-hub", "finetune", source, *([] if data is None else ["--data", data])]
    given = {"fraction": fraction, **{name: getattr(extraction, name) for name in OF_THE_DATA}}
    usual = {"fraction": 1.0, **{f.name: f.default for f in fields(Extraction)}}
    for name, value in given.items():
        if value != usual[name]:
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    plain = asdict(Finetuning(seed=extraction.seed))
    return [*words, *(f"{key}={value}" for key, value in asdict(settings).items() if value != plain[key])]


def write_release(folder: Path, network: nn.Module, config: dict[str, Any], train: Source) -> None:
    """The files of a release, the classifier in the model and, where it is one linear layer, as a head too."""
    write_tensors(folder / MODEL, network.state_dict())
    note_lineage(folder, config, config["ssl_hub"][lineage.LINEAGE])
    write_config(folder, config)
    classifier = linear_classifier(network)
    if classifier is not None and classifier.bias is not None and train.classes is not None:
        weight, bias = (p.detach().cpu().float() for p in (classifier.weight.flatten(1), classifier.bias))
        settings = {"protocol": "finetune", "train_split": train.split, "train_size": len(train)}
        ProbeHead(weight, bias, train.classes, train.name, settings).save(folder)
    files.seal(folder)
