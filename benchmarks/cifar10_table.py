"""The methods and the paper's ablations on CIFAR-10 at 32 pixels, over seeds, with a verdict on each claim.

python benchmarks/cifar10_table.py --data CIFAR10 --epochs 10 --seeds 0 1 2 --output runs/cifar10_table

Each cell is trained by its recipe in ``ssl_hub/zoo/cpu.py`` and probed on the test split, whose labels chose nothing.
One thread a process: for two cores start two, with other seeds. A cell that is finished is kept in the JSON and not
trained again; one that was stopped goes on from its checkpoint. ``--minutes`` begins no cell after so many, ``--cells``
takes those whose labels match a pattern.
"""

import argparse
import fnmatch
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from side_by_side import machine, one_thread

import ssl_hub
from ssl_hub.atomic import replace_file
from ssl_hub.model.health import health_of
from ssl_hub.model.metrics import read_metrics
from ssl_hub.model.results import Result, read_results
from ssl_hub.tables.cells import Claim
from ssl_hub.tables.claims import Sample, judge

RESULTS = Path(__file__).parent / "results" / "cifar10-table.json"
DIRECTPRED, BYOL, LINEAR, SIMSIAM = (f"{method}-cifar10" for method in ("directpred", "byol", "byol-linear", "simsiam"))
NO_EMA = {"target.kind": "stopgrad"}
SYMMETRIC = {"predictor.kind": "symmetric"}
UNTRAINED = "same backbone, untrained"
METHODS: dict[str, tuple[str, dict[str, Any]]] = {  # in the order in which they are trained
    "DirectPred": (DIRECTPRED, {}),
    "BYOL, linear predictor": (LINEAR, {}),
    "symmetric linear predictor, EMA": (LINEAR, SYMMETRIC),
    "symmetric linear predictor, no EMA": (LINEAR, {**SYMMETRIC, **NO_EMA}),
    "BYOL, two-layer predictor": (BYOL, {}),
    "SimSiam, two-layer predictor": (SIMSIAM, {}),
    "symmetric, no EMA, alpha_p = 10": (LINEAR, {**SYMMETRIC, **NO_EMA, "optim.predictor_lr_ratio": 10.0}),
    "no predictor, no EMA": (LINEAR, {"predictor.kind": "identity", **NO_EMA}),
    "linear predictor, no stop-gradient": (LINEAR, {"target.kind": "none"}),
}
CLAIMS = (
    Claim(
        text="DirectPred does better than a linear predictor trained by gradients",
        kind="above",
        cell="DirectPred",
        than="BYOL, linear predictor",
    ),
    Claim(
        text="DirectPred does as well as a two-layer predictor",
        kind="matches",
        cell="DirectPred",
        than="BYOL, two-layer predictor",
    ),
    Claim(
        text="a symmetric predictor does better with EMA than the regular one",
        kind="above",
        cell="symmetric linear predictor, EMA",
        than="BYOL, linear predictor",
    ),
    Claim(
        text="a symmetric predictor without EMA collapses",
        kind="collapses",
        cell="symmetric linear predictor, no EMA",
        than="symmetric linear predictor, EMA",
    ),
    Claim(
        text="alpha_p > 1 rescues the symmetric predictor without EMA",
        kind="above",
        cell="symmetric, no EMA, alpha_p = 10",
        than="symmetric linear predictor, no EMA",
    ),
    *(
        Claim(text=f"{what}, features collapse", kind="collapses", cell=cell, than="BYOL, linear predictor")
        for what, cell in (
            ("without a predictor", "no predictor, no EMA"),
            ("without a stop-gradient", "linear predictor, no stop-gradient"),
        )
    ),
)
COLUMNS = {
    "linear-cached": "linear probe (%)",
    "knn": "kNN (%)",
    "spread": "feature std (% of 1/√d)",
    "effective_rank": "effective rank",
}

Cell = dict[str, Any]
Cells = dict[str, dict[str, Cell]]  # by label and seed


def trained(folder: Path, recipe: str, overrides: dict[str, Any]) -> Cell:
    """Accuracies of a run and the state of its features; it is trained from where it is."""
    began, already = time.process_time(), len(read_metrics(folder))
    ssl_hub.pretrain(recipe, output=folder, resume="auto", overrides=overrides)
    metrics, seconds = read_metrics(folder), time.process_time() - began
    last, health = metrics[-1], health_of(metrics)
    cell = {**top1(read_results(folder)), "steps": last["step"], "effective_rank": round(last["effective_rank"], 2)}
    cell |= {"spread": round(100 * last["feature_std"] / last["healthy_std"], 1)}
    cell |= {"health": "" if health is None else health.state}
    return cell if already else {**cell, "processor_minutes": round(seconds / 60, 1)}


