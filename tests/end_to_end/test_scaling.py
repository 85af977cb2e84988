"""docs/scaling.md says what its script says, and what was counted is what the design promises."""

import json
import sys

import pytest

import ssl_hub
from tests.end_to_end.test_launchers import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
try:
    import scaling
    import scaling_host
    import scaling_published
    from scaling_model import Assumptions
    from scaling_tables import RECIPES, Projection
finally:
    sys.path.pop(0)

COUNTS = json.loads((ROOT / "benchmarks" / "scaling_counts.json").read_text())


def test_page_holds_the_tables_of_the_script():
    page = (ROOT / "docs" / "scaling.md").read_text()
    for name, make in scaling.blocks(Projection(COUNTS, Assumptions())).items():
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
    free = Assumptions(latency_us=0, hop_latency_us=0, half_rate_images=0, step_overhead_ms=0, root_ms=0)
    fast = Projection(COUNTS, free)
    one, eight = fast.step("byol-r50-300ep", 1), fast.step("byol-r50-300ep", 8)
    assert one is not None and eight is not None
    assert one.gradients == one.synchronised_bn == 0
    assert one.compute == pytest.approx(8 * eight.compute)
    assert one.accumulation > eight.accumulation == 1  # 4,096 images do not fit one GPU
    assert fast.step("byol-r50-60ep", 512) is None  # 256 images on 512 GPUs


def test_names_are_measured_as_they_are_held():
    found = scaling_host.names(2000)
    text = sum(map(len, scaling_host.listed(2000)))
    assert found["ours"]["held"] == pytest.approx(text / 2000 + 4, rel=0.1)
    assert found["strings"]["held"] > 2 * found["ours"]["held"]
    assert found["ours"]["sent"] == pytest.approx(text / 2000 + 4, rel=0.1)


def test_batches_in_shared_memory_are_those_that_workers_are_ahead():
    assert COUNTS["host"]["shared"]["batches"] == pytest.approx(2 * COUNTS["host"]["shared"]["workers"] + 1, abs=0.01)


def test_groups_leave_latency_and_send_buffers():
    projection = Projection(COUNTS, Assumptions())
    whole, groups = (projection.surely("directpred-r50-300ep", 512, bn_group=group) for group in (0, 8))
    node = projection.surely("directpred-r50-300ep", 8)
    assert groups.synchronised_bn == pytest.approx(node.synchronised_bn) and groups.seconds < whole.seconds
    assert groups.overhead > whole.overhead


def test_published_runs_are_projected_within_what_the_page_says():
    projection = Projection(COUNTS, Assumptions())
    for run in scaling_published.RUNS:
        ratio = scaling_published.projected(run, projection) / run.hours
        assert 1 / 1.4 < ratio < 1.4 if run.n <= 8 else 0.3 < ratio < 3, run.name
        assert scaling_published.implied(run, projection) < 1.05 * run.rate, run.name
