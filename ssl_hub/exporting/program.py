"""What an exported file computes: images in, named outputs out, with the normalisation inside where it is asked for."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from ssl_hub.data.value_range import ValueRange
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.feature_maps import Dense, FeatureMaps, open_sized
from ssl_hub.evaluate.subject import INIT, TIMM, Subject, check_pools
from ssl_hub.hub import store, weights
from ssl_hub.hub.snapshot import find_snapshot
from ssl_hub.model.files import TO_LOAD
from ssl_hub.model.modes import eval_mode
from ssl_hub.model.probe_head import ProbeHead
from ssl_hub.model.release import finetuned_classes, load_backbone

Features = Literal["pooled"] | Dense
FEATURES = ("pooled", *get_args(Dense))
Input = Literal["uint8", "float"]


class Program(nn.Module):
    """Images [B, 3, S, S] to a tuple of outputs, in the order of ``names``.

    ``uint8`` images are as they come out of the resizing and cropping that is beside the program; ``float`` ones are
    normalised too.
    """

    def __init__(self, network: nn.Module, names: list[str], kind: Input, subject: Subject) -> None:
        super().__init__()
        self.network = network
        self.names = names
        self.kind = kind
        self.size = subject.transform.size
        for name, values in (("mean", subject.transform.mean), ("std", subject.transform.std)):
            self.register_buffer(name, torch.tensor(values)[:, None, None], persistent=False)
        self.mean: Tensor
        self.std: Tensor

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        if self.kind == "uint8":
            images = self.normalised(images)
        outputs = self.network(images)
        return tuple(outputs.values()) if isinstance(outputs, dict) else (outputs,)

    def normalised(self, images: Tensor) -> Tensor:
        """Float images of uint8 ones, operation for operation as the evaluation transform has them."""
        return (images.float() * (1 / 255) - self.mean) / self.std

    def given(self, pictures: Tensor) -> Tensor:
        """uint8 pictures as the program takes them."""
        return pictures if self.kind == "uint8" else self.normalised(pictures)


class Subprogram(NamedTuple):
    """A program, what it was made of, and what is known of its outputs."""

    program: Program
    subject: Subject
    folder: Path | None  # of a release
    strides: dict[str, int | None]
    classes: tuple[str, ...] | None


def make_program(
    model: str | Path | nn.Module, *, head: str | None, features: Features, kind: Input, image_size: int | None
) -> Subprogram:
    """The program of a model. Arguments and errors are those of :func:`ssl_hub.export`."""
    if kind not in get_args(Input):
        raise UsageError(f"input is {kind!r}, expected 'uint8' (normalisation inside) or 'float' (beside)")
    if features not in FEATURES:
        raise UsageError(f"features is {features!r}, expected one of {', '.join(FEATURES)}")
    if head is not None and features != "pooled":
        raise UsageError(f"head gives the logits of a classifier and features={features!r} maps; give one of them")
    folder = _folder(model, head)
    given = copy.deepcopy(model).cpu() if isinstance(model, nn.Module) else folder or model
    subject = open_sized(given, image_size)
    strides: dict[str, int | None] = {}
    classes: tuple[str, ...] | None = None
    if head is not None:
        assert folder is not None
        network, classes, subject = _classifier(folder, head, subject)
        names = ["logits"]
    elif features == "pooled":
        check_pools(subject.model)
        network, names = subject.model, ["features"]
    else:
        network = FeatureMaps(subject.model, features, subject.transform.size)
        names, strides = list(network.shapes), {name: stride for name, (_, stride) in network.shapes.items()}
    program = Program(network, names, kind, subject).cpu().eval().requires_grad_(False)
    return Subprogram(program, subject, folder, strides, classes)


def _folder(model: str | Path | nn.Module, head: str | None) -> Path | None:
    """The folder of a release, with the head's files where the Hub has it; None for what is none."""
    name = str(model)
    if isinstance(model, nn.Module) or name.startswith((TIMM, INIT)) or name == "pixels" or weights.is_of_timm(name):
        why = f"head={head!r} is one that a release carries; give a run or release that was probed"
    elif find_snapshot(str(model)) is not None:
        why = f"{model} is a run at one of its checkpoints, which has no heads; leave head out"
    else:
        return store.resolve(model, [*TO_LOAD, *([] if head is None else store.head_files(head))])
    if head is not None:
        raise UsageError(why)
    return None


def _classifier(folder: Path, head: str, subject: Subject) -> tuple[nn.Module, tuple[str, ...], Subject]:
    """The backbone and a classifier on it: a probe's, or the one that it was fine-tuned with. And the subject, reading
    images as that was fitted."""
    if (classes := finetuned_classes(folder, head)) is not None:
        whole = load_backbone(folder, num_classes=None)
        resize: Any = getattr(whole, "set_input_size", None)
        if resize is not None:
            resize(img_size=(subject.transform.size,) * 2)
        return whole, tuple(classes), subject
    with eval_mode(subject.model), torch.no_grad():
        width = subject.model(torch.zeros(1, 3, *(subject.transform.size,) * 2)).shape[1]
    fitted = ProbeHead.load(folder, head, width=width)
    if fitted.value_range is not None:
        transform = replace(subject.transform, values=ValueRange.parse(fitted.value_range))
        subject = subject._replace(transform=transform)
    return nn.Sequential(subject.model, fitted.as_linear()), fitted.classes, subject
