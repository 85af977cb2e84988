"""What a classifier does with each class: counts, recall and precision, and which classes it takes for which."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ssl_hub.atomic import replace_file
from ssl_hub.evaluate.intervals import wilson

PER_CLASS, CONFUSION = "per_class.csv", "confusion.csv"
SHOWN = 5

Row = dict[str, str | int | float | None]


@dataclass(frozen=True)
class PerClass:
    """``matrix`` int64 [K, K] counts images by their own class (row) and the class that was guessed (column)."""

    classes: Sequence[str]
    matrix: NDArray[np.int64]

    @classmethod
    def of(cls, guesses: NDArray[np.int64], labels: NDArray[np.int64], classes: Sequence[str]) -> PerClass:
        size = len(classes)
        counts = np.bincount(labels * size + guesses, minlength=size * size)
        return cls(tuple(classes), counts.reshape(size, size))

    def rows(self) -> list[Row]:
        """For each class: ``images``, ``right``, ``recall`` in percent with its 95 % interval, ``precision``.

        None where a class has no image, or was never guessed.
        """
        found: list[Row] = []
        for place, name in enumerate(self.classes):
            images, guessed = int(self.matrix[place].sum()), int(self.matrix[:, place].sum())
            right = int(self.matrix[place, place])
            recall = 100 * right / images if images else None
            low, high = (None, None) if recall is None else wilson(recall, images)
            precision = 100 * right / guessed if guessed else None
            row: Row = {"class": name, "images": images, "right": right, "recall": recall, "low": low, "high": high}
            found.append({**row, "precision": precision})
        return found

    def worst(self, count: int = SHOWN) -> list[str]:
        """A line for each of the classes with the lowest recall, with what they are most often taken for."""
        images = self.matrix.sum(axis=1)
        recalls = self.matrix.diagonal() / np.maximum(images, 1)
        lines = []
        for place in sorted(np.flatnonzero(images).tolist(), key=lambda place: float(recalls[place]))[:count]:
            others = self.matrix[place].copy()
            others[place] = 0
            taken = f", mostly taken for {self.classes[int(others.argmax())]}" if others.any() else ""
            lines.append(f"{self.classes[place]}: {100 * recalls[place]:.1f} % of {images[place]} images right{taken}")
        return lines

    def write(self, folder: Path) -> None:
        """``per_class.csv`` and ``confusion.csv``, which has the classes in its first row and column."""
        rows = self.rows()
        _write(folder / PER_CLASS, [list(rows[0]), *([_cell(v) for v in row.values()] for row in rows)])
        counts = self.matrix.tolist()
        named = [[name, *row] for name, row in zip(self.classes, counts, strict=True)]
        _write(folder / CONFUSION, [["class", *self.classes], *named])


def _cell(value: str | int | float | None) -> str | int:
    return "" if value is None else f"{value:.2f}" if isinstance(value, float) else value


def _write(path: Path, rows: Sequence[Sequence[str | int]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    replace_file(path, text.getvalue().encode())
