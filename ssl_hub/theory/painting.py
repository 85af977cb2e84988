"""How each figure's numbers are drawn on a matplotlib figure; `figures` chooses which and adds the footer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ssl_hub.theory.figure_data import Data

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Used = Mapping[str, Any]  # the figure's parameters

# Okabe and Ito's colours, which colour-blind readers tell apart.
BLUE, VERMILION, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#777777"
ON_OFF = ((5, 1.5), (2, 1.2), (6, 1.5, 1.2, 1.5), (1, 1), (8, 2, 1, 2, 1, 2))
DASHES: tuple[Any, ...] = ("-", *((0, on_off) for on_off in ON_OFF))
MARKERS: dict[str, dict[str, Any]] = {
    "stable": {"marker": "o", "markerfacecolor": VERMILION, "markeredgecolor": "black"},
    "unstable": {"marker": "o", "markerfacecolor": "white", "markeredgecolor": GREEN, "markeredgewidth": 1.6},
    "saddle": {"marker": "D", "markerfacecolor": "white", "markeredgecolor": GREEN, "markeredgewidth": 1.6},
    "half-stable": {"marker": "s", "markerfacecolor": "0.6", "markeredgecolor": "black"},
}


def _series(values: Sequence[float]) -> list[tuple[float, dict[str, Any]]]:
    """One line style for each value of a swept parameter: from dark to light, with its own dashes."""
    from matplotlib import colormaps

    shades = colormaps["viridis"](np.linspace(0.0, 0.75, max(len(values), 2)))
    return [(value, {"color": shades[i], "linestyle": DASHES[i % len(DASHES)]}) for i, value in enumerate(values)]


def _point(axes: Axes, x: float, y: float, stability: str, size: float = 6.5) -> None:
    # A saddle beside a stable point is drawn small and on top, so that both stay visible.
    size, order = (0.65 * size, 6) if stability == "saddle" else (size, 5)
    axes.plot([x], [y], linestyle="none", markersize=size, zorder=order, clip_on=False, **MARKERS[stability])


def _stability_legend(figure: Figure, kinds: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], linestyle="none", markersize=6, label=kind, **MARKERS[kind]) for kind in kinds]
    figure.legend(handles=handles, loc="outside upper right", ncols=len(kinds))


def statespace(figure: Figure, data: Data, used: Used) -> None:
    panels = figure.subplots(1, len(data["panels"]), sharey=True, squeeze=False)[0]
    for axes, panel in zip(panels, data["panels"], strict=True):
        for p, s in np.moveaxis(panel["lines"], 2, 0):
            axes.plot(p, s, color=BLUE, linewidth=0.6, alpha=0.8)
            _arrowhead(axes, p, s)
        axes.plot(data["p"], data["parabola"], color="black", linestyle=(0, (4, 2)), linewidth=1.3)
        for x, y, stability in panel["branches"]:
            colour, dashes = (VERMILION, "-") if stability == "stable" else (GREEN, (0, (1.2, 0.8)))
            axes.plot(x, y, color=colour, linestyle=dashes, linewidth=2.6, zorder=4, clip_on=False)
        for x, y, stability in panel["points"]:
            _point(axes, x, y, stability)
        axes.set(xlim=data["p_range"], ylim=(0, data["s_max"]), xlabel=r"$p_j$", title=rf"$\eta = {panel['eta']:g}$")
    panels[0].set_ylabel(r"$s_j$")
    _stability_legend(figure, ("stable", "saddle"))


def _arrowhead(axes: Axes, x: Any, y: Any) -> None:
    """An arrow a third of the way along a line, by arc length inside the axes' usual range."""
    length = np.concatenate([[0.0], np.cumsum(np.hypot(np.diff(x), np.diff(y)))])
    if length[-1] < 0.15:
        return
    at = int(np.searchsorted(length, 0.35 * length[-1]))
    axes.annotate(
        "",
        xy=(x[at], y[at]),
        xytext=(x[at - 1], y[at - 1]),
        arrowprops={"arrowstyle": "-|>", "color": BLUE, "linewidth": 0.5, "mutation_scale": 6},
        annotation_clip=True,
    )


