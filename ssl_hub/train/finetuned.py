"""The files that make a fine-tuned classifier a release: as those of a backbone, and the classifier in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from ssl_hub.config import Views
from ssl_hub.data.sources import Source
from ssl_hub.evaluate.model import Subject
from ssl_hub.model import backbones, files
from ssl_hub.model.probe_head import ProbeHead
from ssl_hub.model.release import FORMAT, MODEL, write_config, write_tensors
from ssl_hub.model.stages import linear_classifier


def config_of(subject: Subject, source: str, train: Source, value_range: str | None = None) -> dict[str, Any]:
    """config.json of the classifier that is to be: as the source's, or from what timm says where that is no release.

    ``value_range`` is ``data.range`` where it was not the source's.
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
    config["ssl_hub"] = {
        **config.get("ssl_hub", {"collapsed": subject.collapsed}),
        "format": FORMAT,
        "summary": f"{source} fine-tuned on {len(train)} images of {train.name}",
        "finetuned_on": train.name,
    }
    if value_range is not None:
        config["ssl_hub"]["range"] = value_range
    return config


def write_release(folder: Path, network: nn.Module, config: dict[str, Any], train: Source) -> None:
    """The files of a release, the classifier in the model and, where it is one linear layer, as a head too."""
    write_tensors(folder / MODEL, network.state_dict())
    write_config(folder, config)
    classifier = linear_classifier(network)
    if classifier is not None and classifier.bias is not None and train.classes is not None:
        weight, bias = (p.detach().cpu().float() for p in (classifier.weight.flatten(1), classifier.bias))
        settings = {"protocol": "finetune", "train_split": train.split, "train_size": len(train)}
        ProbeHead(weight, bias, train.classes, train.name, settings).save(folder)
    files.seal(folder)
