"""What a checkpoint says of its model beside the tensors: in the file itself, and in what lies beside it as
timm and transformers write it. Names and shapes of tensors do not tell what is in between, such as an activation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ssl_hub.errors import UsageError
from ssl_hub.hub.importers.content import is_safetensors
from ssl_hub.hub.importers.project import Colours, Normalisation
from ssl_hub.model import backbones
from ssl_hub.model.files import CONFIG
from ssl_hub.model.modes import eval_mode
from ssl_hub.model.reading import read_json, read_metadata

PREPROCESSOR, OPEN_CLIP = "preprocessor_config.json", "open_clip_config.json"  # the first is transformers'
ARCHITECTURE = ("arch", "architecture", "model", "model_name", "backbone", "backbone_name")  # keys that name one
HELD = ("args", "config", "cfg", "hparams", "hyper_parameters")  # dictionaries of settings that may have such keys
SHAPES = ("img_size", "num_classes", "in_chans")  # arguments of timm's models that the shapes of tensors tell
CLOSE = 1e-3  # of the greatest feature: the same network in another order of sums is far below
READERS: Mapping[str, Callable[[nn.Module], Any]] = {  # keys of transformers' config.json -> what timm's model has
    "num_attention_heads": lambda model: model.get_submodule("blocks.0.attn").num_heads,
    "hidden_act": lambda model: "relu" if hasattr(model, "layer1") else "gelu",
    "downsample_in_bottleneck": lambda model: False,
}


@dataclass(frozen=True, kw_only=True)
class Stated:
    """Architectures of timm that are named, how images came in, and the settings of config.json beside the file."""

    architectures: tuple[str, ...]
    normalisation: Normalisation | None
    config: Mapping[str, Any]


def stated(path: Path, content: Any, architecture: str) -> Stated:
    """What is said of the model in a checkpoint file with this content, which is read for an architecture. How images
    came in is taken from a config.json of no other."""
    config, preprocessor, clip = (_settings(path.parent / name) for name in (CONFIG, PREPROCESSOR, OPEN_CLIP))
    inside: Any = read_metadata(path) if is_safetensors(path) else content
    others = any(name != architecture for name in _architectures(config))
    images = {} if others else _inside(config, "pretrained_cfg") or config
    given = [(images, "mean", "std"), (preprocessor, "image_mean", "image_std")]
    given += [(_inside(clip, "preprocess_cfg"), "mean", "std")]
    return Stated(
        architectures=tuple({name: None for said in (inside, config) for name in _architectures(said)}),
        normalisation=next((found for said in given if (found := _normalisation(*said))), None),
        config=config,
    )


def check_same(said: Stated, model: nn.Module, *, where: str) -> None:
    """Raise UsageError where a checkpoint, whose tensors are in ``model``, is said to be of a network that takes them
    too and computes something else."""
    given = said.config.get("model_args")
    options = {"global_pool": said.config.get("global_pool"), **(given if isinstance(given, Mapping) else {})}
    options = {key: value for key, value in options.items() if key not in SHAPES and value is not None}
    pool = options.pop("global_pool", ours := backbones.pool_of(model))
    if options:
        raise UsageError(
            f"{where}: {CONFIG} beside it says that the model was made with {', '.join(sorted(options))}, which no"
            " recipe's backbone is: its features would not be the same"
        )
    if pool != ours:
        raise UsageError(f"{where}: {CONFIG} beside it says that it pools by {pool!r}, and the backbone by {ours!r}")
    if "model_type" in said.config:
        _check_transformers(said.config, model, where)
    making: backbones.Making = model.made_by  # type: ignore[assignment]
    if making.name in said.architectures:
        return
    for name in said.architectures:
        if _differs(name, making, model):
            raise UsageError(
                f"{where} is said to be a {name}, whose tensors are those of a {making.name} and which computes"
                f" something else: its features would not be the same; give backbone.name={name}"
            )


def _check_transformers(config: Mapping[str, Any], model: nn.Module, where: str) -> None:
    for key, of in READERS.items():
        try:
            ours = of(model)
        except AttributeError:  # no such layer
            continue
        if key in config and config[key] != ours:
            raise UsageError(
                f"{where}: {CONFIG} beside it says that {key} is {config[key]!r}, and the backbone has {ours!r}: its"
                " features would not be the same"
            )


@torch.no_grad()
def _differs(name: str, making: backbones.Making, model: nn.Module) -> bool:
    """Whether an architecture takes all of the tensors of a model and gives other features. One that does not take them
    is another use of its name: many projects call a ResNet with a stem of their own a resnet18."""
    size = making.options.get("image_size")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            other = backbones.create(name, image_size=size)
            other.load_state_dict(model.state_dict())
        except (UsageError, RuntimeError):
            return False
        images = torch.randn(2, 3, *(size or 224,) * 2)
    with eval_mode(model), eval_mode(other):
        ours, theirs = model(images), other(images)
    return bool((ours - theirs).abs().max() > CLOSE * ours.abs().max())


def _architectures(said: Any, depth: int = 0) -> Iterator[str]:
    """Names of timm under keys that name an architecture, without the tag of weights."""
    for key, value in said.items() if isinstance(said, Mapping) else ():
        if key in ARCHITECTURE and isinstance(value, str) and backbones.is_known(name := value.partition(".")[0]):
            yield name
        elif key in HELD and depth == 0:
            yield from _architectures(value, 1)


def _settings(path: Path) -> Mapping[str, Any]:
    """A JSON object beside the file; empty where there is none."""
    if not path.is_file():
        return {}
    try:
        found = read_json(path)
    except UsageError:  # of whatever else is called so
        return {}
    return found if isinstance(found, dict) else {}


def _inside(settings: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = settings.get(key)
    return found if isinstance(found, dict) else {}


def _normalisation(settings: Mapping[str, Any], mean: str, std: str) -> Normalisation | None:
    """Mean and std, where they can be such."""
    given = [settings.get(mean), settings.get(std)]
    if settings.get("do_normalize") is False:
        return (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    if not all(isinstance(v, list) and len(v) == 3 and all(isinstance(x, (int, float)) for x in v) for v in given):
        return None
    colours: list[Colours] = [(float(v[0]), float(v[1]), float(v[2])) for v in given if v is not None]
    if not all(0 <= x <= 1 for x in colours[0]) or not all(0 < x <= 1 for x in colours[1]):
        return None
    return colours[0], colours[1]
