"""Your own images, from weights that have seen many others: training that is continued, not begun.

    accelerate launch -m ssl_hub train directpred-own --data FOLDER backbone.init=resnet50.a1_in1k
    accelerate launch -m ssl_hub train directpred-own --data FOLDER backbone.name=tf_efficientnet_lite0 \\
        backbone.init=efficientnet_lite0 views.size=96
    accelerate launch -m ssl_hub train directpred-own-vit --data FOLDER backbone.init=vit_small_patch16_224.augreg_in1k

What differs from training that begins: a tenth of the learning rate and less, BN of the backbone at the statistics of
its weights, and a first epoch in which the fresh projector and predictor are trained alone.
"""

from __future__ import annotations

from dataclasses import replace

from ssl_hub.config import Backbone, Data, Optim, Part, Projector, Recipe, Runtime, Train
from ssl_hub.zoo import view_presets

TRIED = (
    "Learning rate (0.003 at a batch of 64, by the linear rule), cosine, EMA and BN's frozen statistics are those of a"
    " trial: DirectPred from EfficientNet-Lite0, 5,000 images of CIFAR-10 (JPEG) at 64 pixels, six epochs, one seed,"
    " judged by kNN on 1,000 images of its test split. With BN as usual it lost ten points in its first epoch."
)
UNTRIED = (
    "Warm-up (two epochs, of which the backbone takes part in the second), length, widths and views were not tuned."
)

DIRECTPRED = Recipe(
    name="directpred-own",
    summary="DirectPred on your own images, continued from the weights that backbone.init names; 30 epochs",
    backbone=Backbone(name="resnet50", zero_init_last=False, bn_statistics="frozen"),
    projector=Projector(layers=2, hidden_width=512, output_width=128, norm_affine=False),
    predictor=Part("direct", rho=0.3, eps=0.1, freq=1),
    target=Part("ema", momentum=0.99, schedule="constant"),
    loss=Part("cosine", symmetrised=True, scale=2.0),
    views=view_presets.SIMSIAM,
    data=Data(name="own-images"),
    optim=Optim(name="sgd", lr=0.012, reference_batch=256, weight_decay=1e-4, warmup_epochs=2, schedule="cosine"),
    train=Train(epochs=30, batch_size=64, freeze_backbone_epochs=1),
    runtime=Runtime(knn_every_epochs=1, log_every_steps=10),
    notes=(TRIED, UNTRIED),
)


BYOL = replace(
    DIRECTPRED,
    name="byol-own",
    summary="BYOL on your own images, continued from the weights that backbone.init names; 30 epochs",
    predictor=Part("mlp", hidden_width=512),
    notes=(*DIRECTPRED.notes, "Taken over from directpred-own without a trial of its own."),
)
SIMSIAM = replace(
    DIRECTPRED,
    name="simsiam-own",
    summary="SimSiam on your own images, continued from the weights that backbone.init names; 30 epochs",
    projector=Projector(layers=3, hidden_width=2048, output_width=2048, output_norm="bn_no_affine"),
    predictor=Part("mlp", hidden_width=512),
    target=Part("stopgrad"),
    loss=Part("cosine", symmetrised=True, scale=0.5),
    optim=replace(DIRECTPRED.optim, lr=0.048, predictor_schedule="constant"),
    notes=(
        *DIRECTPRED.notes,
        "Taken over from directpred-own without a trial of its own; the learning rate is four times as high because the"
        " loss is a quarter.",
    ),
)

# Backbones without BN: nothing of theirs forgets, and AdamW trains them.
ADAMW = Optim(name="adamw", lr=1e-3, reference_batch=256, weight_decay=0.05, warmup_epochs=2, schedule="cosine")
WITHOUT_BN = (
    "The projector keeps its BN, over each view on its own as in the papers (MoCo v3 does the same with ViTs): it is"
    " the only BN there is, and DirectPred's correlation matrix is of what comes after it. eps above 0 keeps the"
    " predictor invertible with or without.",
    "Position embeddings, tokens, scales and biases do not decay.",
    "From weights, a tenth of the learning rate is where others begin; that was not tried here.",
)
TRIAL = (
    "Learning rate and decay are those of a trial from random weights: directpred with {name}, 5,000 images of CIFAR-10"
    " (JPEG) at 64 pixels, five epochs with one of warm-up, batch 64, one seed: 20-NN on 2,000 other training images"
    " from {before} to {after} %."
)
FAMILIES = {
    "convnext": ("convnext_tiny", TRIAL.format(name="convnext_atto", before=27.6, after=33.0)),
    "vit": ("vit_small_patch16_224", TRIAL.format(name="vit_tiny_patch16_224", before=28.2, after=32.7)),
}


def _without_bn(recipe: Recipe, family: str) -> Recipe:
    """The recipe for a backbone that has none: ``directpred-own-vit``."""
    backbone, trial = FAMILIES[family]
    method = recipe.summary.partition(" on ")[0]
    return replace(
        recipe,
        name=f"{recipe.name}-{family}",
        summary=f"{method} on your own images with a {backbone}, from weights or from none; 30 epochs",
        backbone=Backbone(name=backbone, zero_init_last=False),
        optim=replace(ADAMW, predictor_schedule=recipe.optim.predictor_schedule),
        train=replace(recipe.train, freeze_backbone_epochs=0),
        notes=(trial, *(() if recipe is DIRECTPRED else ("Of this method no trial was made.",)), *WITHOUT_BN),
    )


def recipes() -> list[Recipe]:
    own = [DIRECTPRED, BYOL, SIMSIAM]
    return [*own, *(_without_bn(recipe, family) for family in FAMILIES for recipe in own)]