def untrained(recipe: str, data: dict[str, str], seed: int) -> Cell:
    options: dict[str, Any] = {
        "train_split": data["data.train_split"],
        "test_split": data["data.test_split"],
        "seed": seed,
    }
    k = ssl_hub.get_recipe(recipe).runtime.knn_k
    model, name = f"init:{recipe}", data["data.name"]
    return top1(ssl_hub.linear_probe(model, name, **options) + ssl_hub.knn(model, name, k=k, **options))


def top1(results: list[Result]) -> Cell:
    return {result.protocol: round(result.value, 2) for result in results if result.metric == "top1"}


class Kept:
    """The finished cells in the JSON, all of the same settings."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path, self.settings = path, settings
        self.read()

    def read(self) -> Cells:
        """What is there now: another process may have added cells."""
        found = json.loads(self.path.read_text()) if self.path.exists() else {"settings": self.settings, "cells": {}}
        if found["settings"] != self.settings:
            raise SystemExit(
                f"{self.path} has cells of {found['settings']}, these are of {self.settings}; give --results"
            )
        cells: Cells = found["cells"]
        return cells

    def add(self, label: str, seed: int, cell: Cell) -> None:
        cells = self.read()
        cells.setdefault(label, {})[str(seed)] = cell
        content = {
            "command": "python benchmarks/cifar10_table.py",
            "machine": machine("timm"),
            "settings": self.settings,
        }
        replace_file(self.path, (json.dumps({**content, "cells": cells}, indent=1) + "\n").encode())


def sample(cells: Cells, label: str, column: str = "linear-cached") -> Sample | None:
    runs = [cell for cell in cells.get(label, {}).values() if column in cell]
    if not runs:
        return None
    spreads = [cell["spread"] / 100 for cell in runs if "spread" in cell]
    return Sample.of(
        [cell[column] for cell in runs],
        collapsed=sum(cell.get("health") == "collapsed" for cell in runs),
        spread=sum(spreads) / len(spreads) if spreads else None,
    )


def table(cells: Cells) -> str:
    """Means over the seeds, and what they say of the claims on the linear probe."""
    lines = [f"| features | seeds | {' | '.join(COLUMNS.values())} |", f"|{'---|' * (len(COLUMNS) + 2)}"]
    for label in (*METHODS, UNTRAINED):
        if label in cells:
            columns = (sample(cells, label, column) for column in COLUMNS)
            lines.append(f"| {label} | {len(cells[label])} | {' | '.join(str(c) if c else '' for c in columns)} |")
    lines += ["", "| claim | verdict | numbers |", "|---|---|---|"]
    for claim in CLAIMS:
        said = judge(claim, sample(cells, claim.cell), sample(cells, claim.than), sample(cells, UNTRAINED))
        lines.append(f"| {claim.text} | {said.verdict} | {said.evidence} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="CIFAR-10: parquet files or folders of images")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument(
        "--train-split", default="train", help="a part of it, such as train[:10000], to prove it sooner"
    )
    parser.add_argument("--test-split", default="test")
    parser.add_argument("--precision", choices=("no", "bf16"), default="no")
    parser.add_argument("--cells", default="*", help="labels to train, as a shell-style pattern")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no cell after these")
    parser.add_argument("--output", type=Path, default=Path("runs/cifar10_table"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    began = time.monotonic()
    os.environ["ACCELERATE_MIXED_PRECISION"] = arguments.precision
    one_thread()
    data = {
        "data.name": arguments.data,
        "data.train_split": arguments.train_split,
        "data.test_split": arguments.test_split,
    }
    settings = {"epochs": arguments.epochs, "precision": arguments.precision}
    settings |= {"train": arguments.train_split, "test": arguments.test_split}
    kept = Kept(arguments.results, settings)
    common = {**data, "data.pretrain_split": arguments.train_split, "train.epochs": arguments.epochs}
    for seed in arguments.seeds:
        for label in fnmatch.filter([UNTRAINED, *METHODS], arguments.cells):
            if str(seed) in kept.read().get(label, {}) or time.monotonic() - began > 60 * arguments.minutes:
                continue
            if label == UNTRAINED:
                cell = untrained(DIRECTPRED, data, seed)
            else:
                recipe, overrides = METHODS[label]
                folder = arguments.output / f"{label.replace(',', '').replace(' ', '-')}-{seed}"
                cell = trained(folder, recipe, {**common, **overrides, "train.seed": seed})
            kept.add(label, seed, cell)
            print(f"{label}, seed {seed}: {cell}", file=sys.stderr, flush=True)
    print(table(kept.read()))


if __name__ == "__main__":
    main()
