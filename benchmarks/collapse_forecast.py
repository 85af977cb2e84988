"""How often the theory's forecast of collapse comes true, over recipes, settings and seeds on the built-in digits.

python benchmarks/collapse_forecast.py --minutes 30

Every run is forecast before its first step, from its own initial network and data, and then trained; both end in one of
the states of ``ssl_hub.model.health``. Runs that are in the JSON are not trained again.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from ssl_hub.atomic import replace_file
from ssl_hub.config import Recipe
from ssl_hub.model.health import Health, health_of
from ssl_hub.train.forecast import Begun, begin, forecast
from ssl_hub.train.prepare import prepare
from ssl_hub.zoo import get_recipe

OUT = Path(__file__).parent / "results" / "collapse_forecast.json"
COMMON = {"train.batch_size": 32, "train.epochs": 4, "runtime.knn_every_epochs": 0}  # 160 steps
READ_EVERY = 10
NO_EMA, ATTACHED = {"target.kind": "stopgrad"}, {"target.kind": "none"}
IDENTITY, LINEAR, SYMMETRIC = ({"predictor.kind": kind} for kind in ("identity", "linear", "symmetric"))
SETTINGS: dict[str, dict[str, object]] = {
    "direct": {},
    "direct, eps 0.01": {"predictor.eps": 0.01},
    "direct, eps 0.5": {"predictor.eps": 0.5},
    "direct, eps 2": {"predictor.eps": 2.0},
    "direct, eps 10": {"predictor.eps": 10.0},
    "direct, rho 0.95": {"predictor.rho": 0.95},
    "direct, freq 5": {"predictor.freq": 5},
    "direct, EMA 0.9": {"target.momentum": 0.9},
    "direct, no EMA": NO_EMA,
    "direct, no EMA, eps 2": {**NO_EMA, "predictor.eps": 2.0},
    "direct, weight decay 0.03": {"optim.weight_decay": 0.03},
    "direct, no stop-gradient": ATTACHED,
    "direct, isotropic, no EMA": {**NO_EMA, "loss.kind": "iso"},
    "linear": LINEAR,
    "linear, no EMA": {**LINEAR, **NO_EMA},
    "linear, weight decay 0.03": {**LINEAR, "optim.weight_decay": 0.03},
    "linear, no stop-gradient": {**LINEAR, **ATTACHED},
    "symmetric": SYMMETRIC,
    "symmetric, no EMA, alpha_p 10": {**SYMMETRIC, **NO_EMA, "optim.predictor_lr_ratio": 10.0},
    "identity": IDENTITY,
    "identity, no EMA": {**IDENTITY, **NO_EMA},
}


def trained(recipe: Recipe) -> Health:
    """How a run of the recipe ends."""
    readings = []
    with (
        tempfile.TemporaryDirectory() as folder,
        prepare(recipe, Path(folder) / "run", resume=False, overwrite=False, allow_change=()) as job,
    ):
        for micro_batches in job.batches():
            report = job.trainer.advance(micro_batches)
            if job.trainer.step % READ_EVERY == 0:
                readings.append(job.monitor.read(report, job.trainer.siamese.predictor))
    found = health_of(readings)
    assert found is not None
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no run after these")
    arguments = parser.parse_args()
    begun_at, starts = time.monotonic(), dict[tuple[str, int], Begun]()
    record: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {"runs": []}
    done = {(run["setting"], run["seed"]) for run in record["runs"]}
    for seed in range(arguments.seeds):
        for name, changes in SETTINGS.items():
            if (name, seed) in done or time.monotonic() - begun_at > 60 * arguments.minutes:
                continue
            recipe = get_recipe("directpred-digits", **{**COMMON, **changes, "train.seed": seed})
            key = (recipe.predictor.kind, seed)  # the initial network depends on nothing else
            if key not in starts:
                starts[key] = begin(recipe)
            found, processor = forecast(recipe, begun=starts[key]), time.process_time()
            ends = trained(recipe)
            run = {"setting": name, "seed": seed, "forecast": found.ends._asdict(), "run": ends._asdict()}
            record["runs"].append({**run, "processor_seconds": round(time.process_time() - processor, 1)})
            record |= {"steps": found.total_steps, "torch": torch.__version__.partition("+")[0]}
            replace_file(OUT, (json.dumps(record, indent=1) + "\n").encode())
            print(f"{name}, seed {seed}: forecast {found.ends}; run {ends}", file=sys.stderr, flush=True)
    print(f"{len(record['runs'])} of {arguments.seeds * len(SETTINGS)} runs in {OUT}")


if __name__ == "__main__":
    main()
