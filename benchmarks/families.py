"""One model of every family of timm through all that is done with a backbone; the table in docs/backbones.md.

    python benchmarks/families.py                 # all of them, a quarter of an hour of one core; writes families.json
    python benchmarks/families.py beit twins      # some of them again
    python docs/hooks.py                          # the table

A family is a module of timm that registers architectures; its model is the smallest, one with batch normalisation where
that costs a tenth more parameters at most. Where it has ten million or more, it is built with fewer blocks, if it can
be: registered in timm under a name of its own. Untrained weights, images of 64 pixels or the least size that it takes.
"""

from __future__ import annotations

import copy
import json
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import timm
import torch
from accelerate import Accelerator
from timm.layers import weight_init
from timm.models import register_model
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

import ssl_hub
from ssl_hub.data.sources import open_source
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.subject import Subject, eval_transform
from ssl_hub.model import backbones
from ssl_hub.model.normalisation import synchronised
from ssl_hub.model.release import load_backbone, read_config, save_release
from ssl_hub.model.siamese import build
from ssl_hub.model.stages import depths, linear_classifier, with_classifier
from ssl_hub.train.classifier import ClassifierTrainer, Finetuning
from ssl_hub.train.finetuned import config_of, write_release
from ssl_hub.train.step import Trainer

TABLE = Path(__file__).with_suffix(".json")
SIZES = (64, 128, 224, 240, 256)


def families() -> list[str]:
    """Those of timm itself: other packages may have registered more."""
    return [family for family in timm.list_modules() if hasattr(timm.models, family)]


def model_of(family: str) -> str:
    """The model of a family that is tried: as in the table, or the smallest of a family that is not there."""
    noted = table()["families"].get(family, {}).get("name", "")
    return noted if timm.is_model(noted) else smallest(family)


def smallest(family: str) -> str:
    sizes = {name: parameters(name) for name in timm.list_models(module=family)}
    names = sorted(sizes, key=sizes.__getitem__)
    near = [name for name in names if sizes[name] <= 1.1 * sizes[names[0]]]
    return next((name for name in near if any(isinstance(m, _BatchNorm) for m in shapes(name).modules())), names[0])


def parameters(name: str, **options: Any) -> int:
    return sum(p.numel() for p in shapes(name, **options).parameters())


def shapes(name: str, **options: Any) -> nn.Module:
    """The architecture without the memory for its weights."""
    with torch.device("meta"), nothing_drawn():
        model: nn.Module = timm.create_model(name, num_classes=0, **options)
    return model


def nothing_drawn() -> Any:
    """Without the numbers that would go into tensors without memory: on those, drawing is the slowest part."""
    draw = weight_init._trunc_normal_
    return mock.patch.object(weight_init, "_trunc_normal_", lambda t, *a, **k: t if t.is_meta else draw(t, *a, **k))


FEW_BLOCKS = ({"depth": 2}, {"depths": (1, 1, 1, 1)}, {"layers": (1, 1, 1, 1)})


def shortened(name: str) -> str:
    """The name of the same architecture with fewer blocks, where it is large and can have them; else its own."""
    whole = parameters(name)
    for options in FEW_BLOCKS if whole >= 10e6 else ():
        try:
            if parameters(name, **options) < whole:
                break
        except Exception:  # each says in its own way that it has no such option
            continue
    else:
        return name

    def short(pretrained: bool = False, **kwargs: Any) -> nn.Module:
        model: nn.Module = timm.create_model(name, pretrained=pretrained, **{**options, **kwargs})
        return model

    short.__name__, short.__module__ = f"{name}_short", __name__
    try:
        register_model(short)
        size_of(short.__name__)
    except UsageError:
        return name
    return short.__name__


def table() -> dict[str, Any]:
    """What was found last; nothing before that."""
    return json.loads(TABLE.read_text()) if TABLE.exists() else {"families": {}}


def size_of(name: str) -> int:
    """The first of the sizes that the architecture takes."""
    for size in SIZES:
        try:
            with torch.random.fork_rng():
                backbones.feature_width(backbones.create(name, image_size=size), size)
        except UsageError as error:
            refusal = error
        else:
            return size
    raise refusal


