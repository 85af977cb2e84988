"""The run folder: claimed before anything is written, one process's at a time, and no run lost to the next one."""

import os
import shutil
import signal
from pathlib import Path

import pytest
from accelerate import Accelerator

from ssl_hub.errors import UsageError
from ssl_hub.hub import store
from ssl_hub.model.metrics import METRICS, Metrics, read_metrics
from ssl_hub.model.release import CONFIG, MODEL, RECIPE, write_recipe
from ssl_hub.tables.runs import find_runs
from ssl_hub.train import run
from ssl_hub.train.lock import LOCK
from ssl_hub.zoo import get_recipe
from tests import warm

ONCE = {"resume": False, "overwrite": False}
OVER = {"resume": False, "overwrite": True}
AGAIN = {"resume": True, "overwrite": False}


def started(folder, **facts):
    folder.mkdir(parents=True, exist_ok=True)
    write_recipe(folder, get_recipe("byol-digits"), facts)
    return folder


@pytest.fixture
def accelerator():
    return Accelerator(cpu=True)


@pytest.fixture
def saved(tmp_path, accelerator):
    """A run with a checkpoint and a file of its own."""
    folder = started(tmp_path / "r")
    run.save(folder, {"step": 3}, accelerator, keep=1, last=True)
    (folder / "old.txt").write_text("precious")
    return folder


