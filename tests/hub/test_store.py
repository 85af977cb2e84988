"""Names to models: what is found, what is said where nothing is."""

import shutil
from pathlib import Path

import pytest
import torch

from ssl_hub.cli import main
from ssl_hub.config import Views
from ssl_hub.errors import UsageError
from ssl_hub.hub import here, store
from ssl_hub.model import backbones, files
from ssl_hub.model.probe_head import ProbeHead
from ssl_hub.model.release import METHOD, MODEL, save_release, write_config, write_tensors
from ssl_hub.model.siamese import build
from ssl_hub.zoo import get_recipe

IMAGES = torch.randn(3, 3, 16, 16)


@pytest.fixture
def released():
    """A release in the store, of an untrained model."""
    recipe = get_recipe("byol-digits")
    folder = store.home() / recipe.name
    folder.mkdir(parents=True)
    save_release(folder, build(recipe), recipe)
    return folder


def test_home_is_the_users_choice_or_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("SSL_HUB_HOME", str(tmp_path / "mine"))
    assert store.home() == tmp_path / "mine"
    monkeypatch.delenv("SSL_HUB_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert store.home() == tmp_path / "ssl_hub"


def test_name_and_path_load_the_same_model_in_eval_mode(released):
    by_name, by_path = store.load("byol-digits"), store.load(released)
    assert not by_name.training
    with torch.no_grad():
        assert by_name(IMAGES).shape == (3, 128)
        assert torch.equal(by_name(IMAGES), by_path(IMAGES))


def test_head_makes_a_classifier_with_names(released):
    head = ProbeHead(torch.randn(2, 128), torch.randn(2), ("cat", "dog"), "pets")
    head.save(released)
    model = store.load("byol-digits", head="pets")
    with torch.no_grad():
        want = store.load("byol-digits")(IMAGES) @ head.weight.mT + head.bias
        torch.testing.assert_close(model(IMAGES), want, atol=1e-6, rtol=1e-6)
    assert model.label_names == ["cat", "dog"]
    with pytest.raises(UsageError, match="no head for 'birds' in .*; there: pets"):
        store.load("byol-digits", head="birds")


def test_head_of_another_width_is_refused_with_both(released):
    ProbeHead(torch.randn(2, 512), torch.randn(2), ("cat", "dog"), "pets").save(released)
    with pytest.raises(UsageError, match="head of width 512 on a backbone of width 128"):
        store.load("byol-digits", head="pets")


def test_fresh_classifier_for_fine_tuning_says_so(released):
    with pytest.warns(UserWarning, match="7 classes is new and untrained"):
        model = store.load("byol-digits", num_classes=7)
    assert model(IMAGES).shape == (3, 7)


def test_target_branch_differs_once_it_has_been_trained_apart(released):
    from ssl_hub.model.release import read_tensors, write_tensors

    tensors = read_tensors(released / METHOD)
    tensors["target.backbone.conv1.weight"] += 1
    write_tensors(released / METHOD, tensors)
    files.seal(released)
    online, target = store.load(released), store.load(released, which="target")
    assert not torch.equal(online.conv1.weight, target.conv1.weight)
    with pytest.raises(UsageError, match="which is 'teacher', expected 'online' or 'target'"):
        store.load(released, which="teacher")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "directpred-r50-300ep",
            r"^no release 'directpred-r50-300ep' is here, and the Hub was not asked: \$SSL_HUB_ORG names no owner;"
            " train it with `accelerate launch -m ssl_hub train directpred-r50-300ep`. More: `ssl-hub where"
            " directpred-r50-300ep`$",
        ),
        ("byol-digit", r"no owner; did you mean 'byol-digits'\? More: `ssl-hub where byol-digit`$"),
        ("nothing-like-it", "no owner; `ssl-hub list` shows those that are. More: `ssl-hub where nothing-like-it`$"),
        ("./nowhere", r"no folder './nowhere'; is the path right\?$"),
        ("ann/digits", "no folder 'ann/digits'; a repository of the Hub is written hf-hub:ann/digits$"),
        ("a b", "no folder 'a b', and it is no release name"),
        ("../../no-such", "no folder '../../no-such'"),
        ("~nosuchuser/x", "no user nosuchuser for '~nosuchuser/x'"),
        (None, "got None, expected the name of a release or the path of its folder"),
    ],
)
def test_what_is_not_there_is_said_with_the_way_to_get_it(released, name, message):
    with pytest.raises(UsageError, match=message):
        store.load(name)


