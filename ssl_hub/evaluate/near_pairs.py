"""All pairs of rows whose cosine is high enough, exactly, in memory that does not grow with the number of rows."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from ssl_hub.errors import UsageError

ROWS, COLUMNS = 1024, 8192  # of the similarities that are held at a time: 32 MiB
MOST = 1_000_000  # pairs, beyond which nobody looks at them


@dataclass(frozen=True, eq=False)
class Pairs:
    """Rows ``first`` and ``second``, int64 [P], and their cosine, float32 [P]; in the order of first, then second."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    similarity: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.first)

    def __iter__(self) -> Iterator[tuple[int, int, float]]:
        yield from zip(self.first.tolist(), self.second.tolist(), self.similarity.tolist(), strict=True)


NONE = Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))


def pairs_over(
    one: NDArray[np.float32], other: NDArray[np.float32] | None, threshold: float, *, engine: str | None = None
) -> Pairs:
    """The pairs of a row of ``one`` [N, C] and one of ``other`` [M, C] whose cosine is at least ``threshold``.

    Without ``other``, those of two different rows of ``one``, each once, the smaller number first. A zero vector is
    near nothing. ``engine`` is ``faiss`` or ``torch``; left out, faiss where it is installed: a flat index, as exact.

    Raises UsageError where there are over a million.
    """
    chosen = engine or ("faiss" if _faiss() else "torch")
    blocks = (_by_faiss if chosen == "faiss" else _by_torch)(one, other, threshold)
    found: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]] = []
    count = 0
    for first, second, similarity in blocks:
        if other is None:
            once = first < second
            first, second, similarity = first[once], second[once], similarity[once]
        count += len(first)
        if count > MOST:
            raise UsageError(
                f"over {MOST:,} pairs have a similarity of at least {threshold:g}; raise the threshold, and look at "
                "the model: features that have collapsed are all alike"
            )
        found.append((first, second, similarity))
    if not count:
        return NONE
    first, second, similarity = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.lexsort((second, first))
    return Pairs(first[order], second[order], similarity[order].clip(-1, 1))


Block = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]


def _by_torch(one: NDArray[np.float32], other: NDArray[np.float32] | None, threshold: float) -> Iterator[Block]:
    bank = one if other is None else other
    for top in range(0, len(one), ROWS):
        rows = unit(one[top : top + ROWS])
        for left in range(top if other is None else 0, len(bank), COLUMNS):
            products = rows @ unit(bank[left : left + COLUMNS]).T
            first, second = (products >= threshold).nonzero(as_tuple=True)
            yield first.numpy() + top, second.numpy() + left, products[first, second].numpy()


def _by_faiss(one: NDArray[np.float32], other: NDArray[np.float32] | None, threshold: float) -> Iterator[Block]:
    bank = one if other is None else other
    for left in range(0, len(bank), COLUMNS):
        index = _faiss().IndexFlatIP(one.shape[1])
        index.add(unit(bank[left : left + COLUMNS]).numpy())
        below = float(np.nextafter(np.float32(threshold), np.float32(-2)))  # faiss takes what is above, not what equals
        for top in range(0, min(len(one), left + COLUMNS) if other is None else len(one), ROWS):
            limits, similarity, second = index.range_search(unit(one[top : top + ROWS]).numpy(), below)
            first = np.repeat(np.arange(len(limits) - 1), np.diff(limits.astype(np.int64)))
            yield first + top, second + left, similarity


def unit(rows: NDArray[np.float32]) -> torch.Tensor:
    """Rows of length 1; zero vectors stay what they are."""
    return functional.normalize(torch.from_numpy(np.ascontiguousarray(rows)))


def _faiss() -> Any:
    try:
        return importlib.import_module("faiss")
    except ImportError:
        return None
