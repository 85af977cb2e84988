"""A run evaluated before it is finished, and at an earlier step."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

import ssl_hub
from ssl_hub.data.sources import open_source
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.subject import open_model
from ssl_hub.exporting.about import about
from ssl_hub.exporting.program import make_program
from ssl_hub.hub.weights import initial
from ssl_hub.model.release import read_recipe
from ssl_hub.model.results import read_results
from ssl_hub.report.page import write_report
from ssl_hub.zoo import get_recipe

SETTINGS = {
    "train.max_steps": 4, "train.epochs": 2, "train.batch_size": 16, "runtime.knn_every_epochs": 0,
    "runtime.checkpoint_every_epochs": 1, "runtime.keep_checkpoints": 5,
}  # fmt: skip


@pytest.fixture(scope="module")
def few_digits(tmp_path_factory):
    """32 digits of four classes to train on and 16 to test, as files."""
    folder = tmp_path_factory.mktemp("data") / "few"
    for split, count in (("train", 8), ("test", 4)):
        digits = open_source("digits", split)
        for label in range(4):
            (folder / split / str(label)).mkdir(parents=True)
            for row in np.flatnonzero(digits.labels == label)[:count]:
                digits.image(int(row)).save(folder / split / str(label) / f"{row}.png")
    return str(folder)


@pytest.fixture(scope="module")
def finished(few_digits, tmp_path_factory):
    output = tmp_path_factory.mktemp("runs") / "r"
    return ssl_hub.pretrain("directpred-digits", data=few_digits, output=output, overrides=SETTINGS)


@pytest.fixture
def unfinished(finished, tmp_path):
    """The same run as it was before its release was written."""
    folder = shutil.copytree(finished, tmp_path / "u")
    for name in ("config.json", "model.safetensors", "method.safetensors", "results.json", "hashes.json"):
        (folder / name).unlink()
    shutil.rmtree(folder / "heads")
    recipe = json.loads((folder / "recipe.json").read_text())
    del recipe["run"]["finished"]
    (folder / "recipe.json").write_text(json.dumps(recipe))
    return folder


def values(results):
    return [(r.metric, r.value) for r in results]


def test_the_newest_checkpoint_is_what_the_release_will_be(finished, unfinished, capsys):
    at_end, released = ssl_hub.knn(unfinished), ssl_hub.knn(finished)
    assert values(at_end) == values(released)
    assert all(r.settings["step"] == 4 for r in at_end)
    assert not any("step" in r.settings for r in released)
    assert not (unfinished / "results.json").exists(), "a checkpoint's results are not the run's"
    assert values(ssl_hub.linear_probe(unfinished)) == values(ssl_hub.linear_probe(finished))
    assert not (unfinished / "heads").exists()


def test_a_named_step_of_a_finished_run(finished, tmp_path):
    before = read_results(finished)
    earlier = ssl_hub.knn(f"{finished}@2")
    assert all(r.settings["step"] == 2 for r in earlier)
    assert read_results(finished) == before
    features = ssl_hub.embed(f"{finished}@2", out=tmp_path / "f.parquet")
    assert features.is_file()


def test_steps_that_are_not_there_are_listed(finished, unfinished):
    with pytest.raises(UsageError, match="has no checkpoint of step 3; it has 2, 4 "):
        open_model(f"{finished}@3")
    shutil.rmtree(unfinished / "checkpoints")
    with pytest.raises(UsageError, match="is not finished and has no checkpoint yet; go on training it"):
        open_model(unfinished)


def test_a_folder_whose_name_ends_like_a_step_is_that_folder(finished, tmp_path):
    folder = shutil.copytree(finished, tmp_path / "run@2")
    assert open_model(folder).step is None
    assert open_model(f"{folder}@2").step == 2


def test_a_report_of_an_unfinished_run_looks_through_its_newest_checkpoint(unfinished, tmp_path):
    page = tmp_path / "report.html"
    write_report([unfinished], page)
    assert "the run has no weights yet" not in page.read_text()


def test_another_runs_checkpoint_is_refused(few_digits, unfinished, tmp_path):
    other = ssl_hub.pretrain("byol-digits", data=few_digits, output=tmp_path / "o", overrides=SETTINGS)
    shutil.copy(next((other / "checkpoints").glob("step-*4.pt")), unfinished / "checkpoints")
    with pytest.raises(UsageError, match="is not of the run that recipe.json beside it describes"):
        open_model(unfinished)


def test_a_step_is_started_from_exported_and_reported(finished, tmp_path):
    recipe = get_recipe("directpred-digits", **{"backbone.init": f"{finished}@2", "views.mean": (0.1, 0.1, 0.1)})
    started = initial(recipe)
    expected = open_model(f"{finished}@2").model.state_dict()
    assert all(torch.equal(started.tensors[name], tensor) for name, tensor in expected.items())
    assert started.normalisation == (read_recipe(finished).views.mean, read_recipe(finished).views.std)
    assert started.origin["name"] == f"{finished.name}@2" and started.origin["licence"] == "unknown"
    assert [link["step"] for link in started.origin["lineage"]] == ["started", "pretrained"]
    file = next((finished / "checkpoints").glob("step-*2.pt"))
    assert initial(replace(recipe, backbone=replace(recipe.backbone, init=str(file)))).origin == started.origin

    made = make_program(f"{finished}@2", head=None, features="pooled", kind="uint8", image_size=None)
    says = about("r@2", made)["weights"]
    assert (says["step"], says["recipe"], says["licence"]) == (2, "directpred-digits", "not stated")
    with pytest.raises(UsageError, match="is a run at one of its checkpoints, which has no heads"):
        make_program(f"{finished}@2", head="few", features="pooled", kind="uint8", image_size=None)

    page = write_report([f"{finished}@2"], tmp_path / "r.html").read_text()
    assert "<h1>r@2</h1>" in page and "the probe head is of the finished run" in page
    with pytest.raises(UsageError, match="has no checkpoint of step 3; it has 2, 4"):
        write_report([f"{finished}@3"], tmp_path / "r.html")


def test_a_runs_file_of_weights_is_the_run(finished):
    recipe = get_recipe("directpred-digits", **{"backbone.init": str(finished / "model.safetensors")})
    by_folder = initial(replace(recipe, backbone=replace(recipe.backbone, init=str(finished))))
    by_file = initial(recipe)
    assert by_file.origin == by_folder.origin and by_file.normalisation == by_folder.normalisation is not None
