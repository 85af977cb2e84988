"""A reproduction: a grid of runs through the public command line that survives kills, and its verdicts."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image

from ssl_hub.cli import main
from ssl_hub.errors import UsageError
from ssl_hub.model.metrics import read_metrics
from ssl_hub.model.results import read_results
from ssl_hub.tables.cells import Cell, Claim, Printed, Table
from ssl_hub.tables.paper import TABLES
from ssl_hub.train import begun, grid
from ssl_hub.train.plan import PLAN as FILE
from ssl_hub.train.plan import Plan
from ssl_hub.train.reproduction import reproduce
from tests import warm

TABLE = Table(
    name="digits",
    title="Digits: top-1 (%)",
    source="a test",
    repeats=2,
    cells=[
        Cell(
            row=row,
            column="60 epochs",
            recipe=f"{method}-digits",
            protocol="linear-authors-small",
            printed={"top1": Printed(90.0, 0.5)},
        )
        for row, method in (("DirectPred", "directpred"), ("linear", "byol-linear"))
    ],
    claims=[Claim(text="better", kind="above", cell="DirectPred, 60 epochs", than="linear, 60 epochs")],
)
PLAN = Plan(table="digits", data="digits", scale="mini", seeds=1, images=325, every=4, epochs_share=1 / 60)


@pytest.fixture(autouse=True)
def _digits_table(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(TABLES._entries, TABLE.name, TABLE)


def test_a_cell_is_trained_probed_and_reported_and_not_again(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(grid, "subprocess", SimpleNamespace(Popen=warm.in_place_of_popen))
    monkeypatch.setattr(grid, "POLL_SECONDS", 0.05)
    begun.write(tmp_path / FILE, PLAN)
    report = reproduce("digits", out=tmp_path, cells="directpred*", jobs=2)
    (entry,) = report.entries
    assert (entry.measured.runs, entry.runs) == (1, ("directpred-60-epochs/seed-0",))
    assert entry.protocol == "linear-authors-small"
    assert report.untrained is not None and report.untrained.runs == 1
    for sample, place in ((report.untrained, "untrained/seed-0"), (entry.measured, entry.runs[0])):
        (measured,) = {
            r.value for r in read_results(tmp_path / place) if (r.metric, r.protocol) == ("top1", entry.protocol)
        }
        assert sample.mean == measured
    assert (report.judged, report.not_counted) == ((), ())
    assert "325 training images (one of 4)" in report.facts["scale"]
    assert report.facts["each run"] == f"on cpu with {os.environ['OMP_NUM_THREADS']} thread(s)"
    before = digests(tmp_path)
    assert main(["reproduce", "digits", "--out", str(tmp_path)]) == 0
    printed, said = capsys.readouterr()
    assert f"in {tmp_path}" in said
    shown = f"{entry.measured} | {entry.measured.interval_text}"
    assert f"| DirectPred | 60 epochs | top1 | 90.00 ± 0.50 | {shown} |  | 1: " in printed
    assert "much smaller than the paper's" in printed
    assert digests(tmp_path) == before


def digests(folder: Path) -> dict[str, str]:
    """Content of everything that training and probing leave, by path; when results were measured set aside."""
    found = {}
    for path in folder.rglob("*"):
        if path.suffix in (".safetensors", ".jsonl"):
            found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"table": "digit"}, "unknown table 'digit'"),
        ({"table": "digits"}, "nothing was begun in .*; give --data"),
        ({"table": "digits", "data": "digits", "jobs": 0}, "jobs is 0, expected at least 1"),
        ({"table": "digits", "data": "digits", "cells": ""}, "cells is empty, expected a pattern"),
        ({"table": "digits", "data": "digits", "cells": "none"}, "no cell of table 'digits' matches 'none'"),
        ({"table": "digits", "data": "digits", "budget_minutes": 5.0}, "--budget-minutes sizes --scale mini"),
        (
            {"table": "digits", "data": "digits", "scale": "mini", "budget_minutes": float("nan")},
            "budget_minutes is nan, expected a number above 0",
        ),
        (
            {"table": "digits", "data": "./nowhere", "scale": "mini", "budget_minutes": 0.1},
            "0.1 minutes are too few for 4 runs, 1 at a time, which need 1 at least",
        ),
        ({"table": "digits", "data": "./nowhere"}, "data path './nowhere' does not exist"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_trained(tmp_path, arguments, message):
    with pytest.raises(UsageError, match=message):
        reproduce(**arguments, out=tmp_path / "r")
    assert not (tmp_path / "r" / FILE).exists()


@pytest.mark.parametrize(
    ("scale", "labelled", "message"),
    [
        (
            "mini",
            True,
            r"has 8 images to train on, expected at least 32, a batch of .*; give other --data$",
        ),
        ("paper", True, "has 8 images to train on, expected at least 64, .* --data or --scale mini$"),
        ("mini", False, "8 of 8 images of .* have no label"),
    ],
)
def test_data_that_no_run_could_use_is_refused_without_a_trial(tmp_path, monkeypatch, scale, labelled, message):
    for split, place in product(("train", "test"), range(8)):
        file = tmp_path / "data" / split / (f"class-{place % 2}" if labelled else "") / f"{place}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (16, 16), 10 * place).save(file)
    monkeypatch.setattr(grid, "work_through", lambda *_, **__: pytest.fail("a run was started"))
    with pytest.raises(UsageError, match=message):
        reproduce("digits", data=str(tmp_path / "data"), out=tmp_path / "r", scale=scale)


def test_a_table_of_a_plugin_that_is_not_here_is_said(tmp_path):
    begun.write(tmp_path / FILE, replace(PLAN, table="theirs", plugins={"table theirs": "their_package"}))
    said = "table 'theirs' is of the plug-in their_package, which is not here: install it, or name its"
    with pytest.raises(UsageError, match=said):
        reproduce("theirs", out=tmp_path)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"scale": "paper"}, "holds a reproduction with scale mini, not paper; choose another --out"),
        ({"data": "elsewhere"}, "holds a reproduction with data digits, not elsewhere"),
        ({"budget_minutes": 5.0}, "holds a reproduction with budget_minutes None, not 5.0"),
        ({"table": "imagenet"}, "holds a reproduction with table digits, not imagenet"),
    ],
)
def test_what_was_begun_is_not_changed(tmp_path, changed, message):
    begun.write(tmp_path / FILE, PLAN)
    with pytest.raises(UsageError, match=message):
        reproduce(**{"table": "digits", **changed}, out=tmp_path)


@pytest.mark.slow
def test_killed_reproduction_ends_as_the_uninterrupted_one(tmp_path):
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    plan = Plan(**{**PLAN.__dict__, "epochs_share": 0.5})
    for folder in (straight, killed):
        begun.write(folder / FILE, plan)
    report = reproduce("digits", out=straight, jobs=2)
    assert [judgement.verdict for judgement in report.judged] != ["not measured"]
    script = (
        "import sys\nsys.path.insert(0, sys.argv[1])\nfrom tests.train.test_reproduction import TABLE\n"
        "from ssl_hub.tables.paper import TABLES\nfrom ssl_hub.train.reproduction import reproduce\n"
        "TABLES.add('digits', TABLE)\nreproduce('digits', out=sys.argv[2], jobs=2)\n"
    )
    command = [sys.executable, "-c", script, str(Path(__file__).parents[2]), str(killed)]
    for steps in (20, 40):
        # A session of its own: the kill takes the grid and its runs at once, as a power cut would.
        process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
        first = killed / "directpred-60-epochs" / "seed-0"
        while process.poll() is None and not any(r["step"] >= steps for r in read_metrics(first)):
            time.sleep(0.2)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    time.sleep(1)
    again = reproduce("digits", out=killed, jobs=2)
    assert again.entries == report.entries
    assert again.judged == report.judged
    tensors = {name: digest for name, digest in digests(straight).items() if name.endswith(".safetensors")}
    assert {name: digest for name, digest in digests(killed).items() if name in tensors} == tensors


@pytest.mark.slow
def test_mini_sizes_itself_by_a_trial_run(tmp_path):
    report = reproduce("digits", data="digits", scale="mini", cells="linear*", seeds=1, budget_minutes=1, out=tmp_path)
    plan = begun.read(Plan, tmp_path / FILE, what="a plan")
    assert plan.images_per_second > 0 and 640 <= plan.images <= 1297
    assert report.facts["command"] == (
        "ssl-hub reproduce digits --data digits --scale mini --cells 'linear*' --seeds 1 --budget-minutes 1"
    )
    assert not (tmp_path / "trial").exists()
