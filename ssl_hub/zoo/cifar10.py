"""CIFAR-10: the paper's ResNet-18 protocol, and three relatives.

accelerate launch recipes/train.py directpred-r18-cifar10-100ep --data PATH_OR_HUB_ID
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


def relatives(base: Recipe) -> list[Recipe]:
    """DirectCopy and IsoLoss on the paper's protocol, and SimSiam on its own."""
    return [
        replace(
            base,
            name="directcopy-r18-cifar10-100ep",
            summary="DirectCopy: the predictor is the correlation matrix itself; CIFAR-10, ResNet-18, 100 epochs",
            predictor=Part("direct", alpha=1.0, rho=0.5, eps=0.3, freq=1),
            expected=(),
            notes=(
                *base.notes,
                "W = F / |F| + eps I, spectral norm (Wang et al. 2021, arXiv 2110.04947); rho and eps are chosen here.",
            ),
        ),
        replace(
            base,
            name="isoloss-r18-cifar10-100ep",
            summary="IsoLoss: DirectPred whose modes all learn at one rate, no EMA; CIFAR-10, ResNet-18, 100 epochs",
            projector=Projector(layers=2, hidden_width=4096, output_width=256),
            predictor=Part("direct", alpha=0.5, rho=0.5, eps=0.0, freq=1),
            target=Part("stopgrad"),
            loss=Part("iso", symmetrised=True, scale=2.0),
            optim=Optim(
                name="sgd", lr=0.1, reference_batch=256, weight_decay=1e-5, warmup_epochs=10, schedule="cosine"
            ),
            train=Train(epochs=100, batch_size=256),
            expected=(),
            notes=(
                "Optimiser, projector, rho and eps as in the code of Halvagal et al. 2023 (arXiv 2212.04858),"
                " which trains 1000 epochs; 100 here.",
            ),
        ),
        replace(
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
        ),
    ]


def recipes() -> list[Recipe]:
    grid = recipes_for(
        "cifar10",
        "CIFAR-10",
        backbone="resnet18_cifar",
        views=view_presets.SMALL_32,
        data=Data(name="uoft-cs/cifar10"),
        published=PUBLISHED,
        notes=(),
    )
    base = next(recipe for recipe in grid if recipe.name == "directpred-r18-cifar10-100ep")
    return [*grid, *relatives(base)]
