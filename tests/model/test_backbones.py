"""Backbones: the small-image stem, the true feature width, and timm's own tools working on them."""

import pytest
import timm
import torch
from torch import nn

from ssl_hub.errors import UsageError
from ssl_hub.model import backbones
from ssl_hub.model.release import read_config, save_release
from ssl_hub.model.siamese import build
from ssl_hub.zoo import get_recipe


@pytest.mark.parametrize(("name", "width"), [("resnet18_cifar", 512), ("resnet50_cifar", 2048), ("resnet10_tiny", 128)])
def test_small_stem_keeps_resolution_until_the_stages(name, width):
    model = backbones.create(name).eval()
    with torch.no_grad():
        assert model.forward_features(torch.zeros(1, 3, 32, 32)).shape == (1, width, 4, 4)
        assert model(torch.zeros(2, 3, 32, 32)).shape == (2, width)
    assert model.conv1.stride == (1, 1)
    assert model.conv1.kernel_size == (3, 3)
    assert isinstance(model.maxpool, torch.nn.Identity)


def test_a_stem_of_stride_two_halves_every_stage():
    narrow, tiny = (timm.create_model(f"resnet10_{kind}", features_only=True) for kind in ("narrow", "tiny"))
    assert narrow.feature_info.reduction() == [2 * reduction for reduction in tiny.feature_info.reduction()]
    assert [32 // f.shape[-1] for f in narrow(torch.zeros(1, 3, 32, 32))] == narrow.feature_info.reduction()
    assert backbones.feature_width(backbones.create("resnet10_narrow"), 32) == 256


def test_timm_lists_builds_and_configures_the_small_models():
    assert timm.list_models("*_cifar") == ["resnet18_cifar", "resnet50_cifar"]
    model = timm.create_model("resnet18_cifar", num_classes=7)
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 7)
    assert timm.data.resolve_data_config(model=model)["input_size"] == (3, 32, 32)
    features = timm.create_model("resnet18_cifar", features_only=True)(torch.zeros(1, 3, 32, 32))
    reductions = timm.create_model("resnet18_cifar", features_only=True).feature_info.reduction()
    assert [32 // f.shape[-1] for f in features] == reductions


def test_resnet18_cifar_is_resnet18_but_for_the_stem():
    ours, theirs = backbones.create("resnet18_cifar").state_dict(), backbones.create("resnet18").state_dict()
    different = [name for name in theirs if ours[name].shape != theirs[name].shape]
    assert different == ["conv1.weight"]
    assert list(ours) == list(theirs)


@pytest.mark.parametrize("name", ["resnet18", "mobilenetv3_small_050", "vit_tiny_patch16_224", "convnext_atto"])
def test_feature_width_is_what_comes_out(name):
    model = backbones.create(name)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    width = backbones.feature_width(model, 224)
    with torch.no_grad():
        assert model.eval()(torch.zeros(1, 3, 224, 224)).shape == (1, width)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


def test_num_features_would_have_been_wrong_for_some():
    model = backbones.create("mobilenetv3_small_050")
    assert backbones.feature_width(model, 64) != model.num_features


def test_option_that_an_architecture_lacks_is_left_out():
    assert backbones.create("vit_tiny_patch16_224", zero_init_last=False).num_classes == 0
    residual = backbones.create("resnet10_tiny", zero_init_last=False)
    assert residual.layer1[0].bn2.weight.abs().sum() > 0
    assert backbones.create("resnet10_tiny", zero_init_last=True).layer1[0].bn2.weight.abs().sum() == 0


def test_what_was_left_out_is_known(tmp_path):
    recipe = get_recipe(
        "byol-digits", **{"backbone.zero_init_last": True, "backbone.name": "test_vit", "views.size": 32}
    )
    siamese = build(recipe)
    assert siamese.encoder.backbone.left_out == ["zero_init_last"]
    save_release(tmp_path, siamese, recipe)
    assert read_config(tmp_path)["ssl_hub"]["left_out"] == ["zero_init_last"]
    assert backbones.create("resnet10_tiny", zero_init_last=True).left_out == []
    # Takes any option, and drops what it does not know.
    assert backbones.create("convmixer_768_32", zero_init_last=True).left_out == ["zero_init_last"]


@pytest.mark.parametrize("name", ["dla46x_c", "ghostnet_050", "vgg11"])
def test_stochastic_depth_where_there_is_none_is_refused(name):
    with pytest.raises(UsageError, match=f"backbone.drop_path_rate is 0.1, and {name} has no stochastic depth"):
        backbones.create(name, drop_path_rate=0.1)
    assert backbones.create("resnet10_tiny", drop_path_rate=0.1).layer4[0].drop_path.drop_prob == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("name", "base"), [("resnet18.a1_in1k", "resnet18"), ("vit_base_patch16_224_in21k", "vit_base_patch16_224")]
)
def test_training_does_not_take_the_name_of_weights(name, base):
    with pytest.raises(UsageError, match=f"'{name}' names pretrained weights, .* random ones: give '{base}'"):
        build(get_recipe("byol-digits", **{"backbone.name": name, "views.size": 32}))


