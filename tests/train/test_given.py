"""A run goes on with what it was given, or says what is another; one command starts, resumes and finishes it."""

import itertools
import json
import math
import re
import shutil

import pytest
from PIL import Image

import ssl_hub
from ssl_hub.data.loaders import TrainLoader
from ssl_hub.errors import UsageError
from ssl_hub.model.metrics import read_metrics
from ssl_hub.model.release import read_facts
from ssl_hub.stopping import Interrupted
from ssl_hub.train import checkpoint, feeding, loop, prepare, run
from ssl_hub.train.given import Change, changed, refuse
from tests.train.signals import signal_in_step

QUICK = {
    "train.max_steps": 6, "train.batch_size": 8, "runtime.knn_every_epochs": 0, "runtime.log_every_steps": 1,
    "runtime.keep_checkpoints": 3, "runtime.checkpoint_minutes": 0.0,
}  # fmt: skip


@pytest.fixture
def photos(tmp_path):
    for index in range(14):
        folder = tmp_path / "photos"
        folder.mkdir(exist_ok=True)
        Image.effect_noise((16, 16), 10 * index + 20).convert("RGB").save(folder / f"{index:02d}.png")
    return tmp_path / "photos"


@pytest.fixture
def stopped(photos, tmp_path, monkeypatch):
    """A run on 14 images that was stopped at step 3 of 6."""
    with monkeypatch.context() as patch:
        signal_in_step(3, patch)
        with pytest.raises(Interrupted):
            train(photos, tmp_path / "r")
    return tmp_path / "r"


def train(data, folder, recipe="directpred-digits", overrides=None, **options):
    return ssl_hub.pretrain(recipe, data=str(data), output=folder, overrides={**QUICK, **(overrides or {})}, **options)


def test_fewer_images_are_refused_by_their_numbers_and_recorded_where_allowed(photos, stopped):
    before = (stopped / "recipe.json").read_bytes()
    for path in sorted(photos.iterdir())[:4]:
        path.unlink()
    with pytest.raises(UsageError, match="started with 14 images and now has 10; .*--allow-change images$"):
        train(photos, stopped, resume=True)
    assert (stopped / "recipe.json").read_bytes() == before
    train(photos, stopped, resume=True, allow_change=["images"])
    facts = read_facts(stopped)
    assert facts["images"] == 10
    assert facts["changed"] == [{"at_step": 3, "name": "images", "before": 14, "now": 10}]
    assert [entry["at_step"] for entry in facts["resumed"]] == [3]


@pytest.mark.parametrize("change", ["renamed", "redrawn"])
def test_as_many_other_images_are_refused(photos, stopped, change):
    first = sorted(photos.iterdir())[0]
    if change == "renamed":
        first.rename(photos / "another.png")
    else:
        Image.effect_noise((16, 16), 90).convert("RGB").save(first)
    with pytest.raises(UsageError, match="started with 14 images and now has 14 others; .*--allow-change images$"):
        train(photos, stopped, resume=True)


def test_the_same_images_elsewhere_are_the_same(photos, stopped, tmp_path):
    (tmp_path / "copied").mkdir()
    shutil.move(photos, tmp_path / "copied" / "photos")
    train(tmp_path / "copied" / "photos", stopped, resume=True, allow_change=["data.name"])
    changes = read_facts(stopped)["changed"]
    assert [change["name"] for change in changes] == ["data.name"]


def test_another_precision_is_refused(photos, stopped, monkeypatch):
    real = prepare.given_to
    monkeypatch.setattr(prepare, "given_to", lambda *arguments: {**real(*arguments), "precision": "bf16"})
    with pytest.raises(UsageError, match="precision no and now has bf16; .*--allow-change precision"):
        train(photos, stopped, resume=True)
    train(photos, stopped, resume=True, allow_change=["precision"])
    assert read_facts(stopped)["precision"] == "bf16"


