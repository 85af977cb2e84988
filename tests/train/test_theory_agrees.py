"""Theory and practice are one code path where they meet: the simulator of linear networks and the training step."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch import nn

from ssl_hub.config import Optim
from ssl_hub.model.losses import LOSSES
from ssl_hub.model.predictors import PREDICTORS
from ssl_hub.model.siamese import Encoder, Siamese
from ssl_hub.model.targets import TARGETS
from ssl_hub.theory import LinearTraining
from ssl_hub.train.step import Trainer

OPTIM = Optim(name="sgd", lr=0.01, reference_batch=None, momentum=0.9, weight_decay=4e-3, schedule="constant")


@pytest.mark.parametrize("loss", ["cosine", "squared"])
@pytest.mark.parametrize(
    ("rule", "kind", "options"),
    [
        ("regular", "linear", {}),
        ("symmetric", "symmetric", {}),
        ("direct", "direct", {"freq": 1, "momentum_through": True}),
        ("direct", "direct", {"freq": 3, "momentum_through": True}),
    ],
)
def test_simulator_and_training_step_agree_step_for_step(rule, kind, options, loss):
    rng = np.random.default_rng(0)
    w, wa, wp = (0.3 * rng.normal(size=shape) for shape in ((4, 6), (4, 6), (4, 4)))
    alpha_p, ema = 3.0, 0.97
    # The supplement's squared loss has a quarter before each direction.
    chosen = LOSSES["cosine"](scale=2.0) if loss == "cosine" else LOSSES["mse"](scale=0.25)
    encoder = Encoder(nn.Linear(6, 4, bias=False), nn.Identity())
    siamese = Siamese(encoder, PREDICTORS[kind](4, **options), TARGETS["ema"](momentum=ema), chosen).double()
    with torch.no_grad():
        siamese.encoder.backbone.weight.copy_(torch.from_numpy(w))
        siamese.target.network.backbone.weight.copy_(torch.from_numpy(wa))
        siamese.predictor.matrix().copy_(torch.from_numpy(wp))
    optim = replace(OPTIM, predictor_lr_ratio=alpha_p)
    trainer = Trainer(siamese, optim, Accelerator(cpu=True), lr=optim.lr, total_steps=30)
    theory = LinearTraining(
        W=w,
        Wp=wp,
        Wa=wa,
        lr=optim.lr,
        momentum=optim.momentum,
        weight_decay=optim.weight_decay,
        alpha_p=alpha_p,
        ema_m=ema,
        predictor=rule,
        freq=options.get("freq", 1),
        loss=loss,
    )
    for _ in range(30):
        x1, x2 = rng.normal(size=(16, 6)), rng.normal(size=(16, 6))
        trainer.advance([(torch.from_numpy(x1), torch.from_numpy(x2))])
        theory.step(x1, x2)
        pairs = {
            "W": siamese.encoder.backbone.weight,
            "Wa": siamese.target.network.backbone.weight,
            "Wp": siamese.predictor.matrix(),
        }
        for name, tensor in pairs.items():
            np.testing.assert_allclose(tensor.detach().numpy(), getattr(theory, name), atol=1e-10, err_msg=name)
