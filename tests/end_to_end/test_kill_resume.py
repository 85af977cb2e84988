"""A small version of benchmarks/kill_resume.py: real kills, in the middle of steps and of saves."""

import json

from tests import warm
from tests.end_to_end.test_launchers import ROOT, environment


def test_killed_runs_end_as_the_run_that_nobody_touched():
    words = [str(ROOT / "benchmarks" / "kill_resume.py"), "--kills", "4", "--methods", "directpred", "--steps", "30"]
    done = warm.run(words, env=environment())
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads(done.stdout.splitlines()[-1])["methods"]
    assert row["kills"] == 4
    assert row["starts"] == row["kills"] + row["runs"]
    assert row["different"] == []
