"""Predictors that the loss trains, and none."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ssl_hub.errors import UsageError
from ssl_hub.limits import WIDTH
from ssl_hub.model.heads import mlp
from ssl_hub.model.predictors.base import PREDICTORS, Predictor


@PREDICTORS.register("identity")
class IdentityPredictor(Predictor):
    """No predictor. Collapses with a stop-gradient target (Tian et al. 2021, section 3)."""

    def __init__(self, width: int) -> None:
        super().__init__()

    def forward(self, f: Tensor) -> Tensor:
        return f


@PREDICTORS.register("mlp")
class MLPPredictor(Predictor):
    """Linear, BN, ReLU, Linear: BYOL's and SimSiam's predictor. No BN after the last layer.

    Args:
        hidden_width: width of the hidden layer, 1 to 16384 (BYOL 4096; SimSiam and the authors' small-image code 512).
        norm_affine: whether the BN has a learnt scale and shift.
        bias: whether the linear layers have one.
        output_bias: whether the last of them has one where the first does: BYOL's has none, SimSiam's has.
    """

    def __init__(
        self,
        width: int,
        *,
        hidden_width: int = 4096,
        norm_affine: bool = True,
        bias: bool = True,
        output_bias: bool = True,
    ) -> None:
        super().__init__()
        WIDTH.check("predictor.hidden_width", hidden_width)
        self.layers = mlp([width, hidden_width, width], norm_affine=norm_affine, bias=bias, output_bias=output_bias)

    def forward(self, f: Tensor) -> Tensor:
        out: Tensor = self.layers(f)
        return out


@PREDICTORS.register("linear")
class LinearPredictor(Predictor):
    """One linear layer trained by the loss; PyTorch's default initialisation, U(-1/sqrt D, 1/sqrt D).

    Args:
        bias: whether it has one.
    """

    def __init__(self, width: int, *, bias: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width, bias=bias)

    def forward(self, f: Tensor) -> Tensor:
        out: Tensor = self.linear(f)
        return out

    def matrix(self) -> Tensor:
        return self.linear.weight


@PREDICTORS.register("symmetric")
class SymmetricPredictor(Predictor):
    """A predictor held symmetric by projecting its weights after each optimiser step (Tian et al. 2021, section 3.2).

    Args:
        layers: 1 or 2: 1 for a linear map, W <- (W + W^T) / 2; 2 for Linear, BN, ReLU, Linear with tied weights,
            W1, W2^T <- (W1 + W2^T) / 2. The initial weights are not symmetric, as in the authors' code.
        bias: whether the linear layers have one.
        hidden_width: width of the hidden layer when there is one, 1 to 16384.
        norm_affine: whether that layer's BN has a learnt scale and shift.
    """

    def __init__(
        self, width: int, *, layers: int = 1, bias: bool = False, hidden_width: int = 512, norm_affine: bool = True
    ) -> None:
        super().__init__()
        if layers not in (1, 2):
            raise UsageError(f"predictor.layers is {layers}, expected 1 or 2 for a symmetric predictor")
        WIDTH.check("predictor.hidden_width", hidden_width)
        widths = [width, width] if layers == 1 else [width, hidden_width, width]
        self.layers = mlp(widths, norm_affine=norm_affine, bias=bias)
        self.linears = [module for module in self.layers if isinstance(module, nn.Linear)]

    def forward(self, f: Tensor) -> Tensor:
        out: Tensor = self.layers(f)
        return out

    @torch.no_grad()
    def refresh(self, step: int) -> None:
        first, last = self.linears[0].weight, self.linears[-1].weight
        tied = (first + last.mT) / 2  # one layer: first is last, and this is its symmetric part
        first.copy_(tied)
        last.copy_(tied.mT)

    def matrix(self) -> Tensor | None:
        return self.linears[0].weight if len(self.linears) == 1 else None