def stationary(figure: Figure, data: Data, used: Used) -> None:
    panels = figure.subplots(1, len(data["panels"]), sharey=True, squeeze=False)[0]
    for label, axes, panel in zip("abcdefgh", panels, data["panels"], strict=False):
        axes.axhline(0, color=GREY, linewidth=0.6)
        axes.plot(data["p"], panel["velocity"], color=BLUE)
        for x, stability in panel["points"]:
            _point(axes, x, 0.0, stability)
        axes.set(xlabel=r"$p_j$", title=rf"({label}) $\eta = {panel['eta']:g}$", ylim=(-0.35, 0.25))
    panels[0].set_ylabel(r"$\dot p_j$")
    _stability_legend(figure, ("stable", "unstable", "half-stable"))


def ablation(figure: Figure, data: Data, used: Used) -> None:
    grid = figure.subplots(2, 4, sharex=True)
    quantities = (("K", r"eigenvalue of $K$"), ("p", r"$p_j$"), ("s", r"$s_j$"), ("tau", r"$\tau_j$"))
    for row, (key, symbol) in enumerate((("eta_row", r"\eta"), ("beta_row", r"\beta"))):
        for column, (name, title) in enumerate(quantities):
            axes = grid[row, column]
            for value, style in _series(list(data[key])):
                axes.plot(data["step"][1:], data[key][value][name][1:], label=rf"${symbol} = {value:g}$", **style)
            axes.set_xscale("log")
            if row == 0:
                axes.set_title(title)
            else:
                axes.set_xlabel("SGD step")
            if name == "K":
                axes.axhline(0, color=GREY, linewidth=0.6)
                axes.set_ylim(top=0.45)
            if name == "tau":
                axes.set_ylim(0, 2.0)  # a collapsing mode's tau may grow without bound
        other = rf"$\beta = {used['beta']:g}$" if row == 0 else rf"$\eta = {used['eta']:g}$"
        grid[row, 0].set_ylabel(f"at {other}")
        grid[row, 3].legend(loc="center left", bbox_to_anchor=(1.02, 0.5))


def ema_assumption(figure: Figure, data: Data, used: Used) -> None:
    panels = figure.subplots(1, len(data["panels"]), sharey=True, squeeze=False)[0]
    for axes, (eta, curves) in zip(panels, data["panels"].items(), strict=True):
        for gamma, style in _series(list(curves)):
            mean, std = curves[gamma]["mean"], curves[gamma]["std"]
            axes.fill_between(data["step"], mean - std, mean + std, color=style["color"], alpha=0.2, linewidth=0)
            axes.plot(data["step"], mean, label=rf"$\gamma_a = {gamma:g}$", **style)
        axes.set(xscale="log", xlabel="SGD step", title=rf"$\eta = {eta:g}$")
    panels[0].set_ylabel(r"$\langle W_a, W\rangle\,/\,(\|W_a\|_F\,\|W\|_F)$")
    panels[0].legend(loc="lower left")


def symmetric_and_skew(figure: Figure, data: Data, used: Used) -> None:
    rows = data["rows"]
    grid = figure.subplots(len(rows), 2, sharex=True, squeeze=False)
    for row, (eta, curves) in enumerate(rows.items()):
        for column, (name, title) in enumerate((("A", r"symmetric part $\|A\|_F$"), ("B", r"skew part $\|B\|_F$"))):
            axes = grid[row, column]
            for tau, style in _series(list(curves)):
                axes.plot(data["t"][1:], curves[tau][name][1:], label=rf"$\tau = {tau:g}$", **style)
            axes.set(xscale="log")
            if name == "B":
                axes.set_yscale("log")
                axes.set_ylim(1e-8, 2)
            if row == 0:
                axes.set_title(title)
            if row == len(rows) - 1:
                axes.set_xlabel("time $t$")
        grid[row, 0].set_ylabel(rf"$\eta = {eta:g}$")
    grid[0, 1].legend(loc="center left", bbox_to_anchor=(1.02, 0.5))


def commutator(figure: Figure, data: Data, used: Used) -> None:
    columns = data["columns"]
    grid = figure.subplots(2, len(columns), sharex=True, sharey="row", squeeze=False)
    for column, (eta, curves) in enumerate(columns.items()):
        for row, name in enumerate(("raw", "normalised")):
            axes = grid[row, column]
            for tau, style in _series(list(curves)):
                axes.plot(data["t"], curves[tau][name], label=rf"$\tau = {tau:g}$", **style)
            axes.set_ylim(bottom=0)
        grid[0, column].set_title(rf"$\eta = {eta:g}$")
        grid[1, column].set_xlabel("time $t$")
    grid[0, 0].set_ylabel(r"$\|[F,W_p]\|_F$" + "\n(relative to start)")
    grid[1, 0].set_ylabel(r"$\|[F,W_p]\|_F/(\|F\|_F\|W_p\|_F)$" + "\n(relative to start)")
    grid[0, -1].legend(loc="upper right")


