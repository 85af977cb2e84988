"""Run by test_features.py under torchrun: what each rank of a real process group gets from ``extract``."""

import sys
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from torch import nn

from ssl_hub.data.images import Pixels, Source
from ssl_hub.data.views import eval_transform
from ssl_hub.errors import UsageError
from ssl_hub.evaluate import features
from ssl_hub.evaluate.features import extract


class LastUnreadable:
    """Images of which the last cannot be decoded, so that one rank alone meets it."""

    def __init__(self, pixels):
        self.images = Pixels(pixels)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, position):
        if position == len(self) - 1:
            raise UsageError("cannot read photo 21.jpg")
        return self.images[position]


def source(count, images=Pixels):
    pixels = np.random.default_rng(0).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)
    return Source("noise", "test", images(pixels), classes=("a", "b", "c"), labels=np.arange(count) % 3)


def backbone():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def transform():
    return eval_transform(size=8, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))


def main(folder):
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    features.GATHERED_ROWS = 3  # several exchanges, the last of them smaller
    found = {"ranks": np.array(accelerator.num_processes)}
    for count in (1, 2, 22):
        extracted = extract(backbone(), source(count), transform(), batch_size=4, accelerator=accelerator)
        found[f"x{count}"], found[f"y{count}"] = extracted.x, extracted.y
    try:
        extract(backbone(), source(22, LastUnreadable), transform(), batch_size=4, accelerator=accelerator)
    except UsageError as error:
        found["error"] = np.array(str(error))
    np.savez(folder / f"rank{accelerator.process_index}.npz", **found)
    accelerator.end_training()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
