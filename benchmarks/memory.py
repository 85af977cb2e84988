"""Memory of the data path over epochs: its peak, and whether it grows.

python benchmarks/memory.py --data FOLDER_OF_IMAGES
python benchmarks/memory.py --data CIFAR10_PARQUET --paths resident workers stream --size 32

Views alone, without a model. Each path runs in a process of its own, whose resident memory is added up with that of its
worker processes after every batch; pages that workers share with it count once for each. Growth is what the end of
the last epoch has over the end of the first, when every buffer and cache has been filled once.
"""

from __future__ import annotations

import argparse
import multiprocessing
from dataclasses import replace
from typing import Any

import numpy as np
import psutil

from ssl_hub.data.loaders import Loader, TrainLoader
from ssl_hub.data.shards import open_shards
from ssl_hub.data.sources import open_source
from ssl_hub.data.streams import StreamLoader
from ssl_hub.data.views import TwoViews
from ssl_hub.zoo import get_recipe

MEGABYTE = 2**20
RECIPE = "byol-r50-300ep"  # whose views are drawn
PATHS = ("resident", "workers", "stream")


def resident_megabytes() -> float:
    """Of this process and its children."""
    process, total = psutil.Process(), 0
    for one in [process, *process.children(recursive=True)]:
        try:
            total += one.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total / MEGABYTE


def open_loader(path: str, arguments: argparse.Namespace) -> Loader:
    views = TwoViews(replace(get_recipe(RECIPE).views, size=arguments.size), seed=0)
    settings: dict[str, Any] = {
        "batch_size": arguments.batch_size, "seed": 0, "device": "cpu", "workers": arguments.workers,
    }  # fmt: skip
    if path == "stream":
        shards = open_shards(arguments.data, arguments.split)
        steps = arguments.images // arguments.batch_size
        return StreamLoader(shards, views, steps_per_epoch=steps, **settings)
    source = open_source(arguments.data, arguments.split)
    source = source.subset(np.arange(arguments.images) % len(source))  # as often as it takes
    loader = TrainLoader(source, views, resident_bytes=2**33 if path == "resident" else 0, **settings)
    if loader.resident != (path == "resident"):
        raise SystemExit(f"{arguments.data}: path {path!r} is not to be had; images of one size are kept in memory")
    return loader


def measure(
    path: str, arguments: argparse.Namespace, answer: multiprocessing.Queue[tuple[float, float, list[float]]]
) -> None:
    import torch

    torch.set_num_threads(1)
    start = resident_megabytes()
    loader, peak, ends = open_loader(path, arguments), 0.0, []
    for epoch in range(arguments.epochs):
        for step in loader.epoch(epoch):
            for _ in step:
                now = resident_megabytes()
                peak = max(peak, now)
        ends.append(now)
    answer.put((start, peak, ends))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="registered name, path, or Hub dataset")
    parser.add_argument("--split", default="train")
    parser.add_argument("--paths", nargs="+", choices=PATHS, default=["workers"])
    parser.add_argument("--size", type=int, default=224, help="of the views, in pixels (default 224)")
    parser.add_argument("--images", type=int, default=1024, help="in an epoch (default 1024)")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    ends = " | ".join(f"epoch {epoch + 1} (MB)" for epoch in range(arguments.epochs))
    print(f"| path | before data (MB) | peak (MB) | {ends} | growth (MB) |\n|---|{'---|' * (arguments.epochs + 3)}")
    context = multiprocessing.get_context("spawn")
    for path in arguments.paths:
        answer: multiprocessing.Queue[tuple[float, float, list[float]]] = context.Queue()
        child = context.Process(target=measure, args=(path, arguments, answer))
        child.start()
        child.join()
        if child.exitcode:
            raise SystemExit(child.exitcode)
        before, peak, at = answer.get()
        row = " | ".join(f"{value:.0f}" for value in (before, peak, *at))
        print(f"| {path} | {row} | {at[-1] - at[0]:+.1f} |")


if __name__ == "__main__":
    main()
