"""The built-in demo: scikit-learn's handwritten digits, rotated, at 16x16. Minutes on two CPU cores, no download.

accelerate launch -m ssl_hub train directpred-digits
"""

from __future__ import annotations

from dataclasses import replace

from ssl_hub.config import Backbone, Data, Optim, Part, Projector, Recipe, Runtime, Train, View, Views

# Grey images of a few strokes: no flip (6 is not 9), no colour, no blur.
VIEW = View(
    crop_scale=(0.4, 1.0),
    flip=0.0,
    jitter=0.8,
    brightness=0.4,
    contrast=0.4,
    saturation=0.0,
    hue=0.0,
    grey=0.0,
    blur=0.0,
)

BYOL = Recipe(
    name="byol-digits",
    summary="BYOL with a two-layer predictor; digits, a tiny ResNet, 60 epochs",
    backbone=Backbone(name="resnet10_tiny", zero_init_last=False),
    projector=Projector(layers=2, hidden_width=256, output_width=64),
    predictor=Part("mlp", hidden_width=256),
    target=Part("ema", momentum=0.99, schedule="constant"),
    loss=Part("cosine", symmetrised=True, scale=2.0),
    views=Views(size=16, view1=VIEW, view2=VIEW, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)),
    data=Data(name="digits"),
    optim=Optim(name="sgd", lr=0.03, reference_batch=None, momentum=0.9, weight_decay=4e-4, schedule="constant"),
    train=Train(epochs=60, batch_size=64),
    runtime=Runtime(workers=0, channels_last=True, knn_every_epochs=10, log_every_steps=5, checkpoint_every_epochs=10),
    notes=(
        "Learning rate, EMA, epochs and the projector's BN were chosen for directpred-digits on a held-out fifth of the"
        " training split, and are shared by the other recipes.",
    ),
)


def recipes() -> list[Recipe]:
    return [
        replace(
            BYOL,
            name="directpred-digits",
            summary="DirectPred, set at every step; digits, a tiny ResNet, 60 epochs",
            predictor=Part("direct", rho=0.3, eps=0.1, freq=1),
        ),
        BYOL,
        replace(
            BYOL,
            name="byol-linear-digits",
            summary="BYOL with a linear predictor trained by the loss; digits, a tiny ResNet, 60 epochs",
            predictor=Part("linear", bias=False),
        ),
        replace(
            BYOL,
            name="simsiam-digits",
            summary="SimSiam with a two-layer predictor; digits, a tiny ResNet, 60 epochs",
            projector=replace(BYOL.projector, output_norm="bn_no_affine"),
            target=Part("stopgrad"),
            loss=Part("cosine", symmetrised=True, scale=0.5),
            optim=replace(BYOL.optim, lr=0.06, schedule="cosine", predictor_schedule="constant"),
            notes=(*BYOL.notes, "SimSiam's own projector BN and schedules; its learning rate was not tuned."),
        ),
    ]
