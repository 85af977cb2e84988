"""The trained probes on a small labelled set: what is chosen on what, what is reported, and what stays untouched."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from ssl_hub.data.images import Source
from ssl_hub.data.loaders import epoch_order
from ssl_hub.data.stored import Pixels
from ssl_hub.data.views import eval_transform
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.features import extract
from ssl_hub.evaluate.head_training import BEST_EPOCH, train_probe, transform_of
from ssl_hub.evaluate.protocols import PROTOCOLS

TRANSFORM = eval_transform(size=8, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
CLASSES = tuple("abcdef")
SHORT = {
    "byol": replace(PROTOCOLS["byol"], epochs=4, batch_size=32, reference_batch=32, holdout=0.2),
    "simsiam": replace(PROTOCOLS["simsiam"], epochs=2, batch_size=32),
    "authors-small": replace(PROTOCOLS["authors-small"], epochs=4, batch_size=32, lrs=(0.03,)),
}


def coloured(count=120, seed=0, split="train", noise=60, classes=CLASSES):
    """Images of a colour for each class, under noise."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 6
    colours = np.random.default_rng(9).integers(60, 196, (6, 3))
    pixels = colours[labels][:, None, None, :] + rng.normal(0, noise, (count, 8, 8, 3))
    return Source("coloured", split, Pixels(pixels.clip(0, 255).astype(np.uint8)), classes=classes, labels=labels)


def relabelled(source, labels):
    return Source(source.name, source.split, Pixels(source.pixels()), classes=CLASSES, labels=labels)


