"""What goes wrong on one process ends all of them, in words, though no launcher ends them: each is started by hand."""

import re
import socket
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from ssl_hub.model.results import read_results
from tests import warm
from tests.end_to_end import failing_ranks
from tests.end_to_end.test_launchers import environment


class Ended(NamedTuple):
    code: int
    stderr: str


def ranks(case: str, run: Path, world: int = 2) -> list[Ended]:
    """What each rank of a failing run ended with."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    started = [
        warm.started(
            [failing_ranks.__file__, case, str(run)],
            env=environment(
                RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="localhost", MASTER_PORT=port,
                OMP_NUM_THREADS="1",
            ),
        )
        for rank in range(world)
    ]  # fmt: skip
    try:
        said = [process.communicate(timeout=900)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    return [Ended(process.returncode, text) for process, text in zip(started, said, strict=True)]


def errors(stderr: str) -> list[str]:
    return re.findall(r"^error: (.*)$", stderr, re.MULTILINE)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        pytest.param("data", "cannot read photo 7.jpg", marks=pytest.mark.slow),
        ("launched", "cannot read photo 7.jpg"),
        ("started", "cannot read photo 7.jpg"),
        ("save", "cannot write step-4.pt: No space left on device"),
        pytest.param("extract", "cannot read photo 9.jpg", marks=pytest.mark.slow),
    ],
)
def test_what_one_process_finds_wrong_is_what_all_of_them_say(case, message, tmp_path):
    ended = ranks(case, tmp_path / "run")
    assert [rank.code for rank in ended] == [2, 2], ended
    assert errors(ended[0].stderr) == [message]
    assert "Traceback" not in ended[0].stderr + ended[1].stderr
    assert not (tmp_path / "run" / ".lock").exists()


@pytest.mark.parametrize(
    ("case", "failed", "message"),
    [
        ("bug", 1, "KeyError: 'width'"),
        pytest.param("save_bug", 0, "RuntimeError: no such operator", marks=pytest.mark.slow),
        pytest.param("probe", 0, "ZeroDivisionError: division by zero", marks=pytest.mark.slow),
    ],
)
def test_an_error_that_nobody_foresaw_ends_the_others_too(case, failed, message, tmp_path):
    ended = ranks(case, tmp_path / "run")
    assert [ended[failed].code, ended[1 - failed].code] == [1, 2], ended
    assert ended[failed].stderr.rstrip().endswith(message)
    assert "Traceback" not in ended[1 - failed].stderr
    assert errors(ended[0].stderr) == ([f"process 1 failed: {message}; all processes end with it"] if failed else [])


def test_a_process_does_not_exit_while_its_thread_is_in_the_store(tmp_path):
    for _ in range(2):  # the second time there is nothing to do
        ended = ranks("looking", tmp_path / "run")
        assert [rank.code for rank in ended] == [0, 0], ended
    assert "nothing to do" in ended[0].stderr


@pytest.mark.slow
def test_what_the_main_process_is_writing_is_whole_when_another_has_failed(tmp_path):
    ended = ranks("slow_save", tmp_path / "run")
    assert [rank.code for rank in ended] == [2, 2], ended
    assert errors(ended[0].stderr) == ["cannot read photo 7.jpg"]
    assert [path.name for path in sorted((tmp_path / "run" / "checkpoints").iterdir())] == ["step-00000001.pt"]


@pytest.mark.slow
def test_the_main_process_may_take_longer_than_a_collective(tmp_path):
    ended = ranks("long", tmp_path / "run")
    assert [rank.code for rank in ended] == [0, 0], ended
    assert {result.protocol for result in read_results(tmp_path / "run")} == {"knn", "linear-cached"}


@pytest.mark.slow
def test_a_signal_to_one_process_stops_all_and_resume_finishes(tmp_path):
    ended = ranks("term", tmp_path / "run")
    assert [rank.code for rank in ended] == [75, 75], ended
    # The main process is told by the store, or finds in a collective that the other has gone.
    after, told = "after training, which is saved; finish with --resume", "to process 1; start it again to go on"
    assert re.search(f"^stopped by a signal ({after}|{told})$", ended[0].stderr, re.MULTILINE)
    assert not (tmp_path / "run" / "results.json").exists()
    ended = ranks("nothing", tmp_path / "run")
    assert [rank.code for rank in ended] == [0, 0], ended
    assert len(read_results(tmp_path / "run")) == 4


@pytest.mark.slow
def test_a_process_that_is_killed_ends_the_others(tmp_path):
    ended = ranks("gone", tmp_path / "run")
    assert [rank.code for rank in ended] == [2, -9], ended
    (message,) = errors(ended[0].stderr)
    # "closed" or "reset", as it came about
    assert re.fullmatch(
        r"a process has ended without a word, or does not answer \(.* by peer.*\); all end with it", message
    )


@pytest.mark.slow
def test_a_process_that_never_comes_is_waited_for_no_longer_than_a_collective_may_take(tmp_path):
    began = time.monotonic()
    ended = ranks("stuck", tmp_path / "run")
    assert [rank.code for rank in ended] == [2, 2], ended
    assert "does not answer (Timed out waiting" in errors(ended[0].stderr)[0]
    assert time.monotonic() - began < 60 + failing_ranks.HANG