@dataclass
class Trial:
    """A model of a family and what is tried with it. Every check raises where something is not as it should be."""

    name: str
    size: int
    folder: Path

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        self.images = torch.randn(3, 3, self.size, self.size)

    def lived_in(self) -> nn.Module:
        """The model with statistics and scales that a training might have left."""
        model = backbones.create(self.name, image_size=self.size)
        with torch.no_grad():
            for layer in model.modules():
                if isinstance(layer, _BatchNorm) and layer.running_mean is not None and layer.running_var is not None:
                    layer.running_mean.normal_(0, 0.1)
                    layer.running_var.uniform_(0.5, 1.5)
                    if layer.weight is not None:
                        layer.weight.uniform_(0.5, 1.5)
        return model

    def converted(self) -> None:
        """Equal outputs after conversion, in eval mode and, with statistics of one process, in train mode."""
        plain = self.lived_in()
        converted = synchronised(copy.deepcopy(plain))
        assert list(converted.state_dict()) == list(plain.state_dict())
        assert not any(isinstance(m, _BatchNorm) and not isinstance(m, nn.SyncBatchNorm) for m in converted.modules())
        for mode in (False, True):
            with mock.patch.object(nn.SyncBatchNorm, "forward", _BatchNorm.forward):  # which trains on a CPU
                one, other = (self._output(model.train(mode)) for model in (plain, converted))
            assert_same(one, other)
        assert_equal(plain.state_dict(), converted.state_dict())

    def _output(self, model: nn.Module) -> Tensor:
        torch.manual_seed(0)  # of dropout
        with torch.no_grad():
            out: Tensor = model(self.images)
        return out

    def trained(self) -> None:
        """One step of BYOL: every trainable parameter has a gradient. Leaves the release."""
        self.recipe = ssl_hub.get_recipe(
            "byol-digits",
            **{"backbone.name": self.name, "views.size": self.size, "projector.hidden_width": 32},
        )
        siamese = build(self.recipe)
        for layer in siamese.modules():
            if isinstance(layer, _BatchNorm):
                layer.momentum = 1.0  # statistics as after many steps: without them some networks overflow
        trainer = Trainer(siamese, self.recipe.optim, Accelerator(cpu=True), lr=1e-4, total_steps=10)
        report = trainer.advance([(self.images, self.images.flip(-1))])
        assert not report.skipped
        idle = [name for name, p in siamese.named_parameters() if p.requires_grad and p.grad is None]
        assert not idle, f"no gradient: {idle}"
        self.siamese = siamese.eval()
        save_release(self.folder, siamese, self.recipe)

    def loaded(self) -> None:
        """The release gives the outputs of what was trained, online and target; timm reads it too."""
        assert self.siamese.target.network is not None
        branches = {"online": self.siamese.encoder.backbone, "target": self.siamese.target.network.backbone}
        for which, backbone in branches.items():
            again = load_backbone(self.folder, which=which)  # type: ignore[arg-type]
            assert_same(self._output(again), self._output(backbone.eval()))

    def frozen(self) -> None:
        """All frozen: one step at a high rate changes the classifier and no bit of the backbone, buffers included.

        The release that this leaves gives the same outputs, as a classifier and as features.
        """
        before = load_backbone(self.folder)
        features = {name: tensor.clone() for name, tensor in before.state_dict().items()}
        network, classifier = with_classifier(before, 10)
        fresh = {name: tensor.clone() for name, tensor in network.state_dict().items() if name in classifier}
        settings = Finetuning(freeze=depths(network, classifier)[1], epochs=1, lr=100.0, head_lr_ratio=2.0)
        trainer = ClassifierTrainer(
            network, classifier, settings, Accelerator(cpu=True), steps_per_epoch=1, images_of=np.ones(10, int)
        )
        assert {name for group in trainer.optimizer.param_groups for name in group["names"]} <= classifier
        trainer.train_mode()
        trainer.advance(iter([(self.images, torch.tensor([0, 3, 9]))]))
        assert not [name for name, p in network.named_parameters() if p.requires_grad and p.grad is None]
        after = network.state_dict()
        assert_equal(features, {name: after[name] for name in features})
        assert any(not torch.equal(tensor, after[name]) for name, tensor in fresh.items()), "the classifier stayed"

        digits = open_source("digits", "train")
        config = read_config(self.folder)
        subject = Subject(before, eval_transform(before), None, None, False, config)
        write_release(self.folder, network, config_of(subject, self.name, digits, []), digits)
        classifies = self._output(network.eval())
        assert_same(self._output(load_backbone(self.folder, num_classes=None)), classifies)
        assert_same(self._output(load_backbone(self.folder)), self._output(before.eval()))
        if linear_classifier(network) is not None:
            assert_same(self._output(ssl_hub.load(self.folder, head="digits")), classifies)
        in_timm = timm.create_model(f"local-dir:{self.folder}", pretrained=True).eval()
        assert_same(self._output(in_timm), classifies)


CHECKS = ("converted", "trained", "loaded", "frozen")


def assert_same(one: Tensor, other: Tensor) -> None:
    """Equal outputs, up to how the same sums are rounded at other places in memory."""
    assert (one - other).abs().max() <= 1e-5 * other.abs().max(), f"outputs differ by {(one - other).abs().max()}"


def assert_equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    assert [name for name, tensor in one.items() if not torch.equal(tensor, other[name])] == []


def row(family: str) -> dict[str, Any]:
    """What the table says of a family."""
    name = model_of(family)
    made: dict[str, Any] = {"name": name}
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        try:
            short = shortened(name)
            made["parameters"] = parameters(short)
            trial = Trial(short, size_of(short), Path(folder))
        except UsageError as error:
            return {**made, "refused": str(error)}
        layers = sum(isinstance(module, _BatchNorm) for module in shapes(short).modules())
        made |= {"size": trial.size, "layers": layers}
        for check in CHECKS:
            try:
                with nothing_drawn():
                    getattr(trial, check)()
                made[check] = True
            except Exception as error:
                made[check] = f"{type(error).__name__}: {str(error).strip()[:200]}".splitlines()[0]
    return {**made, "seconds": round(time.process_time() - start, 1)}


def main(chosen: list[str]) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows = {name: was for name, was in table()["families"].items() if name in families()}
    for family in chosen or families():
        rows[family] = row(family)
        print(family, json.dumps(rows[family]), flush=True)
        TABLE.write_text(json.dumps({"timm": timm.__version__, "families": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
