"""A grid of numbers as tables and as a picture: each number where its point is, holes where nothing was measured."""

from dataclasses import replace

from ssl_hub.tables.claims import Sample
from ssl_hub.tables.grids import Grid

ONE, FELL = Sample.of([50.0, 52.0]), Sample.of([10.0], collapsed=1, images=100)
TWO_AXES = Grid(
    axes={"predictor.rho": ["0.1", "0.3"], "predictor.eps": ["0", "0.1"]},
    values={"probe": {("0.1", "0"): ONE, ("0.3", "0.1"): FELL, ("0.3", "0"): None}},
)
SURE, UNSURE = f"51.00 ± 1.41 ({ONE.interval_text})", f"10.00 ({FELL.interval_text}), 1 collapsed"


def test_two_axes_are_rows_and_columns():
    assert ONE.interval is not None and FELL.interval is not None
    assert TWO_AXES.markdown() == (
        "**probe**\n\n| predictor.rho / predictor.eps | 0 | 0.1 |\n| --- | --- | --- |\n"
        f"| 0.1 | {SURE} |  |\n| 0.3 |  | {UNSURE} |"
    )
    assert TWO_AXES.shares("probe") == {("0.1", "0"): 1.0, ("0.3", "0.1"): 0.0}


def test_one_axis_is_rows_and_of_three_the_last_is_columns():
    one = Grid(axes={"train.epochs": ["5", "10"]}, values={"kNN": {("5",): ONE, ("10",): None}})
    assert one.markdown().splitlines()[2:] == [
        "| train.epochs | kNN |", "| --- | --- |", f"| 5 | {SURE} |", "| 10 |  |",
    ]  # fmt: skip
    assert one.svg() is None and one.shares("kNN") == {("5",): 1.0}
    three = Grid(axes={"a": ["1", "2"], "b": ["x"], "c": ["u", "v"]}, values={"kNN": {("2", "x", "v"): ONE}})
    assert three.markdown().splitlines()[2:] == [
        "| a | b / c | u | v |", "| --- | --- | --- | --- |", "| 1 | x |  |  |", f"| 2 | x |  | {SURE} |",
    ]  # fmt: skip
    assert three.svg().count(b"51.00") == 1


def test_latex_is_escaped():
    lines = Grid(axes={"a_b": ["x"]}, values={"kNN": {("x",): ONE}}).latex().splitlines()
    assert lines[3] == r"a\_b & kNN \\" and lines[5].startswith(r"x & 51.00 $\pm$ 1.41 (")


def test_the_picture_has_every_number_and_is_the_same_twice():
    picture = TWO_AXES.svg()
    assert picture == TWO_AXES.svg()
    assert picture.count(b"51.00") == 1 and picture.count(b"), 1 collapsed") == 1
    assert Grid(axes=TWO_AXES.axes, values={}).svg() is None


def test_a_number_of_fewer_runs_than_were_meant_says_so():
    three = replace(TWO_AXES, seeds=3)
    assert three.shown("probe", ("0.1", "0")) == f"{SURE}, 2 of 3 runs"
    assert three.shown("probe", ("0.1", "0.1")) == ""
