"""Worker processes: signals are not for them, and they end with their work and with the process that they work for."""

import subprocess
import sys
import time

import psutil
import pytest

from tests.data import busy_workers
from tests.end_to_end.test_launchers import environment

METHODS = ["fork", pytest.param("spawn", marks=pytest.mark.slow), "forkserver"]


def started(method: str, act: str) -> subprocess.Popen[str]:
    command = [sys.executable, busy_workers.__file__, method, act]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), start_new_session=True
    )


def gone(pids: list[int], seconds: float) -> bool:
    """Whether all of these processes end within so many seconds."""
    until = time.monotonic() + seconds
    while any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize("method", METHODS)
def test_signals_to_the_whole_group_from_the_start_on_leave_workers_alone(method):
    process = started(method, "read")
    said, errors = process.communicate(timeout=120)
    assert said.split() == [str(busy_workers.BATCHES)] * 2 + ["0"], errors
    assert "Traceback" not in errors and "killed by signal" not in errors


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
@pytest.mark.parametrize("method", METHODS)
def test_workers_end_with_a_process_that_is_killed_even_where_nobody_takes_their_batch(method):
    process = started(method, "hang")
    pids = [int(pid) for pid in process.stdout.readline().split()]
    assert len(pids) == 2
    time.sleep(1)  # both have filled the pipe
    process.kill()
    process.wait()
    assert gone(pids, 10)


@pytest.mark.parametrize("method", METHODS)
def test_a_loader_that_nobody_closed_does_not_hold_up_the_end(method):
    process = started(method, "leave")
    said, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert gone([int(pid) for pid in said.split()], 5)
