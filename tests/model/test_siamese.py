"""The composition: who sees what, who gets a gradient, and how many forward passes it takes."""

from itertools import pairwise
from unittest import mock

import pytest
import torch
from torch import nn

from ssl_hub.config import Optim, Part
from ssl_hub.errors import UsageError
from ssl_hub.model.losses import LOSSES
from ssl_hub.model.modes import eval_mode
from ssl_hub.model.normalisation import synchronised, with_statistics
from ssl_hub.model.predictors import PREDICTORS
from ssl_hub.model.siamese import Encoder, Siamese, build
from ssl_hub.model.targets import TARGETS
from ssl_hub.train.optim import parameter_groups
from ssl_hub.zoo import get_recipe


def siamese(predictor="mlp", target="ema", loss="cosine", symmetrised=True, joint_views=False) -> Siamese:
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(48, 10), nn.BatchNorm1d(10), nn.ReLU())
    encoder = Encoder(backbone, nn.Linear(10, 6, bias=False), joint_views=joint_views)
    return Siamese(encoder, PREDICTORS[predictor](6), TARGETS[target](), LOSSES[loss](symmetrised=symmetrised))


def views(rows: int = 12):
    return torch.randn(rows, 3, 4, 4), torch.randn(rows, 3, 4, 4) + 1


def forwards(model: Siamese, *, network: str) -> int:
    module = model.encoder if network == "online" else model.target.network
    seen: list[int] = []
    hooks = [m.register_forward_hook(lambda m, i, o: seen.append(1)) for m in [module.backbone]]
    model(*views())
    for hook in hooks:
        hook.remove()
    return len(seen)


@pytest.mark.parametrize(
    ("target", "symmetrised", "online", "extra"),
    [("ema", True, 2, 2), ("ema", False, 1, 1), ("stopgrad", True, 2, None), ("stopgrad", False, 2, None)],
)
def test_number_of_forward_passes(target, symmetrised, online, extra):
    model = siamese(target=target, symmetrised=symmetrised)
    assert forwards(model, network="online") == online
    if extra is not None:
        assert forwards(model, network="target") == extra


@pytest.mark.parametrize("joint_views", [False, True])
def test_frozen_statistics_are_used_and_kept_by_both_branches(joint_views):
    model = build(get_recipe("byol-digits", **{"backbone.bn_statistics": "frozen", "train.joint_views": joint_views}))
    model = synchronised(model.eval().train())  # which makes new layers
    model.target.network = synchronised(model.target.network)
    branches = [model.encoder, model.target.network]
    before = [{k: v.clone() for k, v in branch.backbone.named_buffers()} for branch in branches]
    assert all(layer.training for layer in with_statistics(model.encoder.projector))
    assert not any(layer.training for branch in branches for layer in with_statistics(branch.backbone))
    images = torch.randn(4, 3, 16, 16)
    with mock.patch.object(nn.SyncBatchNorm, "forward", nn.modules.batchnorm._BatchNorm.forward):  # trains on a CPU
        model(images, images.flip(-1)).loss.backward()
    scales = [p for name, p in model.encoder.backbone.named_parameters() if "bn" in name]
    assert scales and all(p.grad is not None and p.grad.abs().sum() > 0 for p in scales[:-1])
    for branch, buffers in zip(branches, before, strict=True):
        assert all(torch.equal(buffers[name], now) for name, now in branch.backbone.named_buffers())
    model.freeze_statistics(False)
    assert all(layer.training for branch in branches for layer in with_statistics(branch.backbone))
    with eval_mode(model.encoder.backbone):
        assert not any(module.training for module in model.encoder.backbone.modules())


@pytest.mark.parametrize("target", TARGETS.names())
@pytest.mark.parametrize("predictor", PREDICTORS.names())
def test_every_trainable_parameter_gets_a_gradient_and_the_target_none(predictor, target):
    model = siamese(predictor=predictor, target=target)
    model(*views()).loss.backward()
    trained = [p for p in model.parameters() if p.requires_grad]
    assert trained
    assert all(p.grad is not None for p in trained)
    # BN takes away what a bias before it adds: that bias has a gradient of 0, and on some processors exactly that.
    before_bn = {
        id(first.bias)
        for layers in model.modules() if isinstance(layers, nn.Sequential)
        for first, second in pairwise(layers) if isinstance(second, nn.BatchNorm1d)
    }  # fmt: skip
    assert all(p.grad.abs().max() > 1e-5 for p in trained if id(p) not in before_bn)
    if model.target.network is not None:
        assert all(p.grad is None for p in model.target.network.parameters())


