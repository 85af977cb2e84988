"""The optimiser step's own parts against independent traces of a linear network, and its order."""

from dataclasses import replace

import pytest
import torch
from accelerate import Accelerator
from torch import nn

from ssl_hub.config import Optim
from ssl_hub.errors import UsageError
from ssl_hub.model.losses import LOSSES
from ssl_hub.model.predictors import PREDICTORS
from ssl_hub.model.siamese import Encoder, Siamese, build
from ssl_hub.model.targets import TARGETS
from ssl_hub.train.step import MAX_SKIPPED, Trainer
from ssl_hub.zoo import get_recipe
from tests.model.reference import cases

SGD = Optim(name="sgd", lr=0.03, reference_batch=None, momentum=0.9, weight_decay=4e-4, schedule="constant")


def linear_siamese(predictor, target="ema", d=4, features=6, **target_options) -> Siamese:
    encoder = Encoder(nn.Linear(features, d, bias=False), nn.Identity())
    return Siamese(encoder, predictor, TARGETS[target](**target_options), LOSSES["cosine"](scale=2.0)).double()


def trainer(siamese: Siamese, optim: Optim = SGD, *, steps: int = 100, accumulation: int = 1) -> Trainer:
    return Trainer(siamese, optim, Accelerator(cpu=True), lr=optim.lr, total_steps=steps, accumulation=accumulation)


@pytest.mark.parametrize("case", cases("loop", "trace"), ids=lambda case: case["id"])
def test_training_reproduces_the_reference_traces(case):
    inputs = {k: torch.tensor(v, dtype=torch.float64) if isinstance(v, list) else v for k, v in case["inputs"].items()}
    if "corr" in case["id"]:
        # The traces follow the authors' code, whose momentum buffer also collects the gradients of overwritten steps.
        predictor = PREDICTORS["direct"](4, rho=inputs["rho"], eps=inputs["eps"], freq=1, momentum_through=True)
    else:
        predictor = PREDICTORS["linear"](4)
    siamese = linear_siamese(predictor, momentum=inputs["ema_m"])
    with torch.no_grad():
        siamese.encoder.backbone.weight.copy_(inputs["W0"])
        siamese.target.network.backbone.weight.copy_(inputs["Wa0"])
        predictor.matrix().copy_(inputs["Wp0"])
    optim = replace(SGD, lr=inputs["lr"], momentum=inputs["momentum"], weight_decay=inputs["weight_decay"])
    run = trainer(siamese, optim)
    for want, x1, x2 in zip(case["outputs"]["trace"], inputs["x1"], inputs["x2"], strict=True):
        report = run.advance([(x1, x2)])
        # The reference loss is -2 cos for each direction; ours starts at zero: 2 (1 - cos) each.
        assert float(report.loss) - 4 == pytest.approx(want["loss"], abs=case["tol_abs"])
        got = {
            "W": siamese.encoder.backbone.weight,
            "Wa": siamese.target.network.backbone.weight,
            "Wp": predictor.matrix(),
        }
        if "corr" in case["id"]:
            got["Fhat"] = predictor.correlation.value
        for name, tensor in got.items():
            wanted = torch.tensor(want[name], dtype=torch.float64)
            torch.testing.assert_close(tensor.detach(), wanted, atol=case["tol_abs"], rtol=0)


def by_hand(x1, x2, w, wa, wp, *, freq, momentum_through, steps, lr=0.03, mom=0.9, wd=4e-4, m=0.99, rho=0.3, eps=0.1):
    """The same seven-line algorithm with autograd and explicit momentum, for DirectPred with freq > 1."""
    from ssl_hub.model.spectrum import predictor_from_correlation

    w, wp = w.clone().requires_grad_(), wp.clone().requires_grad_()
    wa, buffers, average = wa.clone(), {}, None
    for step in range(steps):
        f1, f2 = x1[step] @ w.mT, x2[step] @ w.mT
        f = torch.cat([f1, f2]).detach()
        batch = f.mT @ f / len(f)
        average = batch if average is None else rho * average + (1 - rho) * batch
        cos = torch.nn.functional.cosine_similarity
        loss = -2 * cos(f1 @ wp.mT, x2[step] @ wa.mT).mean() - 2 * cos(f2 @ wp.mT, x1[step] @ wa.mT).mean()
        gradients = torch.autograd.grad(loss, [w, wp])
        overwrite = step % freq == 0
        with torch.no_grad():
            for name, p, g in (("w", w, gradients[0]), ("wp", wp, gradients[1])):
                if name == "wp" and overwrite and not momentum_through:
                    continue
                g = g + wd * p
                buffers[name] = mom * buffers[name] + g if name in buffers else g.clone()
                p -= lr * buffers[name]
            if overwrite:
                wp.copy_(predictor_from_correlation(average, eps=eps))
            wa = m * wa + (1 - m) * w
    return w.detach(), wa, wp.detach()


