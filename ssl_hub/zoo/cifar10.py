"""CIFAR-10: the paper's ResNet-18 protocol, and SimSiam's own.

accelerate launch -m ssl_hub train directpred-r18-cifar10-100ep --data PATH_OR_HUB_ID
"""

from __future__ import annotations

from dataclasses import replace

from ssl_hub.config import Data, Expected, Optim, Part, Projector, Recipe, Train
from ssl_hub.zoo import view_presets
from ssl_hub.zoo.small_images import LONG_TABLE, recipes_for

PUBLISHED = {
    ("byol-linear", 100): (84.49, 0.20, LONG_TABLE),
    ("byol-linear", 300): (88.57, 0.15, LONG_TABLE),
    ("byol-linear", 500): (89.33, 0.27, LONG_TABLE),
    ("directpred", 100): (85.21, 0.23, LONG_TABLE),
    ("directpred", 300): (88.88, 0.15, LONG_TABLE),
    ("directpred", 500): (89.52, 0.04, LONG_TABLE),
    ("directpred-freq5", 100): (84.93, 0.29, LONG_TABLE),
    ("directpred-freq5", 300): (88.83, 0.10, LONG_TABLE),
    ("directpred-freq5", 500): (89.56, 0.13, LONG_TABLE),
}


def simsiam(base: Recipe) -> Recipe:
    """SimSiam as its paper trains it on CIFAR-10."""
    return replace(
        base,
        name="simsiam-r18-cifar10-800ep",
        summary="SimSiam; CIFAR-10, ResNet-18, 800 epochs",
        projector=Projector(layers=2, hidden_width=2048, output_width=2048, output_norm="bn_no_affine"),
        predictor=Part("mlp", hidden_width=512),
        target=Part("stopgrad"),
        loss=Part("cosine", symmetrised=True, scale=0.5),
        views=view_presets.SIMSIAM_32,
        optim=Optim(
            name="sgd",
            lr=0.03,
            reference_batch=256,
            weight_decay=5e-4,
            decay_norm_and_bias=True,
            schedule="cosine",
            predictor_schedule="constant",
        ),
        train=Train(epochs=800, batch_size=512),
        expected=(
            Expected(
                metric="CIFAR-10 linear probe top-1 (%)",
                value=91.8,
                source="Chen and He 2021 (arXiv 2011.10566), appendix D",
            ),
        ),
        notes=("The projector's width is not stated for CIFAR-10; that of ImageNet is used.",),
    )


def recipes() -> list[Recipe]:
    grid = recipes_for(
        "cifar10",
        "CIFAR-10",
        backbone="resnet18_cifar",
        views=view_presets.SMALL_32,
        data=Data(name="uoft-cs/cifar10"),
        published=PUBLISHED,
        notes=(
            "Standard deviations are those of the pixels (0.2470, 0.2435, 0.2616); the authors' code divides by 0.2023,"
            " 0.1994, 0.2010. BN after the first convolution takes up what is common: blue weighs 6 % less here.",
        ),
    )
    base = next(recipe for recipe in grid if recipe.name == "directpred-r18-cifar10-100ep")
    return [*grid, simsiam(base)]
