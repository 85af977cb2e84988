"""Numbers over a grid of settings: as text, and as a picture of colours."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ssl_hub.tables.claims import Sample
from ssl_hub.tables.markup import markdown_table, tabular

Point = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Grid:
    """For each measurement, by its title, what was measured at each point: one value for every axis, in their order."""

    axes: Mapping[str, Sequence[str]]
    values: Mapping[str, Mapping[Point, Sample | None]]

    def markdown(self) -> str:
        """A table for each measurement: two axes as rows and columns, else a line for each point."""
        return "\n\n".join(f"**{title}**\n\n{markdown_table(*self._rows(title))}" for title in self.values)

    def latex(self) -> str:
        """The same as tabulars; needs booktabs."""
        return "\n\n".join(f"% {title}\n{tabular(*self._rows(title))}" for title in self.values) + "\n"

    def svg(self) -> bytes | None:
        """A map of colours for each measurement over two axes; None where there are not two."""
        if len(self.axes) != 2:
            return None
        from matplotlib import rc_context
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure

        (row, rows), (column, columns) = self.axes.items()
        size = 1.6 + 0.9 * len(columns), (1.2 + 0.5 * len(rows)) * len(self.values)
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        panels = figure.subplots(len(self.values), squeeze=False)[:, 0]
        for axes, (title, found) in zip(panels, self.values.items(), strict=True):
            means = [[_mean(found.get((r, c))) for c in columns] for r in rows]
            picture = axes.imshow(means, cmap="viridis", aspect="auto")
            for y, r in enumerate(rows):
                for x, c in enumerate(columns):
                    bright = picture.norm(means[y][x]) > 0.6
                    colour = "black" if bright else "white"
                    axes.text(x, y, _shown(found.get((r, c))), color=colour, ha="center", va="center", fontsize=7)
            axes.set(xlabel=column, ylabel=row)
            axes.set_xticks(range(len(columns)), columns)
            axes.set_yticks(range(len(rows)), rows)
            axes.set_title(title, fontsize=8)
            figure.colorbar(picture, ax=axes)
        out = io.BytesIO()
        with rc_context({"svg.hashsalt": "ssl_hub", "svg.fonttype": "none"}):
            figure.savefig(out, format="svg", metadata={"Date": None})
        return out.getvalue()

    def _rows(self, title: str) -> tuple[list[str], list[list[str]]]:
        """Header and rows."""
        found = self.values[title]
        if len(self.axes) == 2:
            (row, rows), (column, columns) = self.axes.items()
            head = [f"{row} / {column}", *columns]
            return head, [[r, *(_shown(found.get((r, c))) for c in columns)] for r in rows]
        return [*self.axes, title], [[*point, _shown(sample)] for point, sample in found.items()]


def _shown(sample: Sample | None) -> str:
    if sample is None:
        return ""
    collapsed = f", {sample.collapsed} collapsed" if sample.collapsed else ""
    return f"{sample}{collapsed}"


def _mean(sample: Sample | None) -> float:
    return float("nan") if sample is None else sample.mean
