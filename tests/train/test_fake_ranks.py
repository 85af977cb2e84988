"""What only many GPUs do, done on every commit: one step as the first of eight processes, BN synchronised.

torch's fake process group stands for the other seven: its collectives leave what they are given. Synchronised BN trains
on no CPU, so its forward is replaced by that of plain BN, which is what it computes of its own images alone. A step is
then that of one process with an eighth of the gradient: DDP averages over eight, of which seven add nothing.
"""

import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

from ssl_hub.config import Optim
from ssl_hub.errors import UsageError
from ssl_hub.model import backbones
from ssl_hub.model.losses import LOSSES
from ssl_hub.model.predictors import PREDICTORS
from ssl_hub.model.siamese import Encoder, Siamese, arranged, build
from ssl_hub.model.stages import with_classifier
from ssl_hub.model.targets import TARGETS
from ssl_hub.train import classifier
from ssl_hub.train.classifier import ClassifierTrainer, Finetuning
from ssl_hub.train.given import images_at_once
from ssl_hub.train.launch import open_accelerator, processes_of_bn
from ssl_hub.train.step import Trainer
from ssl_hub.train.together import Agreement
from ssl_hub.zoo import get_recipe
from tests.end_to_end.test_launchers import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
try:
    from step_counts import Asked, reduced
finally:
    sys.path.pop(0)

RANKS = 8
OPTIM = Optim(name="sgd", lr=0.01, reference_batch=None, momentum=0.0, weight_decay=0.0, schedule="constant")
TINY = {"projector.hidden_width": 16, "projector.output_width": 8, "views.size": 32}
FAMILIES = (
    "resnet10_tiny",
    "regnety_002",
    "resnetv2_18",
)  # BN alone, with its activation inside, without a name for it


def forget():
    if dist.is_initialized():
        dist.destroy_process_group()
    AcceleratorState._reset_state(True)
    GradientState._reset_state()


def own_statistics(layer: nn.SyncBatchNorm, x: torch.Tensor) -> torch.Tensor:
    if layer.training:
        layer.num_batches_tracked.add_(1)
    return nn.functional.batch_norm(
        x, layer.running_mean, layer.running_var, layer.weight, layer.bias, layer.training, layer.momentum, layer.eps
    )


@pytest.fixture
def first_of_eight(monkeypatch):
    numbers = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in numbers.items():
        monkeypatch.setenv(name, value)
    forget()
    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    monkeypatch.setattr(nn.SyncBatchNorm, "forward", own_statistics)
    monkeypatch.setattr(
        DistributedDataParallel, "_passing_sync_batchnorm_handle", lambda *_arguments: None
    )  # CUDA only
    accelerator = open_accelerator()
    assert accelerator.num_processes == RANKS and accelerator.is_main_process
    yield accelerator
    forget()
    for name in numbers:
        os.environ.pop(name, None)


def count(module: nn.Module, kind: type[nn.Module]) -> int:
    return sum(isinstance(part, kind) for part in module.modules())


