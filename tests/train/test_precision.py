"""Mixed precision on the CPU: bf16 autocast, float32 where it matters, and float16's zero vectors."""

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from ssl_hub.model.losses import cosine
from ssl_hub.model.siamese import build
from ssl_hub.train.step import Trainer
from ssl_hub.zoo import get_recipe


@pytest.fixture
def bf16():
    AcceleratorState._reset_state(True)
    yield Accelerator(cpu=True, mixed_precision="bf16")
    AcceleratorState._reset_state(True)


@pytest.mark.parametrize("name", ["directpred-digits", "byol-digits", "simsiam-digits"])
def test_bf16_keeps_weights_target_statistics_and_loss_in_float32(bf16, name):
    recipe = get_recipe(name)
    siamese = build(recipe)
    seen = []
    siamese.encoder.backbone.conv1.register_forward_hook(lambda m, i, o: seen.append(o.dtype))
    trainer = Trainer(siamese, recipe.optim, bf16, lr=0.03, total_steps=3)
    for _ in range(3):
        report = trainer.advance([(torch.randn(8, 3, 16, 16), torch.randn(8, 3, 16, 16))])
    assert set(seen) == {torch.bfloat16}
    assert report.loss.dtype == report.projections.dtype == torch.float32
    state = {**siamese.state_dict(), **siamese.target.state_dict()}
    assert {t.dtype for t in state.values() if t.is_floating_point()} == {torch.float32}
    assert all(torch.isfinite(t).all() for t in state.values())


def test_normalising_a_zero_vector_in_half_precision_is_finite():
    f = torch.zeros(2, 4, dtype=torch.float16, requires_grad=True)
    value = cosine(f.float(), torch.ones(2, 4)).sum()
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(f.grad).all()
