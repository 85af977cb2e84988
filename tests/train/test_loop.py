"""The run as a whole, in this process: saving by time, giving up on collapse, trackers, and what is left behind."""

import json
import shutil

import pytest
import torch
from PIL import Image

import ssl_hub
from ssl_hub.errors import UsageError
from ssl_hub.model.metrics import read_metrics
from ssl_hub.model.release import read_facts
from ssl_hub.stopping import Interrupted
from ssl_hub.train import checkpoint, loop
from ssl_hub.train.run import CHECKPOINTS
from ssl_hub.train.step import Trainer
from tests.train.signals import signal_in_step

ANY_DATA = {"train.max_steps": 6, "runtime.knn_every_epochs": 0, "runtime.log_every_steps": 1}
FEW = {"data.pretrain_split": "train[:384]", "data.train_split": "train[:160]", "data.test_split": "test[:80]"}
QUICK = {**ANY_DATA, **FEW, "train.batch_size": 64}
COLLAPSING = {
    **FEW, "train.batch_size": 64, "target.kind": "none", "optim.lr": 2.0, "train.epochs": 4,
    "runtime.knn_every_epochs": 0,
}  # fmt: skip


def saved_steps(folder) -> list[int]:
    return [checkpoint.load(path)["step"] for path in checkpoint.existing(folder / CHECKPOINTS)]


def test_checkpoints_by_time(tmp_path):
    often = {**QUICK, "runtime.checkpoint_minutes": 0.0, "runtime.keep_checkpoints": 10}
    assert saved_steps(ssl_hub.pretrain("byol-digits", output=tmp_path / "often", overrides=often)) == [
        1,
        2,
        3,
        4,
        5,
        6,
    ]
    assert saved_steps(ssl_hub.pretrain("byol-digits", output=tmp_path / "last", overrides=QUICK)) == [6]


def test_permanent_checkpoints_of_epochs(tmp_path):
    settings = {
        **FEW, "data.pretrain_split": "train[:128]", "train.epochs": 4, "train.batch_size": 64,
        "runtime.knn_every_epochs": 0, "runtime.checkpoint_every_epochs": 1, "runtime.keep_checkpoints": 1,
        "runtime.keep_every_epochs": 2,
    }  # fmt: skip
    assert saved_steps(ssl_hub.pretrain("byol-digits", output=tmp_path / "r", overrides=settings)) == [4, 8]


def test_collapse_is_noticed_and_marked(tmp_path, capsys):
    folder = ssl_hub.pretrain("byol-linear-digits", output=tmp_path / "r", overrides=COLLAPSING)
    assert "features have collapsed" in capsys.readouterr().err
    assert json.loads((folder / "config.json").read_text())["ssl_hub"]["collapsed"] is True
    assert all(record["collapsed"] for record in json.loads((folder / "results.json").read_text()))
    assert all(result.collapsed for result in ssl_hub.knn(folder))
    last = read_metrics(folder)[-1]
    assert last["feature_std"] < 0.1 * last["healthy_std"]


def test_collapse_stops_the_run_where_asked(tmp_path):
    with pytest.raises(UsageError, match=r"features collapsed by step \d+: stopped, saved in"):
        ssl_hub.pretrain(
            "byol-linear-digits", output=tmp_path / "r", overrides={**COLLAPSING, "runtime.on_collapse": "stop"}
        )
    assert len(saved_steps(tmp_path / "r")) == 1
    assert not (tmp_path / "r" / "model.safetensors").exists()


def test_signal_saves_at_the_step_it_came_in_and_the_rest_is_exact(tmp_path, monkeypatch):
    straight = ssl_hub.pretrain("directpred-digits", output=tmp_path / "straight", overrides=QUICK)

    with monkeypatch.context() as patch, pytest.raises(Interrupted) as stopped:
        signal_in_step(3, patch)
        ssl_hub.pretrain("directpred-digits", output=tmp_path / "r", overrides=QUICK)
    assert stopped.value.code == 75
    assert saved_steps(tmp_path / "r") == [3]
    resumed = ssl_hub.pretrain("directpred-digits", output=tmp_path / "r", overrides=QUICK, resume=True)
    assert (resumed / "method.safetensors").read_bytes() == (straight / "method.safetensors").read_bytes()


