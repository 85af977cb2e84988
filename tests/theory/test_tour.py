"""The guided tour runs from top to bottom; its assertions are its claims."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_tour_runs_and_every_stop_prints():
    command = [sys.executable, str(ROOT / "docs" / "theory_tour.py"), "--fast"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for stop in range(1, 10):
        assert f"\n{stop}. " in f"\n{done.stdout}"
    assert "One step advances time by 0.3" in done.stdout
