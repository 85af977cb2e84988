"""Fine-tune a release with timm and torch alone: it is a timm model like any other.

    python examples/finetune_timm.py

Seconds on one core, no download. A few labels of each class, all layers trained; the same network from scratch beside.
"""

from __future__ import annotations

import argparse

import timm
import torch
from timm.data import create_transform, resolve_model_data_config
from torch import Tensor, nn

import ssl_hub  # noqa: F401 - timm learns of the small-image ResNets
from ssl_hub.data.sources import Source, open_source
from ssl_hub.hub.store import local


def tensors_of(model: nn.Module, source: Source) -> tuple[Tensor, Tensor]:
    """Images [N, 3, H, W] as timm reads the model's config to prepare them, and labels [N]."""
    transform = create_transform(**resolve_model_data_config(model))
    assert source.labels is not None
    return torch.stack([transform(source.image(i)) for i in range(len(source))]), torch.from_numpy(source.labels)


def first_of_each_class(labels: Tensor, count: int) -> Tensor:
    """Positions of the first ``count`` images of each class."""
    return torch.cat([torch.nonzero(labels == label)[:count, 0] for label in labels.unique()])


def finetune(model: nn.Module, images: Tensor, labels: Tensor, *, epochs: int, lr: float, batch_size: int = 50) -> None:
    """AdamW over all layers, the learning rate falling to 0 along a cosine."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.05)
    steps = epochs * -(-len(images) // batch_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    model.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(batch_size):
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    return float((model.eval()(images).argmax(dim=1) == labels).float().mean())


def main(argv: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("release", nargs="?", default="directpred-digits")
    parser.add_argument("--labels", type=int, default=10, help="of each class (default 10)")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--lr", type=float, default=2e-3)
    arguments = parser.parse_args(argv)

    source = f"local-dir:{local(arguments.release)}"  # a published one is "hf-hub:OWNER/NAME"
    scores = {}
    for start, pretrained in (("from the release", True), ("from scratch", False)):
        torch.manual_seed(0)
        model = timm.create_model(source, pretrained=pretrained, num_classes=10)
        images, labels = tensors_of(model, open_source("digits", "train"))
        few = first_of_each_class(labels, arguments.labels)
        finetune(model, images[few], labels[few], epochs=arguments.epochs, lr=arguments.lr)
        scores[start] = accuracy(model, *tensors_of(model, open_source("digits", "test")))
        print(f"{arguments.labels} labels a class, {start:16} {scores[start]:6.1%} of the test images right")
    return scores


if __name__ == "__main__":
    main()