def test_unfinished_files_of_a_killed_run_are_swept(tmp_path):
    folder = ssl_hub.pretrain("byol-digits", output=tmp_path / "r", overrides=QUICK)
    (folder / CHECKPOINTS / ".step-00000009.pt.7.part").write_bytes(b"half")
    longer = {**QUICK, "train.max_steps": 7}
    ssl_hub.pretrain("byol-digits", output=folder, overrides=longer, resume=True, allow_change=["train.max_steps"])
    assert list(folder.rglob(".*.part")) == []


def test_resume_of_a_changed_recipe_needs_the_change_named(tmp_path):
    folder = ssl_hub.pretrain("byol-digits", output=tmp_path / "r", overrides=QUICK)
    longer = {**QUICK, "train.max_steps": 8, "runtime.workers": 2}
    with pytest.raises(UsageError, match="started with another train.max_steps; .* --allow-change train.max_steps"):
        ssl_hub.pretrain("byol-digits", output=folder, overrides=longer, resume=True)
    ssl_hub.pretrain("byol-digits", output=folder, overrides=longer, resume=True, allow_change=["train.max_steps"])
    assert [record["step"] for record in read_metrics(folder)] == list(range(1, 9))


def test_an_allowed_change_is_of_a_setting(tmp_path):
    for name, hint in (("train.max_step", "did you mean 'train.max_steps'"), ("nosuch", "known: ")):
        with pytest.raises(UsageError, match=f"--allow-change {name} names no setting of this recipe; {hint}"):
            ssl_hub.pretrain("byol-digits", output=tmp_path / "r", overrides=QUICK, allow_change=[name])


def test_recipe_json_stays_where_a_checkpoint_does_not_load(tmp_path):
    folder = ssl_hub.pretrain("byol-digits", output=tmp_path / "r", overrides=QUICK)
    before = (folder / "recipe.json").read_bytes()
    checkpoint.existing(folder / CHECKPOINTS)[-1].write_bytes(b"")
    longer = {**QUICK, "train.max_steps": 8}
    with pytest.raises(UsageError, match="cannot read the checkpoint .*step-00000006.pt"):
        ssl_hub.pretrain("byol-digits", output=folder, overrides=longer, resume=True, allow_change=["train.max_steps"])
    assert (folder / "recipe.json").read_bytes() == before


def test_a_replacement_that_fails_at_its_first_step_leaves_the_old_run(tmp_path, monkeypatch):
    folder = ssl_hub.pretrain("byol-digits", output=tmp_path / "r", overrides=QUICK)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def out_of_memory(self, micro_batches):
        raise RuntimeError("not enough memory")

    monkeypatch.setattr(Trainer, "advance", out_of_memory)
    with pytest.raises(RuntimeError, match="not enough memory"):
        ssl_hub.pretrain("simsiam-digits", output=folder, overrides=QUICK, overwrite=True)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_folder_removed_at_the_end_is_no_success(tmp_path, monkeypatch, capsys):
    def removed(backbone, recipe, folder, accelerator, *, collapsed):
        shutil.rmtree(folder)
        return [], None

    monkeypatch.setattr(loop, "measure", removed)
    with pytest.raises(UsageError, match="recipe.json was removed while the run was finishing; its release is lost"):
        ssl_hub.pretrain("byol-digits", output=tmp_path / "r", overrides=QUICK)
    assert "done:" not in capsys.readouterr().err


def test_what_will_not_be_measured_is_said_at_the_start(tmp_path, capsys):
    typo = {**QUICK, "data.test_split": "tset"}
    ssl_hub.pretrain("byol-digits", output=tmp_path / "r", overrides=typo)
    told = capsys.readouterr().err
    assert told.index("warning: accuracy will not be measured: ") < told.index("epoch 1/1 ")  # where max_steps ends it
    assert "'tset'" in told


def test_no_such_users_folder(tmp_path):
    with pytest.raises(UsageError, match="no user nosuchuser for '~nosuchuser/x'"):
        ssl_hub.pretrain("byol-digits", output="~nosuchuser/x", overrides=QUICK)


def test_the_command_can_be_pasted(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["ssl-hub", "train", "--output", "a b"])
    folder = ssl_hub.pretrain("byol-digits", output=tmp_path / "r", overrides=QUICK)
    assert read_facts(folder)["command"] == "ssl-hub train --output 'a b'"


def test_missing_tracker_is_said_before_anything_is_written(tmp_path):
    with pytest.raises(UsageError, match="tracker 'trackio' is not installed; pip install trackio"):
        ssl_hub.pretrain("byol-digits", output=tmp_path / "r", overrides={**QUICK, "runtime.tracker": "trackio"})
    assert not (tmp_path / "r").exists()