def test_folder_without_release_and_conflicting_arguments(released, tmp_path):
    with pytest.raises(UsageError, match=r"has no config\.json, so it is no release; is the path that of"):
        store.load(tmp_path)
    with pytest.raises(UsageError, match="give one of them"):
        store.load(released, head="digits", num_classes=3)
    for count in (0, "3", 2.5, True):
        with pytest.raises(UsageError, match=f"num_classes is {count!r}, expected a whole number from 1"):
            store.load(released, num_classes=count)
    with pytest.raises(UsageError, match="head is 3, expected the name of the data"):
        store.load(released, head=3)
    (released / MODEL).unlink()
    with pytest.raises(UsageError, match=r"model\.safetensors is missing"):
        store.load(released)


def test_a_run_beside_is_the_hint_where_a_path_is_mistyped(released, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(released, tmp_path / "runs" / "flat-2")
    with pytest.raises(UsageError, match=r"^no folder 'runs/flat'; did you mean 'flat-2'\?$"):
        store.load("runs/flat")


def test_a_store_of_no_user_is_one_line(monkeypatch, capsys):
    monkeypatch.setenv("SSL_HUB_HOME", "~nosuchuser/x")
    assert main(["list"]) == 2
    assert "no user nosuchuser" in capsys.readouterr().err


def test_the_order_is_folder_store_bundled(released, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for module in (here, store):
        monkeypatch.setattr(module, "BUNDLED", tmp_path / "bundled")
    assert store.resolve("byol-digits") == released
    shutil.copytree(released, tmp_path / "bundled" / "byol-digits")
    assert store.resolve("byol-digits") == released
    shutil.copytree(released, tmp_path / "byol-digits")
    assert store.resolve("byol-digits") == Path("byol-digits")
    places = store.where("byol-digits")
    assert [(place.kind, place.found) for place in places] == [
        ("folder", True), ("store", True), ("bundled", True), ("hub", False),
    ]  # fmt: skip
    shutil.rmtree(released)
    shutil.rmtree(tmp_path / "byol-digits")
    assert store.resolve("byol-digits") == tmp_path / "bundled" / "byol-digits"
    assert not store.owned(store.resolve("byol-digits"))


def test_a_folder_of_something_else_does_not_hide_a_release(released, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("byol-digits").mkdir()
    assert store.resolve("byol-digits") == released
    assert store.where("byol-digits")[0].state == "has no config.json: no release"


def test_a_step_of_a_run_is_no_release(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.json").write_text("{}")
    with pytest.raises(UsageError, match=r"run@40' is a step of a run: .* here it is the run as it ended, '.*run'"):
        store.resolve(tmp_path / "run@40")


def test_a_run_that_is_not_finished_and_one_in_runs_are_told_of(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    unfinished = store.home() / "byol-digits"
    unfinished.mkdir(parents=True)
    (unfinished / "recipe.json").write_text("{}")
    Path("runs/byol-digits").mkdir(parents=True)
    Path("runs/byol-digits/config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UsageError, match="load 'runs/byol-digits'. More: `ssl-hub where byol-digits`$"):
        store.load("byol-digits")
    assert "the store has a run that is not finished" in store.ways_on("byol-digits")[1]


def test_a_loaded_model_tells_nothing_of_the_weights_that_timm_has_of_its_architecture(tmp_path):
    model = backbones.create("resnet50")
    config = backbones.timm_config("resnet50", model, Views(size=64))
    config["ssl_hub"] = {"licence": "cc-by-nc-4.0"}
    write_config(tmp_path, config)
    write_tensors(tmp_path / "model.safetensors", model.state_dict())
    says = store.load(tmp_path).pretrained_cfg
    assert says["license"] == "cc-by-nc-4.0" and not any(map(says.get, ("hf_hub_id", "url", "tag")))
    assert says["input_size"] == (3, 64, 64) and says.get("test_input_size") is None