class Backbone(nn.Module):
    """Has all that training would change: batch statistics, dropout, and a part in eval mode."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm, self.frozen = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.BatchNorm2d(16)
        self.dropout = nn.Dropout(0.5)
        self.train()
        self.frozen.eval()

    def forward(self, images):
        return self.dropout(self.frozen(self.norm(self.conv(images))).relu()).mean(dim=(2, 3))


def probe(name, train=None, test=None, model=None, protocol=None, seed=0):
    train, test = train or coloured(), test or coloured(60, seed=1, split="test")
    return train_probe(model or Backbone(), train, test, TRANSFORM, protocol or SHORT[name], name=name, seed=seed)


@pytest.mark.parametrize("name", SHORT)
def test_the_backbone_is_bit_for_bit_the_same_after(name):
    model = Backbone()
    state = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    flags = [module.training for module in model.modules()]
    probe(name, model=model)
    assert all(torch.equal(tensor, state[key]) for key, tensor in model.state_dict().items())
    assert [module.training for module in model.modules()] == flags
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("name", SHORT)
def test_noise_for_test_labels_changes_no_choice(name):
    test = coloured(60, seed=1, split="test", noise=20)
    noise = relabelled(test, np.random.default_rng(5).permutation(test.labels))
    (clean, measured), (poisoned, chance) = (probe(name, test=split) for split in (test, noise))
    assert clean.settings == poisoned.settings
    assert torch.equal(clean.weight, poisoned.weight) and torch.equal(clean.bias, poisoned.bias)
    assert name == "simsiam" or measured[0].value > chance[0].value + 20


def test_the_reported_rate_is_the_best_on_the_held_out_part_and_its_head_is_what_that_rate_alone_gives():
    head, results = probe("byol")
    settings = head.settings
    assert settings["chosen_by"] == "held-out accuracy" and settings["holdout_size"] == 24
    scores = dict(zip(settings["lrs"], settings["holdout_top1_of_lrs"], strict=True))
    assert settings["holdout_top1"] == scores[settings["lr"]] == max(scores.values())
    assert len(set(scores.values())) > 1
    (result, _) = results
    assert (result.metric, result.protocol, result.split) == ("top1", "linear-byol", "test")
    said = {"lr", "lrs", "epochs", "batch_size", "holdout", "train_split", "train_size", "layer"}
    assert said <= result.settings.keys()
    assert "protocol" not in result.settings and result.seed == 0
    assert result.value > 60


def test_one_rate_needs_no_held_out_images():
    head, _ = probe("simsiam")
    assert head.settings["holdout_size"] == 0 and head.settings["chosen_by"] == "given"


def test_classes_of_one_image_leave_the_middle_rate():
    train = coloured(6)
    head, _ = probe("byol", train=train)
    assert head.settings["lr"] == 0.2 and head.settings["chosen_by"] == "middle: no class has two images"


def test_authors_protocol_is_a_plain_implementation_of_it():
    """From the same start in the same order: equal scores, and equal accuracies but for images at a border."""
    train, test = coloured(600, noise=110), coloured(200, seed=1, split="test", noise=110)
    protocol = PROTOCOLS["authors-small"]
    head, results = probe("authors-small", train, test, protocol=protocol)

    model = Backbone()
    seen, asked = (extract(model, split, TRANSFORM) for split in (train, test))
    mean, deviation = seen.x.mean(axis=0), seen.x.std(axis=0)
    x, targets = torch.from_numpy((seen.x - mean) / deviation), torch.from_numpy(seen.y)
    asked_x = torch.from_numpy((asked.x - mean) / deviation)
    linear = nn.Linear(x.shape[1], 6)
    nn.init.normal_(linear.weight, std=0.01, generator=torch.Generator().manual_seed(0))
    nn.init.zeros_(linear.bias)
    adam = torch.optim.Adam(linear.parameters(), lr=3e-4, weight_decay=1e-3)
    least, most = [], []
    for epoch in range(protocol.epochs):
        for rows in torch.from_numpy(epoch_order(len(x), seed=0, epoch=epoch)).split(128):
            adam.zero_grad()
            functional.cross_entropy(linear(x[rows]), targets[rows]).backward()
            adam.step()
        scores = linear(asked_x).detach()
        first, second = scores.topk(2).values.unbind(dim=1)
        hits, at_a_border = scores.argmax(dim=1) == torch.from_numpy(asked.y), first - second < 1e-3
        least.append(100 * float((hits & ~at_a_border).double().mean()))
        most.append(100 * float((hits | at_a_border).double().mean()))
    # Adam divides a gradient by its size, so that one near 0 passes its rounding on: 250 steps of 3e-4 at most.
    torch.testing.assert_close(torch.from_numpy(asked.x) @ head.weight.T + head.bias, scores, rtol=0, atol=5e-4)
    assert 30 < least[-1] <= most[-1] < 95 and most[-1] - least[-1] <= 2
    values = {result.metric: result.value for result in results}
    assert least[-1] <= values["top1"] <= most[-1]
    assert max(least) <= values[BEST_EPOCH] <= max(most) and values[BEST_EPOCH] >= values["top1"]


@pytest.mark.parametrize("name", SHORT)
def test_same_seed_same_head_and_another_seed_another(name):
    first, again, other = (probe(name, seed=seed)[0] for seed in (0, 0, 1))
    assert torch.equal(first.weight, again.weight) and not torch.equal(first.weight, other.weight)


def test_test_images_come_in_as_the_protocols_say():
    timm_like = eval_transform(size=224, crop_pct=0.95, interpolation="bicubic", mean=(0.5,) * 3, std=(0.5,) * 3)
    byol, simsiam = (transform_of(PROTOCOLS[name], timm_like) for name in ("byol", "simsiam"))
    assert (byol.resize, byol.size, byol.interpolation) == (256, 224, "bicubic")
    assert (simsiam.resize, simsiam.size, simsiam.interpolation) == (256, 224, "bilinear")
    assert byol.mean == (0.5, 0.5, 0.5)
    small = transform_of(PROTOCOLS["byol"], TRANSFORM)
    assert (small.resize, small.size) == (8, 8)


@pytest.mark.parametrize("name", ["byol", "authors-small"])
@pytest.mark.parametrize(
    ("train", "test", "text"),
    [
        (lambda: relabelled(coloured(), np.zeros(120)), coloured, "all 120 images of coloured/train are of class 'a'"),
        (lambda: coloured(4), coloured, "coloured/train has 4 images for 6 classes"),
        (coloured, lambda: coloured(classes=tuple("abcdeX")), r"has 6 classes and .* 6 \(not in both: X, f\)"),
        (coloured, lambda: relabelled(coloured(), np.full(120, -1)), "120 of 120 images of coloured/train have no lab"),
    ],
)
def test_splits_that_cannot_be_probed_are_refused_before_any_work(name, train, test, text):
    def unused(images):
        raise AssertionError("the backbone ran")

    model = Backbone()
    model.forward = unused
    with pytest.raises(UsageError, match=text):
        probe(name, train(), test(), model)


@pytest.mark.parametrize("name", ["byol", "authors-small"])
def test_features_that_are_not_finite_are_an_error(name):
    model = Backbone()
    nn.init.constant_(model.conv.bias, float("nan"))
    with pytest.raises(UsageError, match="have features that are not finite"):
        probe(name, model=model)
