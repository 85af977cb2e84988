"""LARS: SGD with momentum whose step on each matrix is proportional to the matrix's own norm."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim.sgd import sgd


class Lars(torch.optim.Optimizer):
    """Layer-wise adaptive rate scaling (You, Gitman and Ginsburg 2017, arXiv 1708.03888), as in BYOL's released code.

    With g the gradient plus ``weight_decay`` w, a parameter w of two or more dimensions takes g scaled by
    ``trust_coefficient`` |w| / |g|, or g itself where either norm is 0; parameters of one dimension, and groups with
    ``adapted=False`` (tokens, position embeddings), always take g itself. Momentum follows the scaling, as in SGD:
    v <- momentum v + g, w <- w - lr v. Norms are in float32. (The paper's algorithm 1, and timm, divide by
    |gradient| + ``weight_decay`` |w| instead: a shorter step wherever the two do not point alike.)

    ``found_inf``, which torch's fused optimisers know too, is None or a tensor on the device: 1 leaves everything as it
    is, without the host knowing.
    """

    found_inf: Tensor | None = None

    def __init__(
        self,
        params: Iterable[Any],
        *,
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust_coefficient: float = 0.001,
    ) -> None:
        settings = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "adapted": True}
        super().__init__(params, {**settings, "trust_coefficient": trust_coefficient})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One step on every parameter that has a gradient."""
        assert closure is None, "LARS takes one step on the gradients that are there"
        for group in self.param_groups:
            parameters: list[Tensor] = [p for p in group["params"] if p.grad is not None]
            if not parameters:
                continue
            gradients = [p.grad for p in parameters if p.grad is not None]
            updates = list(torch._foreach_add(gradients, parameters, alpha=group["weight_decay"]))
            adapted = [i for i, p in enumerate(parameters) if group["adapted"] and p.ndim > 1]
            if adapted:
                scaled = [updates[i] for i in adapted]
                torch._foreach_mul_(scaled, _trust_ratios([parameters[i] for i in adapted], scaled, group))
            buffers: list[Tensor | None] = [None] * len(parameters)
            if group["momentum"]:
                start_momentum(self, parameters)
                buffers = [self.state[parameter]["momentum_buffer"] for parameter in parameters]
            late = self.found_inf is not None  # neither momentum nor step where it is 1, in one operation
            rates = {"lr": group["lr"], "momentum": group["momentum"]}
            plain: dict[str, Any] = {"weight_decay": 0.0, "dampening": 0.0, "nesterov": False, "maximize": False}
            sgd(parameters, updates, buffers, foreach=not late, fused=late, found_inf=self.found_inf, **rates, **plain)


def start_momentum(optimizer: torch.optim.Optimizer, parameters: Iterable[Tensor]) -> None:
    """Momentum of zero where there is none yet: torch's fused SGD would keep whatever memory holds in a first step that
    is not taken."""
    for parameter in parameters:
        if "momentum_buffer" not in optimizer.state[parameter]:
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)


def _trust_ratios(parameters: list[Tensor], updates: list[Tensor], group: dict[str, Any]) -> list[Tensor]:
    weight_norms = torch.stack(torch._foreach_norm([p.float() for p in parameters]))
    update_norms = torch.stack(torch._foreach_norm([u.float() for u in updates]))
    ratios = group["trust_coefficient"] * weight_norms / update_norms
    return list(torch.where((weight_norms > 0) & (update_norms > 0), ratios, 1.0).unbind())
