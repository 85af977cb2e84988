"""What the shell is told to complete, asked as argcomplete's shell function asks."""

import os
import subprocess
import sys

import pytest


def completions(line: str, folder) -> list[str]:
    answers = folder / "answers"
    asked = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_STDOUT_FILENAME": str(answers)}
    asked |= {"COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_COMP_WORDBREAKS": " \t\n"}
    subprocess.run([sys.executable, "-m", "ssl_hub"], env={**os.environ, **asked}, check=False)
    return [word.strip() for word in answers.read_text().split("\n")]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ssl-hub rep", ["report", "reproduce"]),
        ("ssl-hub train directpred-dig", ["directpred-digits"]),
        ("ssl-hub train directpred-digits predictor.", ["predictor.kind=", "predictor.rho=", "predictor.eps="]),
        ("ssl-hub table symm", ["symmetrisation"]),
        ("ssl-hub train --over", ["--overwrite"]),
    ],
)
def test_the_shell_is_told_what_could_follow(line, expected, tmp_path):
    found = completions(line, tmp_path)
    assert set(expected) <= set(found)
    assert all(word.startswith(line.split(" ")[-1]) for word in found)