@pytest.mark.parametrize("momentum_through", [False, True])
def test_hybrid_training_between_overwrites(momentum_through):
    x1, x2 = torch.randn(8, 5, 6, dtype=torch.float64), torch.randn(8, 5, 6, dtype=torch.float64)
    predictor = PREDICTORS["direct"](4, freq=3, momentum_through=momentum_through)
    siamese = linear_siamese(predictor, momentum=0.99)
    with torch.no_grad():
        siamese.target.network.backbone.weight.add_(0.3)
    start = [
        siamese.encoder.backbone.weight.detach().clone(),
        siamese.target.network.backbone.weight.detach().clone(),
        predictor.weight.detach().clone(),
    ]
    run = trainer(siamese)
    for pair in zip(x1, x2, strict=True):
        run.advance([pair])
    w, wa, wp = by_hand(x1, x2, *start, freq=3, momentum_through=momentum_through, steps=8)
    torch.testing.assert_close(siamese.encoder.backbone.weight.detach(), w, atol=1e-12, rtol=0)
    torch.testing.assert_close(siamese.target.network.backbone.weight, wa, atol=1e-12, rtol=0)
    torch.testing.assert_close(predictor.weight.detach(), wp, atol=1e-12, rtol=0)


@pytest.mark.parametrize("kind", [kind for kind in PREDICTORS.names() if kind not in ("mlp", "rank_filter")])
def test_accumulation_equals_one_large_batch_without_bn(kind):
    states = []
    pairs = [(torch.randn(16, 6).double(), torch.randn(16, 6).double()) for _ in range(10)]
    for accumulation in (1, 4):
        torch.manual_seed(1)
        run = trainer(linear_siamese(PREDICTORS[kind](4)), accumulation=accumulation)
        for x1, x2 in pairs:
            run.advance(zip(x1.chunk(accumulation), x2.chunk(accumulation), strict=True))
        assert run.step == 10
        states.append(run.state_dict())
    for branch in ("online", "target"):
        for name, tensor in states[0][branch].items():
            torch.testing.assert_close(states[1][branch][name], tensor, rtol=1e-10, atol=1e-12)


def test_skipped_step_changes_nothing_and_schedules_wait():
    run = trainer(linear_siamese(PREDICTORS["direct"](4)))
    good = (torch.randn(8, 6).double(), torch.randn(8, 6).double())
    run.advance([good])
    before = {k: v.clone() for k, v in run.siamese.state_dict().items()}
    target = {k: v.clone() for k, v in run.siamese.target.state_dict().items()}
    report = run.advance([(torch.full((8, 6), float("nan")).double(), good[1])])
    assert report.skipped
    assert (run.step, run.position) == (1, 2)
    assert all(torch.equal(before[k], v) for k, v in run.siamese.state_dict().items())
    assert all(torch.equal(target[k], v) for k, v in run.siamese.target.state_dict().items())
    assert not run.advance([good]).skipped
    assert run.step == 2


def test_a_resumed_run_knows_of_the_batches_that_were_skipped():
    run = trainer(linear_siamese(PREDICTORS["direct"](4)))
    good = torch.randn(8, 6).double()
    run.advance([(good, good)])
    run.advance([(torch.full_like(good, float("nan")), good)])
    resumed = trainer(linear_siamese(PREDICTORS["direct"](4)))
    resumed.load_state_dict(run.state_dict())
    assert (resumed.step, resumed.position) == (1, 2)


def test_skipped_step_leaves_running_statistics_of_both_branches():
    encoder = Encoder(nn.Sequential(nn.Linear(6, 4, bias=False), nn.BatchNorm1d(4)), nn.Identity())
    run = trainer(Siamese(encoder, PREDICTORS["mlp"](4, hidden_width=8), TARGETS["ema"](), LOSSES["cosine"]()).double())
    good = (torch.randn(8, 6).double(), torch.randn(8, 6).double())
    run.advance([good])
    branches = (run.siamese, run.siamese.target.network)
    before = [[buffer.clone() for buffer in branch.buffers()] for branch in branches]
    assert run.advance([(torch.full((8, 6), float("nan")).double(), good[1])]).skipped
    for branch, buffers in zip(branches, before, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(branch.buffers(), buffers, strict=True))
    assert not run.advance([good]).skipped
    assert not torch.equal(next(run.siamese.buffers()), before[0][0])