def test_a_frozen_patch_embedding_is_trained_in_neither_branch_and_all_else_is():
    settings = {"backbone.name": "test_vit", "views.size": 32, "backbone.freeze_patch_embedding": True}
    model = build(get_recipe("byol-digits", **settings))
    still = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert still == {f"encoder.backbone.patch_embed.proj.{name}" for name in ("weight", "bias")}
    before = [p.clone() for p in model.target.network.backbone.patch_embed.parameters()]
    trained = [p for group in parameter_groups(model, Optim(weight_decay=0.5)) for p in group["params"]]
    assert not {id(p) for p in trained} & {id(p) for p in model.encoder.backbone.patch_embed.parameters()}
    model(torch.randn(4, 3, 32, 32), torch.randn(4, 3, 32, 32)).loss.backward()
    torch.optim.SGD(trained, lr=0.1).step()
    model.after_step(0, 10)
    for branch in (model.encoder, model.target.network):
        assert all(torch.equal(a, b) for a, b in zip(before, branch.backbone.patch_embed.parameters(), strict=True))


@pytest.mark.parametrize(
    ("name", "setting", "said"),
    [
        ("resnet10_tiny", {"freeze_patch_embedding": True}, "no patch embedding to freeze: set .*=false"),
        (
            "tiny_vit_5m_224",
            {"freeze_patch_embedding": True},
            "embedding of TinyVit has batch normalisation",
        ),
        ("test_vit", {"bn_statistics": "frozen"}, "test_vit has no batch normalisation: set .*bn_statistics=batch"),
    ],
)
def test_a_setting_that_the_backbone_has_nothing_for_is_refused(name, setting, said):
    chosen = {f"backbone.{key}": value for key, value in setting.items()}
    size = 224 if name == "tiny_vit_5m_224" else 32
    with pytest.raises(UsageError, match=said):
        build(get_recipe("directpred-digits", **{"backbone.name": name, "views.size": size, **chosen}))


def test_stop_gradient_is_what_separates_stopgrad_from_none():
    stopped, attached = siamese("linear", "stopgrad"), siamese("linear", "none")
    attached.load_state_dict(stopped.state_dict())
    pair = views()
    losses, gradients = [], []
    for model in (stopped, attached):
        loss = model(*pair).loss
        loss.backward()
        losses.append(loss.detach())
        gradients.append(model.encoder.projector.weight.grad)
    assert torch.equal(losses[0], losses[1])
    assert (gradients[0] - gradients[1]).abs().max() > 1e-4


def test_target_is_neither_parameter_nor_state_of_the_trained_model_but_moves_with_it():
    model = siamese()
    assert not any("target" in name for name in model.state_dict())
    assert len(list(model.parameters())) == len(list(model.encoder.parameters())) + len(
        list(model.predictor.parameters())
    )
    model.double()
    assert next(model.target.network.parameters()).dtype == torch.float64


def test_symmetrised_loss_is_the_sum_of_both_directions():
    both, one = siamese(symmetrised=True), siamese(symmetrised=False)
    one.load_state_dict(both.state_dict())
    one.target.load_state_dict(both.target.state_dict())
    view1, view2 = views()
    together = both(view1, view2).loss
    apart = one(view1, view2).loss + one(view2, view1).loss
    torch.testing.assert_close(together, apart)


def test_bn_statistics_are_per_view_unless_joint():
    separate, joint = siamese(joint_views=False), siamese(joint_views=True)
    joint.load_state_dict(separate.state_dict())
    view1, view2 = views()
    alone = separate.encoder([view1])[0]
    torch.testing.assert_close(separate.encoder([view1, view2])[0], alone)
    assert (joint.encoder([view1, view2])[0] - alone).abs().max() > 0.1


def test_loss_is_float32_under_autocast():
    model = siamese()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(*views())
    assert output.loss.dtype == torch.float32
    assert output.projections.dtype == torch.float32


def test_isotropic_loss_refuses_a_trained_predictor():
    with pytest.raises(UsageError, match="got LinearPredictor, expected predictor.kind=direct or optimal"):
        siamese(predictor="linear", loss="iso")


def test_build_measures_the_width_without_touching_bn():
    model = build(get_recipe("byol-digits"))
    assert model.encoder.projector[0].in_features == 128
    assert all(int(v) == 0 for k, v in model.encoder.state_dict().items() if k.endswith("num_batches_tracked"))
    assert model.training


def test_build_draws_the_same_model_for_the_same_seed():
    models = []
    for _ in range(2):
        torch.manual_seed(3)
        models.append(build(get_recipe("directpred-digits")).state_dict())
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])


def test_simsiam_projector_ends_in_bn_without_affine_or_bias_before_it():
    projector = build(get_recipe("simsiam-digits")).encoder.projector
    assert isinstance(projector[-1], nn.BatchNorm1d)
    assert projector[-1].weight is None
    assert projector[-2].bias is None


def test_unknown_kind_is_named():
    from dataclasses import replace

    with pytest.raises(UsageError, match="unknown predictor 'diract'; did you mean 'direct'"):
        build(replace(get_recipe("byol-digits"), predictor=Part("diract")))
