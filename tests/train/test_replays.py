"""Modes of torch.compile that replay CUDA graphs, as far as a CPU goes: what they ask of a step, and what is refused.

A replay overwrites what the one before gave: outputs of the networks, gradients of their weights. Here both are filled
with NaN where the next forward says that it begins.
"""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from ssl_hub.errors import UsageError
from ssl_hub.model.release import read_facts, read_recipe
from ssl_hub.model.siamese import REPLAYING, Encoder, arranged, build
from ssl_hub.train.journal import Journal
from ssl_hub.train.launch import check_replays
from ssl_hub.train.prepare import prepare
from ssl_hub.zoo import get_recipe
from tests.train.test_late import METHODS, OPTIMS, everything, trainer, views
from tests.train.test_loop import QUICK

CPU = SimpleNamespace(num_processes=1, device=torch.device("cpu"))


def test_the_modes_that_replay_are_those_of_torch():
    modes = torch._inductor.list_mode_options()
    assert {mode for mode, options in modes.items() if options.get("triton.cudagraphs")} == {*REPLAYING}
    assert "max-autotune-no-cudagraphs" in modes


@pytest.mark.parametrize("optim", OPTIMS)
@pytest.mark.parametrize("method", METHODS)
def test_nothing_of_a_step_is_read_once_the_next_begins(method, optim, monkeypatch):
    steps = {}
    for overwritten in (False, True):
        run, given = trainer(method, late=True, optim=OPTIMS[optim]), []
        for network in (run.siamese.encoder, run.siamese.target.network):
            if overwritten and network is not None:
                network.register_forward_hook(lambda _module, _views, found, given=given: given.extend(found))
        for weight in run.siamese.encoder.parameters():
            if overwritten:
                weight.register_post_accumulate_grad_hook(lambda weight, given=given: given.append(weight.grad))

        def begin(given=given):
            for tensor in given:
                tensor.detach().fill_(float("nan"))
            given.clear()

        monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", begin)
        run.siamese.replays = overwritten
        reports = [run.advance([pair]) for pair in views(5)]
        assert len(given) > 0 or not overwritten
        begin()
        seen = {f"report {i}.{k}": v for i, r in enumerate(reports) for k, v in r._asdict().items()}
        steps[overwritten] = everything(run) | {k: v for k, v in seen.items() if isinstance(v, torch.Tensor)}
    assert steps[False].keys() == steps[True].keys()
    assert all(torch.equal(tensor, steps[True][name]) for name, tensor in steps[False].items())


def test_every_forward_says_that_it_begins_and_those_of_other_modes_do_not(monkeypatch):
    begun, asked = [], []
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: begun.append(True))
    monkeypatch.setattr(nn.Module, "compile", lambda self, **options: asked.append(options["mode"]))
    recipe = get_recipe("byol-digits")
    for compiled, mode in (
        (True, "default"),
        ("reduce-overhead", "reduce-overhead"),
        ("max-autotune", "max-autotune"),
        ("max-autotune-no-cudagraphs", "max-autotune-no-cudagraphs"),
    ):
        siamese = arranged(build(recipe), synchronise=False, channels_last=False, compiled=compiled)
        siamese(torch.randn(4, 3, 16, 16), torch.randn(4, 3, 16, 16))
        assert asked == [mode, mode] and len(begun) == (mode in REPLAYING)
        begun.clear(), asked.clear()


def test_what_a_replay_would_overwrite_is_refused():
    with pytest.raises(UsageError, match="'reduce-overhead', which replays CUDA graphs, and train.accumulation is 2"):
        check_replays("reduce-overhead", CPU, accumulation=2)
    several = SimpleNamespace(num_processes=4, device=torch.device("cuda"))
    with pytest.raises(UsageError, match="'max-autotune', .* and there are 4 processes; expected one process"):
        check_replays("max-autotune", several, accumulation=1)
    for mode in (False, True, "max-autotune-no-cudagraphs"):
        assert check_replays(mode, several, accumulation=2) is None
    one = SimpleNamespace(num_processes=1, device=torch.device("cuda"))
    assert [check_replays("reduce-overhead", where, accumulation=1) for where in (CPU, one)] == [False, True]


def test_a_run_records_the_mode_and_that_a_cpu_replays_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(nn.Module, "compile", lambda self, **options: None)
    settings, anew = {**QUICK, "runtime.compile": "reduce-overhead"}, {"resume": False, "overwrite": False}
    with prepare(get_recipe("byol-digits", **settings), tmp_path / "run", **anew, allow_change=()) as job:
        Journal(job).close()
    assert "compiled (reduce-overhead; no CUDA graphs on this device)" in capsys.readouterr().err
    assert read_facts(tmp_path / "run")["cuda_graphs"] is False
    assert read_recipe(tmp_path / "run").runtime.compile == "reduce-overhead"
    refused = get_recipe("byol-digits", **settings, **{"train.accumulation": 2})
    with (
        pytest.raises(UsageError, match="train.accumulation is 2"),
        prepare(refused, tmp_path / "refused", **anew, allow_change=()),
    ):
        pass
    assert not (tmp_path / "refused").exists()


@pytest.mark.parametrize("name", ["resnet18_cifar", pytest.param("vit_tiny_patch16_224", marks=pytest.mark.slow)])
def test_the_encoder_is_one_graph(name):
    """A break would end a CUDA graph there, and a number read from the device would end it for good."""
    recipe = get_recipe("directpred-digits", **{"backbone.name": name, "views.size": 32})
    encoder = build(recipe).encoder
    assert isinstance(encoder, Encoder)
    with torch.no_grad():
        whole = torch.compile(encoder.forward, backend="eager", fullgraph=True)
        assert len(whole([torch.randn(2, 3, 32, 32) for _ in range(2)])) == 2
