"""The share of training time that is not forward or backward, from files to checkpoints: CIFAR-10, one core.

python benchmarks/outside_share.py --data FOLDER          # CIFAR-10 as parquet files or folders of images
python benchmarks/outside_share.py                        # without it, images are made up: no decoding

Counted as outside: making the views, the optimiser, the predictor, EMA, checks, readings and checkpoints at the
recipe's own intervals, and decoding all images at the start, spread over the recipe's epochs.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from side_by_side import machine, one_thread, print_table
from step_cost import CIFAR_IMAGES, measure, show

import ssl_hub

RECIPE = "directpred-r18-cifar10-100ep"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="CIFAR-10; left out, images are made up")
    parser.add_argument("--recipe", default=RECIPE)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--batch-size", type=int, help="default: the recipe's")
    arguments = parser.parse_args()
    one_thread()
    recipe = ssl_hub.get_recipe(arguments.recipe)
    with tempfile.TemporaryDirectory() as folder:
        row = measure(
            arguments.recipe, arguments.steps, arguments.batch_size, 1, Path(folder) / "run", time.process_time,
            arguments.data, channels_last=True,
        )  # fmt: skip
    show(row)
    steps = recipe.train.epochs * (CIFAR_IMAGES // row["batch"])
    start = row["preparing_s"] / (row["preparing_s"] + steps * row["step_ms"] / 1e3)
    print(f"\nOutside forward and backward; {machine('timm', 'pillow')}\n")
    print_table(
        ["recipe", "data", "in a step (%)", "decoding and building, once (%)", "together (%)"],
        [[row["recipe"], "CIFAR-10" if arguments.data else "made up", *(
            100 * share for share in (row["outside_share"], start, row["outside_share"] + start)
        )]],
    )  # fmt: skip


if __name__ == "__main__":
    main()
