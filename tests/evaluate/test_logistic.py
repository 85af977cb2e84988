"""The regression against scikit-learn's optimum: the same loss, in fewer passes, without holding the features."""

from pathlib import Path

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression

from ssl_hub.evaluate import logistic
from ssl_hub.evaluate.logistic import ROUGHLY, TOLERANCE, Logistic, memory_bound
from ssl_hub.evaluate.standardise import Scaling

STRENGTHS = (10.0, 1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)


def features(count=1500, width=40, classes=5, seed=0):
    """ReLU features with a few wide directions and many narrow ones, as those of networks are."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, count)
    mixing = rng.normal(size=(width, width)) * np.logspace(0, -2, width)
    x = (rng.normal(size=(classes, width))[y] + 2 * rng.normal(size=(count, width))) @ mixing
    return np.maximum(x, 0).astype(np.float32) + 3, y


def objective(x, y, weight, bias, penalty):
    logits = x @ weight.T + bias
    return (logsumexp(logits, axis=1) - logits[np.arange(len(y)), y]).mean() + penalty / 2 * (weight**2).sum()


def fitted(x, y, strength, max_iter=1000):
    model = Logistic(x, y, np.arange(len(y)), y.max() + 1, Scaling.of(x))
    return model.fit(strength, None, model.directions(), tolerance=TOLERANCE, max_iter=max_iter)


def assert_same_optimum(x, y, one, other, strength):
    """Both objectives are within TOLERANCE of the least (an estimate, hence times ten), so strong convexity bounds what
    is between the weights: strength / 2 |W - optimum|^2 is at most that."""
    z = Scaling.of(x).apply(x).astype(np.float64)
    ours, theirs = (objective(z, y, *at, strength) for at in (one, other))
    assert abs(ours - theirs) < 10 * TOLERANCE * theirs
    assert np.linalg.norm(one.weight - other.weight) < 2 * np.sqrt(2 * 10 * TOLERANCE * theirs / strength)


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("strength", [1.0, 1e-2, 1e-4])
def test_loss_and_accuracy_are_those_of_scikit_learns_optimum(strength, classes):
    x, y = features(classes=classes)
    at, converged = fitted(x, y, strength)
    z = Scaling.of(x).apply(x).astype(np.float64)
    peer = LogisticRegression(C=1 / (strength * len(y)), tol=1e-8, max_iter=20_000).fit(z, y)
    weight, bias = peer.coef_, peer.intercept_
    if classes == 2:
        weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    penalty = strength * (2 if classes == 2 else 1)
    ours, theirs = objective(z, y, *at, penalty), objective(z, y, weight, bias, penalty)
    assert converged and abs(ours - theirs) < 1e-5 * theirs
    scores, peers = np.sort(z @ at.weight.T + at.bias, axis=1), z @ weight.T + bias
    at_a_border = scores[:, -1] - scores[:, -2] < 2 * np.abs(scores - np.sort(peers, axis=1)).max()
    hits, theirs = (((z @ w.T + b).argmax(axis=1) == y).sum() for w, b in ((at.weight, at.bias), (weight, bias)))
    assert abs(int(hits) - int(theirs)) <= at_a_border.sum() <= 0.02 * len(y)


def test_a_sweep_of_eight_costs_at_most_half_of_eight_fits_from_nothing():
    """Counted in passes over the features, which is what a fit costs; scikit-learn's losses are no lower."""
    x, y = features()
    z = Scaling.of(x).apply(x)
    model = Logistic(x, y, np.arange(len(y)), 5, Scaling.of(x))
    directions, at, theirs = model.directions(), None, 0
    for strength in STRENGTHS:
        at, _ = model.fit(strength, at, directions, tolerance=ROUGHLY, max_iter=1000)
        peer = LogisticRegression(C=1 / (strength * len(y)), tol=1e-5, max_iter=2000).fit(z, y)
        theirs += int(peer.n_iter_[0])
        loss = objective(z.astype(np.float64), y, peer.coef_, peer.intercept_, strength)
        assert objective(z.astype(np.float64), y, *at, strength) < loss * (1 + 1e-3)
    assert model.passes <= theirs / 2


def test_features_read_in_parts_give_the_same_fit(monkeypatch):
    monkeypatch.setattr(logistic, "EXACT_NUMBERS", 0)
    x, y = features(count=20_000, width=8)  # three parts
    held, _ = fitted(x, y, 1e-2)
    monkeypatch.setattr(logistic, "HELD_NUMBERS", 0)
    streamed, _ = fitted(x, y, 1e-2)
    assert_same_optimum(x, y, held, streamed, 1e-2)


def test_too_many_features_to_tell_directions_apart_still_reach_the_optimum(monkeypatch):
    x, y = features()
    told, _ = fitted(x, y, 1e-2)
    monkeypatch.setattr(logistic, "WHITENED_WIDTH", 10)
    untold, converged = fitted(x, y, 1e-2)
    assert converged
    assert_same_optimum(x, y, told, untold, 1e-2)


def test_few_iterations_are_kept_to_and_said():
    _, converged = fitted(*features(), 1e-6, max_iter=3)
    assert not converged


def anonymous_bytes() -> int:
    """Memory of this process that is no file's: memory-mapped features do not count."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's account of this process's memory")
def test_memory_mapped_features_are_never_held(tmp_path, monkeypatch):
    """On a slice: 120,000 x 256 features (117 MiB) and 50 classes; and the bound for ImageNet's size."""
    x = np.memmap(tmp_path / "x.npy", np.float32, "w+", shape=(120_000, 256))
    rng = np.random.default_rng(0)
    for start in range(0, len(x), 20_000):
        x[start : start + 20_000] = rng.normal(size=(20_000, 256))
    y = rng.integers(0, 50, len(x))
    monkeypatch.setattr(logistic, "HELD_NUMBERS", 2**20)
    model = Logistic(x, y, np.arange(len(y)), 50, Scaling.none(256))
    read, seen = model._read, []

    def watched():
        for part in read():
            seen.append(anonymous_bytes())
            yield part

    monkeypatch.setattr(model, "_read", watched)
    before = anonymous_bytes()
    model.fit(1e-2, None, model.directions(), tolerance=TOLERANCE, max_iter=2)
    bound = memory_bound(256, 50)
    assert max(seen) - before <= bound < x.nbytes
    assert memory_bound(2048, 1000) < 1.25 * 2**30  # where the features of ImageNet are 9.8 GiB
