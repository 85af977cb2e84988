"""A release as the backbone of torchvision's FCOS: where are the digits, and which are they?

    python examples/detection_torchvision.py

A minute of one core, no download. Scenes are made of the built-in digits, in several sizes, over noise. The
backbone is frozen; a feature pyramid and FCOS's head are trained on the maps of its stages. The same untrained beside.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from torch import Tensor, nn
from torchvision.models.detection import FCOS
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.ops import FeaturePyramidNetwork, box_iou

import ssl_hub
from ssl_hub.data.sources import Source, open_source
from ssl_hub.evaluate.feature_maps import FeatureMaps

SIDE, STRIDES, WIDTH = 64, (4, 8), 64  # of a scene, of the maps that are used, of the pyramid
Scenes = tuple[list[Tensor], list[dict[str, Tensor]]]


class Pyramid(nn.Module):
    """What torchvision's detectors take: images to maps of one width, the finest first."""

    def __init__(self, maps: FeatureMaps) -> None:
        super().__init__()
        self.maps = maps.requires_grad_(False)
        self.names = [name for name, (_, stride) in maps.shapes.items() if stride in STRIDES]
        self.pyramid = FeaturePyramidNetwork([maps.shapes[name][0] for name in self.names], WIDTH)
        self.out_channels = WIDTH

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        found = self.maps.eval()(images)
        pyramid: dict[str, Tensor] = self.pyramid({name: found[name] for name in self.names})
        return pyramid


def detector(pretrained: bool, release: str) -> FCOS:
    maps = ssl_hub.feature_maps(release, "stages", image_size=SIDE)
    if not pretrained:
        for module in maps.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()
    images = ssl_hub.eval_transform(ssl_hub.load(release))
    mean, std = list(images.mean), list(images.std)
    anchors = AnchorGenerator(tuple((stride,) for stride in STRIDES), ((1.0,),) * len(STRIDES))
    return FCOS(
        Pyramid(maps), num_classes=10, min_size=SIDE, max_size=SIDE, image_mean=mean, image_std=std,
        anchor_generator=anchors, score_thresh=0.05, size_divisible=STRIDES[-1],
    )  # fmt: skip


def scenes(source: Source, count: int, seed: int) -> Scenes:
    """Images [3, 64, 64] from 0 to 1, and of each the boxes [N, 4] and labels [N] of the digits in it."""
    draw = np.random.default_rng(seed)
    assert source.labels is not None
    images, targets = [], []
    for _ in range(count):
        image = draw.uniform(0, 0.4) * draw.random((SIDE, SIDE), np.float32)
        boxes, labels = [], []
        grid = int(draw.integers(1, 3))  # one large digit, or up to three in quarters of the scene
        cell = SIDE // grid
        for place in draw.choice(grid**2, draw.integers(1, min(grid**2, 3) + 1), replace=False):
            size = int(draw.integers(cell // 2, cell + 1))
            left, top = np.array(divmod(place, grid)) * cell + draw.integers(0, cell - size + 1, 2)
            row = int(draw.integers(len(source)))
            ink = np.asarray(source.image(row).convert("L").resize((size, size)), np.float32) / 255
            part = image[top : top + size, left : left + size]
            np.maximum(part, ink, out=part)
            y, x = np.nonzero(ink > 0.3)
            boxes.append([left + x.min(), top + y.min(), left + x.max() + 1, top + y.max() + 1])
            labels.append(source.labels[row])
        images.append(torch.from_numpy(image).expand(3, -1, -1))
        targets.append({"boxes": torch.tensor(np.array(boxes)).float(), "labels": torch.tensor(np.array(labels))})
    return images, targets


def train(model: FCOS, images: list[Tensor], targets: list[dict[str, Tensor]], *, epochs: int, lr: float) -> None:
    """AdamW on the pyramid and the head, in batches of 10."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=lr, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=epochs * -(-len(images) // 10))
    model.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(10):
            losses = model([images[i] for i in batch], [targets[i] for i in batch])
            optimizer.zero_grad()
            sum(losses.values()).backward()
            optimizer.step()
            schedule.step()


@torch.no_grad()
def found(model: FCOS, images: list[Tensor], targets: list[dict[str, Tensor]]) -> float:
    """The share of digits that one of as many best boxes as the image has digits names right, at an IoU of 0.5."""
    model.eval()
    hits, count = 0, 0
    for image, target in zip(images, targets, strict=True):
        (guess,) = model([image])
        best = guess["scores"].argsort(descending=True)[: len(target["labels"])]
        right = guess["labels"][best][None] == target["labels"][:, None]
        hits += int((right & (box_iou(target["boxes"], guess["boxes"][best]) >= 0.5)).any(dim=1).sum())
        count += len(target["labels"])
    return hits / count


def main(argv: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("release", nargs="?", default="directpred-digits")
    parser.add_argument("--scenes", type=int, default=100, help="labelled ones to train on (default 100)")
    parser.add_argument("--test-scenes", type=int, default=150)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lr", type=float, default=3e-3)
    arguments = parser.parse_args(argv)

    images, targets = scenes(open_source("digits", "train"), arguments.scenes, seed=0)
    test = scenes(open_source("digits", "test"), arguments.test_scenes, seed=1)
    scores = {}
    for start, pretrained in (("released", True), ("untrained", False)):
        torch.manual_seed(0)
        model = detector(pretrained, arguments.release)
        train(model, images, targets, epochs=arguments.epochs, lr=arguments.lr)
        scores[start] = found(model, *test)
        print(f"{arguments.scenes} labelled scenes, {start:9} backbone: {scores[start]:6.1%} of the digits found")
    return scores


if __name__ == "__main__":
    main()
