"""One model of every family of timm is synchronised, trained, saved, loaded, fine-tuned: see benchmarks/families.py."""

import sys

import pytest

from tests.end_to_end.test_launchers import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
try:
    import families
finally:
    sys.path.pop(0)

NOTED = families.table()["families"]
QUICK_SECONDS = 2.0  # of all checks; the others are slow tests


def quick(family):
    """Whether its checks were found to take little; a family that timm has added since is tried."""
    return NOTED.get(family, {}).get("seconds", 0) <= QUICK_SECONDS


def test_the_table_has_every_family():
    assert set(families.families()) <= set(NOTED), "run `python benchmarks/families.py` and `python docs/hooks.py`"


@pytest.mark.parametrize(
    "family", [pytest.param(f, marks=[] if quick(f) else [pytest.mark.slow]) for f in families.families()]
)
@pytest.mark.filterwarnings("ignore")
def test_family(family, tmp_path):
    name = families.shortened(families.model_of(family))
    trial = families.Trial(name, NOTED.get(family, {}).get("size") or families.size_of(name), tmp_path)
    for check in families.CHECKS:
        getattr(trial, check)()
