"""A sweep: the grid that is meant, real runs of it, what goes on and what fails, and the same as a job array."""

import json
import shutil
import subprocess

import pytest

from ssl_hub.cli import main
from ssl_hub.errors import UsageError
from ssl_hub.model.release import read_recipe
from ssl_hub.train.sweep import array_job, begin, planned, split_axes, sweep

QUICK = {
    "train.max_steps": 2, "train.batch_size": 16, "runtime.knn_every_epochs": 0, "data.pretrain_split": "train[:64]",
    "data.train_split": "train[:64]", "data.test_split": "test[:32]",
}  # fmt: skip
RHO = {"predictor.rho": [0.1, 0.9]}


def plan(tmp_path, recipe="directpred-digits", axes=RHO, **more):
    given = {"settings": {}, "data": None, "out": tmp_path, "seeds": 1, **more}
    return planned(recipe, axes, **given)


def test_a_grid_is_trained_measured_and_not_again(tmp_path, capsys):
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
    assert list(json.loads(said.out)["groups"]) == [str(runs[0])]  # what did end well is shown
    assert (runs[0] / "model.safetensors").stat().st_mtime_ns == before[0]


def test_every_point_is_checked_before_anything_starts(tmp_path):
    for axes, said in (
        ({"predictor.rho": [0.1, 1.5]}, "predictor.rho"),
        ({"predictor.roh": [0.1, 0.5]}, "did you mean"),
        ({"predictor.rho": [0.1, 0.1]}, "the same value twice"),
        ({"train.seed": [0, 1]}, "the seed, which --seeds counts"),
        ({}, "nothing to sweep over"),
    ):
        with pytest.raises(UsageError, match=said):
            sweep("directpred-digits", axes, out=tmp_path / "s")
    with pytest.raises(UsageError, match="seeds is 0"):
        sweep("directpred-digits", RHO, out=tmp_path / "s", seeds=0)
    with pytest.raises(UsageError, match="no recipe: name one, or the --out of a sweep"):
        sweep()
    assert not (tmp_path / "s").exists()
    with pytest.raises(UsageError, match="no sweep was begun in"):
        sweep(out=tmp_path / "s")


def test_a_folder_takes_more_values_but_no_other_recipe(tmp_path):
    begin(*plan(tmp_path))
    begin(*plan(tmp_path, axes={"predictor.rho": [0.1, 0.5, 0.9]}, seeds=2))
    for other in ({"recipe": "directcopy-r18-cifar10-100ep"}, {"settings": {"train.epochs": 2}}, {"data": "digits"}):
        with pytest.raises(UsageError, match=f"holds a sweep with {next(iter(other))} .*; choose another --out"):
            begin(*plan(tmp_path, **other))
    (tmp_path / "sweep.json").write_text("{}")
    with pytest.raises(UsageError, match="holds no sweep"):
        begin(*plan(tmp_path))


def test_commas_within_a_value_are_its_own():
    axes, settings = split_axes({"a": "1,2", "b": "[0.2,1.0]", "c": "[0.2,1.0],[0.1,1.0]", "d": '"0,4095"', "e": "x"})
    assert axes == {"a": ["1", "2"], "c": ["[0.2,1.0]", "[0.1,1.0]"]}
    assert settings == {"b": "[0.2,1.0]", "d": '"0,4095"', "e": "x"}


def test_the_array_job_runs_each_point_once(tmp_path):
    chosen, folder = plan(tmp_path / "my sweep", axes={**RHO, "predictor.eps": [0.1, 0.5]}, seeds=2)
    script = tmp_path / "sweep.sbatch"
    script.write_text(array_job(chosen, folder))
    (tmp_path / "srun").write_text('#!/bin/bash\nprintf "%s\\n" "$@"\nexit 75\n')
    (tmp_path / "scontrol").write_text('#!/bin/bash\necho "$@"\n')
    for name in ("srun", "scontrol"):
        (tmp_path / name).chmod(0o755)
    seen = []
    for task in range(8):
        settings = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_ARRAY_TASK_ID": str(task), "SLURM_ARRAY_JOB_ID": "7"}
        done = subprocess.run(["bash", script], env=settings, capture_output=True, text=True)
        *words, requeued = done.stdout.splitlines()
        assert done.returncode == 75 and requeued == f"requeue 7_{task}"
        assert words[:3] == ["ssl-hub", "train", "directpred-digits"] and words[-2:] == ["--resume", "auto"]
        seen.append(words[words.index("--output") + 1])
    assert sorted(seen) == sorted(str(task.folder) for task in chosen.tasks(folder)) and len(set(seen)) == 8
    assert "--array=0-7" in script.read_text()
