"""What only many GPUs do, done on every commit: one step as the first of eight processes, BN synchronised.

torch's fake process group stands for the other seven: its collectives leave what they are given. Synchronised BN trains
on no CPU, so its forward is replaced by that of plain BN, which is what it computes of its own images alone. A step is
then that of one process with an eighth of the gradient: DDP averages over eight, of which seven add nothing.
"""

import os

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
from ssl_hub.model import backbones
from ssl_hub.model.siamese import arranged, build
from ssl_hub.model.stages import with_classifier
from ssl_hub.train import classifier
from ssl_hub.train.classifier import ClassifierTrainer, Finetuning
from ssl_hub.train.given import images_at_once
from ssl_hub.train.launch import open_accelerator
from ssl_hub.train.step import Trainer
from ssl_hub.zoo import get_recipe

RANKS = 8
OPTIM = Optim(name="sgd", lr=0.01, reference_batch=None, momentum=0.0, weight_decay=0.0, schedule="constant")
TINY = {"projector.hidden_width": 16, "projector.output_width": 8, "views.size": 32}
FAMILIES = (
    "resnet10_tiny",
    "regnety_002",
    "resnetv2_50",
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
    assert images_at_once(trainer.siamese, 4, RANKS, synchronised=True) == 4 * RANKS
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