@pytest.mark.parametrize("pretrained", [False, True])
def test_an_unknown_tag_is_refused_with_those_there_are(pretrained):
    with pytest.raises(UsageError, match="'resnet18.nonsense': resnet18 has no weights .* timm has a1_in1k, a2_in1k"):
        backbones.create("resnet18.nonsense", pretrained=pretrained)
    with pytest.raises(UsageError, match="vit_base_patch16_224 has no weights tagged 'sam'"):
        backbones.create("vit_base_patch16_224_sam")  # an older name, which timm maps to what it no longer has


def test_what_the_features_do_not_depend_on_is_frozen():
    model = backbones.create("resnet10_tiny")
    model.unused = nn.Linear(2, 2)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.warns(UserWarning, match="does not use unused.weight, unused.bias .2 parameters.: not trained"):
        assert backbones.freeze_idle(model, 16) == ["unused.weight", "unused.bias"]
    assert {n for n, p in model.named_parameters() if not p.requires_grad} == {"unused.weight", "unused.bias"}
    assert all(module.training for module in model.modules())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


def test_measuring_the_width_leaves_nothing_behind():
    """LeViT keeps its position biases for evaluation until train() is called."""
    model = backbones.create("levit_128s", image_size=64)
    backbones.feature_width(model, 64)
    with torch.no_grad():
        before = model.eval()(torch.ones(1, 3, 64, 64))
        backbones.feature_width(model.train(), 64)
        for name, parameter in model.named_parameters():
            if "attention_biases" in name:
                parameter.normal_()
        assert not torch.equal(model.eval()(torch.ones(1, 3, 64, 64)), before)


@pytest.mark.parametrize(("name", "size"), [("halonet_h1", 64), ("xcit_nano_12_p8_224", 50), ("crossvit_9_240", 128)])
def test_a_size_that_an_architecture_cannot_have_is_one_line(name, size):
    with pytest.raises(UsageError, match=f"images of {size}") as refused:
        backbones.feature_width(backbones.create(name, image_size=size), size)
    assert "\n" not in str(refused.value)


def test_unknown_backbone_names_the_nearest():
    with pytest.raises(UsageError, match="unknown backbone 'resnet18_cifr'; did you mean 'resnet18_cifar'"):
        backbones.create("resnet18_cifr")


def test_backbone_without_pooling_is_refused_with_the_shape():
    model = timm.create_model("resnet10_tiny", num_classes=0, global_pool="")
    with pytest.raises(UsageError, match=r"returns \(1, 128, 2, 2\), expected pooled features \[B, C\]"):
        backbones.feature_width(model, 16)


def test_a_vit_is_never_given_images_whose_edge_it_would_not_see():
    with pytest.raises(
        UsageError, match="not see the edge of images of 40 pixels, which it cuts into patches of 16; take 48"
    ):
        backbones.feature_width(backbones.create("vit_tiny_patch16_224", image_size=40), 40)
    assert backbones.feature_width(backbones.create("vit_tiny_patch16_224", image_size=48), 48) == 192
