"""Models by name: image sizes that an architecture is built for, weights that are not there, and what probes record."""

import os
import re
import shutil

import numpy as np
import pytest
import timm
import torch
from huggingface_hub import constants
from huggingface_hub.errors import LocalEntryNotFoundError
from PIL import Image

import ssl_hub
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.accuracy import accuracy_results
from ssl_hub.evaluate.model import measure
from ssl_hub.evaluate.subject import check_pools, open_model
from ssl_hub.hub import store
from ssl_hub.model.probe_head import ProbeHead
from ssl_hub.model.results import read_results


@pytest.mark.parametrize("name", ["test_vit", "resnet10_tiny"])
def test_architectures_that_are_built_for_a_size_are_built_for_the_one_asked_for(name):
    subject = open_model(f"timm:{name}", image_size=48)
    assert subject.transform.size == 48
    with torch.no_grad():
        assert subject.model(torch.zeros(2, 3, 48, 48)).ndim == 2


def test_a_size_that_the_architecture_cannot_take_is_an_error():
    with pytest.raises(UsageError, match="Levit.* does not take images of 50 pixels: "):
        open_model("timm:levit_128s", image_size=50)


def test_a_release_that_is_called_as_weights_of_timm_keeps_its_own_size():
    shutil.copytree(store.BUNDLED / "directpred-digits", store.home() / "resnet50.a1_in1k")
    assert open_model("resnet50.a1_in1k").recipe.name == "directpred-digits"
    with pytest.raises(UsageError, match=r"^resnet50\.a1_in1k has its own image size; image_size is for timm: models"):
        open_model("resnet50.a1_in1k", image_size=64)


def test_weights_that_do_not_fit_the_images_are_one_line():
    model = open_model("timm:test_resnet").model
    with pytest.raises(UsageError, match=r"weights of torch.bfloat16, and images are float32; give model.float\(\)"):
        open_model(model.bfloat16())


def test_a_classifier_in_memory_is_not_taken_for_features(tmp_path):
    model = timm.create_model("test_resnet", num_classes=7)
    told = "is a classifier of 7 classes, and features are asked for.*reset_classifier"
    with pytest.raises(UsageError, match=told):
        ssl_hub.knn(model, "digits")
    with pytest.raises(UsageError, match=told):
        ssl_hub.embed(model, "digits", out=tmp_path / "f.parquet")
    with pytest.raises(UsageError, match=told):
        ssl_hub.export(model, tmp_path, format="torchscript")
    model.reset_classifier(0)
    ssl_hub.export(model, tmp_path, format="torchscript", image_size=None)


def test_a_model_without_a_classifier_gives_features_whatever_num_classes_says():
    model = timm.create_model("test_resnet", num_classes=7)
    model.fc = torch.nn.Identity()
    check_pools(model)
    own = torch.nn.Flatten()
    own.num_classes = 7
    check_pools(own)
    two = timm.create_model("deit_tiny_distilled_patch16_224", num_classes=7)
    with pytest.raises(UsageError, match="classifier of 7 classes"):
        check_pools(two)
    two.head = two.head_dist = torch.nn.Identity()
    check_pools(two)


@pytest.mark.parametrize("name", ["efficientvit_m0", "shvit_s1"])
def test_a_model_whose_classifier_timm_does_not_find_gives_features(name):
    with torch.device("meta"):
        model = timm.create_model(name, num_classes=0)
    with pytest.raises(AttributeError):  # timm 1.0.31
        model.get_classifier()
    check_pools(model)


def test_what_timm_does_with_images_and_is_not_done_here_is_said():
    with pytest.warns(UserWarning, match="evaluates these weights with crop_mode 'squash'"):
        ssl_hub.eval_transform(with_cfg(crop_mode="squash"))
    with pytest.raises(UsageError, match="takes images of 64 x 48 pixels, expected square ones"):
        ssl_hub.eval_transform(with_cfg(input_size=(3, 64, 48)))


def with_cfg(**settings):
    return timm.create_model("test_resnet", num_classes=0, pretrained_cfg_overlay=settings)


def test_weights_are_never_named_without_effect():
    with pytest.raises(UsageError, match="resnet18 has no weights tagged 'nonsense'; timm has a1_in1k"):
        open_model("timm:resnet18@nonsense")


