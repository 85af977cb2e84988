"""The guided tour runs from top to bottom; its assertions are its claims."""

import runpy
import sys
from pathlib import Path

TOUR = Path(__file__).parents[2] / "docs" / "theory_tour.py"


def test_tour_runs_and_every_stop_prints(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(TOUR), "--fast"])
    runpy.run_path(str(TOUR), run_name="__main__")
    said = capsys.readouterr().out
    for stop in range(1, 10):
        assert f"\n{stop}. " in f"\n{said}"
    assert "One step advances time by 0.3" in said
