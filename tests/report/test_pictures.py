"""Maps, galleries and confusions show what the features say."""

import json
import re
import shutil
import sys
import types

import numpy as np
import pytest
import torch
from PIL import Image

from ssl_hub.data.images import Source
from ssl_hub.data.stored import Pixels
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.features import Features
from ssl_hub.evaluate.subject import Subject
from ssl_hub.hub.store import BUNDLED
from ssl_hub.model.probe_head import ProbeHead
from ssl_hub.model.results import Result
from ssl_hub.report.html import Missing
from ssl_hub.report.pictures import _confusion, _gallery, _map, pca
from ssl_hub.report.record import Record
from ssl_hub.report.story import Evidence, Story
from ssl_hub.zoo import get_recipe


def evidence(classes: int, each: int = 3, *, labels: bool = True) -> Evidence:
    """Classes along axes of their own: every neighbour is right."""
    y = np.repeat(np.arange(classes), each)
    x = np.eye(classes, dtype=np.float32)[y] + 0.01 * np.random.default_rng(0).random((len(y), classes), np.float32)
    names = [f"class {i}" for i in range(classes)]
    pixels = Pixels(np.zeros((len(y), 8, 8, 3), np.uint8))
    source = Source("axes", "test", pixels, classes=names if labels else None, labels=y if labels else None)
    features = Features(x, y if labels else np.full(len(y), -1), tuple(names) if labels else None, "axes", "test")
    return Evidence(source, source, features, features, bank_size=len(y), same_split=True)


def test_pca_finds_the_plane_that_varies_most():
    draw = np.random.default_rng(0)
    plane = draw.standard_normal((200, 2)) * [3, 1]
    x = np.concatenate([plane, 0.01 * draw.standard_normal((200, 6)), np.full((200, 1), 50.0)], axis=1)
    found = pca(x.astype(np.float32))
    assert found.shape == (200, 2)
    assert abs(np.corrcoef(found[:, 0], plane[:, 0])[0, 1]) > 0.99
    assert abs(np.corrcoef(found[:, 1], plane[:, 1])[0, 1]) > 0.99
    assert np.array_equal(pca(x.astype(np.float32)), found)


def test_pca_of_a_collapsed_backbone_is_a_point():
    assert np.allclose(pca(np.ones((5, 4), np.float32)), 0, atol=1e-6)
    assert np.allclose(pca(np.zeros((5, 1), np.float32)), 0)


def test_umap_is_offered_where_it_is_installed(monkeypatch):
    spec = lambda markup: json.loads(re.search(r'json">(.*?)</script>', markup).group(1))  # noqa: E731
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert list(spec(_map(evidence(4)))["maps"]) == ["PCA"]
    stub = types.ModuleType("umap")
    stub.UMAP = lambda **_: types.SimpleNamespace(fit_transform=lambda x: x[:, :2])
    monkeypatch.setitem(sys.modules, "umap", stub)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    made = _map(evidence(4))
    assert list(spec(made)["maps"]) == ["PCA", "UMAP"]
    assert made.count("data-map=") == 2


def test_a_map_takes_three_images():
    with pytest.raises(Missing, match="a map takes three images or more, and the test split has 2"):
        _map(evidence(1, each=2))


def test_neighbours_are_marked_right_and_wrong():
    found = _gallery(evidence(4))
    first = re.search(r'<div class="neighbours">(.*?)</div>', found).group(1)
    assert first.count("is-right") == 2  # the other two of its class
    assert first.count("is-wrong") == 6
    assert "is-" not in _gallery(evidence(4, labels=False))


def test_the_confusion_matrix_counts_the_heads_answers(tmp_path):
    seen = evidence(3)
    weight = torch.eye(3)
    weight[2] = 0  # the third class is never the answer
    ProbeHead(weight, torch.tensor([0.0, 0.0, -1.0]), tuple(seen.queries.classes), "axes").save(tmp_path)
    made = _confusion(Record(name="r", folder=tmp_path), seen)
    assert "66.7 % of 9 images right" in made
    rows = [re.findall(r"taken for class (\d): (\d) of 3", row) for row in made.split("<tr>")[2:]]
    assert [[int(count) for _, count in row] for row in rows[:2]] == [[3, 0, 0], [0, 3, 0]]
    assert sum(int(count) for _, count in rows[2]) == 3 and rows[2][2] == ("2", "0")


