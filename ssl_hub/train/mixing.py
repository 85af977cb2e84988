"""Mixup and CutMix by timm, with draws that a resumed run takes again."""

from __future__ import annotations

import numpy as np
from timm.data import Mixup
from torch import Tensor


class Mixing:
    """Blends each image of a micro-batch with its mirror place in it, or pastes a box of that image into it.

    Zhang et al. 2018 (arXiv 1710.09412) and Yun et al. 2019 (arXiv 1905.04899), one coefficient a micro-batch. The
    draws are a pure function of (seeds, step, micro-batch); timm takes them from numpy's global state, which stays.
    """

    def __init__(self, mixup: float, cutmix: float, *, classes: int, seeds: tuple[int, ...]) -> None:
        self._seeds = seeds
        self._mix = Mixup(mixup_alpha=mixup, cutmix_alpha=cutmix, label_smoothing=0.0, num_classes=classes)

    def __call__(self, images: Tensor, labels: Tensor, step: int, index: int) -> tuple[Tensor, Tensor]:
        """Mixed images [b, 3, S, S], in place, and the shares of the classes in each [b, K]; ``b`` is even."""
        before = np.random.get_state()
        np.random.seed(np.random.SeedSequence([*self._seeds, step, index]).generate_state(4))
        try:
            mixed, shares = self._mix(images, labels)
        finally:
            np.random.set_state(before)
        return mixed, shares
