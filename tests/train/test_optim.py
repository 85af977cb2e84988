"""Parameter groups by module and role, learning rates by rule, LARS by its definition."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from ssl_hub.config import Optim
from ssl_hub.errors import UsageError
from ssl_hub.model.siamese import build
from ssl_hub.model.stages import depths
from ssl_hub.train.optim import (
    build_optimizer,
    load_named_state,
    named_state,
    parameter_groups,
    scaled_lr,
    schedule_factor,
    set_learning_rates,
)
from ssl_hub.zoo import get_recipe


@pytest.mark.parametrize(("batch", "processes", "accumulation", "want"), [(64, 2, 8, 0.8), (64, 1, 1, 0.05)])
def test_learning_rate_scales_with_the_total_batch(batch, processes, accumulation, want):
    optim = Optim(lr=0.2, reference_batch=256)
    lr, words = scaled_lr(optim, batch_per_process=batch, processes=processes, accumulation=accumulation)
    assert lr == pytest.approx(want)
    assert words == f"{want:g} = 0.2 x ({batch} images x {processes} process(es) x {accumulation} accumulation) / 256"


def test_learning_rate_is_as_given_without_a_reference_batch():
    optim = Optim(lr=0.03, reference_batch=None)
    assert scaled_lr(optim, batch_per_process=512, processes=4, accumulation=1)[0] == 0.03


def test_groups_follow_module_and_role():
    model = build(get_recipe("byol-digits"))
    groups = {g["name"]: g for g in parameter_groups(model, Optim(weight_decay=0.1, predictor_weight_decay=0.3))}
    assert set(groups) == {"encoder", "encoder_plain", "predictor", "predictor_plain"}
    assert {name: g["weight_decay"] for name, g in groups.items()} == {
        "encoder": 0.1,
        "encoder_plain": 0.0,
        "predictor": 0.3,
        "predictor_plain": 0.0,
    }
    for group in groups.values():
        assert all((p.ndim <= 1) == group["name"].endswith("_plain") for p in group["params"])
        assert all(name.startswith("predictor.") == group["name"].startswith("predictor") for name in group["names"])
    assert sum(len(g["params"]) for g in groups.values()) == len(list(model.parameters()))


def test_learning_rates_fall_by_stage_from_the_projector_down():
    model = build(get_recipe("byol-digits", **{"backbone.name": "test_vit", "views.size": 32}))
    optim = Optim(layer_decay=0.5, weight_decay=0.1, predictor_lr_ratio=3.0)
    groups = parameter_groups(model, optim)
    ratio = {name: group["lr_ratio"] for group in groups for name in group["names"]}
    assert ratio.keys() == dict(model.named_parameters()).keys()
    backbone = {name.removeprefix("encoder.backbone."): r for name, r in ratio.items() if "backbone" in name}
    depth, stages = depths(model.encoder.backbone, ())
    assert backbone == {name: 0.5 ** (stages - place) for name, place in depth.items()}
    assert max(backbone.values()) == 0.5 and min(backbone.values()) == backbone["pos_embed"] == 0.5**stages
    assert {r for name, r in ratio.items() if "projector" in name} == {1.0}
    assert {r for name, r in ratio.items() if name.startswith("predictor")} == {3.0}
    assert next(g["weight_decay"] for g in groups if "encoder.backbone.pos_embed" in g["names"]) == 0.0
    optimizer = build_optimizer(groups, optim)
    set_learning_rates(optimizer, 0.2, 0.5)
    assert min(g["lr"] for g in optimizer.param_groups) == pytest.approx(0.1 * 0.5**stages)


def test_everything_decays_where_the_recipe_says_so():
    model = build(get_recipe("byol-digits"))
    groups = parameter_groups(model, Optim(weight_decay=0.1, decay_norm_and_bias=True))
    assert {g["weight_decay"] for g in groups} == {0.1}


def test_positions_and_tokens_take_neither_decay_nor_trust_ratio():
    model = build(get_recipe("byol-digits", **{"backbone.name": "test_vit", "views.size": 32}))
    groups = {g["name"]: g for g in parameter_groups(model, Optim(weight_decay=0.1))}
    undecayed = {"encoder.backbone.pos_embed", "encoder.backbone.cls_token"}
    assert undecayed <= {*groups["encoder_plain"]["names"]}
    assert groups["encoder_plain"]["weight_decay"] == 0
    everything = {g["name"]: g for g in parameter_groups(model, Optim(weight_decay=0.1, decay_norm_and_bias=True))}
    assert everything["encoder_plain"]["weight_decay"] == 0.1

    optim = Optim(name="lars", lr=0.5, momentum=0.0, weight_decay=0.1, decay_norm_and_bias=True)
    optimizer = build_optimizer(parameter_groups(model, optim), optim)
    set_learning_rates(optimizer, 0.5, 1.0)
    position = model.encoder.backbone.pos_embed
    position.grad, before = torch.randn_like(position), position.detach().clone()
    optimizer.step()
    torch.testing.assert_close(position.detach(), before - 0.5 * (position.grad + 0.1 * before))


def test_a_predictors_matrix_decays_whatever_it_is_called():
    model = build(get_recipe("byol-linear-digits"))
    model.predictor.linear = None
    model.predictor.anything = torch.nn.Parameter(torch.eye(64))
    model.predictor.scale = torch.nn.Parameter(torch.ones(64))
    groups = {g["name"]: g["names"] for g in parameter_groups(model, Optim())}
    assert groups["predictor"] == ["predictor.anything"] and groups["predictor_plain"] == ["predictor.scale"]


def test_predictor_that_is_set_is_not_optimised():
    model = build(get_recipe("directpred-digits"))
    assert {g["name"] for g in parameter_groups(model, Optim())} == {"encoder", "encoder_plain"}


def test_predictor_has_its_own_ratio_and_schedule():
    model = build(get_recipe("byol-digits"))
    optim = Optim(predictor_lr_ratio=10.0, predictor_schedule="constant")
    optimizer = build_optimizer(parameter_groups(model, optim), optim)
    set_learning_rates(optimizer, 0.4, 0.25)
    rates = {g["name"]: g["lr"] for g in optimizer.param_groups}
    assert rates == pytest.approx({"encoder": 0.1, "encoder_plain": 0.1, "predictor": 4.0, "predictor_plain": 4.0})


def test_warm_up_then_cosine():
    factors = [schedule_factor(Optim(schedule="cosine"), s, total_steps=110, warmup_steps=10) for s in range(111)]
    assert factors[0] == pytest.approx(0.1)
    assert factors[9] == factors[10] == 1.0
    assert factors[60] == pytest.approx(0.5)
    assert factors[110] == pytest.approx(0.0)
    constant = [schedule_factor(Optim(schedule="constant"), s, total_steps=20, warmup_steps=4) for s in range(20)]
    assert constant[:4] == [0.25, 0.5, 0.75, 1.0]
    assert set(constant[4:]) == {1.0}


@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_lars_adapts_matrices_whatever_the_decay_and_vectors_never(weight_decay):
    module = nn.Linear(4, 3)
    optim = Optim(name="lars", lr=0.5, momentum=0.0, weight_decay=weight_decay, trust_coefficient=0.02)
    optimizer = build_optimizer(parameter_groups(module, optim), optim)
    set_learning_rates(optimizer, 0.5, 1.0)
    module.weight.grad, module.bias.grad = torch.randn(3, 4), torch.randn(3)
    w, b, g, gb = (t.detach().clone() for t in (module.weight, module.bias, module.weight.grad, module.bias.grad))
    optimizer.step()
    ratio = 0.02 * w.norm() / (g + weight_decay * w).norm()
    torch.testing.assert_close(module.weight.detach(), w - 0.5 * ratio * (g + weight_decay * w))
    torch.testing.assert_close(module.bias.detach(), b - 0.5 * gb)


def test_lars_ratio_is_one_for_zero_weights():
    module = nn.Linear(4, 3, bias=False)
    nn.init.zeros_(module.weight)
    optim = Optim(name="lars", lr=0.5, momentum=0.0, weight_decay=0.0)
    optimizer = build_optimizer(parameter_groups(module, optim), optim)
    set_learning_rates(optimizer, 0.5, 1.0)
    module.weight.grad = torch.ones(3, 4)
    optimizer.step()
    assert torch.equal(module.weight.detach(), torch.full((3, 4), -0.5))


@pytest.mark.parametrize("found_inf", [None, torch.tensor(0.0)], ids=["decided on the host", "on the device"])
def test_lars_takes_the_steps_of_timms(found_inf):
    """Over several steps with momentum, on the matrices that both adapt; with decay the denominators differ."""
    from timm.optim import Lars as Peer

    ours, peers = nn.Linear(5, 4, bias=False).double(), nn.Linear(5, 4, bias=False).double()
    peers.load_state_dict(ours.state_dict())
    optim = Optim(name="lars", lr=0.7, weight_decay=0.0, trust_coefficient=0.02)
    optimizer = build_optimizer(parameter_groups(ours, optim), optim)
    optimizer.found_inf = found_inf
    set_learning_rates(optimizer, 0.7, 1.0)
    peer = Peer(peers.parameters(), lr=0.7, momentum=0.9, weight_decay=0.0, trust_coeff=0.02, always_adapt=True)
    for _ in range(5):
        x = torch.randn(8, 5, dtype=torch.float64)
        for module, steps in ((ours, optimizer), (peers, peer)):
            steps.zero_grad()
            module(x).pow(2).sum().backward()
            steps.step()
    torch.testing.assert_close(ours.weight, peers.weight, rtol=1e-6, atol=1e-9)


def test_lars_may_decay_vectors_and_still_does_not_adapt_them():
    module = nn.Linear(4, 3)
    optim = Optim(name="lars", lr=0.5, momentum=0.0, weight_decay=0.1, decay_norm_and_bias=True)
    optimizer = build_optimizer(parameter_groups(module, optim), optim)
    set_learning_rates(optimizer, 0.5, 1.0)
    module.weight.grad, module.bias.grad, before = torch.ones(3, 4), torch.ones(3), module.bias.detach().clone()
    optimizer.step()
    torch.testing.assert_close(module.bias.detach(), before - 0.5 * (1 + 0.1 * before))


@pytest.mark.parametrize("name", ["sgd", "lars", "adamw"])
def test_optimiser_state_goes_by_name_not_by_position(name):
    optim = Optim(name=name, lr=0.1)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    optimizer = build_optimizer(parameter_groups(model, optim), optim)
    model(torch.randn(4, 3)).square().sum().backward()
    optimizer.step()
    other = build_optimizer([*reversed(parameter_groups(model, optim))], optim)
    load_named_state(other, named_state(optimizer))
    for p in model.parameters():
        for key, value in optimizer.state[p].items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(other.state[p][key]))
    with pytest.raises(UsageError, match="has 'elsewhere', which this model does not train"):
        load_named_state(other, {"elsewhere": {}})


def test_the_zoo_uses_lars_without_decay_on_vectors():
    assert not get_recipe("byol-r50-300ep").optim.decay_norm_and_bias
    assert replace(get_recipe("byol-r50-300ep").optim, name="sgd").name == "sgd"
