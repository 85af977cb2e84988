"""A bank of heads is each head alone, and each head is torch's own optimiser on the plain loss."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from ssl_hub.errors import UsageError
from ssl_hub.evaluate.head_bank import INITIAL_DEVIATION, HeadBank
from ssl_hub.evaluate.protocols import PROTOCOLS, Trained
from ssl_hub.model.lars import Lars

STEPS, BATCH, WIDTH, CLASSES = 20, 32, 12, 7


def batches():
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        yield torch.randn(BATCH, WIDTH, generator=generator), torch.randint(0, CLASSES, (BATCH,), generator=generator)


def bank(protocol, parts=1):
    heads = HeadBank(WIDTH, CLASSES, protocol, total_steps=STEPS, seed=3)
    for x, y in batches():
        for features, labels in zip(x.chunk(parts), y.chunk(parts), strict=True):
            heads.accumulate(features, labels, BATCH)
        heads.step()
    return heads


def protocol(name, lrs):
    return replace(PROTOCOLS[name], lrs=lrs, holdout=0.1, batch_size=BATCH, reference_batch=BATCH)


RATES = {"byol": (0.4, 0.3, 0.2, 0.1, 0.05), "simsiam": (1.6, 0.1), "authors-small": (3e-4, 3e-2, 1.0)}


@pytest.mark.parametrize("name", RATES)
def test_the_bank_is_each_rate_alone(name):
    together = bank(protocol(name, RATES[name]))
    for index, lr in enumerate(RATES[name]):
        alone = bank(protocol(name, (lr,)))
        torch.testing.assert_close(together.weights[index], alone.weights[0], rtol=0, atol=1e-5)
        torch.testing.assert_close(together.biases[index], alone.biases[0], rtol=0, atol=1e-5)
    assert (together.weights[0] - together.weights[1]).abs().max() > 1e-4


@pytest.mark.parametrize("name", RATES)
def test_parts_of_a_batch_add_up(name):
    whole, parts = bank(protocol(name, (0.1,))), bank(protocol(name, (0.1,)), parts=4)
    torch.testing.assert_close(whole.weights[0], parts.weights[0], rtol=0, atol=1e-5)


def plain(made_by, *, cosine):
    """One head by torch's optimisers, in the plainest way."""
    head = nn.Linear(WIDTH, CLASSES)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(3)
        head.weight.copy_(INITIAL_DEVIATION * torch.randn(CLASSES, WIDTH, generator=generator))
        head.bias.zero_()
    optimizer = made_by(head.parameters())
    peak = optimizer.param_groups[0]["lr"]
    for step, (x, y) in enumerate(batches()):
        optimizer.param_groups[0]["lr"] = peak * (1 + math.cos(math.pi * step / STEPS)) / 2 if cosine else peak
        optimizer.zero_grad()
        functional.cross_entropy(head(x), y).backward()
        optimizer.step()
    return head


@pytest.mark.parametrize(
    ("name", "made_by", "cosine"),
    [
        ("byol", lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True), True),
        ("simsiam", lambda p: Lars(p, lr=0.1, momentum=0.9), True),
        ("authors-small", lambda p: torch.optim.Adam(p, lr=0.1, weight_decay=1e-3), False),
    ],
)
def test_a_head_is_the_optimiser_that_the_protocol_names(name, made_by, cosine):
    ours, theirs = bank(protocol(name, (0.1,))), plain(made_by, cosine=cosine)
    torch.testing.assert_close(ours.weights[0], theirs.weight, rtol=0, atol=1e-5)
    torch.testing.assert_close(ours.biases[0], theirs.bias, rtol=0, atol=1e-5)


def test_the_rate_scales_with_the_batch():
    settings = Trained(lrs=(0.1,), reference_batch=256, epochs=1, batch_size=4096, optimizer="sgd", schedule="constant")
    heads = HeadBank(2, 2, settings, total_steps=1, seed=0)
    before = heads.biases[0].detach().clone()
    heads.biases[0].grad, heads.weights[0].grad = torch.ones(2), torch.zeros(2, 2)
    heads.step()
    torch.testing.assert_close(heads.biases[0].detach(), before - 1.6 * 1.9)  # Nesterov's first step is 1 + momentum


def test_features_that_are_not_finite_stop_the_training():
    heads = HeadBank(2, 2, PROTOCOLS["byol"], total_steps=1, seed=0)
    heads.accumulate(torch.tensor([[1.0, torch.nan]]), torch.tensor([0]), 1)
    with pytest.raises(UsageError, match="gradients of the heads are not finite at step 0: the backbone's features"):
        heads.step()


def test_judging_counts_hits_and_cross_entropy():
    heads = HeadBank(2, 3, replace(PROTOCOLS["byol"], lrs=(0.1, 0.2)), total_steps=1, seed=0)
    with torch.no_grad():
        heads.weights[1].copy_(torch.tensor([[9.0, 0.0], [0.0, 9.0], [0.0, 0.0]]))
    (_, first), (accuracy, second) = heads.judge(torch.eye(2).repeat(3, 1), torch.tensor([0, 1, 0, 1, 0, 2]))
    assert accuracy == pytest.approx(100 * 5 / 6)
    assert first == pytest.approx(math.log(3), abs=0.05) and second == pytest.approx(9 / 6, abs=0.01)