def of_all(_state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The mean gradient over eight processes of which seven have none; the fake group itself returns nothing."""
    mean: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    mean.set_result(bucket.buffer() / RANKS)
    return mean


BN = nn.modules.batchnorm._BatchNorm


def one_step(accelerator: Accelerator, name: str, lr: float, *, synchronise: bool) -> tuple[Trainer, dict]:
    """A model of this backbone after one step, and what it holds."""
    torch.manual_seed(0)
    siamese = build(get_recipe("directpred-digits", **TINY, **{"backbone.name": name})).double()
    siamese = arranged(siamese, synchronise=synchronise, channels_last=False, compiled=False)
    trainer = Trainer(siamese, OPTIM, accelerator, lr=lr, total_steps=10)
    if isinstance(trainer.model, DistributedDataParallel):
        trainer.model.register_comm_hook(None, of_all)
    generator = torch.Generator().manual_seed(1)
    views = [torch.randn(4, 3, 32, 32, generator=generator, dtype=torch.float64) for _ in range(2)]
    report = trainer.advance([tuple(views)])
    assert not report.skipped
    state = trainer.state_dict()
    return trainer, {f"{branch}.{k}": v for branch in ("online", "target") for k, v in state[branch].items()}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_step_with_synchronised_bn_is_a_step(first_of_eight, name):
    trainer, many = one_step(first_of_eight, name, lr=RANKS * 0.01, synchronise=True)
    assert isinstance(trainer.model, DistributedDataParallel) and not trainer.model.find_unused_parameters
    for branch in (trainer.siamese, trainer.siamese.target.network):
        assert count(branch, nn.SyncBatchNorm) == count(branch, BN) > 0  # every one, the target's too
    assert images_at_once(trainer.siamese, 4, RANKS) == 4 * RANKS
    forget()
    for variable in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        os.environ.pop(variable)
    plain, one = one_step(Accelerator(cpu=True), name, lr=0.01, synchronise=False)
    assert count(plain.siamese, nn.SyncBatchNorm) == 0
    assert many.keys() == one.keys()  # no name changes
    for key, value in one.items():
        torch.testing.assert_close(many[key], value, rtol=1e-6, atol=1e-9, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.parametrize("name", FAMILIES)
def test_what_is_frozen_is_found_after_the_conversion(first_of_eight, monkeypatch, name):
    monkeypatch.setattr(classifier, "synchronises", lambda *_arguments: True)
    torch.manual_seed(0)
    network, new = with_classifier(backbones.create(name, image_size=32), 5)
    settings = Finetuning(batch_size=32, epochs=1, freeze=1, lr=0.5)
    trainer = ClassifierTrainer(network, new, settings, first_of_eight, steps_per_epoch=4, images_of=np.ones(5, int))
    assert count(trainer.network, nn.SyncBatchNorm) == count(trainer.network, BN) > 0
    before = {key: value.clone() for key, value in trainer.network.state_dict().items()}
    trainer.model.register_comm_hook(None, of_all)
    trainer.train_mode()
    trainer.advance(iter([(torch.randn(4, 3, 32, 32), torch.arange(4))]))
    frozen = {key for key, parameter in trainer.network.named_parameters() if not parameter.requires_grad}
    layers = {key.rsplit(".", 1)[0] for key in frozen}
    after = trainer.network.state_dict()
    assert frozen and all(torch.equal(after[key], before[key]) for key in before if key.rsplit(".", 1)[0] in layers)
    assert any(not torch.equal(after[key], before[key]) for key in before)


# What a step sends


def small(accelerator: Accelerator, predictor: str = "mlp", *, synchronise: bool = True, **arrangement) -> Trainer:
    options = {"hidden_width": 8} if predictor == "mlp" else {"solver": "iteration"} if predictor == "direct" else {}
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4, bias=False))
    encoder = Encoder(network, nn.Identity())
    siamese = Siamese(encoder, PREDICTORS[predictor](4, **options), TARGETS["ema"](), LOSSES["cosine"]())
    siamese = arranged(siamese, synchronise=synchronise, channels_last=False, compiled=False, **arrangement)
    trainer = Trainer(siamese, OPTIM, accelerator, lr=0.01, total_steps=10, late=True)
    trainer.model.register_comm_hook(None, reduced)
    return trainer


def sent(trainer: Trainer) -> Asked:
    """What the third step asks for: DDP forms its buckets in the first."""
    agreement = Agreement(trainer.accelerator, 3, late=True)
    pair = torch.randn(8, 6), torch.randn(8, 6)
    with Asked() as asked:
        for step in range(3):
            if step == 2:
                asked.forget()
            trainer.advance([pair])
            agreement([False, False, False])
    return asked


@pytest.mark.parametrize("predictor", ["mlp", "linear", "symmetric", "direct"])
def test_a_step_sends_gradients_and_flags_and_f_and_nothing_else(first_of_eight, predictor):
    trainer = small(first_of_eight, predictor)
    asked = sent(trainer)
    statistics = 4 * 4 + 1 if predictor == "direct" else 0
    gradients = sum(p.numel() for p in trainer.siamese.parameters() if p.requires_grad)
    assert dict(asked.collectives) == {"allreduce": 2 + (statistics > 0)}
    assert asked.bytes == 4 * (gradients + statistics + 3)
    assert not asked.reads and asked.late_reads == 2


@pytest.mark.parametrize("grouped", [False, True])
def test_statistics_that_a_process_or_a_group_gathers_alone_are_sent_to_the_others(first_of_eight, grouped):
    group = dist.new_subgroups(group_size=4)[0] if grouped else None
    trainer = small(first_of_eight, "direct", synchronise=grouped, bn_group=group)
    layers = [layer for layer in trainer.siamese.modules() if isinstance(layer, nn.SyncBatchNorm)]
    assert [layer.process_group for layer in layers] == ([group] if grouped else [])
    asked = sent(trainer)
    assert asked.collectives["broadcast"] == 2  # float32 and int64 buffers of BN; F is the same everywhere
    assert asked.collectives["allreduce"] == 3


def test_gradients_are_views_of_what_crosses_processes(first_of_eight):
    trainer = small(first_of_eight)
    sent(trainer)
    owners = {p.grad.untyped_storage().data_ptr() for p in trainer.siamese.parameters() if p.grad is not None}
    assert len(owners) == 1


def test_flags_are_acted_upon_a_step_after_they_are_raised(first_of_eight):
    late, waiting = (Agreement(first_of_eight, 2, late=late) for late in (True, False))
    raised = [[False, False], [True, False], [False, False], [False, False]]
    assert [late(flags) for flags in raised] == [raised[0], *raised[:-1]]
    assert [waiting(flags) for flags in raised] == raised


def test_a_compiled_encoder_with_synchronised_bn_trains_alike(first_of_eight, monkeypatch):
    """As far as a CPU goes: dynamo traces the converted layers; the kernels and their collectives are a GPU's."""
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, **_options: real(function, backend="eager"))
    losses = []
    for compiled in (False, True):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 4, bias=False))
        siamese = Siamese(
            Encoder(network, nn.Identity()), PREDICTORS["linear"](4), TARGETS["ema"](), LOSSES["cosine"]()
        )
        siamese = arranged(siamese, synchronise=True, channels_last=False, compiled=compiled)
        trainer = Trainer(siamese, OPTIM, first_of_eight, lr=0.01, total_steps=10)
        trainer.model.register_comm_hook(None, reduced)
        generator = torch.Generator().manual_seed(1)
        views = [torch.randn(8, 6, generator=generator) for _ in range(2)]
        losses.append([float(trainer.advance([tuple(views)]).loss) for _ in range(2)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


@pytest.mark.parametrize(
    ("device", "asked", "group", "sharing"),
    [("cpu", True, 0, 1), ("cuda", False, 0, 1), ("cuda", True, 0, 8), ("xpu", True, 8, 8), ("cuda", True, 4, 4)],
)
def test_how_many_processes_share_the_statistics_of_bn(device, asked, group, sharing):
    accelerator = SimpleNamespace(num_processes=8, device=torch.device(device))
    assert processes_of_bn(accelerator, asked, group) == sharing
    with pytest.raises(UsageError, match="train.sync_bn_group is 3, and 8 processes do not divide into such groups"):
        processes_of_bn(SimpleNamespace(num_processes=8, device=torch.device("cuda")), True, 3)
