"""Runs that start from weights: what is recorded, what follows them, what stays frozen, and how they go on."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

import ssl_hub
from ssl_hub.errors import UsageError
from ssl_hub.hub.card import release_card
from ssl_hub.hub.importers.importing import import_checkpoint
from ssl_hub.model import backbones
from ssl_hub.model.metrics import read_metrics
from ssl_hub.model.release import load_backbone, read_facts, read_recipe
from ssl_hub.train import checkpoint
from ssl_hub.train.run import CHECKPOINTS
from tests.hub import checkpoints_of_others as others
from tests.train.signals import signal_in_step

QUICK = {
    "train.epochs": 1, "train.batch_size": 64, "runtime.knn_every_epochs": 0, "runtime.log_every_steps": 1,
    "data.pretrain_split": "train[:320]", "data.train_split": "train[:160]", "data.test_split": "test[:80]",
}  # fmt: skip
FROZEN = {"backbone.bn_statistics": "frozen"}


def written(path, seed=0):
    torch.manual_seed(seed)
    model = others.lived_in(backbones.create("resnet10_tiny"))
    save_file(model.state_dict(), path)
    return model


def pretrain(folder, **settings):
    more = {name: settings.pop(name) for name in ("resume", "allow_change") if name in settings}
    return ssl_hub.pretrain("directpred-digits", output=folder, overrides={**QUICK, **settings}, **more)


@pytest.fixture
def file(tmp_path):
    written(tmp_path / "weights.safetensors")
    return tmp_path / "weights.safetensors"


@pytest.fixture
def release(tmp_path, file):
    normal = {"views.mean": (0.2, 0.3, 0.4), "views.std": (0.5, 0.6, 0.7), "backbone.name": "resnet10_tiny"}
    import_checkpoint(file, "directpred-digits", name="theirs", licence="CC-BY-NC-4.0", overrides=normal)
    return "theirs"


def test_what_a_run_started_from_is_in_its_files_and_on_its_card(tmp_path, release, capsys):
    folder = pretrain(tmp_path / "run", **{"backbone.init": release, **FROZEN})
    said = capsys.readouterr().err
    assert "start   theirs (release, CC-BY-NC-4.0, sha256 " in said and "mean (0.2, 0.3, 0.4)" in said
    assert "can undo the weights" not in said
    origin = read_facts(folder)["initialised_from"]
    assert origin["name"] == "theirs" and origin["normalised_by"] == "weights" and len(origin["sha256"]) == 64
    recipe, about = read_recipe(folder), json.loads((folder / "config.json").read_text())
    assert (recipe.views.mean, recipe.views.std) == ((0.2, 0.3, 0.4), (0.5, 0.6, 0.7))
    assert about["pretrained_cfg"]["mean"] == [0.2, 0.3, 0.4]
    chain = about["ssl_hub"]["lineage"]
    assert [link["step"] for link in chain] == ["imported", "started", "pretrained"]
    assert chain == read_facts(folder)["lineage"] and about["ssl_hub"]["licence"] == "CC-BY-NC-4.0"
    card = release_card(folder)
    assert "1. Imported from plain weights, which name no project, not trained with ssl_hub. The online branch" in card
    assert "2. Started from the weights `theirs` (release). Licence: CC-BY-NC-4.0. Their sha256 is `" in card
    assert "3. Pre-trained without labels by the recipe" in card
    assert "Non-commercial" in card and "from weights that may have seen some" in card

    again = pretrain(tmp_path / "again", **{"backbone.init": str(folder), **FROZEN})
    chain = read_facts(again)["initialised_from"]
    assert chain["kind"] == "run" and [link["step"] for link in chain["lineage"]] == [
        "imported",
        "started",
        "pretrained",
    ]
    assert "5. Pre-trained without labels" in release_card(again)


def test_the_range_of_a_release_is_that_of_the_run_unless_another_is_set(tmp_path, file):
    import_checkpoint(
        file, "directpred-digits", name="deep", overrides={"backbone.name": "resnet10_tiny", "data.range": "12"}
    )
    settings = {"backbone.init": "deep", **FROZEN}
    folder = pretrain(tmp_path / "run", **settings)
    assert read_recipe(folder).data.range == "12"
    pretrain(folder, resume=True, **settings)
    assert read_recipe(pretrain(tmp_path / "own", **settings, **{"data.range": "0,255"})).data.range == "0,255"
    assert read_recipe(pretrain(tmp_path / "none", **{**settings, "backbone.init": str(file)})).data.range == "auto"


def test_normalisation_that_was_set_stays_and_is_recorded_as_the_users(tmp_path, release):
    chosen = {"views.mean": (0.1, 0.1, 0.1), "views.std": (1.0, 1.0, 1.0)}
    folder = pretrain(tmp_path / "run", **{"backbone.init": release, **FROZEN, **chosen})
    assert read_recipe(folder).views.mean == (0.1, 0.1, 0.1)
    assert read_facts(folder)["initialised_from"]["normalised_by"] == "user"
    pretrain(folder, resume=True, **{"backbone.init": release, **FROZEN, **chosen})
    with pytest.raises(UsageError, match=r"started with another views\.mean"):
        pretrain(
            folder, resume=True, **{"backbone.init": release, **FROZEN, "views.mean": (0, 0, 0), "views.std": (1, 1, 1)}
        )


def test_going_on_needs_no_weights_keeps_what_was_recorded_and_ends_in_the_same_bytes(tmp_path, file, monkeypatch):
    settings = {"backbone.init": str(file), **FROZEN, "train.freeze_backbone_epochs": 0.5}
    whole = pretrain(tmp_path / "whole", **settings)

    with monkeypatch.context() as patch, pytest.raises(ssl_hub.stopping.Interrupted):
        signal_in_step(2, patch)
        pretrain(tmp_path / "run", **settings)
    origin = read_facts(tmp_path / "run")["initialised_from"]
    written(file, seed=1)  # another network under the same name
    with pytest.raises(UsageError, match=r"started with another backbone\.init"):
        pretrain(tmp_path / "run", resume=True, **{**settings, "backbone.init": str(tmp_path / "other.safetensors")})
    file.unlink()
    ssl_hub.resume(tmp_path / "run")
    assert read_facts(tmp_path / "run")["initialised_from"] == origin
    for name in ("model.safetensors", "method.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (whole / name).read_bytes()


def test_a_run_without_a_checkpoint_starts_again_from_the_same_weights_or_not_at_all(tmp_path, file):
    folder = pretrain(tmp_path / "run", **{"backbone.init": str(file), **FROZEN})
    shutil.rmtree(folder / CHECKPOINTS)
    for name in ("config.json", "model.safetensors"):
        (folder / name).unlink()
    written(file, seed=1)
    with pytest.raises(UsageError, match="is not what the run was started from .sha256 .*no checkpoint to go on from"):
        pretrain(folder, resume=True, **{"backbone.init": str(file), **FROZEN})
    written(file, seed=0)
    pretrain(folder, resume=True, **{"backbone.init": str(file), **FROZEN})
    assert len(checkpoint.existing(folder / CHECKPOINTS)) == 1


def test_frozen_statistics_stay_in_both_branches_while_scale_and_shift_train(tmp_path, file):
    before = load_file(file)
    folder = pretrain(tmp_path / "run", **{"backbone.init": str(file), **FROZEN})
    for which in ("online", "target"):
        after = load_backbone(folder, which=which).state_dict()
        statistics = [name for name in after if "running" in name or "num_batches" in name]
        assert statistics and all(torch.equal(after[name], before[name]) for name in statistics)
        assert not torch.equal(after["layer4.0.bn2.weight"], before["layer4.0.bn2.weight"])


def test_statistics_of_each_batch_are_warned_of_and_the_warning_kept(tmp_path, file, capsys):
    folder = pretrain(tmp_path / "run", **{"backbone.init": str(file)})
    said = capsys.readouterr().err
    assert "warning: the running statistics of 13 BN layers of backbone.init will be replaced" in said
    assert said.index("can undo the weights") < said.index("epoch 1/1")
    assert "BN layers" in read_facts(folder)["initialised_from"]["warning"]


def test_frozen_statistics_of_random_weights_are_refused(tmp_path):
    with pytest.raises(UsageError, match=r"'frozen' without backbone\.init, and random weights have none to keep"):
        pretrain(tmp_path / "run", **FROZEN)
    assert not (tmp_path / "run").exists()


def test_a_backbone_that_would_never_be_trained_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"freeze_backbone_epochs is 1, 5 of 5 steps: the backbone would never"):
        pretrain(tmp_path / "run", **{"train.freeze_backbone_epochs": 1})


def test_init_of_a_run_is_evaluated_with_the_weights_that_it_started_from(tmp_path, file):
    from ssl_hub.evaluate.subject import open_model

    folder = pretrain(tmp_path / "run", **{"backbone.init": str(file), **FROZEN})
    torch.manual_seed(0)
    images = torch.randn(2, 3, 16, 16)
    started = open_model(f"init:{folder}").model
    wanted = others.lived_in(backbones.create("resnet10_tiny"))
    wanted.load_state_dict(load_file(file))
    torch.testing.assert_close(started(images), wanted(images), rtol=0, atol=0)


def test_the_first_accuracy_is_that_of_the_start_and_stands_once(tmp_path, file):
    settings = {"backbone.init": str(file), **FROZEN, "runtime.knn_every_epochs": 1}
    folder = pretrain(tmp_path / "run", **settings)
    first, *_ = read_metrics(folder)
    assert (first["step"], first["epoch"]) == (0, 0) and "loss" not in first
    pretrain(folder, resume=True, **settings)
    assert [reading["step"] for reading in read_metrics(folder)] == [0, 1, 2, 3, 4, 5]

    untouched = ssl_hub.knn(f"init:{folder}", k=read_recipe(folder).runtime.knn_k)[0].value
    assert first["knn_top1"] == pytest.approx(untouched)
    shutil.rmtree(folder / CHECKPOINTS)
    for name in ("config.json", "model.safetensors"):
        (folder / name).unlink()
    pretrain(folder, resume=True, **settings)  # again from its start
    assert [reading["step"] for reading in read_metrics(folder)] == [0, 1, 2, 3, 4, 5]