def test_of_many_classes_those_with_errors_are_shown(tmp_path):
    seen = evidence(40)
    weight = torch.eye(40)
    weight[[7, 9]] = weight[[9, 7]]
    ProbeHead(weight, torch.zeros(40), tuple(seen.queries.classes), "axes").save(tmp_path)
    made = _confusion(Record(name="r", folder=tmp_path), seen)
    assert "Of 40 classes, the 24 with the most errors are shown" in made
    assert "class 7 taken for class 9: 3 of 3" in made


def test_without_labels_or_a_head_the_reason_is_said(tmp_path):
    with pytest.raises(Missing, match="the test split of axes has no labels"):
        _confusion(Record(name="r", folder=tmp_path), evidence(3, labels=False))
    with pytest.raises(Missing, match="no head for 'axes'"):
        _confusion(Record(name="r", folder=tmp_path), evidence(3))


def probed(**settings):
    split = settings.pop("split", "test")
    return Result(metric="top1", value=90.0, dataset="axes", split=split, protocol="linear-cached", settings=settings)


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (probed(split="train, 5 folds", folds=5, train_split="train, all folds but one"),
         "r was probed on axes with --folds 5, which fits a head for each fold and keeps none. .*--holdout 0.2"),
        (probed(split="train", train_split="train"), "the head was not kept: measured on the training split"),
        (probed(), "no head for 'axes' in .* probe the backbone first"),
    ],
)  # fmt: skip
def test_a_probe_that_kept_no_head_is_told_from_none(tmp_path, result, said):
    with pytest.raises(Missing, match=said):
        _confusion(Record(name="r", folder=tmp_path, results=(result,)), evidence(3))


@pytest.mark.parametrize(("split", "told"), [("train", False), ("test, 80 %", True), ("train+test[:10]", True)])
def test_images_that_the_probe_was_fitted_to_are_said_to_be(tmp_path, split, told):
    names = tuple(f"class {i}" for i in range(3))
    ProbeHead(torch.eye(3), torch.zeros(3), names, "axes", {"train_split": split}).save(tmp_path)
    made = _confusion(Record(name="r", folder=tmp_path), evidence(3))
    assert (f"The probe was fitted to images of this split ({split})" in made) == told


def test_other_data_has_the_usual_splits_and_not_those_of_the_recipe(monkeypatch):
    asked = []

    def opened(subject, data, split):
        asked.append(split)
        raise UsageError("enough")

    monkeypatch.setattr("ssl_hub.report.story.open_split", opened)
    recipe = get_recipe("directpred-digits", **{"data.train_split": "train[:80%]"})
    monkeypatch.setattr("ssl_hub.report.story.open_model", lambda name: Subject(None, None, None, recipe))
    for data in (None, "digits", "others"):
        with pytest.raises(Missing, match="enough"):
            Story([], data=data).evidence(Record(name=str(data), folder=BUNDLED, recipe=recipe))
    assert asked == ["train[:80%]", "train[:80%]", "train"]


def test_an_image_of_both_splits_is_no_query(tmp_path):
    for number, place in enumerate(("train/a/0", "train/a/1", "train/b/2", "test/a/3", "test/b/4")):
        path = tmp_path / f"{place}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.default_rng(number).integers(0, 255, (16, 16, 3), np.uint8)).save(path)
    shutil.copy(tmp_path / "train/b/2.png", tmp_path / "test/a/0.png")
    release = Record(name="release", folder=BUNDLED / "directpred-digits")
    found = Story([release], data=str(tmp_path)).evidence(release)
    assert [found.queries.id(i) for i in range(len(found.queries))] == ["a/3.png", "b/4.png"]
    assert len(found.bank) == 3 and not found.same_split
