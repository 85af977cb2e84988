"""The live view: reads only what is new, survives stops and restarts, and ends when the run does."""

import fcntl
import io
import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from contextlib import closing
from dataclasses import replace

import pytest
from rich.console import Console

from ssl_hub.report.follow import Follower, Sight, Tail
from ssl_hub.report.record import read_record
from ssl_hub.report.watch import _print_lines, locate, panel, plain_line, sparkline, watch


def reading(step: int, **more: object) -> str:
    return json.dumps({"step": step, "epoch": 1, "loss": 1 / step, "feature_std": 0.1, "healthy_std": 0.125} | more)


def test_a_sparkline_runs_from_lowest_to_highest():
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([7, 7, 0, 0], 2) == "█▁"  # means of neighbours
    assert sparkline([2.0] * 3, 10) == "▅▅▅"
    assert sparkline([], 10) == sparkline([1.0], 0) == ""
    assert len(sparkline(list(range(1000)), 33)) == 33


def test_a_tail_reads_each_line_once_and_waits_for_its_end(tmp_path):
    path = tmp_path / "metrics.jsonl"
    tail = Tail(path)
    assert not tail.poll()
    path.write_text(reading(5) + "\n" + reading(10)[:20])
    assert tail.poll()
    assert [r["step"] for r in tail.readings] == [5]
    with path.open("a") as file:
        file.write(reading(10)[20:] + "\nhalf a li\n" + reading(15) + "\n")
    assert tail.poll()
    assert [r["step"] for r in tail.readings] == [5, 10, 15]
    assert not tail.poll()


@pytest.mark.parametrize("how", ["replaced", "cut", "removed"])
def test_a_tail_follows_a_log_that_starts_over(tmp_path, how):
    path = tmp_path / "metrics.jsonl"
    tail = Tail(path)
    path.write_text("".join(reading(step) + "\n" for step in (5, 10, 15)))
    tail.poll()
    if how == "replaced":  # as a resumed run does, without the lines of steps it will take again
        (tmp_path / "aside").write_text(reading(5) + "\n")
        os.replace(tmp_path / "aside", path)
    elif how == "cut":
        path.write_text(reading(5) + "\n")
    else:
        path.unlink()
        assert tail.poll()
        assert tail.readings == []
        path.write_text(reading(5) + "\n")
    assert tail.poll()
    assert [r["step"] for r in tail.readings] == [5]


def test_a_run_from_before_its_start_to_its_end(run, tmp_path):
    folder = tmp_path / "later"
    follower = Follower(folder)
    assert follower.look().state == "waiting for the run to start"
    folder.mkdir()
    shutil.copy(run / "recipe.json", folder)
    assert follower.look().state == "waiting for its first reading"
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(lines[:4]))
    sight = follower.look()
    assert sight.state == "training"
    assert sight.seconds_left == pytest.approx(25 * 64 / sight.record.readings[-1]["images_per_second"])
    assert re.match(
        r"step 15 of 40, epoch 1  loss 1\.\d+  .*  \d+:\d\d left  narrow: spread \d\d% of 1/√D",
        plain_line(sight),
    )
    follower._heard_at -= 1000
    assert follower.look().state.startswith("no word for 16:4")
    (folder / "metrics.jsonl").write_text("".join(lines))
    assert follower.look().state == "trained, being measured"
    shutil.copy(run / "config.json", folder)
    assert not follower.look().complete
    shutil.copy(run / "results.json", folder)
    sight = follower.look()
    assert (sight.state, sight.complete) == ("finished", True)


def test_a_run_that_is_not_measured_ends_too(run):
    (run / "results.json").unlink()
    follower = Follower(run)
    assert not follower.look().complete
    follower._heard_at -= 1000
    assert follower.look().complete


@pytest.mark.parametrize(
    ("more", "verdict"),
    [
        ({}, "healthy: spread 80% of 1/√D"),
        ({"effective_rank": 4.0}, "healthy: spread 80% of 1/√D, effective rank 4.00 of 64"),
        ({"effective_rank": 1.57}, "narrow: spread 80% of 1/√D, effective rank 1.57 of 64"),
        ({"feature_std": 0.031}, "narrow: spread 25% of 1/√D"),
        ({"feature_std": 0.001}, "collapsed: spread 1% of 1/√D"),
        ({"loss": float("nan")}, "the loss is not finite"),
    ],
)
def test_the_verdict(run, more, verdict):
    (run / "metrics.jsonl").write_text("".join(reading(step, **more) + "\n" for step in (5, 10, 15)))
    (run / "results.json").unlink()
    assert Follower(run).look().health[0] == verdict


