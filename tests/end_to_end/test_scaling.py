"""docs/scaling.md says what its script says, and what was counted is what the design promises."""

import json
import sys

import pytest

import ssl_hub
from tests.end_to_end.test_launchers import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
try:
    from scaling_model import Assumptions
    from scaling_tables import RECIPES, Projection
finally:
    sys.path.pop(0)

COUNTS = json.loads((ROOT / "benchmarks" / "scaling_counts.json").read_text())


def test_page_holds_the_tables_of_the_script():
    page = (ROOT / "docs" / "scaling.md").read_text()
    for name, make in Projection(COUNTS, Assumptions()).blocks().items():
        expected = f"<!-- {name} -->\n{make()}\n<!-- end -->"
        assert expected in page, f"run `python benchmarks/scaling.py --page docs/scaling.md`: {name} has changed"


@pytest.mark.parametrize("name", RECIPES)
def test_counted_traffic_is_each_gradient_once_and_one_matrix(name):
    width = ssl_hub.get_recipe(name).projector.output_width
    for processes in ("2", "4"):
        counted = COUNTS[processes][name]
        assert counted["collectives"]["gradients"]["bytes"] == counted["memory"]["gradients"]
        matrix = {"calls": 1, "bytes": 4 * (width**2 + 1)}  # F and the number of samples
        assert counted["collectives"].get("statistics") == (matrix if name.startswith("directpred") else None)
    assert COUNTS["2"][name] == COUNTS["4"][name]


def test_model_knows_its_limits():
    free = Assumptions(latency_us=0, hop_latency_us=0, half_rate_images=0, step_overhead_ms=0, decomposition_ms=0)
    fast = Projection(COUNTS, free)
    one, eight = fast.step("byol-r50-300ep", 1), fast.step("byol-r50-300ep", 8)
    assert one is not None and eight is not None
    assert one.gradients == one.synchronised_bn == 0
    assert one.compute == pytest.approx(8 * eight.compute)
    assert one.accumulation > eight.accumulation == 1  # 4,096 images do not fit one GPU
    assert fast.step("byol-r50-60ep", 512) is None  # 256 images on 512 GPUs
