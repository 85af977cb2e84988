"""Linear-probe protocols by name: how a classifier is fitted to frozen features, as frozen data.

Each is what its source prints. What a source leaves open, and where we depart from it, stands beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ssl_hub.codec import with_settings
from ssl_hub.errors import UsageError
from ssl_hub.limits import COUNT, NOT_NEGATIVE, below, check
from ssl_hub.registry import Registry


@dataclass(frozen=True, kw_only=True)
class Cached:
    """Multinomial logistic regression by L-BFGS on cached, standardised features of whole images.

    A strength s weighs ||W||^2 / 2 beside the *mean* cross entropy, so that it means the same for the part and the
    whole of a split. It is chosen on a stratified share ``holdout`` of the training split, then fitted on all of it.
    """

    strengths: tuple[float, ...] = (10.0, 1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)  # of the penalty
    holdout: float = 0.1  # share of the training split that the strength is chosen on
    max_iter: int = 1000  # iterations of L-BFGS, at most

    def __post_init__(self) -> None:
        if not self.strengths or not all(math.isfinite(s) and s > 0 for s in self.strengths):
            raise UsageError(f"strengths are {list(self.strengths)}, expected one or more numbers above 0")
        if not 0 < self.holdout < 1:
            raise UsageError(f"holdout is {self.holdout}, expected a share between 0 and 1, for example 0.1")
        COUNT.check("max_iter", self.max_iter)


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A linear layer trained by gradient steps, one for each learning rate, all in one pass over the data.

    With more than one learning rate, a stratified share ``holdout`` of the training split is held out and the rate with
    the best accuracy there after the last epoch is reported; with one, nothing is held out. Learning rates are times
    ``batch_size / reference_batch``. The last batch of an epoch may be smaller.

    ``images`` are ``augmented`` (each epoch takes a random resized crop of each image, flipped half of the time) or
    ``cached`` (features of whole images, extracted once and standardised).
    """

    lrs: tuple[float, ...]  # learning rates tried, times batch_size / reference_batch
    reference_batch: int  # batch that lrs are for
    epochs: int  # passes over the training split
    batch_size: int  # images of one step, over all processes
    optimizer: Literal["sgd", "lars", "adam"]  # of the linear layers
    momentum: float = 0.9  # Nesterov momentum of SGD, beta1 of Adam
    weight_decay: float = 0.0  # added to the gradient
    schedule: Literal["cosine", "constant"] = "cosine"  # of the learning rate: half a cosine to 0, or none
    images: Literal["augmented", "cached"] = "augmented"  # fits on random crops, or on cached features
    interpolation: Literal["bicubic", "bilinear"] = "bicubic"  # how test images of 128 pixels or more are resized
    holdout: float = 0.0  # share of the training split that the learning rate is chosen on

    def __post_init__(self) -> None:
        if not self.lrs or not all(math.isfinite(lr) and lr > 0 for lr in self.lrs):
            raise UsageError(f"lrs are {list(self.lrs)}, expected one or more numbers above 0, for example [0.1]")
        if not 0 <= self.holdout < 1 or (len(self.lrs) > 1 and self.holdout == 0):
            raise UsageError(
                f"holdout is {self.holdout} for {len(self.lrs)} learning rates; expected a share between 0 and 1 to"
                " choose among them on, for example 0.1"
            )
        check(self, TRAINED)


TRAINED = {
    "reference_batch": COUNT,
    "epochs": COUNT,
    "batch_size": COUNT,
    "momentum": below(1),
    "weight_decay": NOT_NEGATIVE,
}

Protocol = Cached | Trained
PROTOCOLS: Registry[Protocol] = Registry("protocol")

CACHED = Cached()
PROTOCOLS.add("cached", CACHED)

# Grill et al. 2020 (arXiv 2006.07733), appendix C.1: SGD with Nesterov momentum over 80 epochs, no regularisation,
# rates swept on 10,009 images of ImageNet's train split. The text names no schedule; the released code anneals by a
# cosine, as here. Training crops are resized bilinearly, theirs bicubically.
PROTOCOLS.add(
    "byol",
    Trained(
        lrs=(0.4, 0.3, 0.2, 0.1, 0.05),
        reference_batch=1024,
        epochs=80,
        batch_size=1024,
        optimizer="sgd",
        holdout=10_009 / 1_281_167,
    ),
)

# Chen and He 2021 (arXiv 2011.10566), appendix A, with the base learning rate of the released code. There the schedule
# moves once an epoch, here at every step; there LARS adapts the bias too, here matrices alone.
PROTOCOLS.add(
    "simsiam",
    Trained(lrs=(0.1,), reference_batch=256, epochs=90, batch_size=4096, optimizer="lars", interpolation="bilinear"),
)

# The code released with DirectPred, for STL-10 and CIFAR-10. It reported the best epoch on test; here it is the last.
PROTOCOLS.add(
    "authors-small",
    Trained(
        lrs=(3e-4,),
        reference_batch=128,
        epochs=50,
        batch_size=128,
        optimizer="adam",
        weight_decay=1e-3,
        schedule="constant",
        images="cached",
    ),
)


def get_protocol(name: str, changes: Mapping[str, Any] | None = None) -> Protocol:
    """A protocol by name with some of its settings replaced. UsageError for an unknown name, setting or value."""
    return with_settings(PROTOCOLS[name], changes or {})