def test_plain_lines_where_there_is_no_terminal(run):
    out = io.StringIO()
    watch(run, console=Console(file=out, width=40))
    lines = out.getvalue().splitlines()
    assert lines[0] == "run: finished"
    assert lines[1].startswith("step 40 of 40, epoch 2")
    assert {line.split()[0] for line in lines[2:]} == {r.protocol for r in read_record(run, "run").results}
    assert len({line.index(" %") for line in lines[2:]}) == 1  # columns
    assert any(line.endswith("k=20, temperature=0.07, 1,297 bank images (train)") for line in lines)
    assert "\x1b" not in out.getvalue()


def test_a_line_for_the_first_reading_and_for_each_epochs_end(run):
    """The first is of the start, epochs end at readings 5 and 9; a resumed run tells an epoch again."""
    whole, counts = read_record(run, "run"), [0, 1, 4, 7, 9, 6, 9]

    class Scripted:
        def look(self) -> Sight:
            return Sight(record=replace(whole, readings=whole.readings[: counts.pop(0)]), complete=not counts)

    out = io.StringIO()
    _print_lines(Scripted(), 0.0, Console(file=out, width=300))
    assert re.findall(r"^step (\d+)", out.getvalue(), flags=re.M) == ["0", "20", "40", "20", "40"]
    assert len(re.findall(r"kNN \d", out.getvalue())) == 5


@pytest.mark.parametrize("width", [20, 80, 200])
def test_the_panel_fits_and_shows_markup_as_text(run, width):
    hostile = run.rename(run.parent / "[red]not[\\red] markup")
    out = io.StringIO()
    Console(file=out, width=width).print(panel(Follower(hostile).look(), width=width))
    assert max(map(len, out.getvalue().splitlines())) <= width
    assert "[red]not"[:width] in out.getvalue()


def test_names_mean_the_store_and_paths_themselves(tmp_path, monkeypatch):
    monkeypatch.setenv("SSL_HUB_HOME", str(tmp_path / "store"))
    assert locate("mine") == tmp_path / "store" / "mine"
    assert locate("./runs/mine").parts == ("runs", "mine")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    assert str(locate("here")) == "here"


class Terminal:
    """A pseudo-terminal of 100 columns in which Python runs; ``seen`` is all that it wrote."""

    def __init__(self, code: str) -> None:
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        # The child makes the pseudo-terminal its own, so that Ctrl-C typed there reaches it as from a keyboard; and it
        # listens, which it would not where these tests run in the background of a shell.
        before = (
            "import fcntl, signal, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
            "signal.signal(signal.SIGINT, signal.default_int_handler);"
        )
        environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "100"}
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
        command = [sys.executable, "-c", before + code]
        self.child = subprocess.Popen(command, **streams, start_new_session=True, env=environment)
        os.close(theirs)
        self.seen = ""

    def wait_for(self, pattern: str) -> None:
        deadline = time.monotonic() + 60
        while not re.search(pattern, self.seen):
            assert time.monotonic() < deadline, f"{pattern} is not in {self.seen[-2000:]!r}"
            if select.select([self.ours], [], [], 1.0)[0]:
                try:
                    self.seen += os.read(self.ours, 65536).decode(errors="replace")
                except OSError:  # how Linux says that the other end is closed
                    break
        assert re.search(pattern, self.seen), f"{pattern} is not in {self.seen[-2000:]!r}"

    def close(self) -> None:
        self.child.kill()
        self.child.wait()
        os.close(self.ours)


def test_in_a_real_terminal_it_is_live_and_control_c_ends_it(run):
    """The panel changes as the log grows, and Ctrl-C leaves the cursor visible."""
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text(lines[0])
    with closing(Terminal(f"from ssl_hub.cli import main; sys.exit(main(['watch', {str(run)!r}]))")) as terminal:
        terminal.wait_for(r"step 0 of 40")
        with (run / "metrics.jsonl").open("a") as file:
            file.write("".join(lines[1:4]))
        terminal.wait_for(r"step 15 of 40")
        assert "\x1b[?25l" in terminal.seen  # the cursor is hidden while the panel is live
        assert re.search("[▁▂▃▄▅▆▇█]{2}", terminal.seen)
        os.write(terminal.ours, b"\x03")
        terminal.wait_for(r"stopped watching; the run goes on")
        assert terminal.child.wait(timeout=30) == 0
        assert terminal.seen.rindex("\x1b[?25h") > terminal.seen.rindex("\x1b[?25l")
        assert "Traceback" not in terminal.seen
