"""The methods on the built-in digits, over seeds: the table in the README.

python benchmarks/digits_table.py --seeds 0 1 2 --output runs/digits_table

Each cell is trained by its recipe and probed on the test split. Finished cells are not trained again.
"""

import argparse
import statistics
from pathlib import Path

import ssl_hub
from ssl_hub.evaluate.results import read_results

METHODS: dict[str, tuple[str, dict[str, object]]] = {
    "DirectPred": ("directpred-digits", {}),
    "BYOL, two-layer predictor": ("byol-digits", {}),
    "SimSiam, two-layer predictor": ("simsiam-digits", {}),
    "BYOL, linear predictor": ("byol-linear-digits", {}),
    "symmetric linear predictor, EMA": ("byol-linear-digits", {"predictor.kind": "symmetric"}),
    "symmetric linear predictor, no EMA": (
        "byol-linear-digits",
        {"predictor.kind": "symmetric", "target.kind": "stopgrad"},
    ),
}
BASELINES = {"same backbone, random": "timm:resnet10_tiny", "raw pixels": "pixels"}


def measured(folder: Path, recipe: str, overrides: dict[str, object], seed: int) -> dict[str, float]:
    if not (folder / "results.json").exists():
        ssl_hub.pretrain(recipe, output=folder, overwrite=True, overrides={**overrides, "train.seed": seed})
    return {r.protocol: r.value for r in read_results(folder) if r.metric == "top1"}


def row(label: str, cells: list[dict[str, float]]) -> str:
    texts = []
    for protocol in ("linear", "knn"):
        values = [cell[protocol] for cell in cells]
        spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
        texts.append(f"{statistics.mean(values):.1f}{spread}")
    return f"| {label} | {' | '.join(texts)} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--output", type=Path, default=Path("runs/digits_table"))
    arguments = parser.parse_args()
    rows = []
    for label, (recipe, overrides) in METHODS.items():
        name = label.replace(", ", "-").replace(" ", "-")
        cells = [measured(arguments.output / f"{name}-{s}", recipe, overrides, s) for s in arguments.seeds]
        rows.append(row(label, cells))
    for label, model in BASELINES.items():
        cells = []
        for seed in arguments.seeds:
            options = {"image_size": 16, "seed": seed}
            results = ssl_hub.linear_probe(model, "digits", **options) + ssl_hub.knn(model, "digits", **options)
            cells.append({r.protocol: r.value for r in results if r.metric == "top1"})
        rows.append(row(label, cells))
    print("| features | linear probe (%) | 20-NN (%) |\n|---|---|---|\n" + "\n".join(rows))


if __name__ == "__main__":
    main()
