"""Features before they are pooled: of which stage, how large, and that they can be trained on."""

import pytest
import torch
from torch import nn

import ssl_hub
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.feature_maps import feature_maps
from ssl_hub.model import backbones


@torch.no_grad()
def test_the_last_map_pooled_is_the_feature():
    model = ssl_hub.load("directpred-digits")
    images = torch.randn(2, 3, 24, 24)
    maps = feature_maps(model, "map").eval()
    assert maps.shapes == {"map": (128, 8)}
    assert torch.allclose(maps(images)["map"].mean((2, 3)), model(images), atol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "size", "expected"),
    [
        ("test_resnet", 64, "stage0_stride2 stage1_stride4 stage2_stride8 stage3_stride16 stage4_stride32"),
        ("test_convnext", 64, "stage0_stride4 stage1_stride8 stage2_stride16 stage3_stride32"),
        ("test_vit", 64, "block1_stride16 block2_stride16 block4_stride16 block5_stride16"),
        ("resnet18_cifar", 32, "stage0_stride1 stage1_stride1 stage2_stride2 stage3_stride4 stage4_stride8"),
    ],
)
def test_stages_by_their_measured_strides(name, size, expected):
    maps = feature_maps(f"timm:{name}", image_size=size).eval()
    out = maps(torch.randn(2, 3, size, size))
    assert list(out) == expected.split() == list(maps.shapes)
    for one, (channels, stride) in zip(out.values(), maps.shapes.values(), strict=True):
        assert list(one.shape) == [2, channels, size // stride, size // stride]
    assert maps.channels == [one.shape[1] for one in out.values()]


@torch.no_grad()
def test_tokens_are_the_map_row_by_row_without_the_class_token():
    model = backbones.create("test_vit", image_size=64).eval()
    images = torch.randn(2, 3, 64, 64)
    tokens = feature_maps(model, "tokens", image_size=64)(images)
    assert {k: list(out.shape) for k, out in tokens.items()} == {"tokens": [2, 16, 64], "prefix_tokens": [2, 1, 64]}
    last = feature_maps(model, "map", image_size=64)(images)["map"]
    assert torch.allclose(last.flatten(2).transpose(1, 2), tokens["tokens"], atol=1e-5)


def test_a_vit_changes_its_size_and_stays_in_the_mode_that_it_was_in():
    maps = feature_maps("timm:test_vit", "map", image_size=96)
    assert list(maps(torch.randn(1, 3, 96, 96))["map"].shape) == [1, 64, 6, 6]
    model = backbones.create("test_vit").train()
    assert feature_maps(model, "map", image_size=96).backbone.training


@torch.no_grad()
def test_maps_of_a_network_that_normalises_none_come_as_they_are():
    maps = feature_maps(backbones.create("hiera_tiny_224", image_size=64, stages=(1, 1, 1, 1)), image_size=64).eval()
    assert [stride for _, stride in maps.shapes.values()] == [4, 8, 16, 32]
    assert maps(torch.randn(2, 3, 64, 64))["stage3_stride32"].shape == (2, 768, 2, 2)


def test_gradients_reach_the_first_layer():
    maps = feature_maps("timm:test_resnet", image_size=64).train()
    sum(out.mean() for out in maps(torch.randn(2, 3, 64, 64)).values()).backward()
    first = next(module for module in maps.modules() if isinstance(module, nn.Conv2d))
    assert first.weight.grad is not None and first.weight.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: feature_maps("directpred-digits", "pooled"), "is 'pooled', expected one of map, stages, tokens"),
        (lambda: feature_maps("directpred-digits", "tokens"), "SmallImageResNet has no features of the kind 'tokens'"),
        (lambda: feature_maps("timm:test_vit", image_size=70), "images? of 70"),
        (lambda: feature_maps(nn.Linear(3, 3)), "Linear has no pretrained_cfg"),
    ],
)
def test_what_is_not_there_is_said(call, message):
    with pytest.raises(UsageError, match=message):
        call()
