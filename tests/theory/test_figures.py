"""The numbers behind each figure, and the files that are drawn."""

import subprocess
import sys

import numpy as np
import pytest

from ssl_hub.errors import UsageError
from ssl_hub.theory import figure_data, figures


def test_statespace_lines_end_where_the_basins_say():
    data = figure_data.statespace()
    free, weak, strong = data["panels"]
    p, s = free["lines"]
    c = s - p**2  # the flow lines are parabolas without decay
    assert np.ptp(c, axis=0).max() < 1e-5
    assert [kind for *_, kind in free["branches"]] == ["stable", "unstable", "stable", "stable"]
    assert [kind for *_, kind in weak["points"]] == ["stable", "saddle", "stable"]
    assert weak["points"][2][0] == pytest.approx(0.989897948557)
    ends = weak["lines"][:, -1]
    distance = np.minimum(np.hypot(*ends), np.hypot(ends[0] - weak["points"][2][0], ends[1] - weak["points"][2][1]))
    assert distance.max() < 0.05
    assert [kind for *_, kind in strong["points"]] == ["stable"]
    assert np.abs(strong["lines"][:, -1]).max() < 1e-6


def test_stationary_points_are_zeros_with_the_right_slopes():
    data = figure_data.stationary()
    kinds = [[kind for _, kind in panel["points"]] for panel in data["panels"]]
    assert kinds == [["half-stable", "stable"], ["stable", "unstable", "stable"], ["stable"]]
    middle = data["panels"][1]
    assert [x for x, _ in middle["points"]] == pytest.approx([0, 0.112702, 0.887298], abs=1e-6)
    for x, kind in middle["points"]:
        around = np.interp([x - 0.02, x + 0.02], data["p"], middle["velocity"])
        assert (around[0] > 0 > around[1]) == (kind == "stable")
    at_threshold = figure_data.stationary(etas=(0.25,))["panels"][0]["points"]
    assert at_threshold == [(0.0, "stable"), (0.5, "half-stable")]


def test_ablation_trades_alignment_for_salience_and_speed():
    data = figure_data.ablation(etas=(0.0, 0.04, 0.1, 0.15), betas=(0.05, 0.4, 100.0), steps=6000, samples=200)
    least = [run["K"].min() for run in data["eta_row"].values()]
    np.testing.assert_allclose(least, [-0.086, -0.045, 0.022, 0.121], atol=1e-3)
    ends = [run["p"][-1] for run in data["eta_row"].values()]
    assert ends[0] > ends[1] > ends[2] > 0.8 and ends[3] < 1e-3
    assert data["eta_row"][0.15]["tau"][-1] > 1.5  # a collapsing mode's tau passes 1
    least = [run["K"].min() for run in data["beta_row"].values()]
    np.testing.assert_allclose(least, [0.004, -0.045, -0.106], atol=1e-3)
    reached = [
        np.flatnonzero(run["p"] > 0.8)[0] if run["p"].max() > 0.8 else np.inf for run in data["beta_row"].values()
    ]
    assert reached[0] > reached[1] > reached[2]


def test_ema_assumption_is_worst_for_slow_targets_and_strong_decay():
    data = figure_data.ema_assumption(etas=(0.0, 0.1), gammas=(0.9, 0.999), runs=4, steps=1500)
    least = {(eta, gamma): curve["mean"].min() for eta, row in data["panels"].items() for gamma, curve in row.items()}
    assert min(least, key=least.get) == (0.1, 0.999)
    assert min(least.values()) > 0.8
    assert all(curve["mean"].max() <= 1 + 1e-12 for row in data["panels"].values() for curve in row.values())


def test_symmetric_part_survives_above_the_threshold_and_skew_part_never():
    data = figure_data.symmetric_and_skew(etas=(0.01, 0.05), taus=(0.1, 0.3, 1.0), samples=40)
    A = {(eta, tau): curve["A"][-1] for eta, row in data["rows"].items() for tau, curve in row.items()}
    for (eta, tau), size in A.items():
        assert (size > 1e-3) == (eta < tau**2 / 4)
    p_plus = (1 + np.sqrt(1 - 4 * 0.05)) / 2
    modes = (A[0.05, 1.0] / p_plus) ** 2
    assert modes == pytest.approx(round(modes), abs=1e-3)
    for eta, row in data["rows"].items():
        for curve in row.values():
            assert (curve["B"] <= curve["B"][0] * np.exp(-eta * data["t"]) * (1 + 1e-6) + 1e-8).all()  # 1e-8: solver


