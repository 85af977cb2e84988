"""A recipe in the theory's terms, and the modes that a run starts from."""

import numpy as np
import pytest
import torch
from torch import nn

from ssl_hub.errors import UsageError
from ssl_hub.model.losses import LOSSES
from ssl_hub.model.predictors import PREDICTORS
from ssl_hub.model.siamese import Encoder, Siamese
from ssl_hub.model.targets import TARGETS
from ssl_hub.train.forecast import begin, forecast, modes_of, not_described, setting_of
from ssl_hub.zoo import get_recipe

SMALL = {"data.pretrain_split": "train[:10%]", "projector.output_width": 8}


def test_a_recipe_in_the_theory_s_terms():
    got = setting_of(get_recipe("directpred-digits", **{"predictor.eps": 0.3, "optim.predictor_lr_ratio": 5}))
    assert (got.units.alpha, got.units.eta) == pytest.approx((0.3, 4e-4))
    assert got.units.beta == pytest.approx(0.01 / 0.3)
    assert (got.rate, got.loss, got.target, got.isotropic) == (4.0, "normalised", "ema", False)
    assert (got.predictor.kind, got.predictor.eps, got.predictor.rho, got.predictor.freq) == ("set", 0.3, 0.3, 1)
    assert (got.alpha_p, got.eta_p) == pytest.approx((5.0, 2e-3))


def test_schedules_count_by_their_mean_and_batches_scale_the_learning_rate():
    changes = {"optim.reference_batch": 32, "target.kind": "ema", "target.schedule": "cosine"}
    got = setting_of(get_recipe("simsiam-digits", **changes, **{"predictor.kind": "linear"}))
    assert got.units.alpha == pytest.approx(0.06 * 2 / 2 / 0.1, rel=1e-2)  # doubled for the batch, halved by the cosine
    assert got.alpha_p == pytest.approx(2.0, rel=1e-2)  # the predictor's schedule is constant
    assert got.units.beta * got.units.alpha == pytest.approx(0.002)
    assert got.rate == 1.0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"predictor.kind": "mlp"}, "predictor.kind=mlp"),
        ({"predictor.kind": "optimal"}, "predictor.kind=optimal"),
        ({"predictor.kind": "symmetric", "predictor.layers": 2}, "predictor.layers=2"),
        ({"predictor.kind": "linear", "predictor.bias": True}, "predictor.bias=True"),
        ({"predictor.partitions": 2}, "predictor.partitions=2"),
        ({"predictor.centred": True}, "predictor.centred=True"),
        ({"predictor.rho": None}, "predictor.rho=none"),
    ],
)
def test_what_the_flow_does_not_describe_is_named(changes, words):
    recipe = get_recipe("directpred-digits", **changes)
    assert words in (not_described(recipe) or "")
    setting_of(recipe)  # the units hold all the same
    with pytest.raises(UsageError, match=f"not described by the theory: {words}"):
        forecast(recipe)


@pytest.mark.parametrize("kind", ["identity", "linear", "symmetric", "direct"])
@pytest.mark.parametrize("loss", ["cosine", "mse"])
def test_what_the_flow_describes(kind, loss):
    assert not_described(get_recipe("directpred-digits", **{"predictor.kind": kind, "loss.kind": loss})) is None


def test_modes_of_a_linear_network_are_those_of_its_data():
    """x = constant + four independent coordinates with known agreement, f = W x with orthogonal columns."""
    torch.manual_seed(0)
    r, deviation = torch.tensor([0.9, 0.6, 0.3, 0.0]), torch.tensor([0.5, 1.0, 2.0, 1.5])
    columns = torch.linalg.qr(torch.randn(5, 5))[0]
    shared = torch.randn(40, 256, 4)
    views = []
    for _ in range(2):
        z = r.sqrt() * shared + (1 - r).sqrt() * torch.randn(40, 256, 4)
        views.append(torch.cat([torch.ones(40, 256, 1), z * deviation], dim=2))
    encoder = Encoder(nn.Linear(5, 5, bias=False), nn.Identity())
    with torch.no_grad():
        encoder.backbone.weight.copy_(columns)
    siamese = Siamese(encoder, PREDICTORS["linear"](5), TARGETS["stopgrad"](), LOSSES["cosine"]())
    got = modes_of(siamese, list(zip(*views, strict=True)))
    np.testing.assert_allclose(got.r, [1.0, 0.9, 0.6, 0.3, 0.0], atol=0.03)
    np.testing.assert_allclose(got.s, [1.0, 0.25, 1.0, 4.0, 2.25], rtol=0.06)
    np.testing.assert_allclose(got.gain, [1.0, 0.25, 1.0, 4.0, 2.25], rtol=0.35)  # of one batch of 256
    np.testing.assert_allclose(got.constant, [1.0, 0.0, 0.0, 0.0, 0.0], atol=0.01)
    p = columns.T @ siamese.predictor.matrix().detach() @ columns
    np.testing.assert_allclose(got.p, p.diagonal(), atol=0.06)


def test_a_run_starts_where_its_recipe_and_seed_say():
    recipe = get_recipe("directpred-digits", **SMALL)
    found = begin(recipe)
    assert found.steps_per_epoch == 2
    assert found.start.r[0] == 1.0 and found.start.constant[0] == 1.0
    again = forecast(recipe, steps=[1], begun=found)
    assert again.total_steps == 120
    np.testing.assert_allclose(again.prediction.steps, [0, 1, 120])
    assert again.ends.state in ("healthy", "narrow", "collapsed") and "of 8" in again.ends.numbers
