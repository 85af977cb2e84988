"""Extraction: every image once, in order, on every rank, by a backbone that is the same before and after."""

import numpy as np
import pytest
import torch
from torch import nn

from ssl_hub.data.images import Source
from ssl_hub.data.stored import Pixels
from ssl_hub.data.views import eval_transform
from ssl_hub.errors import UsageError
from ssl_hub.evaluate import features as features_module
from ssl_hub.evaluate.features import Features, PixelModel, check_pair, extract
from ssl_hub.evaluate.knn import knn
from ssl_hub.evaluate.linear import linear_probe

TRANSFORM = eval_transform(size=6, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))


def numbered(count, labelled=True, split="train"):
    """Image i is filled with grey i, so that a feature row says which image it came from."""
    pixels = np.broadcast_to(np.arange(count, dtype=np.uint8)[:, None, None, None], (count, 6, 6, 3)).copy()
    labels = np.arange(count) % 2 if labelled else None
    return Source("numbered", split, Pixels(pixels), classes=("even", "odd") if labelled else None, labels=labels)


class Backbone(nn.Module):
    """Has all that eval mode changes: batch statistics, dropout, a part that is in eval mode during training, and what
    is kept for evaluation, as biases of attention are, until training throws it away."""

    def __init__(self):
        super().__init__()
        self.norm, self.frozen_norm = nn.BatchNorm2d(3), nn.BatchNorm2d(3)
        self.dropout = nn.Dropout(0.5)
        self.train()
        self.frozen_norm.eval()
        self.grad_modes = []

    def train(self, mode=True):
        if mode:
            self.kept = None
        return super().train(mode)

    def forward(self, images):
        self.kept = images
        self.grad_modes.append((torch.is_grad_enabled(), self.norm.training))
        return self.dropout(self.frozen_norm(self.norm(images))).mean(dim=(2, 3))


@pytest.mark.parametrize("batch_size", [1, 4, 22, 100])
def test_rows_are_in_the_order_of_the_images_with_their_labels(batch_size):
    features = extract(PixelModel(), numbered(22), TRANSFORM, batch_size=batch_size)
    np.testing.assert_allclose(features.x, np.repeat(np.arange(22)[:, None] / 255, 108, axis=1), atol=1e-6)
    assert features.y.tolist() == [0, 1] * 11 and features.classes == ("even", "odd")
    assert (features.dataset, features.split, features.layer, features.width) == ("numbered", "train", "pixels", 108)
    assert features.x.dtype == np.float32 and features.y.dtype == np.int64


def test_the_backbone_is_the_same_before_and_after():
    model = Backbone()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    flags = [module.training for module in model.modules()]
    first, second = (extract(model, numbered(9), TRANSFORM, batch_size=4) for _ in range(2))
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert [module.training for module in model.modules()] == flags and flags.count(False) == 1
    assert set(model.grad_modes) == {(False, False)} and model.kept is None
    assert (first.x == second.x).all()  # dropout is off


def test_flags_come_back_after_an_error_too():
    model = nn.Sequential(nn.Dropout(), nn.Dropout())
    model[1].eval()
    with pytest.raises(UsageError, match=r"a tensor of shape \[4, 3, 6, 6\], expected pooled features \[4, C\]"):
        extract(model, numbered(9), TRANSFORM, batch_size=4)
    assert [module.training for module in model.modules()] == [True, True, False]


class Returns(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.make = make

    def forward(self, images):
        return self.make(images)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda x: (x.mean((2, 3)), x), r"a tuple of \[5, 3\], \[5, 3, 6, 6\], expected pooled .* num_classes=0"),
        (lambda x: {"x": x}, "returned a dict, expected pooled"),
        (lambda x: x.flatten(1)[:3], r"shape \[3, 108\], expected pooled features \[5, C\]"),
        (lambda x: x.mean((1, 2, 3)), r"shape \[5\], expected pooled"),
    ],
)
def test_anything_but_pooled_features_is_an_error_with_the_shape(make, text):
    with pytest.raises(UsageError, match=text):
        extract(Returns(make), numbered(5), TRANSFORM)


def test_features_that_are_not_finite_are_counted():
    def broken(images):
        pooled = images.mean(dim=(2, 3))
        return torch.where(pooled > 6.5 / 255, torch.nan, pooled)

    with pytest.raises(UsageError, match=r"^3 of 10 images of numbered/train have features that are not finite"):
        extract(Returns(broken), numbered(10), TRANSFORM, batch_size=4)


def test_many_features_lie_on_disk(monkeypatch):
    held = extract(PixelModel(), numbered(22), TRANSFORM, batch_size=4)
    monkeypatch.setattr(features_module, "IN_MEMORY_BYTES", 100)
    mapped = extract(PixelModel(), numbered(22), TRANSFORM, batch_size=4)
    assert (held.x == mapped.x).all()
    assert isinstance(mapped.x.base, np.memmap) and not isinstance(held.x.base, np.memmap)


def test_half_precision_features_come_back_as_float32():
    half = Returns(lambda images: images.flatten(1).bfloat16())
    assert extract(half, numbered(3), TRANSFORM).x.dtype == np.float32


def test_unlabelled_and_empty_sources():
    features = extract(PixelModel(), numbered(3, labelled=False), TRANSFORM)
    assert features.classes is None and features.y.tolist() == [-1, -1, -1]
    for use in (knn, linear_probe):
        with pytest.raises(UsageError, match=r"3 of 3 images of numbered/train have no label; choose a labelled split"):
            use(features, features)
    with pytest.raises(UsageError, match="numbered/train has no images"):
        extract(PixelModel(), numbered(0), TRANSFORM)
    for name, value in (("batch_size", 0), ("batch_size", 2.5), ("workers", -1)):
        with pytest.raises(UsageError, match=f"{name} is {value}, expected a whole number of at least "):
            extract(PixelModel(), numbered(1), TRANSFORM, **{name: value})


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"x": np.zeros((4, 2))}, r"have shape \[4, 2\] with labels \[3\]"),
        ({"x": np.zeros((3, 0))}, r"have shape \[3, 0\]"),
        ({"y": np.array([0, 1, 2])}, "labels of d/s run from 0 to 2, expected 0 to 1 for 2 classes"),
        ({"y": np.array([0, 1, -2])}, "labels of d/s run from -2 to 1"),
    ],
)
def test_arrays_that_do_not_fit_make_no_features(changes, text):
    given = {"x": np.zeros((3, 2)), "y": np.zeros(3), "classes": ("a", "b"), "dataset": "d", "split": "s", **changes}
    with pytest.raises(UsageError, match=text):
        Features(**given)


def test_splits_of_different_data_do_not_pair():
    train = extract(PixelModel(), numbered(4), TRANSFORM)
    check_pair(train, extract(PixelModel(), numbered(6, split="test"), TRANSFORM))
    with pytest.raises(
        UsageError, match=r"features of numbered/train have width 108 and those of numbered/test width 3"
    ):
        check_pair(train, extract(Backbone(), numbered(6, split="test"), TRANSFORM))


def test_pixels_as_features_are_probed_and_named_as_such():
    train, test = (extract(PixelModel(), numbered(40, split=split), TRANSFORM) for split in ("train", "test"))
    _, probed = linear_probe(train, test)
    assert {r.settings["layer"] for r in [*knn(train, test, k=1), *probed]} == {"pixels"}
