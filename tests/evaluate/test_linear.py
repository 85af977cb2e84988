"""The linear probe: the optimum it claims, chosen without the test split, and folded without loss."""

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from ssl_hub.errors import UsageError
from ssl_hub.evaluate.accuracy import evaluate_head
from ssl_hub.evaluate.features import Features
from ssl_hub.evaluate.holdout import stratified_holdout
from ssl_hub.evaluate.linear import linear_probe
from ssl_hub.evaluate.protocols import Cached

CLASSES = tuple("abcdef")


def blobs(seed=0, per_class=30, classes=6, width=12, spread=1.0, split="train"):
    centres = np.random.default_rng(99).normal(size=(classes, width))
    y = np.repeat(np.arange(classes), per_class)
    noise = np.random.default_rng(seed).normal(size=(len(y), width))
    scales = np.logspace(-3, 3, width)  # wildly different units, which standardisation has to undo
    return Features((centres[y] + spread * noise) * scales + 5 * scales, y, CLASSES[:classes], "blobs", split)


def objective(logits, y, weight, strength):
    return (logsumexp(logits, axis=1) - logits[np.arange(len(y)), y]).mean() + strength / 2 * (weight**2).sum()


@pytest.mark.parametrize("strength", [1.0, 1e-2, 1e-4])
def test_loss_equals_plain_scikit_learn(strength):
    train = blobs(spread=0.3)
    scaler = StandardScaler().fit(train.x.astype(np.float64))
    z = scaler.transform(train.x.astype(np.float64))
    peer = LogisticRegression(C=1 / (strength * len(train)), max_iter=10_000, tol=1e-9).fit(z, train.y)
    head, _ = linear_probe(train, blobs(1, split="test"), Cached(strengths=(strength,)))
    weight = head.weight.double().numpy()
    ours = objective(train.x @ weight.T + head.bias.numpy(), train.y, weight * scaler.scale_, strength)
    theirs = objective(peer.decision_function(z), train.y, peer.coef_, strength)
    assert head.settings["converged"] and abs(ours - theirs) < 1e-4 * theirs


def test_refit_after_the_choice_reaches_the_same_optimum_as_a_fit_from_nothing():
    train, test = blobs(), blobs(1, split="test")
    chosen, _ = linear_probe(train, test)
    alone, _ = linear_probe(train, test, Cached(strengths=(chosen.settings["strength"],)))
    logits = [torch.from_numpy(train.x) @ head.weight.T + head.bias for head in (chosen, alone)]
    probabilities = [logit.softmax(dim=1) for logit in logits]
    assert (probabilities[0] - probabilities[1]).abs().max() < 1e-2
    assert chosen.settings["train_size"] == len(train) and chosen.settings["holdout_size"] == 18


def test_noise_for_test_labels_changes_no_choice():
    train, test = blobs(spread=2.0), blobs(1, spread=2.0, split="test")
    noise = Features(test.x, np.random.default_rng(5).permutation(test.y), test.classes, test.dataset, test.split)
    (clean, clean_results), (poisoned, poisoned_results) = linear_probe(train, test), linear_probe(train, noise)
    assert clean.settings == poisoned.settings
    assert torch.equal(clean.weight, poisoned.weight) and torch.equal(clean.bias, poisoned.bias)
    assert clean_results[0].value > poisoned_results[0].value + 20


