"""One training step, views excluded, against loops written by hand and against lightly's modules.

pip install -e '.[bench]'
python benchmarks/step_speed.py                  # batch 128: minutes on one core
python benchmarks/step_speed.py --batch-size 32

All train the same ResNet on the same two batches with SGD and momentum. "By hand" does the same arithmetic as ssl_hub,
in the same memory format, and nothing else: no checks, no statistics, no log. "lightly" is a loop in the style of its
documented BYOL example, on its own heads, loss and momentum update, with the widths of ours. Each time is this
process's own on one thread, the least of steps in turn.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from accelerate import Accelerator
from side_by_side import least_seconds, machine, one_thread, print_table
from torch import Tensor, nn
from torch.nn import functional

from ssl_hub.config import Recipe
from ssl_hub.model import backbones
from ssl_hub.model.heads import mlp
from ssl_hub.model.siamese import build
from ssl_hub.train.step import Trainer
from ssl_hub.zoo import get_recipe

MOMENTUM = 0.996
Step = Callable[[Tensor, Tensor], Any]


def by_ssl_hub(recipe: Recipe, channels_last: bool) -> Step:
    model = build(recipe)
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
    trainer = Trainer(model, recipe.optim, Accelerator(cpu=True), lr=recipe.optim.lr, total_steps=1_000_000)
    return lambda view1, view2: trainer.advance([(view1, view2)])


def encoder_and_predictor(recipe: Recipe, channels_last: bool) -> tuple[nn.Module, nn.Module]:
    """The recipe's networks, without ssl_hub's classes around them."""
    backbone = backbones.create(recipe.backbone.name, zero_init_last=recipe.backbone.zero_init_last)
    head, width = recipe.projector, backbones.feature_width(backbone, recipe.views.size)
    hidden = [head.hidden_width] * (head.layers - 1)
    projector = mlp(
        [width, *hidden, head.output_width], norm_affine=head.norm_affine, output_norm=head.output_norm
    )  # fmt: skip
    predictor = mlp([head.output_width, 512, head.output_width], norm_affine=head.norm_affine)
    encoder = nn.Sequential(backbone, projector).train()
    return (encoder.to(memory_format=torch.channels_last) if channels_last else encoder), predictor


def sgd(recipe: Recipe, *modules: nn.Module) -> torch.optim.Optimizer:
    parameters = [parameter for module in modules for parameter in module.parameters()]
    optim = recipe.optim
    return torch.optim.SGD(parameters, lr=optim.lr, momentum=optim.momentum, weight_decay=optim.weight_decay)


def byol_by_hand(recipe: Recipe, channels_last: bool) -> Step:
    online, predictor = encoder_and_predictor(recipe, channels_last)
    target = copy.deepcopy(online).requires_grad_(False)
    optimizer = sgd(recipe, online, predictor)

    def step(view1: Tensor, view2: Tensor) -> None:
        f1, f2 = online(view1), online(view2)
        with torch.no_grad():
            t1, t2 = target(view1), target(view2)
        q1, q2 = predictor(f1), predictor(f2)
        loss = 4 - 2 * (functional.cosine_similarity(q1, t2) + functional.cosine_similarity(q2, t1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for mine, theirs in zip(target.parameters(), online.parameters(), strict=True):
                mine.lerp_(theirs, 1 - MOMENTUM)
            for mine, theirs in zip(target.buffers(), online.buffers(), strict=True):
                mine.copy_(theirs)

    return step


def simsiam_recomputing(recipe: Recipe, channels_last: bool) -> Step:
    """SimSiam whose target is a second forward without gradient, as where any target goes through one interface."""
    online, predictor = encoder_and_predictor(recipe, channels_last)
    optimizer = sgd(recipe, online, predictor)

    def step(view1: Tensor, view2: Tensor) -> None:
        q1, q2 = predictor(online(view1)), predictor(online(view2))
        with torch.no_grad():
            t1, t2 = online(view1), online(view2)
        loss = 1 - 0.5 * (functional.cosine_similarity(q1, t2) + functional.cosine_similarity(q2, t1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def byol_by_lightly(recipe: Recipe) -> Step | None:
    try:
        from lightly.loss import NegativeCosineSimilarity
        from lightly.models.modules import BYOLPredictionHead, BYOLProjectionHead
        from lightly.models.utils import deactivate_requires_grad, update_momentum
    except ImportError:
        return None
    head = recipe.projector
    backbone = backbones.create(recipe.backbone.name, zero_init_last=recipe.backbone.zero_init_last).train()
    width = backbones.feature_width(backbone, recipe.views.size)
    projector = BYOLProjectionHead(width, head.hidden_width, head.output_width)
    predictor = BYOLPredictionHead(head.output_width, 512, head.output_width)
    slow_backbone, slow_projector = copy.deepcopy(backbone), copy.deepcopy(projector)
    deactivate_requires_grad(slow_backbone)
    deactivate_requires_grad(slow_projector)
    criterion, optimizer = NegativeCosineSimilarity(), sgd(recipe, backbone, projector, predictor)

    def online(view: Tensor) -> Tensor:
        return predictor(projector(backbone(view).flatten(start_dim=1)))

    def slow(view: Tensor) -> Tensor:
        return slow_projector(slow_backbone(view).flatten(start_dim=1)).detach()

    def step(view1: Tensor, view2: Tensor) -> None:
        update_momentum(backbone, slow_backbone, m=MOMENTUM)
        update_momentum(projector, slow_projector, m=MOMENTUM)
        q1, t1 = online(view1), slow(view1)
        q2, t2 = online(view2), slow(view2)
        loss = 0.5 * (criterion(q1, t2) + criterion(q2, t1))
        loss.detach()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def compare(title: str, ways: dict[str, tuple[Step, bool]], batch_size: int, size: int, repeats: int) -> None:
    """``ways``: each step, and whether it takes its images channels-last. The first is ours."""
    torch.manual_seed(0)
    plain = [torch.randn(batch_size, 3, size, size) for _ in range(2)]
    last = [view.contiguous(memory_format=torch.channels_last) for view in plain]
    views = {True: last, False: plain}
    runs = {name: lambda s=step, c=channels_last: s(*views[c]) for name, (step, channels_last) in ways.items()}
    for run in runs.values():
        run()  # allocates gradients and momenta
    seconds = least_seconds(runs, repeats=repeats)
    ours = next(iter(seconds.values()))
    rows = [[name, batch_size / s, s / ours] for name, s in seconds.items()]
    print(f"\n{title}, batch {batch_size}; {machine('timm', 'accelerate', 'lightly')}\n")
    print_table(["", "image pairs/s", "ssl_hub is faster by"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--backbone", default="resnet18_cifar")
    arguments = parser.parse_args()
    one_thread()
    byol = get_recipe("byol-r18-cifar10-100ep")
    byol = replace(byol, backbone=replace(byol.backbone, name=arguments.backbone))
    simsiam = get_recipe("simsiam-r18-cifar10-800ep")
    simsiam = replace(simsiam, backbone=replace(simsiam.backbone, name=arguments.backbone))
    ways = {
        "ssl_hub": (by_ssl_hub(byol, True), True),
        "the same arithmetic by hand": (byol_by_hand(byol, True), True),
    }
    by_lightly = byol_by_lightly(byol)
    if by_lightly is None:
        print("lightly is not installed: its row is left out; pip install -e '.[bench]'")
    else:
        ways["lightly's example loop"] = (by_lightly, False)
    compare(f"BYOL step, {arguments.backbone}", ways, arguments.batch_size, 32, arguments.repeats)
    ways = {
        "ssl_hub": (by_ssl_hub(simsiam, True), True),
        "a loop that recomputes the target": (simsiam_recomputing(simsiam, True), True),
    }
    compare(f"SimSiam step, {arguments.backbone}", ways, arguments.batch_size, 32, arguments.repeats)


if __name__ == "__main__":
    main()
