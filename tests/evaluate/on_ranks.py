"""What each rank of a real process group extracts, and gets from every probe; see test_evaluation_on_ranks."""

import os
import sys
from dataclasses import replace
from pathlib import Path

from tests.other_kernels import KERNELS

if __name__ == "__main__":  # a cluster of different processors: the first is this one
    os.environ |= [{}, KERNELS["AVX2"], KERNELS["no AVX"]][int(os.environ["RANK"])]

import numpy as np
import torch
from accelerate import Accelerator
from torch import nn

from ssl_hub.data.images import Source
from ssl_hub.data.stored import Pixels
from ssl_hub.data.views import eval_transform
from ssl_hub.errors import UsageError
from ssl_hub.evaluate import features, linear, logistic, standardise
from ssl_hub.evaluate.features import extract
from ssl_hub.evaluate.head_training import train_probe
from ssl_hub.evaluate.model import knn
from ssl_hub.evaluate.protocols import PROTOCOLS, Cached
from ssl_hub.evaluate.work import ALONE, Work
from tests.evaluate.test_head_training import SHORT, TRANSFORM, Backbone, coloured

TRAIN, TEST = 121, 22  # neither divides by three
# Candidates so far apart that no rounding decides between them.
PROBES = {
    **SHORT,
    "byol": replace(SHORT["byol"], lrs=(0.4, 1e-3)),
    "cached": Cached(strengths=(10.0, 0.1)),
}


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


def extracted(accelerator: Accelerator | None) -> dict[str, object]:
    """Features and labels of a few numbers of images, and what is said where one rank cannot read one."""
    found = {}
    for count in (1, 2, 22):
        seen = extract(backbone(), source(count), transform(), batch_size=4, accelerator=accelerator)
        found[f"x{count}"], found[f"y{count}"] = torch.from_numpy(seen.x), torch.from_numpy(seen.y)
    try:
        extract(backbone(), source(22, LastUnreadable), transform(), batch_size=4, accelerator=accelerator)
    except UsageError as error:
        found["error"] = str(error)
    return found


def probes(work: Work) -> dict[str, dict[str, object]]:
    """Head and results of every protocol, 22 test images."""
    train, test = coloured(TRAIN), coloured(TEST, seed=1, split="test")
    found = {}
    for name in PROTOCOLS.names():
        model = Backbone()
        if name == "cached":
            seen, asked = (extract(model, split, TRANSFORM, **work._asdict()) for split in (train, test))
            head, results = linear.linear_probe(seen, asked, PROBES[name], work=work)
        else:
            head, results = train_probe(model, train, test, TRANSFORM, PROBES[name], name=name, work=work)
        values = {result.metric: result.value for result in results}
        found[name] = {"weight": head.weight, "bias": head.bias, "settings": head.settings, "values": values}
    return found


def neighbours(accelerator: Accelerator | None) -> list[float]:
    """The public kNN accuracy of pixels, unresized: a resize of 8-bit images is a grey level off on some processors."""
    return [r.value for r in knn("pixels", "digits", image_size=16, accelerator=accelerator)]


def nan_on_one_rank(work: Work) -> str:
    """What is said where one process alone meets features that are not finite."""
    model = Backbone()
    if work.rank == 1:
        torch.nn.init.constant_(model.conv.bias, float("nan"))
    try:
        train_probe(model, coloured(TRAIN), coloured(TEST), TRANSFORM, SHORT["byol"], name="byol", work=work)
    except UsageError as error:
        return str(error)
    return ""


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    features.GATHERED_ROWS = 3  # several exchanges, the last of them smaller
    standardise.ROWS_AT_ONCE = 32  # parts for every rank
    if accelerator.process_index:
        logistic._Search = None  # process 0 alone searches: another processor would take another number of passes
    work = ALONE._replace(accelerator=accelerator, batch_size=16)
    found = {
        "ranks": accelerator.num_processes,
        "extracted": extracted(accelerator),
        "probes": probes(work),
        "knn": neighbours(accelerator),
        "error": nan_on_one_rank(work),
    }
    torch.save(found, folder / f"rank{accelerator.process_index}.pt")
    accelerator.end_training()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