def test_tracker_gets_what_the_metrics_get(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    settings = {**QUICK, "runtime.tracker": "tensorboard"}
    folder = ssl_hub.pretrain("byol-digits", output=tmp_path / "r", overrides=settings)
    events = EventAccumulator(str(folder / "ssl_hub"))
    events.Reload()
    logged = [(event.step, event.value) for event in events.Scalars("loss")]
    assert logged == [(r["step"], pytest.approx(r["loss"])) for r in read_metrics(folder)]
    assert {"lr", "feature_std", "effective_rank", "data_share"} <= set(events.Tags()["scalars"])


def test_data_that_cannot_be_probed_is_said_and_loses_nothing(tmp_path):
    for split, label in (("train", "only"), ("test", "only")):
        folder = tmp_path / "photos" / split / label
        folder.mkdir(parents=True)
        for i in range(4):
            Image.effect_noise((16, 16), 20 * i + 20).convert("RGB").save(folder / f"{i}.png")
    small = {**ANY_DATA, "train.batch_size": 4}
    folder = ssl_hub.pretrain("byol-digits", data=str(tmp_path / "photos"), output=tmp_path / "r", overrides=small)
    assert not (folder / "results.json").exists()
    assert ssl_hub.load(folder)(torch.zeros(1, 3, 16, 16)).shape == (1, 128)


def test_a_flat_folder_trains_and_is_told_why_it_is_not_probed(tmp_path, capsys):
    (tmp_path / "photos").mkdir()
    for i in range(8):
        Image.effect_noise((16, 16), 20 * i + 20).convert("RGB").save(tmp_path / "photos" / f"{i}.png")
    small = {**ANY_DATA, "train.batch_size": 4, "data.test_split": "validation"}
    ssl_hub.pretrain("byol-digits", data=str(tmp_path / "photos"), output=tmp_path / "r", overrides=small)
    told = capsys.readouterr().err
    assert "photos is a flat folder of 8 unlabelled images, all of it split 'train': there is no split 'valid" in told
    assert "lay it out" not in told and "--data DATA_WITH_LABELS" in told


def test_data_share_is_a_share(tmp_path):
    folder = ssl_hub.pretrain("byol-digits", output=tmp_path / "r", overrides=QUICK)
    assert all(0 < record["data_share"] < 1 for record in read_metrics(folder))


@pytest.mark.slow
@pytest.mark.parametrize("first", [True, False, "reduce-overhead"])
def test_compiled_and_plain_runs_resume_each_other(tmp_path, first):
    """Compiling changes rounding, and no tensor's name. (On a CPU channels_last rounds most: it is off here.)

    Two steps: what rounding makes of the weights, 2e-7 after the first, grows tenfold or more with each.
    """
    quick = {**QUICK, "runtime.channels_last": False, "train.max_steps": 2}
    half = {**quick, "train.max_steps": 1, "runtime.compile": first}
    folder = ssl_hub.pretrain("directpred-digits", output=tmp_path / "r", overrides=half)
    saved = checkpoint.load(checkpoint.existing(folder / CHECKPOINTS)[-1])["online"]
    released = ssl_hub.load(folder).state_dict()
    assert all(torch.equal(tensor, saved[f"encoder.backbone.{name}"]) for name, tensor in released.items())
    whole = {**quick, "runtime.compile": not first}
    ssl_hub.pretrain("directpred-digits", output=folder, overrides=whole, resume=True, allow_change=["train.max_steps"])
    plain = ssl_hub.load(ssl_hub.pretrain("directpred-digits", output=tmp_path / "plain", overrides=quick))
    mixed = ssl_hub.load(folder).state_dict()
    assert mixed.keys() == plain.state_dict().keys()
    ours, theirs = (torch.cat([state[k].float().flatten() for k in mixed]) for state in (mixed, plain.state_dict()))
    assert (ours - theirs).norm() < 1e-3 * theirs.norm()


def test_a_warm_up_that_outlasts_the_run_is_said(tmp_path, capsys):
    settings = {**QUICK, "train.max_steps": 1, "optim.warmup_epochs": 5}
    ssl_hub.pretrain("byol-digits", output=tmp_path / "r", overrides=settings)
    said = capsys.readouterr().err
    assert (
        "warning: optim.warmup_epochs is 5, " in said and "and the run has 1: the learning rate never reaches" in said
    )