def test_chosen_strength_is_the_best_of_plain_scikit_learn_on_the_held_out_part():
    """Many useless features and wrong labels: little regularisation overfits, too much underfits."""
    rng = np.random.default_rng(0)
    signal = blobs(per_class=20)
    x = np.hstack([signal.x / signal.x.std(axis=0), rng.normal(size=(len(signal), 60))])
    y = np.where(rng.random(len(x)) < 0.3, rng.integers(0, 6, len(x)), signal.y)
    train = Features(x, y, CLASSES, "d", "train")
    head, _ = linear_probe(train, train, Cached(strengths=(1e-7, 1e3, 0.3), holdout=0.25))

    z = StandardScaler().fit_transform(train.x)
    kept, held = stratified_holdout(train.y, 0.25, seed=0)
    scores = {}
    for strength in (1e3, 0.3, 1e-7):
        peer = LogisticRegression(C=1 / (strength * len(kept)), max_iter=10_000).fit(z[kept], y[kept])
        scores[strength] = 100 * peer.score(z[held], y[held])
    assert scores[0.3] > max(scores[1e3], scores[1e-7]) + 200 / len(held)  # else this test tests nothing
    assert head.settings["strength"] == 0.3 and head.settings["chosen_by"] == "held-out accuracy"
    # Both stop near the optimum, ours where the objective is within 1e-5: an image at a border may go either way.
    assert head.settings["holdout_top1"] == pytest.approx(scores[0.3], abs=100 / len(held) + 1e-9)
    assert head.settings["strengths"] == [1e3, 0.3, 1e-7]


def test_result_says_how_and_the_head_measures_the_same_again():
    head, results = linear_probe(blobs(), blobs(1, split="test"), Cached(holdout=0.2), seed=4)
    assert [r.metric for r in results] == ["top1", "top5"] and results[0].value > 50
    top1 = results[0]
    assert (top1.protocol, top1.dataset, top1.split, top1.seed) == ("linear-cached", "blobs", "test", 4)
    said = {"strength", "holdout", "holdout_size", "train_split", "train_size", "layer", "converged"}
    assert said <= top1.settings.keys()
    again = evaluate_head(head, blobs(1, split="test"))
    assert [(r.value, r.settings) for r in again] == [(r.value, r.settings) for r in results]


def test_too_few_iterations_are_recorded():
    head, _ = linear_probe(blobs(), blobs(1, split="test"), Cached(max_iter=2))
    assert head.settings["converged"] is False


def test_same_seed_same_head():
    first, second = (linear_probe(blobs(), blobs(1, split="test"), seed=3)[0] for _ in range(2))
    assert torch.equal(first.weight, second.weight) and first.settings == second.settings


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e20, -3.3e-7])
def test_a_feature_that_never_varies_gets_no_weight_and_no_infinity(constant):
    train, test = blobs(), blobs(1, split="test")
    wider = [Features(np.c_[f.x, np.full(len(f), constant)], f.y, f.classes, f.dataset, f.split) for f in (train, test)]
    # A strength of 1 makes the objective strongly convex: within 1e-7 of its least, weights are within 5e-4.
    (head, _), (without, _) = (linear_probe(*pair, Cached(strengths=(1.0,))) for pair in (wider, (train, test)))
    assert abs(float(head.weight[:, -1].abs().max()) * constant) < 1e-3
    x = torch.from_numpy(test.x)
    torch.testing.assert_close(
        x @ head.weight[:, :-1].T + head.bias, x @ without.weight.T + without.bias, rtol=0, atol=1e-2
    )


@pytest.mark.parametrize("steps", [1, 8])  # in the last digit: a network's sums differ by several
@pytest.mark.parametrize("level", [1.0, 1e-39])
def test_a_feature_that_varies_by_rounding_only_is_not_blown_up(level, steps):
    train, test = blobs(), blobs(1, split="test")
    digit = np.spacing(np.float32(level))
    jitter = np.float32(level) + digit * np.random.default_rng(0).integers(0, steps + 1, len(train)).astype(np.float32)
    head, _ = linear_probe(change(train, x=np.c_[train.x, jitter]), change(test, x=np.c_[test.x, jitter]))
    assert float(head.weight[:, -1].abs().max()) < 1e-3


def test_a_collapsed_backbone_is_measured_at_chance():
    same = np.ones((60, 8))
    y = np.tile(np.arange(6), 10)
    head, results = linear_probe(Features(same, y, CLASSES, "d", "train"), Features(same, y, CLASSES, "d", "test"))
    assert results[0].value == pytest.approx(100 / 6)
    assert head.settings["strength"] == 10.0  # all are equal, and rounding does not choose among them