def everything(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


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


def test_overwriting_starts_empty_and_keeps_the_old_run_until_there_is_a_checkpoint(saved, accelerator):
    before, aside = everything(saved), run.replaced_by(saved)
    with run.held(saved, accelerator, **OVER):
        assert [path.name for path in saved.iterdir()] == [LOCK]
        assert everything(aside).items() >= before.items()
        run.save(started(saved), {"step": 1}, accelerator, keep=1, last=True)
        assert not aside.exists()
    assert sorted(everything(saved)) == ["checkpoints/step-00000001.pt", RECIPE]
    assert [path.name for path in saved.parent.iterdir()] == ["r"]


@pytest.mark.parametrize("failure", [UsageError("no such setting"), RuntimeError("a bug"), KeyboardInterrupt()])
def test_a_run_that_ends_before_its_first_checkpoint_gives_the_old_one_back(saved, accelerator, capsys, failure):
    before = everything(saved)
    with pytest.raises(type(failure)), run.held(saved, accelerator, **OVER):
        started(saved)
        raise failure
    assert everything(saved) == before
    assert [path.name for path in saved.parent.iterdir()] == ["r"]
    assert "nothing was saved; the run that was to be replaced is in" in capsys.readouterr().err


def killed_while_replacing(folder, then=""):
    """A process that began to replace the run in ``folder`` and was killed before its first checkpoint."""
    script = (
        "import os, sys, shutil\nfrom pathlib import Path\nfrom accelerate import Accelerator\n"
        "from ssl_hub.model.release import write_recipe\nfrom ssl_hub.train import run\n"
        "folder = Path(sys.argv[1])\n"
        "with run.held(folder, Accelerator(cpu=True), resume=False, overwrite=True):\n"
        f"    write_recipe(folder, None, {{}})\n    {then}\n    os.kill(os.getpid(), 9)\n"
    )
    assert warm.run(["-c", script, str(folder)], env=dict(os.environ)).returncode == -signal.SIGKILL


def test_after_a_kill_the_old_run_is_named_and_outlives_whatever_comes_next(saved, accelerator):
    before, aside = everything(saved), run.replaced_by(saved)
    killed_while_replacing(saved)
    with pytest.raises(UsageError, match="the run that an --overwrite had begun to replace is in .*/.r.replaced; cont"):
        run.claim(saved, **ONCE)
    started(saved)
    with run.held(saved, accelerator, **AGAIN):  # the new run goes on, still without a checkpoint
        assert everything(aside).items() >= before.items()
        shutil.rmtree(saved)  # as if it had been killed between two renames
        with pytest.raises(UsageError, match="nothing to resume .* had begun to replace is in .*/.r.replaced"):
            run.claim(saved, **AGAIN)
        with pytest.raises(UsageError, match="holds a run already; the run that an --overwrite"):
            run.claim(saved, **ONCE)
    assert everything(saved) == before
    killed_while_replacing(saved)
    with pytest.raises(OSError), run.held(saved, accelerator, **OVER):  # the old one, not what the kill left
        assert everything(aside).items() >= before.items()
        raise OSError
    assert everything(saved) == before


def test_a_kill_after_the_first_checkpoint_leaves_nothing_to_put_back(saved, accelerator):
    checkpoint = "from ssl_hub.train import checkpoint; checkpoint.save(folder / 'checkpoints', {'step': 7}"
    killed_while_replacing(saved, f"{checkpoint}, Accelerator(cpu=True), keep=1, last=True)")
    started(saved)
    with pytest.raises(OSError), run.held(saved, accelerator, **AGAIN):
        assert not run.replaced_by(saved).exists()
        raise OSError
    assert sorted(everything(saved)) == ["checkpoints/step-00000007.pt", RECIPE]


def test_the_current_folder_is_not_replaced(saved, accelerator, monkeypatch):
    monkeypatch.chdir(saved)
    with pytest.raises(UsageError, match="the current folder is .*/r; go"), run.held(Path(), accelerator, **OVER):
        pass
    assert (saved / "old.txt").exists()


def test_a_run_that_is_set_aside_is_found_by_no_name(saved, accelerator, monkeypatch):
    monkeypatch.setenv("SSL_HUB_HOME", str(saved.parent))
    (saved / CONFIG).touch()
    (saved / "results.json").write_text("[]")
    with pytest.raises(OSError), run.held(saved, accelerator, **OVER):
        assert (run.replaced_by(saved) / CONFIG).exists()
        assert not any("replaced" in name for name in store.releases())
        assert find_runs() == []
        raise OSError
    assert [found.label for found in find_runs()] == ["r"]


def test_replacing_nothing_leaves_nothing_to_put_back(tmp_path, accelerator, capsys):
    with pytest.raises(OSError), run.held(tmp_path / "r", accelerator, **OVER):
        raise OSError
    assert capsys.readouterr().err == "" and list(tmp_path.iterdir()) == [tmp_path / "r"]


def test_a_folder_behind_a_link_is_replaced_where_it_is(saved, accelerator):
    link = saved.parent / "link"
    link.symlink_to(saved)
    with run.held(link, accelerator, **OVER):
        run.save(started(link), {"step": 1}, accelerator, keep=1, last=True)
    assert link.is_symlink() and sorted(everything(saved)) == ["checkpoints/step-00000001.pt", RECIPE]


def test_one_process_at_a_time(saved, accelerator):
    before = everything(saved)
    for again in (AGAIN, OVER):
        with (
            run.held(saved, accelerator, **AGAIN),
            pytest.raises(UsageError, match=rf"another process \({os.getpid()}\).* is training in {saved}"),
            run.held(saved, accelerator, **again),
        ):
            pass
    assert everything(saved) == before


def test_a_run_that_another_process_has_finished_meanwhile_is_not_written_over(saved, accelerator):
    with pytest.raises(UsageError, match="holds a run already"), run.held(saved, accelerator, **ONCE):
        pass


def test_a_finished_run_without_checkpoints_is_not_trained_again_in_place(saved):
    (saved / CONFIG).touch()
    run.claim(saved, **AGAIN)
    shutil.rmtree(saved / run.CHECKPOINTS)
    with pytest.raises(UsageError, match="holds a finished run without checkpoints, so there is nothing to resume"):
        run.claim(saved, **AGAIN)


def test_a_run_is_resumed_by_the_command_that_wrote_it(tmp_path):
    trained, tuned = started(tmp_path / "a"), started(tmp_path / "b", finetuned_from="a")
    with pytest.raises(UsageError, match="holds a run of `ssl-hub finetune`; that command resumes it"):
        run.claim(tuned, **AGAIN)
    with pytest.raises(UsageError, match="holds a run of `ssl-hub train`; that command resumes it"):
        run.claim(trained, **AGAIN, command="finetune")
    run.claim(tuned, **AGAIN, command="finetune")
    write_recipe(trained, None, {"imported_from": "x"})
    with pytest.raises(UsageError, match="holds a model that no run of ours trained"):
        run.claim(trained, **AGAIN)


def test_a_finished_run_of_another_command_is_not_taken_for_ones_own(tmp_path):
    tuned = started(tmp_path / "b", finetuned_from="a", finished="2026-01-01")
    for name in (CONFIG, MODEL):
        (tuned / name).touch()
    assert run.is_finished(tuned)
    run.claim(tuned, resume="auto", overwrite=False, command="finetune")  # without a checkpoint: there is none to need
    with pytest.raises(UsageError, match="holds a run of `ssl-hub finetune`; that command resumes it"):
        run.claim(tuned, resume="auto", overwrite=False)
    (tuned / MODEL).unlink()
    assert not run.is_finished(tuned)


def test_a_name_that_no_folder_can_have_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"cannot use .*xxx \(File name too long\); choose another --output"):
        run.claim(tmp_path / ("x" * 300), **ONCE)


def test_a_release_that_was_removed_while_it_was_written_is_missed(saved):
    (saved / CONFIG).touch()
    with pytest.raises(UsageError, match="model.safetensors was removed while the run was finishing"):
        run.finish(saved)
