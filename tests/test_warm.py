"""Warm processes are processes: their own words, folder, environment, output, signals and end."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests import warm

SAYS = "import os, sys; print(sys.argv, os.getcwd(), os.environ['COLOUR']); print('no', file=sys.stderr); sys.exit(3)"
WAITS = "import os, time; print(os.getpgid(0) == os.getpid(), flush=True); open('ready', 'w').close(); time.sleep(60)"


def test_words_folder_environment_output_and_code(tmp_path):
    done = warm.run(["-c", SAYS, "a", "b c"], env={**os.environ, "COLOUR": "red"}, cwd=tmp_path)
    assert done.stdout == f"['-c', 'a', 'b c'] {tmp_path} red\n"
    assert (done.stderr, done.returncode) == ("no\n", 3)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no groups of processes")
def test_a_signal_to_its_group_ends_it(tmp_path):
    process = warm.started(["-c", WAITS], env=dict(os.environ), cwd=tmp_path, start_new_session=True)
    while not (tmp_path / "ready").exists():
        assert process.poll() is None
        time.sleep(0.01)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    os.killpg(process.pid, signal.SIGTERM)
    assert process.communicate(60) == ("True\n", "")
    assert process.returncode == process.poll() == -signal.SIGTERM


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere they are fresh")
def test_what_is_imported_is_there():
    code = "import sys; print('torch' in sys.modules, 'ssl_hub.train.loop' in sys.modules)"
    assert warm.run(["-c", code], env=dict(os.environ)).stdout == "True True\n"


def test_a_rank_that_fails_ends_the_others(monkeypatch):
    monkeypatch.setattr(warm, "GRACE", 0.1)
    code = "import os, time; rank = int(os.environ['RANK']); time.sleep(0 if rank else 60); raise SystemExit(rank + 1)"
    ended = warm.ranks(["-c", code], 2, env=dict(os.environ))
    assert [rank.returncode for rank in ended] == [-signal.SIGKILL, 2]
