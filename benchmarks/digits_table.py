"""The methods and the paper's ablations on the built-in digits, over seeds: the table in benchmarks/README.md.

python benchmarks/digits_table.py --seeds 0 1 2 --output runs/digits_table

Each cell is trained by its recipe and probed on the test split. Finished cells are not trained again.
"""

import argparse
import statistics
from pathlib import Path

import ssl_hub
from ssl_hub.model.metrics import read_metrics
from ssl_hub.model.results import read_results

LINEAR = "byol-linear-digits"
NO_EMA = {"target.kind": "stopgrad"}
SYMMETRIC = {"predictor.kind": "symmetric"}
METHODS: dict[str, tuple[str, dict[str, object]]] = {
    "DirectPred": ("directpred-digits", {}),
    "BYOL, two-layer predictor": ("byol-digits", {}),
    "SimSiam, two-layer predictor": ("simsiam-digits", {}),
    "BYOL, linear predictor": (LINEAR, {}),
    "symmetric linear predictor, EMA": (LINEAR, SYMMETRIC),
    "symmetric linear predictor, no EMA": (LINEAR, {**SYMMETRIC, **NO_EMA}),
    "symmetric, no EMA, alpha_p = 10": (LINEAR, {**SYMMETRIC, **NO_EMA, "optim.predictor_lr_ratio": 10.0}),
    "DirectPred, no EMA": ("directpred-digits", NO_EMA),
    "no predictor, no EMA": (LINEAR, {"predictor.kind": "identity", **NO_EMA}),
    "linear predictor, no stop-gradient": (LINEAR, {"target.kind": "none"}),
}
BASELINES = {"same backbone, untrained": "init:directpred-digits", "raw pixels": "pixels"}
COLUMNS = {
    "linear-cached": "linear probe (%)",
    "knn": "20-NN (%)",
    "std": "feature std (% of 1/√d)",
    "rank": "effective rank (of 64)",
}

Cell = dict[str, float]


def trained(folder: Path, recipe: str, overrides: dict[str, object], seed: int) -> Cell:
    if not (folder / "results.json").exists():
        ssl_hub.pretrain(recipe, output=folder, overwrite=True, overrides={**overrides, "train.seed": seed})
    last = read_metrics(folder)[-1]
    health = {"std": 100 * last["feature_std"] / last["healthy_std"], "rank": last["effective_rank"]}
    return {r.protocol: r.value for r in read_results(folder) if r.metric == "top1"} | health


def untrained(model: str, seed: int) -> Cell:
    options = {"seed": seed, "image_size": 16 if model == "pixels" else None}
    results = ssl_hub.linear_probe(model, "digits", **options) + ssl_hub.knn(model, "digits", **options)
    return {r.protocol: r.value for r in results if r.metric == "top1"}


def row(label: str, cells: list[Cell]) -> str:
    texts = []
    for column in COLUMNS:
        values = [cell[column] for cell in cells if column in cell]
        spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
        texts.append(f"{statistics.mean(values):.1f}{spread}" if values else "")
    return f"| {label} | {' | '.join(texts)} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--output", type=Path, default=Path("runs/digits_table"))
    arguments = parser.parse_args()
    rows = []
    for label, (recipe, overrides) in METHODS.items():
        name = label.replace(", ", "-").replace(" ", "-")
        cells = [trained(arguments.output / f"{name}-{s}", recipe, overrides, s) for s in arguments.seeds]
        rows.append(row(label, cells))
    for label, model in BASELINES.items():
        rows.append(row(label, [untrained(model, seed) for seed in arguments.seeds]))
    print(f"| features | {' | '.join(COLUMNS.values())} |\n|{'---|' * (len(COLUMNS) + 1)}\n" + "\n".join(rows))


if __name__ == "__main__":
    main()
