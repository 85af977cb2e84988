"""Synchronised normalisation: the same tensors, the same outputs, and nothing lost on the way."""

import copy
import warnings

import pytest
import timm
import torch
from timm.layers import BatchNormAct2d, EvoNorm2dB0, FrozenBatchNormAct2d, SplitBatchNorm2d
from torch import nn

from ssl_hub.errors import UsageError
from ssl_hub.model.normalisation import synchronised
from ssl_hub.model.siamese import arranged, build
from ssl_hub.zoo import get_recipe


def lived_in(model):
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, nn.modules.batchnorm._BatchNorm):
                layer.running_mean.normal_()
                layer.running_var.uniform_(0.5, 1.5)
    return model.eval()


@pytest.mark.parametrize(
    "name", ["regnety_002", "densenet121", "resnetv2_18", "efficientnet_b0", "mobilenetv3_small_050", "resnet10_tiny"]
)
def test_outputs_are_those_before(name):
    plain = lived_in(timm.create_model(name, num_classes=0))
    converted = synchronised(copy.deepcopy(plain))
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(plain(images), converted(images))
    assert list(plain.state_dict()) == list(converted.state_dict())


def test_tensors_stay_the_same_and_settings_too():
    layers = [
        nn.BatchNorm1d(3, affine=False),
        nn.BatchNorm2d(3, eps=0.1, momentum=None),
        nn.BatchNorm3d(3),
        BatchNormAct2d(3),
    ]
    plain = nn.ModuleList(layers)
    plain[2].eval()
    plain[1].weight.requires_grad_(False)
    parameters, buffers = dict(plain.named_parameters()), dict(plain.named_buffers())
    converted = synchronised(plain)
    assert all(isinstance(layer, nn.SyncBatchNorm) for layer in converted)
    assert all(tensor is parameters[name] for name, tensor in converted.named_parameters())
    assert all(tensor is buffers[name] for name, tensor in converted.named_buffers())
    for before, after in zip(layers, converted, strict=True):
        for setting in ("eps", "momentum", "affine", "track_running_stats", "training"):
            assert getattr(before, setting) == getattr(after, setting)


def test_converting_twice_changes_nothing():
    once = synchronised(nn.Sequential(BatchNormAct2d(3)))
    assert synchronised(once)[0] is once[0] and isinstance(once[0].act, nn.ReLU)


def test_a_layer_that_would_lose_what_it_computes_is_refused():
    class Doubled(nn.BatchNorm2d):
        def forward(self, x):
            return 2 * super().forward(x)

    for layer in (Doubled(3), SplitBatchNorm2d(4, num_splits=2)):
        with pytest.raises(UsageError, match=f"{type(layer).__name__} .* cannot be synchronised.*sync_bn=false"):
            synchronised(nn.Sequential(layer))


def test_other_statistics_are_named_and_stay_each_process_own():
    with pytest.warns(UserWarning, match="2 EvoNorm2dB0: statistics of each process alone"):
        synchronised(nn.Sequential(EvoNorm2dB0(3), EvoNorm2dB0(3), nn.BatchNorm2d(3)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        synchronised(nn.Sequential(FrozenBatchNormAct2d(3), nn.LayerNorm(3)))


def test_both_branches_of_a_method_are_synchronised():
    siamese = build(get_recipe("byol-digits"))
    names = list(siamese.state_dict()), list(siamese.target.state_dict())
    siamese = arranged(siamese, synchronise=True, channels_last=False, compiled=False)
    for module in (siamese, siamese.target.network):
        layers = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        assert layers and all(isinstance(layer, nn.SyncBatchNorm) for layer in layers)
    assert (list(siamese.state_dict()), list(siamese.target.state_dict())) == names