def test_weights_that_are_not_here_are_named_with_the_place_looked_at_and_the_ways_on(monkeypatch):
    told = (
        "^the weights of 'resnet18.a1_in1k' cannot be had: timm/resnet18.a1_in1k is not whole in the cache {}, and {}$"
    )
    beside = r"fetch them .* \(`hf download timm/resnet18.a1_in1k`\), or give a file .*backbone.init=PATH[^\n]*"
    cache = re.escape(constants.HF_HUB_CACHE)
    offline = rf"the Hub was not asked \(HF_HUB_OFFLINE is set\); unset HF_HUB_OFFLINE, or {beside}"
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    for spelt in ("timm:resnet18@a1_in1k", "timm:resnet18.a1_in1k", "resnet18.a1_in1k"):
        with pytest.raises(UsageError, match=told.format(cache, offline)):
            open_model(spelt)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)

    def broken(error):
        def create(*_, **__):
            raise error

        monkeypatch.setattr(timm, "create_model", create)

    broken(LocalEntryNotFoundError("Please check your connection"))
    with pytest.raises(UsageError, match=told.format(cache, rf"the Hub \(https?://.*\) cannot be reached; {beside}")):
        open_model("resnet18.a1_in1k")
    broken(OSError(28, "No space left on device"))
    with pytest.raises(UsageError, match=told.format(cache, rf"the Hub fails \(.*No space left.*\); {beside}")):
        open_model("resnet18.a1_in1k")
    with pytest.raises(UsageError, match=r"'gcvit_base.in1k' cannot be had from https://.* \(.*No space.*; fetch it"):
        open_model("gcvit_base.in1k")


@pytest.mark.parametrize(
    ("protocol", "overrides"),
    [
        ("cached", {"strengths": (1.0, 0.1), "max_iter": 20}),
        ("byol", {"epochs": 1, "lrs": (0.4, 0.1), "holdout": 0.1}),
        ("simsiam", {"epochs": 1}),
        ("authors-small", {"epochs": 1}),
    ],
)
def test_a_release_keeps_results_and_head_and_its_features(released, protocol, overrides):
    images = torch.rand(4, 3, 16, 16)
    with torch.no_grad():
        before = ssl_hub.load(released)(images)
    results = ssl_hub.linear_probe("byol-digits", protocol=protocol, overrides=overrides)
    assert [(r.metric, r.value) for r in read_results(released)] == [(r.metric, r.value) for r in results]
    assert {r.protocol for r in results} == {f"linear-{protocol}"}
    head = ProbeHead.load(released, "digits", width=128)
    assert head.settings["protocol"] == f"linear-{protocol}"
    with torch.no_grad():
        assert torch.equal(ssl_hub.load(released)(images), before)
        # The head takes the backbone's features as they are, whatever it was fitted to.
        logits = ssl_hub.load(released, head="digits")(images)
        torch.testing.assert_close(logits, before @ head.weight.T + head.bias, rtol=1e-4, atol=1e-4)


def test_a_release_that_cannot_be_written_is_measured_and_keeps_nothing(released, monkeypatch, capsys):
    before = (released / "results.json").exists()
    monkeypatch.setattr(os, "access", lambda path, mode: path != released)
    assert ssl_hub.knn(released, workers=0, show_progress=True)[0].value > 10
    assert "the release cannot be written: the results are not kept" in capsys.readouterr().err
    assert (released / "results.json").exists() == before


def test_why_results_are_not_kept(tmp_path, monkeypatch):
    said = [store.why_not_owned(folder) for folder in (store.BUNDLED / "directpred-digits", tmp_path)]
    assert said == ["is part of the package", ""] and store.owned(tmp_path)
    monkeypatch.setattr(store, "in_hub_cache", lambda folder: folder == tmp_path)
    assert store.why_not_owned(tmp_path) == "lies in the Hub's cache"


def test_other_data_leaves_the_released_classifier_alone(released, tmp_path):
    ssl_hub.linear_probe(released, overrides={"strengths": (1.0,), "max_iter": 5})
    before = (released / "config.json").read_bytes()
    for split, brighter in (("train", 0), ("test", 5)):
        for label, grey in (("a", 40), ("b", 90), ("c", 180)):
            folder = tmp_path / "greys" / split / label
            folder.mkdir(parents=True)
            for i in range(3):
                Image.fromarray(np.full((16, 16, 3), grey + brighter + i, np.uint8)).save(folder / f"{i}.png")
    results = ssl_hub.linear_probe(released, str(tmp_path / "greys"))
    assert results[0].dataset == "greys" and (released / "config.json").read_bytes() == before
    assert ProbeHead.load(released, "greys").classes == ("a", "b", "c")


def test_any_evaluation_of_features_is_opened_and_kept_as_knn_is(released):
    def first_guess(train, test):
        assert (train.width, len(train.classes)) == (test.width, 10)
        scores = torch.zeros(len(test), 10)
        return accuracy_results(
            scores, torch.from_numpy(test.y), scores == 0,
            dataset=test.dataset, split=test.split, protocol="first-guess", settings={},
        )  # fmt: skip

    top1 = measure("byol-digits", None, first_guess, workers=0)[0]
    kept = read_results(released)[-2]
    assert (kept.protocol, kept.value, kept.data, kept.backbone) == (
        "first-guess",
        top1.value,
        top1.data,
        top1.backbone,
    )
    assert 5 < top1.value < 15 and top1.overlap == 0 and set(top1.data) == {"fitted", "judged"}
    assert measure("byol-digits", None, first_guess, workers=0, folds=3)[0].split == "train, 3 folds"
