"""Cost of the DirectPred update: accumulate F, decompose it, write the predictor.

python benchmarks/predictor_update.py

Ours is the predictor that trains (one matrix product, a symmetric eigen-solver). The other is the formulation of the
paper's released code: an outer product for each sample, their mean, a general eigen-solver, real parts, reassembled.
Both see the same float32 projections of two views, take turns in one process, and must agree. Medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from ssl_hub.model.predictors import PREDICTORS, Predictor

RHO, EPS = 0.3, 0.1


class OuterProducts:
    """The update as the paper's released code formulates it."""

    def __init__(self, width: int) -> None:
        self.average: Tensor | None = None
        self.weight = torch.zeros(width, width)

    @torch.no_grad()
    def update(self, views: list[Tensor]) -> None:
        batch = torch.stack([torch.bmm(f.unsqueeze(2), f.unsqueeze(1)).mean(dim=0) for f in views]).mean(dim=0)
        self.average = batch if self.average is None else RHO * self.average + (1 - RHO) * batch
        values, vectors = torch.linalg.eig(self.average)
        values, vectors = values.real.clamp(min=0), vectors.real
        p = (values / values.max()).sqrt() + EPS
        self.weight.copy_(vectors @ torch.diag(p.clamp(min=1e-4)) @ vectors.mT)


def seconds(action: Callable[[], None]) -> float:
    """Of the wall with several threads; of the processor with one, which a busy machine does not change."""
    now = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    began = now()
    action()
    return now() - began


def ours(predictor: Predictor, views: list[Tensor]) -> None:
    predictor.observe(views, views)
    predictor.refresh(0)


def measure(width: int, batch: int, threads: int, repeats: int) -> dict[str, float]:
    torch.set_num_threads(threads)
    generator = torch.Generator().manual_seed(0)
    scale = torch.logspace(0, -2, width)  # eigenvalues over four decades, as those of trained projections
    views = [torch.randn(batch, width, generator=generator) * scale for _ in range(2)]
    predictor, other = PREDICTORS["direct"](width, rho=RHO, eps=EPS), OuterProducts(width)
    ours(predictor, views)
    other.update(views)
    matrix = predictor.matrix()
    assert matrix is not None
    difference = float((matrix - other.weight).norm() / matrix.norm())
    assert difference < 1e-3, f"the two formulations differ by {difference:.1e}"
    times = [(seconds(lambda: ours(predictor, views)), seconds(lambda: other.update(views))) for _ in range(repeats)]
    fast, slow = (statistics.median(column) for column in zip(*times, strict=True))
    accumulate = statistics.median(seconds(lambda: predictor.observe(views, views)) for _ in range(repeats))
    return {
        "threads": threads,
        "ours_ms": 1e3 * fast,
        "accumulate_ms": 1e3 * accumulate,
        "outer_products_ms": 1e3 * slow,
        "ratio": slow / fast,
        "ratio_lowest": min(s / f for f, s in times),
        "difference": difference,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=4096, help="images; each has two views")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args()
    rows = [measure(arguments.width, arguments.batch, threads, arguments.repeats) for threads in arguments.threads]
    print("| threads | ours (ms) | of it accumulate (ms) | outer products, general solver (ms) | ratio | lowest |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['threads']} | {row['ours_ms']:.2f} | {row['accumulate_ms']:.2f} | {row['outer_products_ms']:.0f}"
            f" | {row['ratio']:.0f} | {row['ratio_lowest']:.0f} |"
        )
    print(json.dumps({"width": arguments.width, "batch": arguments.batch, "torch": torch.__version__, "rows": rows}))


if __name__ == "__main__":
    main()