def test_commutator_overshoots_raw_and_stays_misaligned_when_it_collapses():
    data = figure_data.commutator_norm(etas=(0.0, 0.1), taus=(0.1, 1.0), samples=60)
    growing, dying = data["columns"][0.0][1.0], data["columns"][0.1][0.1]
    assert growing["raw"].max() > 1.3 and growing["normalised"][-1] < 1e-6
    assert growing["normalised"].max() < 1.12
    assert dying["raw"][-1] < 1e-6 and dying["normalised"][-1] > 0.3


def test_low_dimensional_panels_have_their_fixed_points():
    data = figure_data.low_dimension()
    assert data["left"]["points"] == [(0.0, 0.0, "saddle")]
    assert data["middle"]["points"] == [(0.0, 0.0, "half-stable"), (0.5, 0.5, "stable")]
    assert data["right"]["points"] == [(0.0, 0.0, "stable")]
    x, y, _ = data["left"]["curves"][0]
    np.testing.assert_allclose(x * y, 0.5)
    for panel in data.values():
        length = np.hypot(panel["u"], panel["v"])
        assert np.all((np.abs(length - 1) < 1e-12) | (length == 0))
    outward = data["middle"]["u"][(data["middle"]["x"] > 0) & (data["middle"]["x"] < 0.3) & (data["middle"]["y"] > 0.6)]
    assert (outward > 0).all()


@pytest.mark.parametrize("name", figures.figure_names())
def test_drawn_figure_is_not_clipped(name, tmp_path):
    from PIL import Image

    fast = {
        "ablation-eta-beta": {"steps": 200, "samples": 20},
        "check-ema-assumption": {"steps": 100, "runs": 2},
        "A-B-supp": {"t_end": 20.0, "samples": 10},
        "verify-eigen-alignment": {"t_end": 5.0, "samples": 10},
    }
    path = figures.draw(name, tmp_path / f"{name}.png", **fast.get(name, {}))
    pixels = np.asarray(Image.open(path).convert("L"))
    assert pixels.shape[1] == 1400
    border = np.concatenate([pixels[:2].ravel(), pixels[-2:].ravel(), pixels[:, :2].ravel(), pixels[:, -2:].ravel()])
    assert border.min() == 255  # nothing touches the edge
    assert pixels.min() < 50


@pytest.mark.parametrize("suffix", ["svg", "pdf"])
def test_a_figure_that_is_drawn_again_is_the_same_file(suffix, tmp_path):
    def paint(figure):
        figure.subplots().plot([0, 1])

    one, other = (figures.render(paint, tmp_path / f"{n}.{suffix}", [], height=2).read_bytes() for n in "ab")
    assert one == other and b"dc:date" not in one and b"CreationDate" not in one


def test_parameters_stand_under_the_figure_and_formulas_are_whole():
    for name, spec in figures.FIGURES.items():
        used = figures.parameters(name)
        paragraphs = figures.footer(name, used)
        lines = [line for paragraph in paragraphs for line in figures.wrapped(paragraph)]
        assert all(line.count("$") % 2 == 0 for line in lines), lines
        assert all(f"{used[key]:g}" in paragraphs[-1] for key in spec.shown.split())


def test_wrong_requests_are_named(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="unknown figure 'statespac', did you mean 'statespace'"):
        figures.draw("statespac", tmp_path / "a.png")
    with pytest.raises(UsageError, match="no parameter 'eta', did you mean 'etas'"):
        figures.draw("stationary", tmp_path / "a.png", eta=0.1)
    with pytest.raises(UsageError, match=r"suffix is '.gif'; expected .png, .pdf or .svg"):  # before it is computed
        figures.draw("stationary", tmp_path / "a.gif", etas="not numbers")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match="figures need matplotlib"):
        figures.draw("stationary", tmp_path / "a.png")


def test_importing_the_package_is_cheap():
    code = "import sys, ssl_hub.theory; sys.exit(any(m in sys.modules for m in ('torch', 'matplotlib', 'scipy')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_public_names_are_what_they_say():
    from ssl_hub import theory

    for name in theory.__all__:  # twice: loading a submodule must not hide a function of the same name
        assert callable(getattr(theory, name)) and callable(getattr(theory, name))
    with pytest.raises(AttributeError, match="no attribute 'chekc'"):
        theory.chekc  # noqa: B018
