"""A run goes on by its folder: no other recipe can be meant, and settings that differ are changes of the run."""

import json

import pytest

import ssl_hub
from ssl_hub.cli import main
from ssl_hub.errors import UsageError
from ssl_hub.hub import store
from ssl_hub.model.release import read_facts, read_recipe, write_recipe
from ssl_hub.train import loop

QUICK = {
    "train.max_steps": 2, "train.batch_size": 16, "runtime.knn_every_epochs": 0, "data.pretrain_split": "train[:64]",
    "data.train_split": "train[:64]", "data.test_split": "test[:32]",
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    return ssl_hub.pretrain("byol-digits", output=folder, overrides={**QUICK, "predictor.hidden_width": 48})


def test_a_finished_run_has_nothing_left_to_do_however_it_is_called(run, capsys, monkeypatch):
    before = (run / "model.safetensors").read_bytes()
    assert main(["resume", str(run)]) == 0
    assert main(["train", "--resume", "auto", "--output", str(run)]) == 0
    assert capsys.readouterr().err.count(f"the run in {run} is finished: nothing to do") == 2
    store.home().mkdir(parents=True)
    (store.home() / "mine").symlink_to(run)
    assert ssl_hub.resume("mine") == store.home() / "mine"
    assert (run / "model.safetensors").read_bytes() == before


def test_it_goes_on_with_its_own_recipe_and_says_what_changed(run):
    with pytest.raises(UsageError, match=r"started with another train\.max_steps; .*--allow-change train\.max_steps"):
        ssl_hub.resume(run, overrides={"train.max_steps": 3})
    ssl_hub.resume(
        run, overrides={"train.max_steps": 3, "runtime.log_every_steps": 1}, allow_change=["train.max_steps"]
    )
    recipe = read_recipe(run)
    assert (recipe.name, recipe.train.max_steps, recipe.runtime.log_every_steps) == ("byol-digits", 3, 1)
    assert dict(recipe.predictor.options)["hidden_width"] == 48
    assert read_facts(run)["changed"][-1] == {"at_step": 2, "name": "train.max_steps", "before": 2, "now": 3}


def test_another_recipe_is_never_meant(run, tmp_path):
    with pytest.raises(UsageError, match="is of recipe byol-digits, not of directpred-digits: leave it out to go on"):
        ssl_hub.pretrain("directpred-digits", output=run, resume=True, overrides=QUICK)
    for resume in (True, "auto"):
        with pytest.raises(UsageError, match="nothing to resume in .*it has no recipe.json"):
            ssl_hub.pretrain(None, output=tmp_path, resume=resume)
    with pytest.raises(UsageError, match="no recipe: name one, or a run folder to go on with"):
        ssl_hub.pretrain(None)
    with pytest.raises(UsageError, match="no run at 'elsewhere', and none of that name in the store"):
        ssl_hub.resume("elsewhere")
    for inside in (f"{run}@2", run / "recipe.json"):
        with pytest.raises(UsageError, match=f"no run at .*; give the run itself: {run}$"):
            ssl_hub.resume(inside)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["--resume", "--output", "{run}"], None),
        (["--resume", "auto", "--output", "{run}"], None),
        (["--resume", "auto", "--output", "{run}-new"], "directpred-digits"),
        (["--resume"], "directpred-digits"),
        (["--output", "{run}", "--overwrite"], "directpred-digits"),
        (["{run}/recipe.json", "train.seed=1"], "{run}/recipe.json"),
    ],
)
def test_which_recipe_a_command_line_means(run, monkeypatch, words, meant):
    seen = []
    monkeypatch.setattr(loop, "pretrain", lambda recipe, **_options: seen.append(recipe))
    assert main(["train", *(word.format(run=run) for word in words)]) == 0
    assert seen == [meant and meant.format(run=run)]


def test_a_recipe_file_trains_what_it_says(run, tmp_path, capsys):
    folder = ssl_hub.pretrain(str(run / "recipe.json"), output=tmp_path / "again", overrides={"train.max_steps": 2})
    recipe = read_recipe(folder)
    assert dict(recipe.predictor.options)["hidden_width"] == 48 and recipe.summary.startswith("modified (")
    write_recipe(tmp_path, None, {})
    (tmp_path / "torn.json").write_text(json.dumps({"recipe": {"name": 1}}))
    for name, said in {
        "none.json": "there is no recipe file", "torn.json": "torn.json holds no recipe|torn.json",
        "recipe.json": "says of a model that no recipe trained it",
    }.items():  # fmt: skip
        with pytest.raises(UsageError, match=said):
            ssl_hub.pretrain(str(tmp_path / name), output=tmp_path / "x")