def test_two_classes_give_two_rows_and_no_top5():
    train, test = blobs(classes=2), blobs(1, classes=2, split="test")
    head, results = linear_probe(train, test)
    assert head.weight.shape == (2, 12) and [r.metric for r in results] == ["top1"]
    scaled = StandardScaler().fit(train.x)
    peer = LogisticRegression(C=1 / (head.settings["strength"] * 60), tol=1e-6).fit(scaled.transform(train.x), train.y)
    probabilities = peer.predict_proba(scaled.transform(test.x))
    at_a_border = np.abs(probabilities[:, 0] - 0.5) < 0.01
    agreed = 100 * (probabilities.argmax(axis=1) == test.y).mean()
    assert results[0].value == pytest.approx(agreed, abs=100 * at_a_border.mean() + 1e-9) and at_a_border.mean() < 0.1


def test_classes_without_training_images_are_never_predicted():
    full, test = blobs(), blobs(1, split="test")
    seen = (full.y != 3) & (full.y != 5)
    head, results = linear_probe(Features(full.x[seen], full.y[seen], CLASSES, "blobs", "train"), test)
    logits = torch.from_numpy(test.x) @ head.weight.T + head.bias
    assert head.settings["absent_classes"] == 2 and not {3, 5} & set(logits.argmax(dim=1).tolist())
    # The fifth of four trained classes is no guess: a third of the test images can never be right.
    assert results[1].value == pytest.approx(100 * 4 / 6)


def test_rare_classes_do_not_stop_the_probe_and_settings_say_so():
    rng = np.random.default_rng(0)
    y = np.array([0] * 20 + [1] * 20 + [2])
    rare = Features(rng.normal(size=(41, 4)) + y[:, None], y, CLASSES[:3], "d", "train")
    head, _ = linear_probe(rare, rare)
    assert head.settings["holdout_size"] == 4 and head.settings["chosen_by"] == "held-out accuracy"
    single = Features(np.eye(6), np.arange(6), CLASSES, "d", "train")
    head, _ = linear_probe(single, single)
    assert head.settings["holdout_size"] == 0 and head.settings["strength"] == 1e-3
    assert head.settings["chosen_by"] == "middle: no class has two images" and "holdout_top1" not in head.settings


def test_a_head_on_another_width_is_an_error_with_both_widths():
    head, _ = linear_probe(blobs(), blobs(1, split="test"))
    with pytest.raises(UsageError, match="head of width 12 on a backbone of width 7"):
        evaluate_head(head, blobs(width=7))
    with pytest.raises(UsageError, match=r"head for 'blobs' knows 6 classes, and blobs/train has 5 others"):
        evaluate_head(head, blobs(classes=5))


def change(features, **changes):
    given = {"x": features.x, "y": features.y, "classes": features.classes, "dataset": "blobs", "split": features.split}
    return Features(**{**given, **changes})


@pytest.mark.parametrize(
    ("train", "test", "text"),
    [
        ({"y": np.zeros(180)}, {}, r"all 180 images of blobs/train are of class 'a', expected two or more"),
        ({}, {"classes": tuple("abcdeX")}, r"6 classes and .* 6 \(not in both: X, f\)"),
        ({}, {"classes": tuple("bacdef")}, r"same names in another order"),
        ({}, {"classes": None, "y": np.full(180, -1)}, r"180 of 180 images of blobs/test have no label"),
        ({"y": np.r_[np.full(4, -1), np.zeros(176)]}, {}, r"4 of 180 images of blobs/train have no label"),
        ({"x": np.eye(6)[:4, :], "y": np.arange(4)}, {"x": np.zeros((180, 6))}, r"has 4 images for 6 classes"),
        ({}, {"x": np.zeros((180, 5))}, r"width 12 and those of blobs/test width 5"),
    ],
)
def test_splits_that_cannot_be_probed_are_refused(train, test, text):
    with pytest.raises(UsageError, match=text):
        linear_probe(change(blobs(), **train), change(blobs(1, split="test"), **test))
