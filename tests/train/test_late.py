"""A step that never waits for the device, as accelerators take it, forced on the CPU."""

import sys
import warnings
from dataclasses import replace

import pytest
import torch
from accelerate import Accelerator
from torch import nn

from ssl_hub.config import Optim
from ssl_hub.errors import UsageError
from ssl_hub.model.losses import LOSSES
from ssl_hub.model.predictors import PREDICTORS
from ssl_hub.model.siamese import Encoder, Siamese
from ssl_hub.model.targets import TARGETS, EMATarget
from ssl_hub.train.step import MAX_SKIPPED, Trainer
from tests.end_to_end.test_launchers import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
try:
    from step_counts import Asked
finally:
    sys.path.pop(0)

SGD = Optim(name="sgd", lr=0.05, reference_batch=None, momentum=0.9, weight_decay=4e-4, schedule="cosine")
OPTIMS = {name: replace(SGD, name=name, lr=0.05 if name != "adamw" else 0.003) for name in ("sgd", "lars", "adamw")}
METHODS = {
    "byol": ("mlp", {"hidden_width": 8}, "ema"),
    "simsiam": ("mlp", {"hidden_width": 8}, "stopgrad"),
    "linear": ("linear", {}, "ema"),
    "symmetric": ("symmetric", {}, "ema"),
    "identity": ("identity", {}, "ema"),
    "directpred": ("direct", {"solver": "iteration"}, "ema"),
    "directcopy": ("direct", {"solver": "iteration", "alpha": 1.0, "eps": 0.3}, "ema"),
    "directpred, freq 2": ("direct", {"solver": "iteration", "freq": 2}, "ema"),
    "directpred, averaged": ("direct", {"solver": "iteration", "rho": None}, "ema"),
    "partitions": ("direct", {"solver": "iteration", "partitions": 2}, "ema"),
}


def trainer(method: str, *, late: bool, optim: Optim = SGD, steps: int = 12, **options) -> Trainer:
    predictor, chosen, target = METHODS[method]
    torch.manual_seed(3)
    network = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4, bias=False))
    siamese = Siamese(
        Encoder(network, nn.Identity()), PREDICTORS[predictor](4, **chosen), TARGETS[target](), LOSSES["cosine"]()
    )
    return Trainer(siamese, optim, Accelerator(cpu=True), lr=optim.lr, total_steps=steps, late=late, **options)


