"""The multi-layer perceptrons between backbone and loss."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from torch import nn

OutputNorm = Literal["none", "bn", "bn_no_affine"]


def mlp(
    widths: Sequence[int],
    *,
    norm_affine: bool = True,
    bias: bool = True,
    output_bias: bool = True,
    output_norm: OutputNorm = "none",
) -> nn.Sequential:
    """Linear layers through ``widths`` with BN and ReLU between them, [B, widths[0]] -> [B, widths[-1]].

    Args:
        widths: input, hidden and output widths; at least two.
        norm_affine: whether the hidden BNs have a learnt scale and shift.
        bias: whether the linear layers have one. A layer followed by an output BN never has: it would cancel.
        output_bias: whether the last of them has one, where the others do.
        output_norm: what follows the last layer: nothing (BYOL) or a BN, without affine in SimSiam's projector.
    """
    layers: list[nn.Module] = []
    last = len(widths) - 2
    for i, (fan_in, fan_out) in enumerate(pairwise(widths)):
        biased = bias and (i < last or (output_bias and output_norm == "none"))
        layers.append(nn.Linear(fan_in, fan_out, bias=biased))
        if i < last:
            layers += [nn.BatchNorm1d(fan_out, affine=norm_affine), nn.ReLU(inplace=True)]
    if output_norm != "none":
        layers.append(nn.BatchNorm1d(widths[-1], affine=output_norm == "bn"))
    return nn.Sequential(*layers)
