"""CIFAR-10 without a GPU: a narrow ResNet at 32 pixels on all 50,000 images.

accelerate launch -m ssl_hub train directpred-cifar10 --data PATH_OR_HUB_ID
accelerate launch --mixed_precision bf16 -m ssl_hub train directpred-cifar10 --data PATH_OR_HUB_ID

The second is for processors with bfloat16 products (AVX512_BF16, AMX), where it is about twice as fast.
"""

from __future__ import annotations

from dataclasses import replace

from ssl_hub.config import Backbone, Data, Optim, Part, Projector, Recipe, Runtime, Train
from ssl_hub.zoo import view_presets

TRIED = (
    "The backbone is that of a trial (benchmarks/cpu_backbones.py): DirectPred for two minutes of one core on 10,000"
    " images, in bfloat16, one seed, judged by a linear probe on 5,000 other training images: 34.4 %; half the width"
    " with twice the steps 32.8 %. So short a trial favours what learns fast.",
    "The learning rate was chosen by three epochs of 45,000 images in the same way: 41.0 %; with 0.1 39.4 %.",
    "The batch is that of another trial (benchmarks/README.md; ten epochs of train[:45000:4]): 42.6 % with 32, 37.6 %"
    " with 128, at as many image pairs.",
    "EMA is that of directpred-digits; cosine, epochs and views were not tuned.",
)
EPOCHS = 50
SUMMARY = f"CIFAR-10, a narrow ResNet for a CPU, {EPOCHS} epochs"

BYOL = Recipe(
    name="byol-cifar10",
    summary=f"BYOL with a two-layer predictor; {SUMMARY}",
    backbone=Backbone(name="resnet10_narrow", zero_init_last=False),
    projector=Projector(layers=2, hidden_width=512, output_width=128, norm_affine=False),
    predictor=Part("mlp", hidden_width=512, norm_affine=False, bias=False),
    target=Part("ema", momentum=0.99, schedule="constant"),
    loss=Part("cosine", symmetrised=True, scale=2.0),
    views=view_presets.SMALL_32,
    data=Data(name="uoft-cs/cifar10"),
    optim=Optim(name="sgd", lr=0.03, reference_batch=None, weight_decay=4e-4, decay_norm_and_bias=True),
    train=Train(epochs=EPOCHS, batch_size=32),
    runtime=Runtime(workers=0, channels_last=True, knn_every_epochs=5, knn_k=200, log_every_steps=50),
    notes=(
        *TRIED,
        "Widths of the heads, weight decay, views, rho and eps are those of the paper's ResNet-18 on CIFAR-10"
        " (directpred-r18-cifar10-100ep).",
    ),
)


def recipes() -> list[Recipe]:
    return [
        replace(
            BYOL,
            name="directpred-cifar10",
            summary=f"DirectPred, set at every step; {SUMMARY}",
            predictor=Part("direct", rho=0.3, eps=0.1, freq=1),
        ),
        BYOL,
        replace(
            BYOL,
            name="byol-linear-cifar10",
            summary=f"BYOL with a linear predictor trained by the loss; {SUMMARY}",
            predictor=Part("linear", bias=False),
        ),
        replace(
            BYOL,
            name="simsiam-cifar10",
            summary=f"SimSiam with a two-layer predictor; {SUMMARY}",
            projector=replace(BYOL.projector, output_norm="bn_no_affine"),
            target=Part("stopgrad"),
            loss=Part("cosine", symmetrised=True, scale=0.5),
            optim=replace(BYOL.optim, lr=4 * BYOL.optim.lr, predictor_schedule="constant"),
            notes=(
                *BYOL.notes,
                "SimSiam's own projector BN and schedules. The learning rate is four times as high because the loss is"
                " a quarter; it was not tuned.",
            ),
        ),
    ]
