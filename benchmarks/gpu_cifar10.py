"""DirectPred and BYOL's linear predictor on CIFAR-10, 100 epochs each, as fast as one GPU allows; then probed.

python benchmarks/gpu_cifar10.py --data FOLDER                        # parquet files, or any data that ssl-hub reads
python benchmarks/gpu_cifar10.py --data FOLDER --minutes 6            # for both runs together, probes not counted
python benchmarks/gpu_cifar10.py --data FOLDER --pack cifar10.npz     # data for a machine without pyarrow, then
python benchmarks/gpu_cifar10.py --data cifar10.npz

The images stay on the device as 8-bit pixels, arithmetic is bf16 and channels-last, and the encoder is compiled. On a
machine without a GPU the same commands run in float32 and uncompiled, so that a few ``--steps`` prove them.

A run that ``--minutes`` ends is saved and resumable, and is written out and probed as it stands. The last line is JSON:
per recipe the epochs and seconds, images/s, top-1 of the probes, and the paper's. Needs torch, torchvision, timm,
accelerate, safetensors, huggingface-hub and scikit-learn; ``datasets`` and pyarrow for parquet alone.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import ssl_hub
from ssl_hub.data.images import Pixels, Source
from ssl_hub.data.sources import SOURCES, open_source
from ssl_hub.model.metrics import read_metrics
from ssl_hub.model.release import save_release
from ssl_hub.model.results import read_results
from ssl_hub.stopping import Interrupted
from ssl_hub.train.outcome import measure
from ssl_hub.train.prepare import prepare

RECIPES = ("directpred-r18-cifar10-100ep", "byol-linear-r18-cifar10-100ep")
PACKED = "cifar10-packed"


def pack(data: str, file: Path) -> None:
    """Both splits as JPEG files in one array, deflated: most of such a small file is tables that all have in common."""
    arrays: dict[str, Any] = {}
    for split in ("train", "test"):
        source = open_source(data, split)
        encoded = [source._images._encoded(index)[0] for index in range(len(source))]  # type: ignore[attr-defined]
        arrays[f"{split}_files"] = np.frombuffer(b"".join(encoded), np.uint8)
        arrays[f"{split}_ends"] = np.cumsum([len(one) for one in encoded])
        arrays[f"{split}_labels"] = source.labels
        arrays["classes"] = np.array(source.classes)
    np.savez_compressed(file, **arrays)
    print(f"{file}: {file.stat().st_size / 2**20:.1f} MiB")


def register_packed(file: Path) -> None:
    with np.load(file) as arrays:
        found = {name: arrays[name] for name in arrays.files}

    @SOURCES.register(PACKED)
    def packed(split: str) -> Source:
        ends = found[f"{split}_ends"]
        files = np.split(found[f"{split}_files"], ends[:-1])
        pixels = np.stack([np.asarray(Image.open(io.BytesIO(one.tobytes())).convert("RGB")) for one in files])
        classes = [str(name) for name in found["classes"]]
        return Source("cifar10", split, Pixels(pixels), classes=classes, labels=found[f"{split}_labels"])


def settings(arguments: argparse.Namespace, on_gpu: bool) -> dict[str, Any]:
    """Faster than the recipe's, and nothing that changes what is learnt beyond rounding."""
    chosen: dict[str, Any] = {
        "runtime.channels_last": True,
        "runtime.compile": on_gpu and not arguments.no_compile,
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
    return {"seconds": time.perf_counter() - began, "stopped_by_minutes": stopped, **outcome(name, folder)}


def outcome(name: str, folder: Path) -> dict[str, Any]:
    """What a run folder says of its run."""
    recipe, metrics = ssl_hub.get_recipe(name), read_metrics(folder)
    rates = [line["images_per_second"] for line in metrics[1:] if line.get("images_per_second")]
    per_second = statistics.median(rates) if rates else None
    return {
        "recipe": name,
        "epochs": metrics[-1]["epoch"] if metrics else 0,
        "steps": metrics[-1]["step"] if metrics else 0,
        "loss": metrics[-1]["loss"] if metrics else None,
        "images_per_second": per_second,
        "minutes_per_100_epochs": per_second and 100 * 50_000 / per_second / 60,
        "data_share": statistics.median(line["data_share"] for line in metrics) if metrics else None,
        "top1": {result.protocol: result.value for result in read_results(folder) if result.metric == "top1"},
        "paper": recipe.expected[0].value if recipe.expected else None,
    }


def eigen_milliseconds(width: int = 128) -> dict[str, float]:
    """What DirectPred's eigen-decomposition costs where it could run."""
    matrix = torch.randn(width, width)
    matrix = matrix @ matrix.T
    found = {}
    for device in ("cpu", *(("cuda",) if torch.cuda.is_available() else ())):
        on_device, times = matrix.to(device), []
        for _ in range(20):
            began = time.perf_counter()
            torch.linalg.eigh(on_device)[0].sum().item()
            times.append(time.perf_counter() - began)
        found[device] = 1e3 * statistics.median(times)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="CIFAR-10: a folder of parquet files, a Hub id, or a packed file")
    parser.add_argument("--pack", type=Path, help="write the data to this .npz file and stop")
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES))
    parser.add_argument("--minutes", type=float, help="of training at most, for all recipes together")
    parser.add_argument("--epochs", type=int, help="default: the recipe's 100")
    parser.add_argument("--steps", type=int, help="at most, for each recipe")
    parser.add_argument("--batch-size", type=int, help="another than the recipe's 128, to prove the script sooner")
    parser.add_argument("--thin", type=int, default=1, help="take every so many-th image only, to prove it sooner")
    parser.add_argument("--output", type=Path, help="where the run folders go; default: nowhere that stays")
    parser.add_argument("--no-compile", action="store_true")
    arguments = parser.parse_args()
    if arguments.pack:
        pack(arguments.data, arguments.pack)
        return
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        os.environ.setdefault("ACCELERATE_MIXED_PRECISION", "bf16")
    data = arguments.data
    if data.endswith(".npz"):
        register_packed(Path(data))
        data = PACKED
    with tempfile.TemporaryDirectory() as temporary:
        output, rows = arguments.output or Path(temporary), []
        minutes = None if arguments.minutes is None else arguments.minutes / len(arguments.recipes)
        for name in arguments.recipes:
            rows.append(train(name, data, output / name, settings(arguments, on_gpu), minutes))
        report = {
            "device": torch.cuda.get_device_name() if on_gpu else "cpu",
            "torch": torch.__version__,
            "precision": os.environ.get("ACCELERATE_MIXED_PRECISION", "no"),
            "compiled": on_gpu and not arguments.no_compile,
            "eigh_128_ms": eigen_milliseconds(),
            "runs": rows,
        }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
