"""Losses between predictions and targets. A loss's keyword arguments are the options ``loss.*`` of a recipe.

Legend: ``B`` samples of one view, ``D`` projection width. A term takes projections f, predictions q and targets t, each
[B, D] in float32 or better, and returns a scalar. ``symmetrised`` losses sum the terms of both directions (q1 against
t2 and q2 against t1); one-sided ones have view 1 predict view 2 only, which spares two forward passes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ssl_hub.limits import POSITIVE
from ssl_hub.registry import Registry

EPSILON = 1e-4  # of the norms below: a zero vector gets a gradient of at most 1e4, which float16 can hold too


class Loss:
    """One direction of a loss.

    Args:
        symmetrised: whether each view predicts the other; otherwise view 1 predicts view 2 alone.
        scale: factor of the loss, above 0.
    """

    needs_set_predictor = False

    def __init__(self, *, symmetrised: bool = True, scale: float = 1.0) -> None:
        POSITIVE.check("loss.scale", scale)
        self.symmetrised, self.scale = symmetrised, scale

    def __call__(self, f: Tensor, q: Tensor, t: Tensor) -> Tensor:
        raise NotImplementedError


LOSSES: Registry[Callable[..., Loss]] = Registry("loss")


def cosine(q: Tensor, t: Tensor) -> Tensor:
    """Cosine of corresponding rows, [B, D], [B, D] -> [B]."""
    return torch.nn.functional.cosine_similarity(q, t, dim=-1, eps=EPSILON)


@LOSSES.register("cosine")
class CosineLoss(Loss):
    """``scale * (1 - cos(q, t))``, averaged over samples.

    BYOL's ``2 - 2 cos`` is scale 2; SimSiam's ``-cos / 2`` is scale 1/2 up to a constant. Zero is a perfect prediction
    whatever the scale, which sets what a learning rate means.
    """

    def __init__(self, *, symmetrised: bool = True, scale: float = 2.0) -> None:
        super().__init__(symmetrised=symmetrised, scale=scale)

    def __call__(self, f: Tensor, q: Tensor, t: Tensor) -> Tensor:
        return self.scale * (1 - cosine(q, t)).mean()


@LOSSES.register("mse")
class MSELoss(Loss):
    """``scale * |q - t|^2``, summed over dimensions and averaged over samples; nothing is normalised.

    The paper's theory has scale 1/2.
    """

    def __call__(self, f: Tensor, q: Tensor, t: Tensor) -> Tensor:
        return self.scale * (q - t).square().sum(dim=-1).mean()


def straight_through(f: Tensor, q: Tensor) -> Tensor:
    """The value of ``q`` whose gradient reaches ``f`` unchanged.

    IsoLoss (Halvagal, Laborieux and Zenke, NeurIPS 2023, arXiv 2212.04858) removes the predictor's eigenvalues from
    each mode's learning rate. With W set rather than trained, its gradient in f is that of the plain loss in q = W f:
    the isotropic loss is the plain one with the predictor passed straight through in the backward.
    """
    return f + (q - f).detach()


@LOSSES.register("iso")
class IsoCosineLoss(CosineLoss):
    """The isotropic form of :class:`CosineLoss`; for predictors that are set, not trained. Needs no EMA."""

    needs_set_predictor = True

    def __call__(self, f: Tensor, q: Tensor, t: Tensor) -> Tensor:
        return super().__call__(f, straight_through(f, q), t)


@LOSSES.register("iso_mse")
class IsoMSELoss(MSELoss):
    """The isotropic form of :class:`MSELoss`; for predictors that are set, not trained. Needs no EMA."""

    needs_set_predictor = True

    def __call__(self, f: Tensor, q: Tensor, t: Tensor) -> Tensor:
        return super().__call__(f, straight_through(f, q), t)
