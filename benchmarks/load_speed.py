"""What loading a stored model costs beside timm alone: `timm.create_model` and reading the same file into it.

python benchmarks/load_speed.py
python benchmarks/load_speed.py --architecture resnet18 --repeats 20

All in one process, on one thread, in turns that each begin with another; what counts is the ratio within a turn, of
which median and range are printed. ssl_hub checks the names, shapes and finiteness of all tensors on the way, and the
hashes of the files unless told not to.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import timm
import torch
from safetensors.torch import load_file
from torch import nn

import ssl_hub
from ssl_hub.model.release import CONFIG, MODEL, save_release
from ssl_hub.model.siamese import build


def store_untrained(home: Path, architecture: str) -> str:
    """A release in the store, untrained: loading takes no account of what weights are."""
    recipe = ssl_hub.get_recipe("byol-r50-300ep", **{"backbone.name": architecture})
    (home / "model").mkdir(parents=True)
    save_release(home / "model", build(recipe), recipe)
    return "model"


def with_timm(folder: Path) -> nn.Module:
    model = timm.create_model(json.loads((folder / CONFIG).read_text())["architecture"], num_classes=0)
    model.load_state_dict(load_file(folder / MODEL))
    return model.eval()


def seconds(action: Callable[[], nn.Module]) -> float:
    began = time.process_time()
    action()
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--architecture", default="resnet50")
    parser.add_argument("--repeats", type=int, default=10)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SSL_HUB_HOME"] = folder
        name = store_untrained(Path(folder), arguments.architecture)
        ways: dict[str, Callable[[], nn.Module]] = {
            "timm": lambda: with_timm(Path(folder) / name),
            "ssl_hub.load": lambda: ssl_hub.load(name),
            "no hashes": lambda: ssl_hub.load(name, check_hashes=False),
        }
        for action in ways.values():  # first use compiles and reads more than later ones
            action()
        spent = {way: [] for way in ways}
        order = list(ways)
        for _ in range(arguments.repeats):
            order.append(order.pop(0))
            for way in order:
                spent[way].append(seconds(ways[way]))
    medians = {way: statistics.median(times) for way, times in spent.items()}
    for way, median in medians.items():
        print(f"{way:14}{1e3 * median:8.1f} ms")
    for way in ("ssl_hub.load", "no hashes"):
        ratios = [ours / theirs for ours, theirs in zip(spent[way], spent["timm"], strict=True)]
        print(f"{way:14}{statistics.median(ratios):8.3f} of timm's ({min(ratios):.3f} to {max(ratios):.3f})")


if __name__ == "__main__":
    main()
