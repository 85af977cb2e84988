"""Many processes at a time: each done once, failures named, signals passed on, and one grid in a folder at a time."""

import json
import os
import signal
import sys
import time
from functools import partial

import pytest

import ssl_hub
from ssl_hub.errors import UsageError
from ssl_hub.model.results import read_results
from ssl_hub.stopping import Interrupted
from ssl_hub.train import grid
from ssl_hub.train.grid import Task, work_through
from ssl_hub.train.lock import locked
from tests import warm

COMMAND = grid.COMMAND
TOUCH = "import sys, pathlib; pathlib.Path(sys.argv[1]).touch()"


@pytest.fixture(autouse=True)
def _plain_python(monkeypatch):
    monkeypatch.setattr(grid, "COMMAND", (sys.executable, "-c"))
    monkeypatch.setattr(grid, "POLL_SECONDS", 0.02)


def task(folder, program=TOUCH, **changed):
    done = partial(os.path.exists, folder / "done")
    folder.mkdir(parents=True, exist_ok=True)
    made = {"name": folder.name, "arguments": (program, str(folder / "done")), "folder": folder, "done": done}
    return Task(**{**made, **changed})


def run(tmp_path, tasks, at_once=2):
    with locked(tmp_path) as lock:
        return work_through(tasks, at_once=at_once, lock=lock)


def test_what_is_started_is_this_package_s_command(tmp_path, monkeypatch):
    monkeypatch.setattr(grid, "COMMAND", COMMAND)
    asked = task(tmp_path / "asked", arguments=("--version",))
    assert run(tmp_path, [asked]) == [asked]  # nothing there says that it is done
    assert asked.log.read_text() == f"ssl_hub {ssl_hub.__version__}\n"


def test_tasks_are_done_once(tmp_path):
    count = "import sys; open(sys.argv[1], 'a').write('x')"
    tasks = [task(tmp_path / str(i), count) for i in range(3)]
    assert run(tmp_path, tasks) == []
    assert run(tmp_path, tasks) == []
    assert [(tmp_path / str(i) / "done").read_text() for i in range(3)] == ["x"] * 3


def test_at_most_so_many_at_once(tmp_path):
    program = (
        "import sys, time, pathlib; me = pathlib.Path(sys.argv[1]); alive = me.parent / 'alive'; alive.touch();"
        "print(len(list(me.parent.parent.glob('*/alive'))), flush=True); time.sleep(0.2); alive.unlink(); me.touch()"
    )
    tasks = [task(tmp_path / str(i), program) for i in range(4)]
    assert run(tmp_path, tasks) == []
    assert max(int(t.log.read_text()) for t in tasks) == 2


def test_failures_are_named_and_the_others_go_on(tmp_path, capfd):
    broken = task(tmp_path / "broken", "raise SystemExit('no such data')")
    idle = task(tmp_path / "idle", "pass")  # ends well and has not done what it should
    fine = task(tmp_path / "fine")
    assert run(tmp_path, [broken, idle, fine], at_once=1) == [broken, idle]
    assert "no such data" in broken.log.read_text()
    assert f"broken: failed (no such data), see {broken.log}; 2 of 3 left" in capfd.readouterr().err
    assert fine.done()


def test_a_log_that_cannot_be_written_is_said_and_the_others_are_stopped(tmp_path):
    sleeper, blocked = task(tmp_path / "a", "import time; time.sleep(60)"), task(tmp_path / "b")
    blocked.log.mkdir()
    started = time.monotonic()
    with pytest.raises(UsageError, match=r"cannot start b with its log .*b\.log \(Is a directory\); mend that"):
        run(tmp_path, [sleeper, blocked])
    assert time.monotonic() - started < 30


def test_printed_results_are_kept_in_the_folder(tmp_path):
    record = {"metric": "top1", "value": 50.0, "dataset": "d", "split": "test", "protocol": "linear-cached"}
    folder = tmp_path / "p"
    printing = task(
        folder, f"print({json.dumps([record])!r})", prints_results=True, done=lambda: bool(read_results(folder))
    )
    assert run(tmp_path, [printing]) == []
    assert [r.value for r in read_results(folder)] == [50.0]
    assert not printing.printed.exists()


