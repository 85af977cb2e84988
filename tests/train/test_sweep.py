"""A sweep: the grid that is meant, real runs of it, what goes on and what fails, and the same as a job array."""

import json
import shutil
import subprocess
from types import SimpleNamespace

import pytest

from ssl_hub.cli import main
from ssl_hub.errors import UsageError
from ssl_hub.model.release import read_recipe, write_recipe
from ssl_hub.report.page import write_report
from ssl_hub.train import begun, grid
from ssl_hub.train.sweep import SWEEP, begin_array, begun_in, planned, split_axes, sweep
from ssl_hub.zoo import get_recipe
from tests import warm

QUICK = {
    "train.max_steps": 2, "train.batch_size": 16, "runtime.knn_every_epochs": 0, "data.pretrain_split": "train[:64]",
    "data.train_split": "train[:64]", "data.test_split": "test[:32]",
}  # fmt: skip
RHO = {"predictor.rho": [0.1, 0.9]}


def plan(tmp_path, recipe="directpred-digits", axes=RHO, **more):
    given = {"settings": {}, "data": None, "out": tmp_path, "seeds": 1, **more}
    return planned(recipe, axes, **given)


def test_a_grid_is_trained_measured_and_not_again(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(grid, "subprocess", SimpleNamespace(Popen=warm.in_place_of_popen))
    monkeypatch.setattr(grid, "POLL_SECONDS", 0.05)
    words = ["predictor.rho=0.1,0.9", *(f"{key}={value}" for key, value in QUICK.items())]
    assert main(["sweep", "directpred-digits", *words, "--jobs", "2", "--out", str(tmp_path / "s")]) == 0
    printed = capsys.readouterr().out
    runs = [tmp_path / "s" / f"rho={rho}" / "seed-0" for rho in ("0.1", "0.9")]
    assert [dict(read_recipe(run).predictor.options)["rho"] for run in runs] == [0.1, 0.9]
    for run in runs:
        top1 = {r["value"] for r in json.loads((run / "results.json").read_text()) if r["metric"] == "top1"}
        line = next(line for line in printed.splitlines() if line.startswith(f"| {run.parent.name[4:]} |"))
        assert any(f"{value:.2f}" in line for value in top1)
    before = [(run / "model.safetensors").stat().st_mtime_ns for run in runs]
    shutil.rmtree(runs[1])
    runs[1].mkdir()
    (runs[1] / "notes.txt").write_text("in the way")  # of a run there, which fails
    assert main(["sweep", "--out", str(tmp_path / "s"), "--format", "json"]) == 2
    said = capsys.readouterr()
    assert "1 runs did not end well, see " in said.err and f"{runs[1]}.log" in said.err
    assert f"failed (error: {runs[1]} is not empty and holds no run; choose another --output)" in said.err
    assert list(json.loads(said.out)["groups"]) == [str(runs[0])]  # what did end well is shown
    assert (runs[0] / "model.safetensors").stat().st_mtime_ns == before[0]

    page = write_report([tmp_path / "s"], tmp_path / "s.html").read_text()
    assert "<h1>s</h1>" in page and "a sweep: 1 of 2 runs have ended well" in page
    for sample in (s for samples in begun_in(tmp_path / "s").comparison.results.values() for s in samples):
        assert f'style="--share:1.000">{sample.with_interval}</td>' in page
    assert "<td>rho=0.9, seed 0</td>" in page and f"{runs[1]} is not empty and holds no run" in page
    with pytest.raises(UsageError, match="is a sweep, whose report is of it alone"):
        write_report([tmp_path / "s", runs[0]], tmp_path / "s.html")


def test_every_point_is_checked_before_anything_starts(tmp_path):
    for axes, said in (
        ({"predictor.rho": [0.1, 1.5]}, "predictor.rho"),
        ({"predictor.roh": [0.1, 0.5]}, "did you mean"),
        ({"predictor.rho": [0.1, 0.5, 0.1]}, "predictor.rho=0.1 is trained twice: it is the same as predictor.rho=0.1"),
        ({"predictor.rho": [0.1, "0.10"]}, "predictor.rho=0.10 is trained twice: it is the same as predictor.rho=0.1"),
        ({"data.name": ["a/b", "a_b"]}, "data.name=a_b is trained twice: it is the same as data.name=a/b"),
        ({"data.name": ["d", "d" * 200]}, "too long for a folder's name"),
        ({"train.seed": [0, 1]}, "train.seed is set, and is what --seeds counts"),
        ({}, "nothing to sweep over"),
    ):
        with pytest.raises(UsageError, match=said):
            sweep("directpred-digits", axes, out=tmp_path / "s")
    for settings, said in (
        ({"predictor.rho": 0.3}, "predictor.rho has one value"),
        ({"train.seed": 3}, "train.seed is"),
    ):
        with pytest.raises(UsageError, match=said):
            sweep("directpred-digits", RHO, settings=settings, out=tmp_path / "s")
    with pytest.raises(UsageError, match="seeds is 0"):
        sweep("directpred-digits", RHO, out=tmp_path / "s", seeds=0)
    with pytest.raises(UsageError, match="no recipe: name one, or the --out of a sweep"):
        sweep()
    assert not (tmp_path / "s").exists()
    with pytest.raises(UsageError, match="no sweep was begun in"):
        sweep(out=tmp_path / "s")


def test_a_folder_takes_other_values_and_seeds_but_no_other_recipe(tmp_path):
    def begin(**asked):
        chosen, folder = plan(tmp_path, **asked)
        begun.write(folder / SWEEP, chosen)
        return chosen

    two = {"predictor.rho": [0.1, 0.9], "predictor.eps": [0.0, 0.1]}
    first = begin(axes=two)
    more = begin(axes={"predictor.eps": [0.0, 0.1], "predictor.rho": [0.1, 0.5, 0.9]}, seeds=2)
    assert list(more.axes) == list(two) and more.seeds == 2  # and so the folders keep their names
    assert {t.folder for t in first.tasks(tmp_path)} < {t.folder for t in more.tasks(tmp_path)}
    for nothing in ({"axes": {}, "seeds": None}, {"axes": {}, "seeds": None, "recipe": None}):
        assert begin(**nothing) == more
    assert begin(recipe=None, axes={}, seeds=3).seeds == 3
    for other in ({"recipe": "directcopy-r18-cifar10-100ep"}, {"settings": {"train.epochs": 2}}, {"data": "digits"}):
        for recipe in ({}, {"recipe": None}) if "recipe" not in other else ({},):
            with pytest.raises(UsageError, match=f"holds a sweep with {next(iter(other))} .*; choose another --out"):
                begin(**{"axes": two, **recipe, **other})
    with pytest.raises(UsageError, match="holds a sweep over predictor.rho, predictor.eps, not predictor.rho; choose"):
        begin()
    (tmp_path / "sweep.json").write_text("{}")
    with pytest.raises(UsageError, match="is no sweep; choose another --out or repair it"):
        begin()


def test_a_recipe_file_is_swept_from_wherever(tmp_path, monkeypatch):
    write_recipe(tmp_path, get_recipe("directpred-digits", **{"train.epochs": 2}), {})
    monkeypatch.chdir(tmp_path)
    chosen, folder = plan(tmp_path / "s", recipe="recipe.json")
    assert chosen.recipe == str(tmp_path / "recipe.json")
    assert all(task.arguments[1] == chosen.recipe for task in chosen.tasks(folder))


def test_settings_of_one_last_name_are_told_apart(tmp_path):
    axes = {"optim.momentum": [0.8, 0.9], "target.momentum": [0.9, 0.99]}
    chosen, folder = plan(tmp_path, axes=axes)
    assert chosen.tasks(folder)[1].folder == tmp_path / "optim.momentum=0.8,target.momentum=0.99" / "seed-0"


def test_a_sweep_that_has_not_begun_has_a_page_and_a_runs_folder_holds_none(tmp_path):
    chosen, folder = plan(tmp_path / "s")
    begin_array(chosen, folder)
    page = write_report([folder], tmp_path / "s.html").read_text()
    assert "0 of 2 runs have ended well" in page and "<td>rho=0.9, seed 0</td><td>not begun</td>" in page
    write_recipe(folder, get_recipe("directpred-digits"), {})
    with pytest.raises(UsageError, match="is a run's; choose another --out"):
        plan(folder)


def test_commas_within_a_value_are_its_own():
    axes, settings = split_axes({"a": "1,2", "b": "[0.2,1.0]", "c": "[0.2,1.0],[0.1,1.0]", "d": '"0,4095"', "e": "x"})
    assert axes == {"a": ["1", "2"], "c": ["[0.2,1.0]", "[0.1,1.0]"]}
    assert settings == {"b": "[0.2,1.0]", "d": '"0,4095"', "e": "x"}


def test_the_array_job_runs_each_point_once(tmp_path, monkeypatch):
    monkeypatch.setenv("SSL_HUB_IMPORT", "mine,ours")
    chosen, folder = plan(tmp_path / "my sweep", axes={**RHO, "predictor.eps": [0.1, 0.5]}, seeds=2)
    script = tmp_path / "sweep.sbatch"
    script.write_text(begin_array(chosen, folder))
    (tmp_path / "srun").write_text('#!/bin/bash\nprintf "%s\\n" "$@"\nexit 75\n')
    (tmp_path / "scontrol").write_text('#!/bin/bash\necho "$@"\n')
    for name in ("srun", "scontrol"):
        (tmp_path / name).chmod(0o755)
    tasks = chosen.tasks(folder)
    for number, task in enumerate(tasks):
        settings = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_ARRAY_TASK_ID": str(number), "SLURM_ARRAY_JOB_ID": "7"}
        done = subprocess.run(["bash", script], env=settings, capture_output=True, text=True)
        assert done.returncode == 75 and done.stdout == f"requeue 7_{number}\n"
        words = task.log.read_text().splitlines()
        assert words[:5] == ["ssl-hub", "--import=mine", "--import=ours", "train", "directpred-digits"]
        assert words[-4:] == ["--output", str(task.folder), "--resume", "auto"]
    assert "--array=0-7" in script.read_text() and "--job-name=my_sweep\n" in script.read_text()
