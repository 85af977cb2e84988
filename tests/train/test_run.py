"""The run folder: claimed before anything is written, described, logged; changes are seen."""

import json
from pathlib import Path

import pytest

from ssl_hub.errors import UsageError
from ssl_hub.model.metrics import METRICS, Metrics, read_metrics
from ssl_hub.model.release import RECIPE
from ssl_hub.train import run
from ssl_hub.zoo import get_recipe


def started(folder):
    run.start(folder, get_recipe("byol-digits"), {}, overwrite=False)
    return folder


def test_fresh_folder_may_be_claimed_and_nothing_is_created(tmp_path):
    run.claim(tmp_path / "a" / "b", resume=False, overwrite=False)
    assert list(tmp_path.iterdir()) == []


def test_existing_run_needs_resume_or_overwrite(tmp_path):
    folder = started(tmp_path / "r")
    with pytest.raises(UsageError, match="holds a run already; continue it with --resume, replace it with --overwrite"):
        run.claim(folder, resume=False, overwrite=False)
    run.claim(folder, resume=True, overwrite=False)
    run.claim(folder, resume=False, overwrite=True)
    with pytest.raises(UsageError, match="exclude each other"):
        run.claim(folder, resume=True, overwrite=True)


def test_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    for overwrite in (False, True):
        with pytest.raises(UsageError, match="is not empty and holds no run"):
            run.claim(tmp_path, resume=False, overwrite=overwrite)
    with pytest.raises(UsageError, match="thesis.tex is a file; choose another --output"):
        run.claim(tmp_path / "thesis.tex", resume=False, overwrite=False)


def test_what_a_kill_left_before_the_run_began_is_no_obstacle(tmp_path):
    (tmp_path / ".recipe.json.123.part").write_text("{")
    run.claim(tmp_path, resume=False, overwrite=False)


def test_nothing_to_resume(tmp_path):
    with pytest.raises(UsageError, match=f"nothing to resume in .*no {RECIPE}"):
        run.claim(tmp_path / "r", resume=True, overwrite=False)


def test_output_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot write to .*file"):
        run.claim(tmp_path / "file" / "run", resume=False, overwrite=False)


def test_unwritable_output_is_refused():
    with pytest.raises(UsageError, match="cannot write to /proc"):
        run.claim(Path("/proc/run"), resume=False, overwrite=False)


def test_metrics_survive_a_kill_in_the_middle_of_a_line(tmp_path):
    started(tmp_path / "r")
    path = tmp_path / "r" / METRICS
    path.write_text('{"step": 1, "loss": 3.0}\n{"step": 2, "loss": 2.0}\n{"step": 3, "lo')
    assert [r["step"] for r in read_metrics(tmp_path / "r")] == [1, 2]


def test_resumed_metrics_drop_the_steps_that_will_be_taken_again(tmp_path):
    started(tmp_path / "r")
    metrics = Metrics(tmp_path / "r", from_step=0)
    for step in (1, 2, 3, 4):
        metrics.write({"step": step})
    metrics.close()
    again = Metrics(tmp_path / "r", from_step=2)
    again.write({"step": 3, "second": True})
    again.close()
    assert read_metrics(tmp_path / "r") == [{"step": 1}, {"step": 2}, {"step": 3, "second": True}]


def test_overwriting_starts_empty(tmp_path):
    folder = started(tmp_path / "r")
    (folder / "old.txt").write_text("")
    run.start(folder, get_recipe("byol-digits"), {"a": 1}, overwrite=True)
    assert sorted(p.name for p in folder.iterdir()) == [RECIPE]
    assert json.loads((folder / RECIPE).read_text())["run"] == {"a": 1}
