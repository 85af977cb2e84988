"""The faults of benchmarks/mutation.py are still faults of the code as it is."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from mutants import FAULTS, Fault  # noqa: E402


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_at_one_place_and_its_tests_are_there(fault: Fault) -> None:
    text = fault.source(ROOT).read_text(encoding="utf-8")
    changed = fault.put_into(text)  # raises, naming the text, where the code has moved
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text))
    assert fault.tests and all((ROOT / test).is_file() for test in fault.tests)


def test_faults_are_told_apart_by_their_names() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 40


def test_a_text_that_is_there_twice_is_refused() -> None:
    fault = Fault("doubled", "atomic.py", "a", "b", ())
    with pytest.raises(ValueError, match="doubled: 'a' is 2 times in ssl_hub/atomic.py, expected once"):
        fault.put_into("a + a")
