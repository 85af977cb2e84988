"""Targets: copied whole, averaged in the right order, never trained."""

import copy

import pytest
import torch
from torch import nn

from ssl_hub.errors import UsageError
from ssl_hub.model.siamese import Encoder
from ssl_hub.model.targets import TARGETS


def encoder() -> Encoder:
    backbone = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten())
    return Encoder(backbone, nn.Sequential(nn.Linear(144, 6), nn.BatchNorm1d(6)))


def started(**options: object):
    online, target = encoder(), TARGETS["ema"](**options)
    target.start(online)
    return online, target


def test_target_starts_as_a_copy_of_backbone_and_projector_that_cannot_be_trained():
    online, target = started()
    for name, tensor in online.state_dict().items():
        assert torch.equal(target.network.state_dict()[name], tensor)
        assert target.network.state_dict()[name].data_ptr() != tensor.data_ptr()
    assert not any(p.requires_grad for p in target.network.parameters())
    (t,) = target.project([torch.randn(4, 3, 8, 8)], [None], online)
    assert not t.requires_grad


def test_parameters_are_averaged_and_buffers_copied():
    online, target = started(momentum=0.9)
    before = copy.deepcopy(target.network.state_dict())
    online([torch.randn(8, 3, 8, 8) + 5])  # moves the running statistics
    with torch.no_grad():
        for p in online.parameters():
            p.add_(1)
    target.update(online, 0, 10)
    after, now = target.network.state_dict(), online.state_dict()
    parameters = {name for name, _ in online.named_parameters()}
    for name in now:
        if name in parameters:
            torch.testing.assert_close(after[name], 0.9 * before[name] + 0.1 * now[name])
        else:
            assert torch.equal(after[name], now[name])
    assert after["backbone.1.num_batches_tracked"].dtype == torch.int64


def test_target_runs_in_train_mode_whatever_the_online_mode():
    online, target = started()
    online.eval()
    x = torch.randn(8, 3, 8, 8) + 5
    (t,) = target.project([x], [None], online)
    assert t.mean().abs() < 0.1  # BN by the batch's own statistics, not the running ones


@pytest.mark.parametrize(("momentum", "moves"), [(1.0, False), (0.0, True)])
def test_momentum_one_freezes_and_zero_copies(momentum, moves):
    online, target = started(momentum=momentum)
    before = [p.clone() for p in target.network.parameters()]
    with torch.no_grad():
        for p in online.parameters():
            p.mul_(2).add_(1)
    target.update(online, 3, 10)
    wanted = list(online.parameters()) if moves else before
    assert all(torch.equal(p, w) for p, w in zip(target.network.parameters(), wanted, strict=True))


def test_cosine_momentum_ends_at_exactly_one_and_constant_stays():
    cosine, constant = TARGETS["ema"](momentum=0.99, schedule="cosine"), TARGETS["ema"](momentum=0.99)
    values = [cosine.momentum(step, 101) for step in range(101)]
    assert values[0] == pytest.approx(0.99)
    assert values[50] == pytest.approx(0.995)
    assert values[100] == 1.0
    assert values == sorted(values)
    assert {constant.momentum(step, 101) for step in range(101)} == {0.99}


def test_shared_targets_use_the_online_projections_and_run_no_second_forward():
    f = torch.randn(4, 6, requires_grad=True)

    def no_forward(_):
        raise AssertionError("a second forward")

    (detached,) = TARGETS["stopgrad"]().project([torch.zeros(4, 3, 8, 8)], [f], no_forward)
    assert torch.equal(detached, f)
    assert not detached.requires_grad
    (attached,) = TARGETS["none"]().project([torch.zeros(4, 3, 8, 8)], [f], no_forward)
    assert attached is f


def test_momentum_out_of_range_is_named():
    with pytest.raises(UsageError, match=r"target.momentum is 1.2, expected a number in \[0, 1\]"):
        TARGETS["ema"](momentum=1.2)