def low_dimension(figure: Figure, data: Data, used: Used) -> None:
    panels = figure.subplots(1, 3)
    titles = {
        "left": (r"target fixed, $w_a$ given", "$w$", "$w_p$"),
        "middle": (r"tied, $w_p = \sqrt{\alpha_p}\,w$", "$w$", "$w_a$"),
        "right": ("no predictor, $w_p = 1$", "$w$", "$w_a$"),
    }
    curve_styles = ((GREEN, "-"), (BLUE, (0, (5, 1.5))), (BLUE, (0, (5, 1.5))))
    for axes, (name, (title, x_label, y_label)) in zip(panels, titles.items(), strict=True):
        panel = data[name]
        arrows = (panel[key] for key in "xyuv")
        axes.quiver(*arrows, color="0.35", angles="xy", scale=24, width=0.005, pivot="mid")
        styles = ((VERMILION, "-"), (VERMILION, "-")) if name == "left" else curve_styles
        for (x, y, label), (colour, dashes) in zip(panel["curves"], styles, strict=False):
            axes.plot(x, y, color=colour, linestyle=dashes, linewidth=1.8, label=label or None)
        for x, y, stability in panel["points"]:
            _point(axes, x, y, stability)
        low, high = float(panel["x"].min()), float(panel["x"].max())  # of y too
        limits = low - 0.04 * (high - low), high + 0.04 * (high - low)
        axes.set(title=title, xlabel=x_label, ylabel=y_label, xlim=limits, ylim=limits, aspect="equal")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, columnspacing=1.0)
    _stability_legend(figure, ("stable", "saddle", "half-stable"))


def schematic(figure: Figure, data: Data, used: Used) -> None:
    """The two-layer setting: two views, online network, predictor, target; no numbers."""
    axes = figure.add_subplot()
    axes.set(xlim=(0, 10), ylim=(0, 4), xticks=[], yticks=[])
    axes.axis("off")

    def box(x: float, y: float, text: str) -> None:
        style = {"boxstyle": "round,pad=0.45", "facecolor": "white", "edgecolor": "black", "linewidth": 0.8}
        axes.text(x, y, text, ha="center", va="center", bbox=style)

    def arrow(start: tuple[float, float], stop: tuple[float, float], text: str = "", dashed: bool = False) -> None:
        line = {"arrowstyle": "-|>", "linewidth": 0.9, "color": "black", "linestyle": "--" if dashed else "-"}
        axes.annotate("", xy=stop, xytext=start, arrowprops=line)
        if text:
            axes.text((start[0] + stop[0]) / 2, (start[1] + stop[1]) / 2 + 0.32, text, ha="center", va="bottom")

    axes.text(0.2, 2.0, r"$\mathbf{x}$", ha="center", va="center", fontsize=11)
    arrow((0.4, 2.1), (1.5, 3.1))
    arrow((0.4, 1.9), (1.5, 0.9))
    axes.text(1.7, 3.2, r"$\mathbf{x}_1$", ha="center", va="center", fontsize=10)
    axes.text(1.7, 0.8, r"$\mathbf{x}_2$", ha="center", va="center", fontsize=10)
    box(3.5, 3.2, "online $W$")
    box(3.5, 0.8, "target $W_a$")
    box(6.3, 3.2, "predictor $W_p$")
    box(9.0, 2.0, r"$\frac{1}{2}\,\|W_p\mathbf{f}_1 - \mathbf{f}_{2a}\|^2$")
    arrow((1.95, 3.2), (2.95, 3.2))
    arrow((1.95, 0.8), (2.95, 0.8))
    arrow((4.05, 3.2), (5.6, 3.2), r"$\mathbf{f}_1 = W\mathbf{x}_1$")
    arrow((7.0, 3.1), (8.35, 2.35))
    arrow((4.05, 0.85), (8.35, 1.65), r"$\mathbf{f}_{2a} = W_a\mathbf{x}_2$, stop-gradient")
    arrow((3.5, 2.75), (3.5, 1.25), dashed=True)
    axes.text(3.65, 2.0, r"EMA, $\dot W_a = \beta(W - W_a)$", ha="left", va="center")
