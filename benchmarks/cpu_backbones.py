"""Which small backbone learns most in a minute of one core: DirectPred on 10,000 images of CIFAR-10 at 32 pixels.

python benchmarks/cpu_backbones.py --data CIFAR10                       # and again with --precision bf16

Those in ``TRAINED`` are trained for the same processor time, by the speed of their training step, which is measured in
this process's own time on one thread; the cosine ends with it. They are judged by a linear probe and 20-NN on
``train[45000:50000]``, fitted to ``train[:10000]``: the test split is not read. Of the other candidates the speed alone
is measured. Finished cells are kept in the JSON and not repeated.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from side_by_side import machine, one_thread
from timm.models import build_model_with_cfg, register_model
from timm.models.resnet import BasicBlock
from torch import nn

import ssl_hub
from ssl_hub.atomic import replace_file
from ssl_hub.model.results import read_results
from ssl_hub.model.siamese import build
from ssl_hub.model.small_resnets import SmallImageResNet
from ssl_hub.train.step import Trainer

RESULTS = Path(__file__).parent / "results" / "cpu-backbones.json"
BASE = "directpred-r18-cifar10-100ep"
IMAGES, STEPS = 10_000, 20
HELD_OUT = {
    "data.pretrain_split": f"train[:{IMAGES}]",
    "data.train_split": f"train[:{IMAGES}]",
    "data.test_split": "train[45000:50000]",
}
COMMON = {
    "optim.schedule": "cosine",
    "target.momentum": 0.99,  # hundreds of steps: 0.996 would average over a third of them
    "runtime.workers": 0,
    "runtime.channels_last": True,
    "runtime.knn_every_epochs": 0,
    "runtime.checkpoint_every_epochs": 1000,
}


def _narrow(name: str, width: int, blocks: int, stride: int) -> str:
    """A ResNet of this first width and number of blocks in each stage, whose stem has the stride."""
    shape = {"channels": tuple(width << stage for stage in range(4)), "layers": (blocks,) * 4, "stem_stride": stride}

    def make(pretrained: bool = False, **kwargs: Any) -> nn.Module:
        model: nn.Module = build_model_with_cfg(
            SmallImageResNet, name, pretrained, block=BasicBlock, **{**shape, **kwargs}
        )
        return model

    make.__name__ = name
    register_model(make)
    return name


CANDIDATES = (
    "resnet10_tiny",
    *(_narrow(f"narrow_{w}_blocks_{b}", w, b, 2) for w, b in ((16, 1), (24, 1), (32, 1), (48, 1), (64, 1), (32, 2))),
    "convnext_atto",
    "regnetx_002",
    "regnety_002",
)
# What is trained: backbone, precision, and what differs from the settings that are common.
TRAINED: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("narrow_32_blocks_1", "bf16", {}),
    ("narrow_32_blocks_1", "bf16", {"optim.lr": 0.1}),
    ("narrow_16_blocks_1", "bf16", {}),
)
FORMS: tuple[dict[str, Any], ...] = (
    {},
    {"train.joint_views": True},
    {"train.batch_size": 256},
    {"runtime.channels_last": False},
)

Cell = dict[str, Any]


def speed(name: str, overrides: dict[str, Any]) -> float:
    """Image pairs in a second of a training step without views."""
    recipe = ssl_hub.get_recipe(BASE, **{**COMMON, "backbone.name": name, **overrides})
    layout = torch.channels_last if recipe.runtime.channels_last else torch.contiguous_format
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    model = build(recipe).to(memory_format=layout)  # type: ignore[call-overload]
    trainer = Trainer(model, recipe.optim, accelerator, lr=0.03, total_steps=1_000_000)
    batch = recipe.train.batch_size
    view1, view2 = (torch.randn(batch, 3, 32, 32).contiguous(memory_format=layout) for _ in range(2))
    trainer.advance([(view1, view2)])  # allocates
    began = time.process_time()
    for _ in range(STEPS):
        trainer.advance([(view1, view2)])
    return STEPS * batch / (time.process_time() - began)


def trained(name: str, overrides: dict[str, Any], steps: int, seed: int, data: str) -> Cell:
    """Accuracies on the held-out images after so many steps."""
    settings = {**COMMON, **HELD_OUT, "backbone.name": name, "train.max_steps": steps, "train.seed": seed, **overrides}
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        ssl_hub.pretrain(BASE, output=Path(folder) / "run", overrides={**settings, "data.name": data})
        seconds = time.process_time() - began
        top1 = {r.protocol: round(r.value, 2) for r in read_results(Path(folder) / "run") if r.metric == "top1"}
    return {"steps": steps, "processor_seconds": round(seconds), **top1}


class Record:
    """Cells by their settings, in the JSON as soon as they are finished."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cells: dict[str, dict[str, Cell]] = {"speed": {}, "trained": {}}
        if path.exists():
            kept = json.loads(path.read_text(encoding="utf-8"))
            self.cells = {part: kept[part] for part in self.cells}

    def keep(self, part: str, key: str, cell: Cell) -> Cell:
        self.cells[part][key] = cell
        content = {"command": "python benchmarks/cpu_backbones.py", "machine": machine("timm"), **self.cells}
        replace_file(self.path, (json.dumps(content, indent=1) + "\n").encode())
        print(f"{part:8} {key}  {cell}", file=sys.stderr, flush=True)
        return cell


def key_of(name: str, precision: str, overrides: dict[str, Any]) -> str:
    return ", ".join([name, precision, *(f"{key}={value}" for key, value in overrides.items())])


def table(record: Record) -> str:
    lines = ["| backbone and settings | pairs/s | steps | linear probe (%) | 20-NN (%) |", "|---|---|---|---|---|"]
    for key, cell in record.cells["trained"].items():
        rate = record.cells["speed"].get(cell["speed_of"], {}).get("pairs_per_second", "")
        lines.append(f"| {key} | {rate} | {cell['steps']} | {cell['linear-cached']:.1f} | {cell['knn']:.1f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="CIFAR-10: parquet files or folders of images")
    parser.add_argument("--precision", choices=("no", "bf16"), default="no")
    parser.add_argument("--seconds", type=float, default=120, help="processor time of each training")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    os.environ["ACCELERATE_MIXED_PRECISION"] = precision = arguments.precision
    one_thread()
    record = Record(arguments.results)

    def rate_of(name: str, overrides: dict[str, Any]) -> tuple[str, float]:
        key = key_of(name, precision, overrides)
        if key not in record.cells["speed"]:
            record.keep("speed", key, {"pairs_per_second": round(speed(name, overrides), 1)})
        return key, record.cells["speed"][key]["pairs_per_second"]

    for name, its_precision, overrides in TRAINED:
        key = f"{key_of(name, its_precision, overrides)}, seed {arguments.seed}"
        if its_precision != precision or key in record.cells["trained"]:
            continue
        speed_of, rate = rate_of(name, {k: v for k, v in overrides.items() if {k: v} in FORMS})
        steps = int(rate * arguments.seconds / overrides.get("train.batch_size", 128))
        cell = trained(name, overrides, steps, arguments.seed, arguments.data)
        record.keep("trained", key, {"speed_of": speed_of, **cell})
    for name, form in [*((name, {}) for name in CANDIDATES), *(("narrow_32_blocks_1", form) for form in FORMS)]:
        rate_of(name, form)
    print(table(record))


if __name__ == "__main__":
    main()
