"""What a table of results is made of: cells that name their recipe, what was printed in them, and what is claimed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple

from ssl_hub.config import Recipe, Scalar
from ssl_hub.errors import UsageError
from ssl_hub.registry import suggest
from ssl_hub.zoo import get_recipe


class Printed(NamedTuple):
    """A published accuracy in percent; ``std`` over repeats, None where none is printed."""

    mean: float
    std: float | None = None


@dataclass(frozen=True)
class Cell:
    """One place of a table: a recipe with overrides, and the published number of each metric, None for one of which a
    figure is all there is.

    ``protocol`` is the evaluation that gave it, under the name that results carry.
    """

    row: str
    column: str
    recipe: str
    protocol: str
    overrides: Mapping[str, Scalar] = field(default_factory=dict)
    printed: Mapping[str, Printed | None] = field(default_factory=dict)  # by metric: "top1", "top5"

    @property
    def name(self) -> str:
        return f"{self.row}, {self.column}"

    @property
    def folder(self) -> str:
        """The name in letters that every file system takes."""
        return re.sub(r"[^\w.=-]+", "-", self.name).strip("-").lower()

    def settings(self) -> Recipe:
        """The recipe with the overrides of this cell."""
        return get_recipe(self.recipe, **self.overrides)


Kind = Literal["above", "matches", "collapses"]


@dataclass(frozen=True)
class Claim:
    """What a table is printed to show, as a statement about the top-1 accuracy of two of its cells.

    ``above``: ``cell`` is better than ``than``. ``matches``: it is as good to within a point. ``collapses``: it is
    worse than ``than`` and no better than an untrained backbone.
    """

    text: str
    kind: Kind
    cell: str  # names of cells
    than: str


def top1(
    row: str,
    column: str,
    recipe: str,
    protocol: str,
    number: Sequence[float],
    overrides: Mapping[str, Scalar] = MappingProxyType({}),
) -> Cell:
    """A cell of one published top-1 accuracy: its mean, and its std where there is one."""
    return Cell(row, column, recipe, protocol, dict(overrides), {"top1": Printed(*number)})


@dataclass(frozen=True, kw_only=True)
class Table:
    """A published table: what it measured, its paper and the label it has in it, and over how many seeds."""

    name: str
    title: str
    source: str
    repeats: int
    cells: Sequence[Cell]
    claims: Sequence[Claim] = ()
    notes: Sequence[str] = ()
    paper: str = "Tian et al. 2021 (arXiv 2102.06810)"

    def __post_init__(self) -> None:
        names = [cell.name for cell in self.cells]
        assert len(set(names)) == len(names), self.name
        assert all(name in names for claim in self.claims for name in (claim.cell, claim.than)), self.name

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(metric for cell in self.cells for metric in cell.printed))

    def __getitem__(self, name: str) -> Cell:
        names = {cell.name: cell for cell in self.cells}
        if name not in names:
            raise UsageError(f"table {self.name!r} has no cell {name!r}{suggest(name, names)}")
        return names[name]
