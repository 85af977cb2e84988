"""The page of a sweep: a map of each measurement over the grid, the runs side by side, and those that did not end."""

from __future__ import annotations

import shlex

from ssl_hub.report.html import ABSENT, Child, Markup, Missing, element, framed, table, together
from ssl_hub.report.record import read_record
from ssl_hub.report.story import Story
from ssl_hub.tables.grids import Grid
from ssl_hub.train.sweep import Outcome


def measured(story: Story) -> Markup:
    """What was swept, and each measurement over the grid: darker is higher."""
    swept = _sweep(story)
    plan = swept.sweep
    axes = "; ".join(f"{key}: {', '.join(values)}" for key, values in plan.axes.items())
    alike = ", ".join(f"{key}={value}" for key, value in plan.settings.items())
    facts: list[list[Child]] = [
        ["Recipe", plan.recipe],
        ["Data", plan.data or "the recipe's"],
        ["Varied", axes],
        ["Alike in all", alike or ABSENT],
        ["Seeds", plan.seeds],
        ["Goes on with", element("code", shlex.join(["ssl-hub", "sweep", "--out", str(swept.folder)]))],
    ]
    grid = swept.grid()
    maps = [together(element("h3", title), _map(grid, title)) for title in grid.values]
    left_out = [element("p", "Left out: ", line, ".", class_="note") for line in swept.comparison.not_counted]
    return together(table(["What was swept", ""], facts, class_="facts"), *maps, *left_out)


def left(story: Story) -> Markup:
    """Each run that has not ended well, where it stands and the last words of its log."""
    swept = _sweep(story)
    if not swept.left:
        raise Missing("nothing: all runs have ended well")
    rows: list[list[Child]] = []
    for task in swept.left:
        stands = read_record(task.folder, task.name).state if task.folder.is_dir() else "not begun"
        rows.append([task.name, stands, task.last_words() or None, element("code", str(task.log))])
    return table(["Run", "Stands", "The last words of its log", "Log"], rows)


def _sweep(story: Story) -> Outcome:
    if story.sweep is None:
        raise Missing("these are runs of no sweep")
    return story.sweep


def _map(grid: Grid, title: str) -> Markup:
    """A table whose cells are the darker the higher their mean is."""
    shares = grid.shares(title)
    rows = []
    for row in grid.rows:
        cells = [
            element(
                "td",
                grid.shown(title, row + column) or ABSENT,
                style=f"--share:{shares[row + column]:.3f}" if row + column in shares else None,
            )
            for column in grid.columns
        ]
        rows.append(element("tr", *(element("th", value) for value in row), *cells))
    head = element("tr", *(element("th", name) for name in grid.head(title)))
    return framed(head, rows, class_="heat")
