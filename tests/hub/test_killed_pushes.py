"""A push that is killed outright: main is the old release or the new one, and the next push says truly which."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from ssl_hub.hub.publish import push
from ssl_hub.hub.verify import check
from ssl_hub.model.files import RESULTS_FILE
from tests.hub.hub_server import surroundings
from tests.hub.releases import features, measured

NAME = "ann/digits"
MOMENTS = 20
HANG = 900  # seconds: imports alone take a minute where others compute
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>' to upload:DeprecationWarning")


def start(run: Path, hub, home: Path, rank: int) -> subprocess.Popen:
    """``ssl-hub push`` as one of two ranks."""
    environment = surroundings(hub, home, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2")
    command = [sys.executable, "-m", "ssl_hub.cli", "push", str(run), NAME]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def release_on_main(hub, folder: Path) -> bytes:
    """Whole, or this raises: the results that tell which release it is."""
    folder.mkdir()
    for name, data in hub.main(NAME).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    check(folder)
    return (folder / RESULTS_FILE).read_bytes()


@pytest.mark.slow
def test_killed_at_twenty_moments_and_pushed_again(hub, run, tmp_path):
    push(run, NAME)
    started = time.monotonic()
    unharmed = [start(run, hub, tmp_path / "home", rank) for rank in range(2)]
    assert [process.wait(HANG) for process in unharmed] == [0, 0]
    lasts = time.monotonic() - started
    outcomes = set()
    for moment in range(MOMENTS):
        old = release_on_main(hub, tmp_path / f"before-{moment}")
        measured(run, moment, settings={"k": moment + 1})
        new = (run / RESULTS_FILE).read_bytes()
        # The second half of its time, in which it talks with the Hub: what comes before are imports.
        both = [start(run, hub, tmp_path / "home", rank) for rank in range(2)]
        time.sleep(lasts * (0.4 + 0.6 * moment / MOMENTS))
        for process in both:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        found = release_on_main(hub, tmp_path / f"after-{moment}")
        assert found in (old, new), f"moment {moment}: half a release"
        outcomes.add(found == new)
        again = [start(run, hub, tmp_path / "home", rank) for rank in range(2)]
        said = [process.communicate(timeout=HANG)[0] for process in again]
        assert [process.returncode for process in again] == [0, 0], said
        assert ("unchanged" in said[0]) == (found == new) and said[1] == ""
        assert release_on_main(hub, tmp_path / f"again-{moment}") == new
    assert torch.equal(features(f"hf-hub:{NAME}"), features(run))
    assert False in outcomes
