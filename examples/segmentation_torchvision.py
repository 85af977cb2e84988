"""A release as the backbone of torchvision's FCN: which digit does each pixel belong to?

    python examples/segmentation_torchvision.py

Seconds on one core, no download. Scenes are made of the built-in digits over noise. The backbone is frozen and a head
trained on the maps of its stages; the same backbone untrained beside.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torchvision.models.segmentation.fcn import FCN, FCNHead

import ssl_hub
from ssl_hub.data.sources import Source, open_source

CELL, GRID = 16, 2  # pixels of a digit, and digits a side: scenes of 32 x 32
BACKGROUND = 10


class Pyramid(nn.Module):
    """The maps of a backbone's stages as the one map that an FCN takes: enlarged to the size of the finest, stacked."""

    def __init__(self, maps: nn.Module, names: list[str]) -> None:
        super().__init__()
        self.maps, self.names = maps, names

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        chosen = [found for name, found in self.maps(images).items() if name in self.names]
        size = chosen[0].shape[-2:]
        return {"out": torch.cat([functional.interpolate(m, size, mode="bilinear") for m in chosen], dim=1)}


def scenes(source: Source, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Images float [N, 3, 32, 32], normalised as the release's are, and the class of each pixel [N, 32, 32]."""
    draw = np.random.default_rng(seed)
    side = CELL * GRID
    images, masks = np.empty((count, side, side), np.float32), np.full((count, side, side), BACKGROUND)
    assert source.labels is not None
    for image, mask in zip(images, masks, strict=True):
        image[:] = draw.uniform(0, 0.4) * draw.random((side, side))
        for cell in draw.choice(GRID * GRID, draw.integers(1, 4), replace=False):
            top, left = cell // GRID * CELL, cell % GRID * CELL
            row = int(draw.integers(len(source)))
            ink = np.asarray(source.image(row).convert("L").resize((CELL, CELL)), np.float32) / 255
            image[top : top + CELL, left : left + CELL] = np.maximum(image[top : top + CELL, left : left + CELL], ink)
            mask[top : top + CELL, left : left + CELL][ink > 0.3] = source.labels[row]
    return torch.from_numpy((images[:, None].repeat(3, axis=1) - 0.5) / 0.5), torch.from_numpy(masks)


def fcn(pretrained: bool, release: str) -> FCN:
    maps = ssl_hub.feature_maps(release, "stages", image_size=CELL * GRID)
    if not pretrained:
        for module in maps.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()
    names = [name for name, (_, stride) in maps.shapes.items() if stride in (2, 4, 8)]
    width = sum(maps.shapes[name][0] for name in names)
    return FCN(Pyramid(maps, names), FCNHead(width, BACKGROUND + 1))


def train_head(model: FCN, images: Tensor, masks: Tensor, *, epochs: int, lr: float, batch_size: int = 20) -> None:
    """AdamW on the head alone; the backbone stays as it is, so that its maps are made once."""
    with torch.no_grad():
        maps = torch.cat([model.backbone.eval()(part)["out"] for part in images.split(50)])
    optimizer = torch.optim.AdamW(model.classifier.parameters(), lr=lr, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=epochs * -(-len(maps) // batch_size))
    model.classifier.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(maps)).split(batch_size):
            scores = functional.interpolate(model.classifier(maps[batch]), masks.shape[-2:], mode="bilinear")
            loss = functional.cross_entropy(scores, masks[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()


@torch.no_grad()
def mean_iou(model: nn.Module, images: Tensor, masks: Tensor) -> float:
    """Intersection over union, the mean of the classes that are there."""
    model.eval()
    found = torch.cat([model(part)["out"].argmax(dim=1) for part in images.split(50)])
    counts = torch.bincount((masks * (BACKGROUND + 1) + found).flatten(), minlength=(BACKGROUND + 1) ** 2)
    table = counts.view(BACKGROUND + 1, BACKGROUND + 1).double()
    return float((table.diag() / (table.sum(0) + table.sum(1) - table.diag())).nanmean())


def main(argv: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("release", nargs="?", default="directpred-digits")
    parser.add_argument("--scenes", type=int, default=100, help="labelled ones to train on (default 100)")
    parser.add_argument("--test-scenes", type=int, default=150)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lr", type=float, default=3e-2)
    arguments = parser.parse_args(argv)

    images, masks = scenes(open_source("digits", "train"), arguments.scenes, seed=0)
    test = scenes(open_source("digits", "test"), arguments.test_scenes, seed=1)
    scores = {}
    for start, pretrained in (("released", True), ("untrained", False)):
        torch.manual_seed(0)
        model = fcn(pretrained, arguments.release)
        train_head(model, images, masks, epochs=arguments.epochs, lr=arguments.lr)
        scores[start] = mean_iou(model, *test)
        print(f"{arguments.scenes} labelled scenes, {start:9} backbone: mean IoU {scores[start]:6.1%}")
    return scores


if __name__ == "__main__":
    main()
