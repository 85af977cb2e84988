"""A grid of numbers as tables and as a picture: each number where its point is, holes where nothing was measured."""

from ssl_hub.tables.claims import Sample
from ssl_hub.tables.grids import Grid

ONE, FELL = Sample.of([50.0, 52.0]), Sample.of([10.0], collapsed=1)
TWO_AXES = Grid(
    axes={"predictor.rho": ["0.1", "0.3"], "predictor.eps": ["0", "0.1"]},
    values={"probe": {("0.1", "0"): ONE, ("0.3", "0.1"): FELL, ("0.3", "0"): None}},
)


def test_two_axes_are_rows_and_columns():
    assert TWO_AXES.markdown() == (
        "**probe**\n\n| predictor.rho / predictor.eps | 0 | 0.1 |\n| --- | --- | --- |\n"
        "| 0.1 | 51.00 ± 1.41 |  |\n| 0.3 |  | 10.00, 1 collapsed |"
    )


def test_other_numbers_of_axes_are_lines():
    one = Grid(axes={"train.epochs": ["5", "10"]}, values={"kNN": {("5",): ONE, ("10",): None}})
    assert one.markdown().splitlines()[2:] == [
        "| train.epochs | kNN |", "| --- | --- |", "| 5 | 51.00 ± 1.41 |", "| 10 |  |",
    ]  # fmt: skip
    assert one.svg() is None


def test_latex_is_escaped():
    lines = Grid(axes={"a_b": ["x"]}, values={"kNN": {("x",): ONE}}).latex().splitlines()
    assert lines[3] == r"a\_b & kNN \\" and lines[5] == r"x & 51.00 $\pm$ 1.41 \\"


def test_the_picture_has_every_number_and_is_the_same_twice():
    picture = TWO_AXES.svg()
    assert picture == TWO_AXES.svg()
    assert picture.count(b"51.00") == 1 and picture.count(b"10.00, 1 collapsed") == 1
