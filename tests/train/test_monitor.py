"""The monitor tells collapse from health."""

import pytest
import torch

from ssl_hub.model.health import PATIENCE, has_collapsed, health_of
from ssl_hub.model.predictors import PREDICTORS
from ssl_hub.train.monitor import WIDEST_SPECTRUM, Monitor, spectrum
from ssl_hub.train.step import Report


def report(projections: torch.Tensor) -> Report:
    return Report(torch.tensor(1.0), projections, 1.0, 0.1, 0.99, False)


def test_constant_features_collapse_after_a_few_readings_and_spread_ones_do_not():
    monitor, predictor = Monitor(), PREDICTORS["direct"](16)
    for _ in range(PATIENCE - 1):
        reading = monitor.read(report(torch.ones(32, 16)), predictor)
        assert not monitor.collapsed
    monitor.read(report(torch.ones(32, 16)), predictor)
    assert monitor.collapsed
    assert reading["feature_std"] == pytest.approx(0, abs=1e-6)
    assert reading["effective_rank"] == pytest.approx(1, abs=1e-3)
    healthy = monitor.read(report(torch.randn(4096, 16)), predictor)
    assert not monitor.collapsed
    assert healthy["feature_std"] == pytest.approx(healthy["healthy_std"], rel=0.05)
    assert healthy["effective_rank"] > 15


def test_alignment_is_one_for_the_predictor_of_the_same_features():
    predictor, f = PREDICTORS["direct"](8), torch.randn(64, 8) * torch.arange(1, 9)
    predictor.observe([f], [f])
    predictor.refresh(0)
    reading = Monitor().read(report(f), predictor)
    assert reading["alignment"] == pytest.approx(1, abs=1e-3)
    assert reading["asymmetry"] == 0
    assert "alignment" not in Monitor().read(report(f), PREDICTORS["mlp"](8))


def test_features_that_are_not_finite_are_neither_collapse_nor_health():
    monitor, predictor = Monitor(), PREDICTORS["identity"](4)
    for _ in range(PATIENCE + 1):
        reading = monitor.read(report(torch.full((8, 4), float("nan"))), predictor)
    assert not monitor.collapsed and "effective_rank" not in reading
    low = report(torch.ones(32, 4))
    readings = [monitor.read(low, predictor) for _ in range(PATIENCE - 1)]
    readings.append(monitor.read(report(torch.full((8, 4), float("nan"))), predictor))
    assert not monitor.collapsed  # and the count goes on where it was
    readings.append(monitor.read(low, predictor))
    assert monitor.collapsed and has_collapsed(readings)
    assert health_of(readings[-2:-1]).state == "not finite"


def test_the_verdict_goes_on_from_a_checkpoint():
    first, predictor = Monitor(), PREDICTORS["identity"](4)
    for _ in range(PATIENCE - 1):
        first.read(report(torch.ones(32, 4)), predictor)
    resumed = Monitor()
    resumed.load_state_dict(first.state_dict())
    assert not resumed.collapsed
    resumed.read(report(torch.ones(32, 4)), predictor)
    assert resumed.collapsed


def test_spectrum_is_that_of_the_correlation_matrix_and_the_predictor():
    predictor, f = PREDICTORS["direct"](8), torch.randn(64, 8) * torch.arange(1, 9)
    predictor.observe([f], [f])
    predictor.refresh(0)
    found = spectrum(f, predictor)
    want = torch.linalg.eigvalsh(f.mT @ f / 64)
    assert found["correlation"] == pytest.approx(want.tolist(), rel=1e-3)
    assert found["predictor"] == pytest.approx(((want / want[-1]).sqrt() + 0.1).tolist(), rel=1e-3)
    assert found["alignment"] == pytest.approx([1.0] * 8, abs=1e-3)
    assert set(spectrum(f, PREDICTORS["mlp"](8))) == {"correlation"}
    assert spectrum(torch.randn(4, WIDEST_SPECTRUM + 1), PREDICTORS["identity"](4)) is None