def test_non_finite_gradients_in_a_row_stop_the_run():
    run = trainer(linear_siamese(PREDICTORS["linear"](4)))
    bad = (torch.full((8, 6), float("inf")).double(), torch.randn(8, 6).double())
    for _ in range(MAX_SKIPPED - 1):
        run.advance([bad])
    with pytest.raises(UsageError, match=f"not finite for {MAX_SKIPPED} steps in a row, at step 0"):
        run.advance([bad])


def test_clipping_limits_the_norm_once_over_all_gradients():
    pair = (torch.randn(8, 6).double(), torch.randn(8, 6).double())
    plain = replace(SGD, momentum=0.0, weight_decay=0.0)
    moved = {}
    for clip in (None, 1e-3):
        torch.manual_seed(5)
        run = trainer(linear_siamese(PREDICTORS["linear"](4)), replace(plain, clip_norm=clip))
        before = {k: v.clone() for k, v in run.siamese.named_parameters()}
        norm = run.advance([pair]).grad_norm
        steps = [(p - before[k]).detach().flatten() for k, p in run.siamese.named_parameters()]
        moved[clip] = float(torch.cat(steps).norm()) / plain.lr
        assert norm > 1e-3
    assert moved[None] == pytest.approx(norm)
    assert moved[1e-3] == pytest.approx(1e-3, rel=1e-4)


@pytest.mark.parametrize("optim", ["sgd", "lars", "adamw"])
def test_state_round_trip_continues_exactly(optim):
    pairs = [(torch.randn(8, 6).double(), torch.randn(8, 6).double()) for _ in range(6)]
    settings = replace(SGD, name=optim, schedule="cosine")
    torch.manual_seed(1)
    straight = trainer(linear_siamese(PREDICTORS["direct"](4, freq=2)), settings, steps=6)
    for pair in pairs[:3]:
        straight.advance([pair])
    state = {k: v for k, v in straight.state_dict().items()}
    copied = torch.load(_saved(state), weights_only=True)
    torch.manual_seed(2)
    resumed = trainer(linear_siamese(PREDICTORS["direct"](4, freq=2)), settings, steps=6)
    resumed.load_state_dict(copied)
    for pair in pairs[3:]:
        one, two = straight.advance([pair]), resumed.advance([pair])
        assert one.lr == two.lr
        assert torch.equal(one.loss, two.loss)
    for branch in ("online", "target"):
        for name, tensor in straight.state_dict()[branch].items():
            assert torch.equal(resumed.state_dict()[branch][name], tensor), name


def _saved(state):
    import io

    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return buffer


@pytest.mark.parametrize("name", ["sgd", "adamw", "lars"])
def test_a_frozen_backbone_keeps_every_bit_and_gathers_no_momentum_until_its_first_step(name):
    torch.manual_seed(0)
    siamese = build(get_recipe("byol-digits"))
    optim = Optim(name=name, lr=0.1, weight_decay=0.1, decay_norm_and_bias=True, clip_norm=1.0)
    trainer = Trainer(siamese, optim, Accelerator(cpu=True), lr=0.1, total_steps=10, frozen_steps=2)
    images = torch.randn(4, 3, 16, 16)

    def state():
        networks = (siamese.encoder.backbone, siamese.target.network.backbone, siamese.encoder.projector)
        return [{k: v.clone() for k, v in network.state_dict().items()} for network in networks]

    start = state()
    for _ in range(2):
        trainer.advance([(images, images.flip(-1))])
    online, target, projector = state()
    assert_equal_states(online, start[0])
    assert_equal_states(target, start[1])
    assert not torch.equal(projector["0.weight"], start[2]["0.weight"])
    assert not any("backbone" in parameter for parameter in trainer.state_dict()["optimizer"])
    trainer.advance([(images, images.flip(-1))])
    moved, followed, _ = state()
    assert not torch.equal(moved["conv1.weight"], online["conv1.weight"])
    assert not torch.equal(followed["bn1.running_mean"], target["bn1.running_mean"])


def assert_equal_states(one, other):
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
