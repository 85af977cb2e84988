"""Verdicts: a difference counts where mean ± std do not overlap, and nothing is decided without a spread."""

import pytest

from ssl_hub.tables.cells import Claim
from ssl_hub.tables.claims import Sample, judge
from ssl_hub.tables.paper import TABLES, chance_of
from ssl_hub.tables.report import report


def claim(kind):
    return Claim(text="c", kind=kind, cell="a", than="b")


def verdict(kind, cell, than, untrained=None):
    return judge(claim(kind), cell, than, untrained).verdict


def test_a_sample_is_mean_and_deviation_with_n_minus_1():
    assert Sample.of([1.0, 2.0, 3.0])[:3] == (2.0, 1.0, 3)
    assert str(Sample.of([1.0, 2.0, 3.0])) == "2.00 ± 1.00"
    assert str(Sample.of([71.5])) == "71.50"


@pytest.mark.parametrize(
    ("cell", "than", "expected"),
    [
        (Sample(78, 0.5, 3), Sample(75, 0.5, 3), "holds"),
        (Sample(75, 0.5, 3), Sample(78, 0.5, 3), "does not hold"),
        (Sample(78, 2.0, 3), Sample(75, 1.0, 3), "not decided"),
        (Sample(78, None, 1), Sample(60, 1.0, 3), "not decided"),
        (None, Sample(60, 1.0, 3), "not measured"),
    ],
)
def test_above(cell, than, expected):
    assert verdict("above", cell, than) == expected


@pytest.mark.parametrize(
    ("difference", "std", "expected"), [(0.4, 0.2, "holds"), (0.4, 0.5, "not decided"), (3.0, 0.5, "does not hold")]
)
def test_matches_to_within_a_point(difference, std, expected):
    assert verdict("matches", Sample(70 + difference, std, 3), Sample(70, std, 3)) == expected
    assert verdict("matches", Sample(70 - difference, std, 3), Sample(70, std, 3)) == expected


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (Sample(30, 1, 3), "holds"),  # no better than the untrained backbone
        (Sample(36, 1, 3, collapsed=3), "holds"),  # better for a probe, but its features are a point
        (Sample(36, 1, 3, collapsed=1), "does not hold"),
        (Sample(45, 1, 3), "does not hold"),  # as good as the other
        (Sample(38, 7, 3), "not decided"),
    ],
)
def test_collapse(cell, expected):
    assert verdict("collapses", cell, Sample(45, 1, 3), untrained=Sample(31, 1, 3)) == expected


@pytest.mark.parametrize(
    ("cell", "than", "expected"),
    [
        (Sample(0.1, None), Sample(68.1, None), "holds"),
        (Sample(0.1, None), Sample(0.9, None), "not decided"),
        (Sample(30.0, None), Sample(68.1, None), "not decided"),
        (Sample(30.0, 1.0, 3), Sample(68.1, 1.0, 3), "holds"),
    ],
)
def test_a_cell_at_chance_has_collapsed_without_a_spread(cell, than, expected):
    assert judge(claim("collapses"), cell, than, chance=0.1).verdict == expected


def test_the_papers_own_collapse_on_imagenet_is_decided_by_chance():
    (judged,) = [j for j in report("imagenet").judged_in_paper if j.claim.kind == "collapses"]
    assert (judged.verdict, judged.evidence) == ("holds", "0.10 against 68.10 (-68.00); guessing gives 0.10")


def test_evidence_says_what_collapse_was_judged_by():
    cell = Sample(36, 1.5, 3, collapsed=2, spread=0.04)
    text = judge(claim("collapses"), cell, Sample(45, 1, 3), Sample(31, 1, 3)).evidence
    assert text == (
        "36.00 ± 1.50 against 45.00 ± 1.00 (-9.00); untrained 31.00 ± 1.00; collapsed in 2 of 3 runs,"
        " features at 4 % of a healthy spread"
    )


def test_no_claim_is_contradicted_by_the_numbers_it_was_printed_with():
    for name in TABLES.names():
        table = TABLES[name]
        for said in table.claims:
            numbers = (Sample.printed(table[cell].printed["top1"]) for cell in (said.cell, said.than))
            printed = judge(said, *numbers, chance=chance_of(table))
            # On CIFAR-10 the paper itself says that every fifth step helps at 500 epochs alone.
            assert printed.verdict != "does not hold", f"{name}: {said.text}: {printed.evidence}"
