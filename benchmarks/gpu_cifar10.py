"""DirectPred and BYOL's linear predictor on CIFAR-10, 100 epochs each, as fast as one GPU allows; then probed.

python benchmarks/gpu_cifar10.py --data FOLDER                        # parquet files, or any data that ssl-hub reads
python benchmarks/gpu_cifar10.py --data FOLDER --compile reduce-overhead
python benchmarks/gpu_cifar10.py --data FOLDER --minutes 6            # for both runs together, probes not counted
python benchmarks/gpu_cifar10.py --data FOLDER --pack cifar10.npz     # data for a machine without pyarrow, then
python benchmarks/gpu_cifar10.py --data cifar10.npz
python benchmarks/gpu_cifar10.py --parts                              # solver, blur and a ResNet-50's step, no data

The goal: 100 epochs of DirectPred within five minutes on one H100. The images stay on the device as 8-bit pixels,
arithmetic is bf16 and channels-last, and the encoder is compiled. On a machine without a GPU the same commands run in
float32 and uncompiled, so that a few ``--steps`` prove them; the results then say that they measure nothing.

Written on a GPU to benchmarks/results/gpu-cifar10-CARD.json, gpu-cifar10-CARD-profile.json (see gpu_profile.py) and, by
``--parts``, gpu-parts-CARD.json; elsewhere where ``--result`` says. The last line on the terminal is the same as JSON.
A run that ``--minutes`` ends is saved and resumable, and is written out and probed as it stands.

Needs torch, torchvision, timm, accelerate, safetensors, huggingface-hub and scikit-learn; ``datasets`` and pyarrow for
parquet alone.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import gpu_result
import torch
from gpu_data import PACKED, pack, register_packed
from gpu_parts import parts
from gpu_profile import profiled

import ssl_hub
from ssl_hub.codec import from_dict, to_dict
from ssl_hub.config import Compile
from ssl_hub.model.metrics import read_metrics
from ssl_hub.model.release import save_release
from ssl_hub.model.results import read_results
from ssl_hub.stopping import Interrupted
from ssl_hub.train.outcome import measure
from ssl_hub.train.prepare import prepare

RECIPES = ("directpred-r18-cifar10-100ep", "byol-linear-r18-cifar10-100ep")
GOAL_MINUTES = 5.0


def settings(arguments: argparse.Namespace, on_gpu: bool) -> dict[str, Any]:
    """Faster than the recipe's, and nothing that changes what is learnt beyond rounding."""
    chosen: dict[str, Any] = {
        "train.seed": arguments.seed,
        "runtime.channels_last": True,
        "runtime.compile": mode(arguments.compile[0]) if arguments.compile else on_gpu,
        "runtime.tf32": "all" if on_gpu else "convolutions",
        "runtime.cudnn_benchmark": on_gpu,  # one shape, many steps
        "runtime.knn_every_epochs": 0,
        "runtime.checkpoint_every_epochs": 25,
        "runtime.log_every_steps": 200 if on_gpu else 1,
    }
    if arguments.epochs is not None:
        chosen["train.epochs"] = arguments.epochs
    if arguments.steps is not None:
        chosen["train.max_steps"] = arguments.steps
    if arguments.thin > 1:
        part = f"[::{arguments.thin}]"
        chosen |= {"data.pretrain_split": f"train{part}", "data.train_split": f"train{part}"}
        chosen |= {"data.test_split": f"test{part}"}
    if arguments.batch_size is not None:
        chosen["train.batch_size"] = arguments.batch_size
    return chosen


def mode(text: str) -> Compile:
    """``true``, ``false`` or a mode of torch.compile."""
    return ssl_hub.get_recipe(RECIPES[0], **{"runtime.compile": text}).runtime.compile


