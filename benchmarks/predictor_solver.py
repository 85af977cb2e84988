"""DirectPred by a decomposition and by matrix products: the same training, step by step, and the root's error.

python benchmarks/predictor_solver.py                       # digits, 200 steps, three seeds
python benchmarks/predictor_solver.py --save FILE           # JSON

Three runs of each seed see the same images: one decomposes F, one iterates, and one decomposes F with its last bits
changed, which says how far two runs part that differ by rounding alone. Distances are relative, |a - b| / |b|, over
all weights of the backbone and the projector.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

import ssl_hub
from ssl_hub.data.loaders import TrainLoader
from ssl_hub.data.sources import open_part
from ssl_hub.data.views import TwoViews
from ssl_hub.model.siamese import build
from ssl_hub.model.spectrum import predictor_from_correlation
from ssl_hub.train.optim import scaled_lr
from ssl_hub.train.step import Trainer

READ_AT = (1, 10, 50, 100, 150, 200)


def trained(recipe_name: str, seed: int, steps: int, *, solver: str, nudge: float = 0.0) -> list[dict[str, Any]]:
    """What a run holds at each step that is read; ``nudge`` is the relative size of a change of F at every step."""
    recipe = ssl_hub.get_recipe(recipe_name, **{"predictor.solver": solver, "train.seed": seed})
    torch.manual_seed(seed)
    siamese, train = build(recipe), recipe.train
    lr, _ = scaled_lr(recipe.optim, batch_per_process=train.batch_size, processes=1, accumulation=1)
    trainer = Trainer(siamese, recipe.optim, Accelerator(cpu=True), lr=lr, total_steps=steps)
    source = open_part(recipe.data, recipe.data.pretrain_split)
    loader = TrainLoader(
        source, TwoViews(recipe.views, seed=seed), batch_size=train.batch_size, seed=seed, device="cpu"
    )
    predictor: Any = siamese.predictor
    generator = torch.Generator().manual_seed(seed + 1)
    if nudge:
        exactly = predictor.compute

        def nudged() -> Tensor:
            f = predictor.correlation.value
            noise = torch.randn(f.shape, generator=generator)
            kept = f.clone()
            f.add_(nudge * f.abs().amax() * (noise + noise.mT) / 2)
            weight: Tensor = exactly()
            f.copy_(kept)
            return weight

        predictor.compute = nudged
    found, epoch = [], 0
    while trainer.step < steps:
        for micro_batches in loader.epoch(epoch):
            report = trainer.advance(micro_batches)
            if trainer.step in READ_AT or trainer.step == steps:
                found.append(reading(trainer, report.loss))
            if trainer.step == steps:
                break
        epoch += 1
    return found


def reading(trainer: Trainer, loss: Tensor) -> dict[str, Any]:
    predictor: Any = trainer.siamese.predictor
    correlation = predictor.correlation.value
    exact = predictor_from_correlation(correlation.double(), eps=predictor.formula["eps"])
    error = torch.linalg.matrix_norm(predictor.weight.detach().double() - exact, 2)
    weights = torch.cat([p.detach().flatten() for p in trainer.siamese.encoder.parameters()])
    return {"step": trainer.step, "loss": float(loss), "weights": weights, "error": float(error)}


def compared(runs: list[dict[str, Any]], others: list[dict[str, Any]]) -> list[dict[str, float]]:
    rows = []
    for one, other in zip(runs, others, strict=True):
        apart = float((one["weights"] - other["weights"]).norm() / other["weights"].norm())
        rows.append({"step": one["step"], "weights": apart, "loss": abs(one["loss"] - other["loss"])})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", default="directpred-digits")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--save", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = []
    for seed in arguments.seeds:
        exact, iterated, nudged = (
            trained(arguments.recipe, seed, arguments.steps, **how)
            for how in ({"solver": "eigh"}, {"solver": "iteration"}, {"solver": "eigh", "nudge": 6e-8})
        )
        largest = [max(row["error"] for row in run) for run in (exact, iterated)]
        found.append(
            {
                "seed": seed,
                "iteration": compared(iterated, exact),
                "rounding": compared(nudged, exact),
                "largest_error": {"eigh": largest[0], "iteration": largest[1]},
                "last_loss": {"eigh": exact[-1]["loss"], "iteration": iterated[-1]["loss"]},
            }
        )
    print("| step | weights apart, iteration | rounding alone | loss apart, iteration | rounding alone |")
    print("|---|---|---|---|---|")
    for place, row in enumerate(found[0]["iteration"]):
        columns = [
            statistics.median(one[kind][place][what] for one in found)
            for what in ("weights", "loss")
            for kind in ("iteration", "rounding")
        ]
        print(f"| {row['step']:.0f} | " + " | ".join(f"{value:.1e}" for value in columns) + " |")
    worst = {how: max(one["largest_error"][how] for one in found) for how in ("eigh", "iteration")}
    print(f"\nlargest error of the predictor (2-norm, its largest eigenvalue is 1.1): {worst}")
    if arguments.save:
        arguments.save.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