def test_what_an_older_version_did_not_record_counts_as_unchanged():
    now = {"images": 3, "precision": "no", "images_at_once": 8, "data_fingerprint": "a"}
    assert changed({"images": 3}, now) == changed({}, now) == []
    assert changed({"images": 3, "data_fingerprint": "b"}, now) == [Change("images", 3, 3)]
    with pytest.raises(UsageError, match="images_at_once 64 and now has 8; resume it with what it was given$"):
        refuse(changed({"images_at_once": 64}, now))


def test_fewer_steps_than_were_taken_are_refused(photos, stopped):
    fewer = {"train.max_steps": 2}
    with pytest.raises(UsageError, match="the run has taken 3 steps and is to take 2; raise train.max_steps"):
        train(photos, stopped, overrides=fewer, resume=True, allow_change=["train.max_steps"])
    assert read_facts(stopped)["steps"] == 6
    assert json.loads((stopped / "recipe.json").read_text())["recipe"]["train"]["max_steps"] == 6


TIMES = ("seconds", "images_per_second", "data_share")


def everything(folder):
    """Every file of a run, without when and how fast things were done."""
    found = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix != ".pt" and p.name != "hashes.json"):
        name = path.relative_to(folder).as_posix()
        if name == "recipe.json":
            whole = json.loads(path.read_text())
            gone = ("started", "finished", "resumed", "changed")
            found[name] = {**whole, "run": {k: v for k, v in whole["run"].items() if k not in gone}}
        elif name == "metrics.jsonl":
            found[name] = [{k: v for k, v in r.items() if k not in TIMES} for r in read_metrics(folder)]
        elif name == "results.json":
            records = json.loads(path.read_text())
            found[name] = [{**r, "date": None, "ran_on": {**r["ran_on"], "seconds": None}} for r in records]
        else:
            found[name] = path.read_bytes()
    found["checkpoints"] = [path.read_bytes() for path in checkpoint.existing(folder / run.CHECKPOINTS)]
    return found


COLLAPSING = {"target.kind": "none", "optim.lr": 0.5, "train.max_steps": 40, "runtime.log_every_steps": 5}


@pytest.mark.parametrize("at", [17, pytest.param(40, marks=pytest.mark.slow)], ids=["in its middle", "at its end"])
def test_a_collapsed_run_stays_collapsed_and_equals_the_uninterrupted_one(tmp_path, monkeypatch, at):
    settings = {**QUICK, **COLLAPSING, "train.batch_size": 64, "runtime.checkpoint_minutes": None}
    straight = ssl_hub.pretrain("byol-linear-digits", output=tmp_path / "straight" / "r", overrides=settings)
    assert json.loads((straight / "config.json").read_text())["ssl_hub"]["collapsed"] is True
    folder = tmp_path / "resumed" / "r"
    with monkeypatch.context() as patch:
        signal_in_step(at, patch)
        if at == 40:  # trained, and killed before anything was released
            patch.setattr(loop, "save_release", lambda *_a, **_o: (_ for _ in ()).throw(Interrupted()))
        with pytest.raises(Interrupted):
            ssl_hub.pretrain("byol-linear-digits", output=folder, overrides=settings)
    ssl_hub.pretrain("byol-linear-digits", output=folder, overrides=settings, resume=True)
    resumed, expected = everything(folder), everything(straight)
    resumed.pop("checkpoints"), expected.pop("checkpoints")  # the interrupted one keeps one more
    assert resumed == expected


