"""What `ssl-hub reproduce claims` has found, with raw pixels and learning curves beside it, kept for the documentation.

ssl-hub reproduce claims --data CIFAR10 --scale mini --seeds 3 --out RUNS
python benchmarks/evidence.py RUNS
python docs/hooks.py      # docs/evidence.md, of benchmarks/results/claims-mini.json

The first command goes on where it was stopped. The second reads what is done so far, writes results/claims-mini.json
and draws docs/assets/claims-mini.svg; --name claims-longer gives both another name.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import ssl_hub
from ssl_hub.model.metrics import read_metrics
from ssl_hub.tables.paper import TABLES
from ssl_hub.tables.rendering import as_json
from ssl_hub.train import begun
from ssl_hub.train.plan import PLAN, Plan
from ssl_hub.train.reproduction import summarised

HERE = Path(__file__).parent
DRAWN = HERE.parent / "docs" / "assets"
PIECES = 40  # of a curve, each the mean of its readings and of the seeds
CURVES = {"spread": "feature std (% of 1/√d)", "rank": "effective rank", "loss": "loss"}
CURVE_OF = {
    "spread": lambda reading: 100 * reading["feature_std"] / reading["healthy_std"],
    "rank": lambda reading: reading["effective_rank"],
    "loss": lambda reading: reading["loss"],
}
SHOWN = {  # rows in the figure, with their colours (Okabe and Ito's)
    "DirectPred": "#0072B2",
    "two-layer": "#009E73",
    "linear": "#E69F00",
    "linear, no EMA": "#CC79A7",
    "symmetric": "#56B4E9",
    "symmetric, no EMA": "#D55E00",
}


def curves(runs: Sequence[Path]) -> dict[str, list[float]]:
    """Means over the seeds, in PIECES equal parts of the training."""
    found = {}
    logs = [[reading for reading in read_metrics(run) if "feature_std" in reading] for run in runs]
    for name, of in CURVE_OF.items():
        seeds = [np.array([of(reading) for reading in log]) for log in logs]
        pieces = [[float(np.mean(part)) for part in np.array_split(seed, PIECES)] for seed in seeds]
        found[name] = [round(value, 3) for value in np.mean(pieces, axis=0).tolist()]
    return found


def seconds(run: Path) -> float:
    """That a run spent in its steps."""
    return sum(reading.get("seconds", 0.0) for reading in read_metrics(run))


def raw_pixels(run: Path, data: str, protocol: str) -> float:
    """Top-1 of the same probe on the pixels, at the size and with the labels that ``run`` had."""
    recipe = json.loads((run / "recipe.json").read_text())["recipe"]
    options = {"image_size": recipe["views"]["size"], "train_split": recipe["data"]["train_split"]}
    results = ssl_hub.linear_probe("pixels", data, protocol=protocol, **options)
    return next(result.value for result in results if result.metric == "top1")


def draw(rows: Sequence[dict[str, Any]], steps: int, out: Path) -> None:
    """The curves of SHOWN, a panel for each kind."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 7.6), layout="constrained")
    at = (np.arange(PIECES) + 0.5) * steps / PIECES
    for axes, (kind, label) in zip(figure.subplots(len(CURVES), 1, sharex=True), CURVES.items(), strict=True):
        for row in rows:
            if row["row"] in SHOWN and row["runs"]:
                axes.plot(at, row["curves"][kind], color=SHOWN[row["row"]], label=row["row"], linewidth=1.6)
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    figure.axes[-1].set_xlabel("step")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
    with rc_context({"svg.hashsalt": "claims", "svg.fonttype": "none"}):
        figure.savefig(out, metadata={"Date": None})


def main(folder: Path, name: str) -> None:
    """What is done in the folder so far."""
    plan = begun.read(Plan, folder / PLAN, what="reproduction")
    if plan is None:
        raise SystemExit(f"there is no {PLAN} in {folder}; begin with ssl-hub reproduce claims --out {folder}")
    found = json.loads(as_json(summarised(plan, TABLES["claims"], folder)))
    runs = [folder / label for row in found["entries"] for label in row["runs"]]
    for row in found["entries"]:
        if row["runs"]:
            row["curves"] = curves([folder / label for label in row["runs"]])
    steps = read_metrics(runs[0])[-1]["step"]
    facts = json.loads((runs[0] / "recipe.json").read_text())["run"]
    found["pixels"] = raw_pixels(runs[0], plan.data, found["entries"][0]["protocol"].removeprefix("linear-"))
    found["facts"] |= {
        "precision": facts["precision"],
        "steps of a run": f"{steps:,}",
        "hours of one core in training steps": f"{sum(map(seconds, runs)) / 3600:.1f}",
    }
    (HERE / "results" / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
    draw(found["entries"], steps, DRAWN / f"{name}.svg")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--name", default="claims-mini")
    asked = parser.parse_args()
    main(asked.runs, asked.name)