def end_training(*_: object) -> None:
    """As a scheduler would, but only while a run listens: not before its first step, nor while it is probed."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.setitimer(signal.ITIMER_REAL, 1)
    else:
        os.kill(os.getpid(), signal.SIGTERM)


def train(name: str, data: str, folder: Path, overrides: dict[str, Any], minutes: float | None) -> dict[str, Any]:
    """Train and probe, or as far as ``minutes`` go: then the state at that moment is released and probed."""
    began, stopped = time.perf_counter(), False
    if minutes is not None:
        signal.signal(signal.SIGALRM, end_training)
        signal.setitimer(signal.ITIMER_REAL, 60 * minutes)
    try:
        ssl_hub.pretrain(name, data=data, output=folder, overwrite=True, overrides=overrides)
    except Interrupted:
        stopped = True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if stopped:
        recipe = ssl_hub.get_recipe(name, **{**overrides, "data.name": data})
        with prepare(recipe, folder, resume=True, overwrite=False, allow_change=()) as job:
            save_release(folder, job.trainer.siamese, recipe, collapsed=False)
            measure(job.trainer.siamese.encoder.backbone, recipe, folder, job.accelerator, collapsed=False)
    seconds = time.perf_counter() - began
    return {**outcome(name, folder, overrides), "seconds_with_probes": seconds, "stopped_by_minutes": stopped}


def outcome(name: str, folder: Path, overrides: dict[str, Any]) -> dict[str, Any]:
    """What a run folder says of its run."""
    recipe = ssl_hub.get_recipe(name, **overrides)
    readings = [line for line in read_metrics(folder) if "seconds" in line]
    last, spent = readings[-1], sum(line["seconds"] for line in readings) / 60
    paper = recipe.expected[0] if recipe.expected else None
    whole = last["step"] == recipe.train.epochs * (50_000 // recipe.train.batch_size) and recipe.train.epochs == 100
    return {
        "recipe": name,
        "epochs": last["epoch"],
        "steps": last["step"],
        "batch_size": recipe.train.batch_size,
        "compile": recipe.runtime.compile,
        "loss": last["loss"],
        **steady(readings, recipe.train.batch_size),
        "training_minutes": spent,  # with compilation and checkpoints, without probes
        "goal": {"training_minutes": GOAL_MINUTES, "reached": spent <= GOAL_MINUTES if whole else "not 100 epochs"},
        "top1": {result.protocol: result.value for result in read_results(folder) if result.metric == "top1"},
        "paper": None if paper is None else {"top1": paper.value, "std": paper.std, "source": paper.source},
    }


def steady(readings: list[dict[str, Any]], batch_size: int) -> dict[str, Any]:
    """Images over seconds once compilation and the first epoch are over (in one epoch: once the first reading is)."""
    later = [line for line in readings if line["epoch"] > 1]
    counted = later or readings[1:]
    if not counted:
        return {"images_per_second": None, "window": "one reading: there is no steady rate"}
    before = readings[len(readings) - len(counted) - 1]
    images = batch_size * (counted[-1]["batch"] - before["batch"])
    seconds = sum(line["seconds"] for line in counted)
    return {
        "images_per_second": images / seconds,
        "window": f"steps {before['batch'] + 1} to {counted[-1]['batch']}: all after the first"
        f" {'epoch' if later else 'reading'}, with views, readings and checkpoints",
        "window_seconds": seconds,
        "minutes_per_100_epochs": 100 * 50_000 * seconds / images / 60,
        "data_share": sum(line["data_share"] * line["seconds"] for line in counted) / seconds,
    }


def why_small(arguments: argparse.Namespace, on_gpu: bool) -> str | None:
    """Why the numbers are none, where they are none."""
    if not on_gpu:
        return "no GPU"
    asked = arguments.small or arguments.steps or arguments.batch_size or arguments.thin > 1
    return "a smaller run than the recipes'" if asked else None


def trained(arguments: argparse.Namespace, on_gpu: bool) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The runs, and the profile of the first."""
    data = arguments.data
    if data.endswith(".npz"):
        register_packed(Path(data))
        data = PACKED
    chosen, profile = settings(arguments, on_gpu), None
    with tempfile.TemporaryDirectory() as temporary:
        output, rows = arguments.output or Path(temporary), []
        minutes = None if arguments.minutes is None else arguments.minutes / len(arguments.recipes)
        for name in arguments.recipes:
            rows.append(train(name, data, output / name, chosen, minutes))
    if arguments.profile_steps:
        # As many steps as there are data for, whatever the run was told to take.
        plain = to_dict(ssl_hub.get_recipe(arguments.recipes[0], **{**chosen, "data.name": data}))
        plain["train"] |= {"max_steps": None, "epochs": 1000}
        profile = profiled(from_dict(plain), steps=arguments.profile_steps, warm_up=50 if on_gpu else 1)
    return {"runs": rows}, profile


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="CIFAR-10: a folder of parquet files, a Hub id, or a packed file")
    parser.add_argument("--pack", type=Path, help="write the data to this .npz file and stop")
    parser.add_argument("--parts", action="store_true", help="measure parts of training alone, without data")
    parser.add_argument("--small", action="store_true", help="parts of small sizes; without a GPU always")
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES))
    parser.add_argument("--minutes", type=float, help="of training at most, for all recipes together")
    parser.add_argument("--epochs", type=int, help="default: the recipe's 100")
    parser.add_argument("--steps", type=int, help="at most, for each recipe")
    parser.add_argument("--batch-size", type=int, help="another than the recipe's 128, to prove the script sooner")
    parser.add_argument("--thin", type=int, default=1, help="take every so many-th image only, to prove it sooner")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", nargs="+", metavar="MODE", help="runtime.compile; of --parts several, one by one")
    parser.add_argument("--profile-steps", type=int, default=10, help="0: no profile")
    parser.add_argument("--output", type=Path, help="where the run folders go; default: nowhere that stays")
    parser.add_argument("--result", type=Path, help="the file of results; the profile goes beside it")
    arguments = parser.parse_args()
    if arguments.data is None and not arguments.parts:
        parser.error("--data is needed, but for --parts")
    if arguments.pack:
        pack(arguments.data, arguments.pack)
        return
    on_gpu, profile = torch.cuda.is_available(), None
    if on_gpu:
        os.environ.setdefault(gpu_result.PRECISION, "bf16")
    small = why_small(arguments, on_gpu)
    found = gpu_result.facts(seed=arguments.seed, small=small)
    if arguments.parts:
        modes = [mode(text) for text in arguments.compile or (["false", "true"] if on_gpu else ["false"])]
        found |= parts(small=small is not None, modes=modes, seed=arguments.seed)
    else:
        measured, profile = trained(arguments, on_gpu)
        found |= measured
    file = arguments.result
    if file is None and small is None:
        file = gpu_result.default_file("parts" if arguments.parts else "cifar10")
    if file is not None:
        gpu_result.write(found, file)
        if profile is not None:
            gpu_result.write({**found, "runs": None} | profile, file.with_name(f"{file.stem}-profile.json"))
    print(json.dumps({**found, **({} if profile is None else {"profile": profile})}))


if __name__ == "__main__":
    main()