def test_batches_that_are_not_finite_are_said_to_be_and_are_no_collapse(photos, tmp_path, monkeypatch, capsys):
    class Poisoned(TrainLoader):
        """The second and third batch of each epoch are not numbers."""

        def epoch(self, epoch, start_step=0):
            for step, pairs in enumerate(super().epoch(epoch, start_step), start_step):
                yield ((a * math.nan, b) for a, b in pairs) if step in (1, 2) else pairs

    monkeypatch.setattr(feeding, "TrainLoader", Poisoned)
    settings = {"train.batch_size": 2, "train.max_steps": 14, "train.epochs": 2}  # an epoch is 7 batches
    folder = train(photos, tmp_path / "a" / "r", overrides=settings)
    told = capsys.readouterr().err
    assert told.count("gradients not finite, step skipped") == 6  # 14 steps are 20 batches, three epochs' worth
    assert "have collapsed" not in told and "-" not in "".join(re.findall(r"images/s\s+(\S+) left", told))
    assert "epoch 3/3" in told and "epoch 3/2" not in told
    assert json.loads((folder / "config.json").read_text())["ssl_hub"]["collapsed"] is False
    steps = [(r["step"], r["batch"]) for r in read_metrics(folder)]
    assert (
        steps
        == [(s, b) for b, s in enumerate(itertools.accumulate([1, 0, 0, 1, 1, 1, 1] * 3), 1) if b % 7 not in (2, 3)][
            :14
        ]
    )
    with monkeypatch.context() as patch:
        signal_in_step(3, patch)  # between the two that are skipped
        with pytest.raises(Interrupted):
            train(photos, tmp_path / "b" / "r", overrides=settings)
    assert everything(train(photos, tmp_path / "b" / "r", overrides=settings, resume=True)) == everything(folder)


def test_one_command_starts_goes_on_and_is_finished(photos, tmp_path, monkeypatch, capsys):
    folder, straight = tmp_path / "a" / "r", train(photos, tmp_path / "b" / "r", resume="auto")
    with monkeypatch.context() as patch:
        signal_in_step(3, patch)
        with pytest.raises(Interrupted):
            train(photos, folder, resume="auto")
    train(photos, folder, resume="auto")
    assert everything(folder) == everything(straight)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert train(photos, folder, resume="auto") == folder
    assert capsys.readouterr().err.endswith(f"the run in {folder} is finished: nothing to do\n")
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()} == before
    with pytest.raises(UsageError, match="started with another optim.lr"):
        train(photos, folder, resume="auto", overrides={"optim.lr": 1.0})
    with pytest.raises(UsageError, match="holds a run already"):
        train(photos, folder)
    longer = {"train.max_steps": 8}
    train(photos, folder, resume="auto", overrides=longer, allow_change=["train.max_steps"])
    assert read_metrics(folder)[-1]["step"] == 8 and run.is_finished(folder)


def test_a_run_that_was_killed_while_it_was_measured_is_not_finished(photos, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(loop, "measure", lambda *_a, **_o: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(Interrupted):
            train(photos, tmp_path / "r", resume="auto")
    assert (tmp_path / "r" / "model.safetensors").exists() and not run.is_finished(tmp_path / "r")
    train(photos, tmp_path / "r", resume="auto")
    assert run.is_finished(tmp_path / "r")


def test_a_job_that_is_started_again_goes_on_whatever_it_was_told(photos, tmp_path, monkeypatch):
    """First with --overwrite over a run of another job: that one goes; then over what the job itself has begun."""
    old = train(photos, tmp_path / "r")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    with monkeypatch.context() as patch:
        signal_in_step(3, patch)
        with pytest.raises(Interrupted):
            train(photos, old, overwrite=True)
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    train(photos, old, overwrite=True)
    assert [entry["at_step"] for entry in read_facts(old)["resumed"]] == [3]
    monkeypatch.setenv("SLURM_JOB_ID", "18")  # another job, which never got to its first checkpoint
    train(photos, old, overwrite=True)
    assert "resumed" not in read_facts(old)
    train(photos, old)  # neither --resume nor --overwrite
    monkeypatch.delenv("SLURM_RESTART_COUNT")
    with pytest.raises(UsageError, match="exclude each other"):
        train(photos, old, overwrite=True, resume="auto")


@pytest.mark.parametrize(
    ("before", "now", "text"),
    [
        (None, None, "started with an unknown number of images and now has others;"),
        (14, None, "started with 14 images and now has an unknown number;"),
    ],
)
def test_streams_that_do_not_tell_their_number(before, now, text):
    with pytest.raises(UsageError, match=text):
        refuse(changed({"images": before, "data_fingerprint": "a"}, {"images": now, "data_fingerprint": "b"}))