def test_runs_get_one_thread_unless_the_user_chose(tmp_path, monkeypatch):
    program = "import os, sys; open(sys.argv[1], 'w').write(os.environ['OMP_NUM_THREADS'])"
    for chosen, expected in ((None, "1"), ("3", "3")):
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        if chosen:
            monkeypatch.setenv("OMP_NUM_THREADS", chosen)
        folder = tmp_path / expected
        assert run(tmp_path, [task(folder, program)]) == []
        assert (folder / "done").read_text() == expected


def test_steps_of_the_training_log_are_counted(tmp_path):
    half = task(tmp_path / "h", steps=100)
    (half.folder / "metrics.jsonl").write_text('{"step": 20}\n{"step": 40}\n{"st')
    assert half.steps_done() == 40
    (half.folder / "done").touch()
    assert half.steps_done() == 100


def test_a_bar_ends_at_all_of_its_steps_and_a_trial_has_none(tmp_path, capfd):
    record = {"metric": "top1", "value": 50.0, "dataset": "d", "split": "test", "protocol": "linear-cached"}
    printed = tmp_path / "p"
    tasks = [
        task(tmp_path / "long", steps=100),
        task(
            printed, f"print({json.dumps([record])!r})", prints_results=True, done=lambda: bool(read_results(printed))
        ),
    ]
    assert run(tmp_path, tasks, at_once=1) == []
    err = capfd.readouterr().err
    assert "100%" in err and "101/101" in err
    with locked(tmp_path) as lock:
        assert work_through([task(tmp_path / "t")], at_once=1, lock=lock, show_progress=False) == []
    assert capfd.readouterr().err == ""


def test_a_run_that_somebody_stopped_is_no_failure_in_words(tmp_path, capfd):
    for name, program in (("saved", "raise SystemExit(75)"), ("cut", "import os; os.kill(os.getpid(), 15)")):
        stopped = task(tmp_path / name, program)
        assert run(tmp_path, [stopped]) == [stopped]
        err = capfd.readouterr().err
        assert f"{name}: interrupted, see {stopped.log}" in err and "failed" not in err


def test_a_signal_stops_every_run_and_waits_for_it(tmp_path, capfd):
    program = (
        "import sys, time, signal, pathlib; saved = pathlib.Path(sys.argv[1]).parent / 'saved'\n"
        "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.2), saved.touch(), sys.exit(75)))\n"
        "import os; os.kill(os.getppid(), signal.SIGTERM); time.sleep(60)"
    )
    tasks = [task(tmp_path / str(i), program) for i in range(3)]
    started = time.monotonic()
    with pytest.raises(Interrupted):
        run(tmp_path, tasks, at_once=1)
    assert "interrupted; what is done is kept" in (err := capfd.readouterr().err) and "failed" not in err
    assert time.monotonic() - started < 20
    assert [(t.folder / "saved").exists() for t in tasks] == [True, False, False]


def test_runs_that_outlive_a_killed_grid_keep_its_folder(tmp_path):
    script = (
        "import sys, time\nfrom pathlib import Path\nfrom ssl_hub.train import grid\n"
        "from ssl_hub.train.lock import locked\n"
        "grid.COMMAND = (sys.executable, '-c')\nfolder = Path(sys.argv[1])\n"
        "arguments = ('import time; time.sleep(6)',)\n"
        "sleeper = grid.Task(name='s', arguments=arguments, folder=folder / 's', done=lambda: False)\n"
        "with locked(folder) as lock:\n    grid.work_through([sleeper], at_once=1, lock=lock)\n"
    )
    started = warm.started(["-c", script, str(tmp_path)], env=dict(os.environ))
    while not (tmp_path / "s.log").exists():
        time.sleep(0.05)
        assert started.poll() is None
    os.kill(started.pid, signal.SIGKILL)
    started.wait()
    with (
        pytest.raises(UsageError, match=r"another process \(\d+\), or one that it started, is training in"),
        locked(tmp_path),
    ):
        pass
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:  # until the orphan ends
        try:
            with locked(tmp_path):
                return
        except UsageError:
            time.sleep(0.2)
    pytest.fail("the folder stayed locked after its runs had ended")
