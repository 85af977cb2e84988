"""Worker processes: signals are not for them, and they end with their work and with the process that they work for."""

import multiprocessing
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest
import torch

from ssl_hub.data.images import Source
from ssl_hub.data.stored import Pixels
from ssl_hub.data.workers import Batches, BatchWorkers
from ssl_hub.stopping import Interrupted
from tests import warm
from tests.data import busy_workers
from tests.end_to_end.test_launchers import environment

METHODS = ["fork", pytest.param("spawn", marks=pytest.mark.slow), "forkserver"]


def started(method: str, act: str) -> warm.Process | subprocess.Popen[str]:
    return warm.started([busy_workers.__file__, method, act], env=environment(), start_new_session=True)


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


@pytest.mark.filterwarnings("error")  # where that error comes to nobody
def test_workers_that_an_end_before_the_first_batch_leaves_are_not_taken_for_broken_ones():
    def lists():
        raise Interrupted
        yield []

    source = Source("blank", "train", Pixels(np.zeros((2, 1, 1, 3), np.uint8)))
    batches = Batches(source, busy_workers.Blank(0), arrays=True)
    loader = BatchWorkers(batches, lists(), 2, torch.device("cpu"), persistent=False)
    with pytest.raises(Interrupted):
        next(iter(loader))
    until = time.monotonic() + 0.3
    while time.monotonic() < until:  # in which torch would raise an error here, of workers that were killed
        time.sleep(0.01)
    assert multiprocessing.active_children() == []


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
@pytest.mark.parametrize("method", METHODS)
def test_workers_end_with_a_process_that_is_killed_even_where_nobody_takes_their_batch(method):
    process = started(method, "hang")
    pids = [int(pid) for pid in warm.first_line(process).split()]
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
