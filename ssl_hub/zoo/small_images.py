"""What STL-10 and CIFAR-10 share: the paper's ResNet-18 protocol, one recipe for each method and number of epochs.

Tian et al. 2021, section 2 and appendix: SGD, learning rate 0.03, momentum 0.9, weight decay 4e-4, EMA 0.996, batch
128, a two-layer projector, l2-normalised loss. Widths, normalisation layers and augmentations are those of the authors'
released code. Each published number is a mean over 5 seeds.
"""

from __future__ import annotations

from collections.abc import Mapping

from ssl_hub.config import Backbone, Data, Expected, Optim, Part, Projector, Recipe, Runtime, Train, Views

EPOCHS = (100, 300, 500)
RUNTIME = Runtime(knn_every_epochs=10, knn_k=200, log_every_steps=50, checkpoint_every_epochs=5)
METHODS = {
    "byol": ("BYOL with a two-layer predictor", Part("mlp", hidden_width=512, norm_affine=False, bias=False)),
    "byol-linear": ("BYOL with a linear predictor trained by the loss", Part("linear", bias=False)),
    "byol-symmetric": ("BYOL with a symmetric linear predictor", Part("symmetric", layers=1, bias=False)),
    "directpred": ("DirectPred, set at every step", Part("direct", rho=0.3, eps=0.1, freq=1)),
    "directpred-freq5": ("DirectPred, set at every fifth step", Part("direct", rho=0.3, eps=0.1, freq=5)),
}
NOTES = (
    "The learning rate is constant: no schedule is stated.",
    "Weight decay applies to every parameter, biases and BN included, as torch's SGD did in the authors' code.",
    "The target starts as a copy of the online network; in the authors' code it was an independent random network, of"
    " which 0.996^k is left after k steps: 21 % after an epoch of CIFAR-10, 4 % after one of STL-10.",
    "The last images of an epoch that do not fill a batch are left out of it (80 of CIFAR-10's 50,000, 40 of STL-10's"
    " 105,000); the authors' code kept them.",
)
LINEAR_PREDICTOR_TABLE = "Tian et al. 2021 (arXiv 2102.06810), symmetrisation table"
LONG_TABLE = "Tian et al. 2021 (arXiv 2102.06810), long-training table"

Published = Mapping[tuple[str, int], tuple[float, float, str]]  # (method, epochs) -> mean, std, source


def recipes_for(
    dataset: str, label: str, *, backbone: str, views: Views, data: Data, published: Published, notes: tuple[str, ...]
) -> list[Recipe]:
    """The methods times the epochs on one dataset."""

    def recipe(method: str, epochs: int) -> Recipe:
        summary, predictor = METHODS[method]
        numbers = published.get((method, epochs))
        return Recipe(
            name=f"{method}-r18-{dataset}-{epochs}ep",
            summary=f"{summary}; {label}, ResNet-18, {epochs} epochs",
            backbone=Backbone(name=backbone, zero_init_last=False),
            projector=Projector(layers=2, hidden_width=512, output_width=128, norm_affine=False),
            predictor=predictor,
            target=Part("ema", momentum=0.996, schedule="constant"),
            loss=Part("cosine", symmetrised=True, scale=2.0),
            views=views,
            data=data,
            optim=Optim(
                name="sgd",
                lr=0.03,
                reference_batch=None,
                momentum=0.9,
                weight_decay=4e-4,
                decay_norm_and_bias=True,
                schedule="constant",
            ),
            train=Train(epochs=epochs, batch_size=128),
            runtime=RUNTIME,
            expected=()
            if numbers is None
            else (
                Expected(metric=f"{label} linear probe top-1 (%)", value=numbers[0], std=numbers[1], source=numbers[2]),
            ),
            notes=NOTES + notes,
        )

    return [recipe(method, epochs) for method in METHODS for epochs in EPOCHS]
