"""Numbers over a grid of settings: as text, and as a picture of colours."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ssl_hub.tables.claims import Sample
from ssl_hub.tables.markup import markdown_table, tabular

Point = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Grid:
    """For each measurement, by its title, what was measured at each point: one value for every axis, in their order.

    Laid out with the last axis as columns and the others as rows; one axis alone is rows.
    """

    axes: Mapping[str, Sequence[str]]
    values: Mapping[str, Mapping[Point, Sample | None]]
    seeds: int = 1  # that were meant for each point

    @property
    def row_axes(self) -> list[str]:
        return list(self.axes)[: max(1, len(self.axes) - 1)]

    @property
    def rows(self) -> list[Point]:
        return list(itertools.product(*(self.axes[name] for name in self.row_axes)))

    @property
    def column_axis(self) -> str | None:
        return list(self.axes)[-1] if len(self.axes) > 1 else None

    @property
    def columns(self) -> list[Point]:
        return [()] if self.column_axis is None else [(value,) for value in self.axes[self.column_axis]]

    def shares(self, title: str) -> dict[Point, float]:
        """Where the mean at each point lies between the lowest and the highest of a measurement, from 0 to 1."""
        means = {point: sample.mean for point, sample in self.values[title].items() if sample is not None}
        low, high = min(means.values(), default=0.0), max(means.values(), default=0.0)
        return {point: (mean - low) / (high - low) if high > low else 1.0 for point, mean in means.items()}

    def markdown(self) -> str:
        """A table for each measurement, with 95 % intervals."""
        return "\n\n".join(f"**{title}**\n\n{markdown_table(*self._lines(title))}" for title in self.values)

    def latex(self) -> str:
        """The same as tabulars; needs booktabs."""
        return "\n\n".join(f"% {title}\n{tabular(*self._lines(title))}" for title in self.values) + "\n"

    def svg(self) -> bytes | None:
        """A map of colours for each measurement; None for one axis, where a table says as much."""
        if self.column_axis is None or not self.values:
            return None
        from matplotlib import rc_context
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure

        size = 2.0 + 1.3 * len(self.columns), (1.2 + 0.5 * len(self.rows)) * len(self.values)
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        panels = figure.subplots(len(self.values), squeeze=False)[:, 0]
        for axes, (title, found) in zip(panels, self.values.items(), strict=True):
            shares = self.shares(title)
            means = [[_mean(found.get(r + c)) for c in self.columns] for r in self.rows]
            picture = axes.imshow(means, cmap="viridis", aspect="auto")
            for (y, r), (x, c) in itertools.product(enumerate(self.rows), enumerate(self.columns)):
                colour = "black" if shares.get(r + c, 1.0) > 0.6 else "white"
                text = self.shown(title, r + c).replace(" (", "\n(")
                axes.text(x, y, text, color=colour, ha="center", va="center", fontsize=7)
            axes.set(xlabel=self.column_axis, ylabel=", ".join(self.row_axes))
            axes.set_xticks(range(len(self.columns)), [value for (value,) in self.columns])
            axes.set_yticks(range(len(self.rows)), [", ".join(row) for row in self.rows])
            axes.set_title(title, fontsize=8)
            figure.colorbar(picture, ax=axes)
        out = io.BytesIO()
        with rc_context({"svg.hashsalt": "ssl_hub", "svg.fonttype": "none"}):
            figure.savefig(out, format="svg", metadata={"Date": None})
        return out.getvalue()

    def shown(self, title: str, point: Point) -> str:
        """A number with its interval, and what is odd about it; nothing where there is none."""
        sample = self.values[title].get(point)
        if sample is None:
            return ""
        fewer = f", {sample.runs} of {self.seeds} runs" if (sample.runs or self.seeds) < self.seeds else ""
        return sample.with_interval + fewer + (f", {sample.collapsed} collapsed" if sample.collapsed else "")

    def head(self, title: str) -> list[str]:
        """What stands over the columns of a table of a measurement."""
        if self.column_axis is None:
            return [*self.row_axes, title]
        *others, last = self.row_axes
        return [*others, f"{last} / {self.column_axis}", *self.axes[self.column_axis]]

    def _lines(self, title: str) -> tuple[list[str], list[list[str]]]:
        rows = [[*row, *(self.shown(title, row + column) for column in self.columns)] for row in self.rows]
        return self.head(title), rows


def _mean(sample: Sample | None) -> float:
    return math.nan if sample is None else sample.mean
