"""Backbones on a list of data sets: one table, features taken once, and what is there is not computed again."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import ssl_hub
from ssl_hub.cli import main
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.measurement import measurement_of
from ssl_hub.hub import store
from ssl_hub.model.release import save_release
from ssl_hub.model.results import read_results
from ssl_hub.model.siamese import build
from ssl_hub.tables import transfer as module
from ssl_hub.tables.transfer import mean_per_class, transfer
from ssl_hub.zoo import get_recipe

QUICK = {"strengths": (1.0,), "max_iter": 10}


@pytest.fixture
def greys(tmp_path):
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        for label, grey in (("a", 40), ("b", 90), ("c", 180)):
            (tmp_path / "greys" / split / label).mkdir(parents=True)
            for i in range(4):
                pixels = np.clip(grey + rng.integers(0, 30, (16, 16, 3)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(tmp_path / "greys" / split / label / f"{i}.png")
    return str(tmp_path / "greys")


@pytest.fixture
def released():
    recipe = get_recipe("byol-digits")
    folder = store.home() / "mine"
    folder.mkdir(parents=True)
    save_release(folder, build(recipe), recipe)
    return folder


@pytest.fixture
def taken(monkeypatch):
    """The splits whose features were taken, in order."""
    seen = []
    extract = module.extract

    def watched(model, source, *arguments, **options):
        seen.append(f"{source.name}/{source.split}")
        return extract(model, source, *arguments, **options)

    monkeypatch.setattr(module, "extract", watched)
    return seen


def test_the_table_has_what_probe_and_knn_give_and_goes_on_where_it_stood(released, greys, tmp_path, taken):
    told = {"out": tmp_path / "transfer", "overrides": QUICK, "workers": 0, "image_size": 32}  # of no release
    found = transfer(["mine"], ["digits"], **told)
    assert taken == ["digits/train", "digits/test"]  # for both classifiers
    probe, knn = (found.top1(kind, "mine", "digits") for kind in ("linear", "knn"))
    assert probe.value == ssl_hub.linear_probe("mine", "digits", overrides=QUICK, workers=0)[0].value
    assert knn.value == ssl_hub.knn("mine", "digits", workers=0)[0].value
    wider = transfer(["mine"], ["digits", greys], **told)
    assert taken[2:] == ["greys/train", "greys/test"]
    assert wider.top1("linear", "mine", "digits") == probe
    # Another k votes again, on the features that are there.
    assert transfer(["mine"], ["digits"], k=5, **told).top1("knn", "mine", "digits").settings["k"] == 5
    assert transfer(["mine"], ["digits"], **told).top1("knn", "mine", "digits").settings["k"] == 20
    assert len(taken) == 4
    assert {r.dataset for r in read_results(released)} == {"digits", "greys"}
    header, row = wider.grid("linear")
    assert header == ["", "digits", greys, "mean"] and row[0] == "mine"
    assert row[-1] == f"{(probe.value + wider.top1('linear', 'mine', greys).value) / 2:.2f}"


def test_other_images_or_other_weights_are_judged_anew(greys, released, tmp_path, taken):
    told = {"out": tmp_path / "transfer", "overrides": QUICK, "workers": 0}
    transfer(["mine"], [greys], **told)
    Image.new("RGB", (16, 16), "red").save(f"{greys}/test/a/5.png")
    assert transfer(["mine"], [greys], **told).top1("knn", "mine", greys).images == 13
    assert taken == ["greys/train", "greys/test", "greys/test"]
    recipe = get_recipe("byol-digits")
    torch.manual_seed(1)
    save_release(released, build(recipe), recipe)
    transfer(["mine"], [greys], **told)
    assert taken[3:] == ["greys/train", "greys/test"]


def test_what_cannot_be_judged_stops_nothing_and_says_why(greys, tmp_path, capsys):
    root = tmp_path / "greys"
    (root / "test" / "a" / "copy.png").write_bytes((root / "train" / "b" / "1.png").read_bytes())
    command = ["transfer", "pixels", "--image-size", "16", "--data", greys, "nowhere", "digits"]
    command += ["--out", str(tmp_path / "t")]
    assert main([*command, "--workers", "0", "--set", "max_iter=20", "strengths=[1.0]"]) == 0
    out = capsys.readouterr().out
    assert f"- pixels on {greys}: 1 of the 13 images of greys (test) are in greys (train) too" in out
    assert "- pixels on nowhere: " in out
    row = next(line for line in out.splitlines() if line.startswith("| pixels"))
    assert row.startswith("| pixels |  |  | ") and row.endswith(" |  |")  # no mean of some
    assert main([*command, "--json", "--workers", "0", "--set", "max_iter=20", "strengths=[1.0]"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert [(r["data"], r["kind"]) for r in plain["results"]] == [("digits", "linear"), ("digits", "knn")]
    assert plain["results"][0]["interval"][0] < plain["results"][0]["top1"] < plain["results"][0]["interval"][1]
    assert len(plain["missing"]) == 2


def test_the_mean_over_classes_is_that_of_the_classes_that_are_there():
    about = {"metric": "top1", "value": 50.0, "dataset": "d", "split": "test", "protocol": "knn"}
    assert mean_per_class(ssl_hub.Result(**about, per_class={"a": [1, 4], "b": [3, 4], "c": [0, 0]})) == 50.0
    assert mean_per_class(ssl_hub.Result(**about)) is None


def test_nothing_to_do_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="there is nothing to transfer: give one model or more"):
        transfer(["pixels"], [], out=tmp_path)


def test_images_seen_at_another_size_are_judged_anew(greys, tmp_path, taken):
    for size in (16, 8, 16):
        transfer(["pixels"], [greys], image_size=size, out=tmp_path / "transfer", overrides=QUICK, workers=0)
    assert taken == ["greys/train", "greys/test"] * 2


@pytest.fixture
def deep(tmp_path):
    """Twelve bits in files of sixteen."""
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        for label, grey in (("a", 600), ("b", 1400), ("c", 2900)):
            (tmp_path / "deep" / split / label).mkdir(parents=True)
            for i in range(4):
                pixels = (grey + rng.integers(0, 500, (16, 16))).astype(np.uint16)
                Image.fromarray(pixels).save(tmp_path / "deep" / split / label / f"{i}.png")
    return str(tmp_path / "deep")


def test_images_are_read_in_the_model_s_range_and_another_is_another_measurement(
    deep, released, tmp_path, taken, capsys
):
    recipe = get_recipe("byol-digits", **{"data.range": "12"})
    save_release(released, build(recipe), recipe)
    told = {"out": tmp_path / "transfer", "overrides": QUICK, "workers": 0}
    own = transfer(["mine"], [deep], **told).top1("knn", "mine", deep)
    (known,) = [r for r in ssl_hub.knn("mine", deep, workers=0) if r.metric == "top1"]
    assert (own.value, own.settings) == (known.value, known.settings) and "range" not in own.settings
    assert "nearly of one grey" not in capsys.readouterr().err
    other = transfer(["mine"], [deep], range="16", **told).top1("knn", "mine", deep)
    assert other.settings["range"] == "16" and measurement_of(other) != measurement_of(own)
    assert taken == ["deep/train", "deep/test"] * 2
    assert "range" not in transfer(["mine"], [deep], range="12", **told).top1("knn", "mine", deep).settings


@pytest.mark.parametrize(
    ("model", "size"),
    [("timm:test_vit", 96), ("timm:test_vit@r160_in1k", 96), ("test_vit.r160_in1k", 96), ("pixels", 96),
     ("directpred-digits", None)],
)  # fmt: skip
def test_an_image_size_is_that_of_every_model_without_one(model, size, tmp_path, monkeypatch):
    class Opened(Exception):
        pass

    def opened(name, *, image_size, seed):
        raise Opened(image_size)

    monkeypatch.setattr("ssl_hub.tables.transfer.open_model", opened)
    with pytest.raises(Opened) as told:
        transfer([model], ["digits"], out=tmp_path, image_size=96)
    assert told.value.args == (size,)


def test_a_release_that_is_called_as_weights_of_timm_is_judged_at_its_own_size(released, greys, tmp_path):
    released.rename(store.home() / "resnet50.a1_in1k")
    told = {"out": tmp_path / "out", "overrides": QUICK, "workers": 0}
    transfer(["resnet50.a1_in1k"], [greys], image_size=64, **told)
    assert not [path for path in (tmp_path / "out").iterdir() if "64px" in path.name]
