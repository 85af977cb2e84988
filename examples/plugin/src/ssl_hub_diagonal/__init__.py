"""A predictor that scales each coordinate, and BYOL with it on the built-in digits."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from ssl_hub import get_recipe
from ssl_hub.config import Part
from ssl_hub.model.predictors import PREDICTORS, Predictor
from ssl_hub.zoo import RECIPES


@PREDICTORS.register("diagonal")
class DiagonalPredictor(Predictor):
    """f * scale, elementwise."""

    def __init__(self, width: int, *, start: float = 1.0) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((width,), start))

    def forward(self, f: Tensor) -> Tensor:
        return f * self.scale

    def matrix(self) -> Tensor:
        return self.scale.diag()


RECIPES.add(
    "byol-diagonal-digits",
    replace(
        get_recipe("byol-digits"),
        name="byol-diagonal-digits",
        summary="BYOL with a diagonal predictor on the built-in digits; a tiny ResNet, 60 epochs",
        predictor=Part("diagonal", start=0.9),
        expected=(),
        notes=("Everything but the predictor is as in byol-digits.",),
    ),
)