def views(count: int, *bad: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(4)
    pairs = [(torch.randn(16, 6, generator=generator), torch.randn(16, 6, generator=generator)) for _ in range(count)]
    for place in bad:
        pairs[place][0][3] = float("nan")
    return pairs


def everything(run: Trainer) -> dict[str, torch.Tensor]:
    state = run.state_dict()
    found = {f"{branch}.{k}": v.clone() for branch in ("online", "target") for k, v in state[branch].items()}
    for name, values in state["optimizer"].items():
        found |= {f"optimizer.{name}.{k}": torch.as_tensor(v).clone() for k, v in values.items() if v is not None}
    return found


@pytest.mark.parametrize("method", METHODS)
def test_late_steps_are_those_that_wait(method):
    late, waiting = trainer(method, late=True), trainer(method, late=False)
    assert late.late and not waiting.late
    for pair in views(8):
        one, two = late.advance([pair]), waiting.advance([pair])
        assert float(one.grad_norm) == pytest.approx(float(two.grad_norm), rel=1e-3)
        assert (one.lr, one.momentum, one.skipped) == (two.lr, two.momentum, False)
    found, wanted = everything(late), everything(waiting)
    assert {name for name in wanted if not name.startswith("optimizer")} <= found.keys()
    for name, tensor in wanted.items():
        torch.testing.assert_close(found[name].to(tensor.dtype), tensor, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("optim", OPTIMS)
@pytest.mark.parametrize("method", ["byol", "directpred", "symmetric", "directpred, averaged"])
@pytest.mark.parametrize("place", [0, 3])
def test_a_skipped_step_changes_not_one_bit(method, optim, place):
    run, pairs = trainer(method, late=True, optim=OPTIMS[optim]), views(6, place)
    for pair in pairs[:place]:
        run.advance([pair])
    before = everything(run)
    run.advance([pairs[place]])
    after = everything(run)
    assert (run.step, run.position) == (place, place + 1)
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    if place == 0:  # momentum that a first step has made room for is none
        assert not any(tensor.any() for name, tensor in after.items() if name not in before)
    for pair in pairs[place + 1 :]:
        assert not run.advance([pair]).skipped
    assert all(tensor.isfinite().all() for tensor in everything(run).values())
    assert run.step == 5


def test_schedules_are_a_step_ahead_for_one_step_after_a_skip_and_right_from_then_on():
    run = trainer("linear", late=True)
    rates = {step: trainer("linear", late=False, steps=12) for step in range(1)}
    plain = rates[0]
    expected = [plain.advance([pair]).lr for pair in views(6)]
    reports = [run.advance([pair]) for pair in views(7, 2)]
    assert [report.lr for report in reports] == [expected[i] for i in (0, 1, 2, 3, 3, 4, 5)]
    assert [report.skipped for report in reports] == [False, False, False, True, False, False, False]
    assert run.step == 6


@pytest.mark.parametrize("stop", range(1, 7))
def test_a_checkpoint_of_any_step_goes_on_to_the_same_bits(stop):
    """Around a skip too, although whoever saves learns of it before its time."""
    pairs = views(8, 2, 3)
    straight, first, second = (trainer("directpred", late=True) for _ in range(3))
    for pair in pairs:
        straight.advance([pair])
    for pair in pairs[:stop]:
        first.advance([pair])
    second.load_state_dict(torch.load(saved(first.state_dict()), weights_only=True))
    assert (second.step, second.position) == (first.step, first.position)
    for pair in pairs[stop:]:
        second.advance([pair])
    one, two = everything(straight), everything(second)
    assert one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def saved(state):
    import io

    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return buffer


def test_asking_when_nobody_would_changes_nothing():
    pairs, asked, left = views(8, 2), trainer("directpred", late=True), trainer("directpred", late=True)
    for pair in pairs:
        asked.advance([pair])
        asked.settle()
        left.advance([pair])
    one, two = everything(asked), everything(left)
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_five_in_a_row_end_the_run_one_step_later():
    run = trainer("linear", late=True)
    pairs = views(MAX_SKIPPED + 1, *range(MAX_SKIPPED))
    for pair in pairs[:-1]:
        run.advance([pair])
    with pytest.raises(UsageError, match=f"not finite for {MAX_SKIPPED} steps in a row, at step 0"):
        run.advance([pairs[-1]])


def test_a_predictor_that_kept_its_weight_is_said_a_step_late():
    run, pairs = trainer("directpred", late=True), views(3)
    run.advance([pairs[0]])
    run.siamese.predictor.correlation.rho = 1.0
    run.siamese.predictor.correlation.value.zero_()
    weight = run.siamese.predictor.weight.clone()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run.advance([pairs[1]])
    assert torch.equal(run.siamese.predictor.weight, weight)
    with pytest.warns(UserWarning, match="step 1: the correlation matrix is zero"):
        run.settle()


def test_clipping_without_a_look_is_clipping():
    late, waiting = (trainer("linear", late=late, optim=replace(SGD, clip_norm=0.05)) for late in (True, False))
    for pair in views(4):
        late.advance([pair])
        waiting.advance([pair])
    for name, tensor in everything(waiting).items():
        torch.testing.assert_close(everything(late)[name], tensor, rtol=1e-4, atol=1e-6)


def test_what_cannot_leave_a_step_out_without_the_host_is_not_late():
    class Old(EMATarget):
        def update(self, encoder, step, total_steps):
            super().update(encoder, step, total_steps)

    siamese = Siamese(Encoder(nn.Linear(6, 4), nn.Identity()), PREDICTORS["linear"](4), Old(), LOSSES["cosine"]())
    run = Trainer(siamese, SGD, Accelerator(cpu=True), lr=0.1, total_steps=4, late=True)
    assert not run.late and not run.advance([views(1)[0]]).skipped


# What a step asks of the device. Every number may shrink; one that grows is a wait, or a launch, of every step.


@pytest.mark.parametrize("method", METHODS)
def test_no_step_reads_from_the_device(method):
    run, pairs = trainer(method, late=True), views(6, 4)
    for pair in pairs[:2]:
        run.advance([pair])
    asked = Asked()
    with asked:
        for pair in pairs[2:]:
            run.advance([pair])
    assert not asked.reads, dict(asked.reads)
    assert asked.late_reads == 4  # one a step
    assert not asked.collectives


@pytest.mark.parametrize(("method", "reads"), [("byol", 1), ("directpred", 1), ("partitions", 1)])
def test_a_step_that_waits_waits_once(method, reads):
    run = trainer(method, late=False)
    run.siamese.predictor._warned = True  # which it looks out for, where looking is free
    run.advance([views(1)[0]])
    with Asked() as asked:
        run.advance([views(1)[0]])
    assert sum(asked.reads.values()) == reads, dict(asked.reads)


def test_training_by_either_solver_is_one_training():
    """To the size of the root's error; how far whole runs part is in benchmarks/predictor_solver.py."""
    runs = [trainer("directpred", late=False, steps=40) for _ in range(2)]
    runs[0].siamese.predictor.solver = "eigh"
    for pair in views(30):
        for run in runs:
            run.advance([pair])
    exact, iterated = (torch.cat([p.detach().flatten() for p in run.siamese.encoder.parameters()]) for run in runs)
    assert 0 < (iterated - exact).norm() < 5e-3 * exact.norm()
    assert runs[1].siamese.predictor.solver_on(torch.device("cpu")) == "iteration"


@pytest.mark.parametrize(
    ("options", "device", "solver"),
    [
        ({}, "cpu", "eigh"),
        ({}, "cuda", "iteration"),
        ({"alpha": 1.0}, "mps", "iteration"),
        ({"alpha": 0.25}, "cuda", "eigh"),
        ({"eps": 0.001}, "cuda", "eigh"),
        ({"form": "paper"}, "cuda", "eigh"),
        ({"centred": True}, "cuda", "eigh"),
        ({"solver": "eigh"}, "cuda", "eigh"),
        ({"partitions": 2}, "xpu", "iteration"),
    ],
)
def test_the_iteration_is_chosen_where_it_is_right_and_a_decomposition_would_be_waited_for(options, device, solver):
    assert PREDICTORS["direct"](4, **options).solver_on(torch.device(device)) == solver
    if options.keys() & {"alpha", "eps", "form", "centred"} and solver == "eigh":
        with pytest.raises(UsageError, match="predictor.solver is 'iteration', which gives the normalised form alone"):
            PREDICTORS["direct"](4, **options, solver="iteration")
