"""Relatives of DirectPred, each with its source's settings: predictors in closed form, isotropic losses, filters.

What of them is left out, and why, is in the documentation, on the page of predictors.

    accelerate launch -m ssl_hub train stiefel-r50-300ep --data PATH_OR_HUB_ID
"""

from __future__ import annotations

from dataclasses import replace

from ssl_hub.config import Backbone, Data, Expected, Optim, Part, Projector, Recipe, Train
from ssl_hub.zoo import cifar10, imagenet, small_images, view_presets

RICHEMOND = "Richemond et al. 2023 (arXiv 2302.04817)"
HALVAGAL = "Halvagal et al. 2023 (arXiv 2212.04858)"
ZHUO = "Zhuo et al. 2023 (arXiv 2303.02387)"

# Kind and options at the ridge (eps) that did best at 300 epochs, and that top-1 accuracy.
CLOSED_FORM = {
    "directcopy": (
        "the correlation matrix (DirectCopy)",
        Part("direct", alpha=1.0, form="absolute", rho=0.3, eps=0.75, freq=1),
        71.5,
    ),
    "newton-schulz": ("the Newton-Schulz square root", Part("newton_schulz", iterations=9, eps=0.3), 72.0),
    "newton-schulz-2": ("the Newton-Schulz root, twice", Part("newton_schulz", iterations=7, chained=2, eps=0.6), 72.2),
    "stiefel": ("the Stiefel projection", Part("stiefel", iterations=9, eps=0.3), 72.1),
}
BATCHWISE = (
    f"Predictor, iterations and ridge (eps) as in {RICHEMOND}; optimiser, widths and views are BYOL's, as it says.",
    "The rate of the average of the predictor over steps, which the main text does not state, is 0.3 here; the batch is"
    " that of both views, and the forward of a step uses the predictor of the steps before it.",
)
SOLO_LEARN = (
    "The first convolution pads by 1 and keeps 32 x 32 pixels; the released code pads by 2, which makes 34 x 34.",
    "Crops are resized bilinearly, the released code's bicubically: 2.2 grey levels of 255 apart on average.",
    "Warm-up starts at 1/W of the learning rate, W its steps; the released code's starts at 0.00003.",
)


def closed_form() -> list[Recipe]:
    """Richemond et al. 2023, on BYOL's protocol for 300 epochs: predictors that are functions of each batch."""
    base = imagenet.byol("byol-linear", 300)

    def recipe(method: str, summary: str, predictor: Part, top1: float) -> Recipe:
        source = f"{RICHEMOND}, table of 300 epochs"
        return replace(
            base,
            name=f"{method}-r50-300ep",
            summary=f"BYOL whose predictor is {summary} of each batch; ImageNet, ResNet-50, 300 epochs",
            predictor=predictor,
            expected=(Expected(metric="ImageNet linear probe top-1 (%)", value=top1, source=source),),
            notes=(*BATCHWISE, *imagenet.RELEASED),
        )

    return [recipe(method, *rest) for method, rest in CLOSED_FORM.items()]


def isotropic() -> list[Recipe]:
    """Halvagal et al. 2023 without EMA, by the configuration and the commands of its code: IsoLoss and DirectCopy."""
    isoloss = Recipe(
        name="isoloss-r18-cifar10-1000ep",
        summary="IsoLoss: DirectPred whose modes all learn at one rate, no EMA; CIFAR-10, ResNet-18, 1000 epochs",
        backbone=Backbone(name="resnet18_cifar", zero_init_last=False),
        projector=Projector(layers=2, hidden_width=4096, output_width=256),
        predictor=Part("direct", alpha=0.5, rho=0.5, eps=0.0, freq=1),
        target=Part("stopgrad"),
        loss=Part("iso", symmetrised=True, scale=2.0),
        views=view_presets.BYOL_32,
        data=Data(name="uoft-cs/cifar10"),
        optim=Optim(
            name="sgd",
            lr=0.1,
            reference_batch=256,
            weight_decay=1e-4,
            decay_norm_and_bias=True,
            warmup_epochs=10,
            schedule="cosine",
        ),
        train=Train(epochs=1000, batch_size=256),
        runtime=small_images.RUNTIME,
        notes=(
            f"Settings as in the code of {HALVAGAL}: isoloss-noema.yaml with the weight decay of its commands, 1e-4.",
            "There F starts from zero and is updated view by view, and a prediction uses the batch it is made for; here"
            " F starts from the first batch, takes both views at once, and predicts from the steps before. The first"
            " weighs 2^-k after k steps; the effect of the others was not measured.",
            *SOLO_LEARN,
        ),
    )
    directcopy = replace(
        isoloss,
        name="directcopy-r18-cifar10-1000ep",
        summary="DirectCopy: the predictor is the correlation matrix itself, no EMA; CIFAR-10, ResNet-18, 1000 epochs",
        predictor=Part("direct", alpha=1.0, rho=0.5, eps=0.25, freq=1),
        loss=Part("cosine", symmetrised=True, scale=2.0),
        notes=(
            f"Settings as in the code of {HALVAGAL}: its command `directcopy-noema_cifar10`. It is not the code of"
            " Wang et al. 2021, which is not public as a whole.",
            *isoloss.notes[1:],
        ),
    )
    return [isoloss, directcopy]


def filters() -> list[Recipe]:
    """Zhuo et al. 2023: SimSiam whose predictor is a filter of its batch's singular values."""
    return [
        Recipe(
            name="rank-filter-r18-cifar10-400ep",
            summary="SimSiam with the square root of each batch's Z^T Z as predictor; CIFAR-10, ResNet-18, 400 epochs",
            backbone=Backbone(name="resnet18_cifar", zero_init_last=True),
            projector=Projector(layers=3, hidden_width=2048, output_width=2048, output_norm="bn_no_affine"),
            predictor=Part("rank_filter", function="power", power=1.0),
            target=Part("stopgrad"),
            loss=Part("cosine", symmetrised=True, scale=0.5),
            views=view_presets.SMALL_32,
            data=Data(name="uoft-cs/cifar10"),
            optim=Optim(
                name="sgd",
                lr=0.5,
                reference_batch=256,
                weight_decay=1e-5,
                decay_norm_and_bias=True,
                warmup_epochs=10,
                schedule="cosine",
            ),
            train=Train(epochs=400, batch_size=256),
            runtime=small_images.RUNTIME,
            notes=(
                f"Settings as in the code of {ZHUO}: rdmsimsiam.sh with `cifar10 400 poly online 1`.",
                *SOLO_LEARN,
            ),
        )
    ]


def chosen() -> list[Recipe]:
    """DirectCopy on DirectPred's own protocol, to compare the two alone."""
    base = next(recipe for recipe in cifar10.recipes() if recipe.name == "directpred-r18-cifar10-100ep")
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
        )
    ]


def recipes() -> list[Recipe]:
    return [*closed_form(), *isotropic(), *filters(), *chosen()]
