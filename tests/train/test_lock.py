"""Who holds a folder: one process, until it ends in whatever way."""

import os
import signal

import pytest

from ssl_hub.errors import UsageError
from ssl_hub.train.lock import LOCK, locked
from tests import warm

HOLDER = (
    "import sys, time\nfrom pathlib import Path\nfrom ssl_hub.train.lock import locked\n"
    "with locked(Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(60)\n"
)


def test_another_process_is_named_and_a_killed_one_lets_go(tmp_path):
    holder = warm.started(["-c", HOLDER, str(tmp_path)], env=dict(os.environ))
    assert warm.first_line(holder).strip() == "held"
    message = rf"another process \({holder.pid}\), or one that it started, is training in {tmp_path}; wait for it"
    with pytest.raises(UsageError, match=message), locked(tmp_path):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    with locked(tmp_path):
        assert (tmp_path / LOCK).read_text() == str(os.getpid())
    assert list(tmp_path.iterdir()) == []


def test_a_worker_that_outlives_its_run_does_not_hold_its_folder(tmp_path):
    ends, other = os.pipe()
    with locked(tmp_path):
        worker = os.fork()
        if not worker:
            os.close(other)
            os.read(ends, 1)  # until the pipe is closed
            os._exit(0)
        with pytest.raises(UsageError, match="is training in"), locked(tmp_path):
            pass
    with locked(tmp_path):
        assert os.waitpid(worker, os.WNOHANG) == (0, 0)
    os.close(other)
    os.waitpid(worker, 0)


def test_a_moved_folder_and_the_new_one_in_its_place_are_two(tmp_path):
    folder, moved = tmp_path / "r", tmp_path / "moved"
    with locked(folder):
        folder.rename(moved)
        with locked(folder):
            with pytest.raises(UsageError, match="is training in"), locked(moved):
                pass
            with pytest.raises(UsageError, match="is training in"), locked(folder):
                pass
        assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(UsageError, match=r"cannot write .*file/r/.lock: Not a directory"),
        locked(tmp_path / "file" / "r"),
    ):
        pass
