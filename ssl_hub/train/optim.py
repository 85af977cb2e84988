"""Parameter groups, optimisers and schedules: pure functions of the optimiser step, so a resume needs no state."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from ssl_hub.config import Optim
from ssl_hub.errors import UsageError
from ssl_hub.model.lars import Lars, start_momentum
from ssl_hub.model.roles import weights
from ssl_hub.model.stages import depths

BACKBONE = "encoder.backbone."  # where its parameters are in the trained model


def scaled_lr(optim: Optim, *, batch_per_process: int, processes: int, accumulation: int) -> tuple[float, str]:
    """The learning rate for the total batch, and how it came about in words.

    The linear rule of Goyal et al. 2017: ``lr * (batch_per_process * processes * accumulation) / reference_batch``.
    """
    total = batch_per_process * processes * accumulation
    if optim.reference_batch is None:
        return optim.lr, f"{optim.lr:g} (not scaled with the total batch of {total})"
    lr = optim.lr * total / optim.reference_batch
    factors = f"{batch_per_process} images x {processes} process(es) x {accumulation} accumulation"
    return lr, f"{lr:g} = {optim.lr:g} x ({factors}) / {optim.reference_batch}"


def parameter_groups(model: nn.Module, optim: Optim) -> list[dict[str, Any]]:
    """Trainable parameters in groups: ``encoder``, ``encoder_plain``, ``predictor`` and ``predictor_plain``; with
    ``layer_decay`` the backbone's are in groups of their own, by depth.

    Grouping is by the module a parameter belongs to and by its role: in a backbone, by what
    :func:`ssl_hub.model.roles.weights` finds; in projector and predictor, whose parameters may be called anything, by
    its dimensions. What is plain is never adapted by LARS, and decays only where the recipe has
    ``decay_norm_and_bias``. Each group carries the names of its parameters, its learning-rate ratio and whether its
    schedule is constant.
    """
    groups: dict[str, dict[str, Any]] = {}
    decaying, ratios = weights(model), _layer_ratios(model, optim.layer_decay)
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        branch = "predictor" if name.startswith("predictor.") else "encoder"
        plain = name not in decaying if name.startswith(BACKBONE) else parameter.ndim <= 1
        decay = optim.weight_decay
        if branch == "predictor" and optim.predictor_weight_decay is not None:
            decay = optim.predictor_weight_decay
        key, ratio = branch + ("_plain" if plain else ""), 1.0
        if name in ratios:
            depth, ratio = ratios[name]
            key = f"{key}_{depth:03d}"
        empty = {
            "name": key,
            "params": [],
            "names": [],
            "weight_decay": decay if not plain or optim.decay_norm_and_bias else 0.0,
            "adapted": not plain,
            "lr_ratio": optim.predictor_lr_ratio if branch == "predictor" else ratio,
            "constant": branch == "predictor" and optim.predictor_schedule == "constant",
        }
        group = groups.setdefault(key, empty)
        group["params"].append(parameter)
        group["names"].append(name)
    return [groups[key] for key in sorted(groups)]


def _layer_ratios(model: nn.Module, decay: float) -> dict[str, tuple[int, float]]:
    """Depth and ratio of the learning rate of each parameter of the backbone: ``decay`` for its last stage (block of a
    transformer), and that much less for each before it. None where nothing decays.

    Fine-tuning has the same rule, with its classifier in the place of the projector.
    """
    if decay == 1:
        return {}
    depth, stages = depths(model.get_submodule(BACKBONE.removesuffix(".")), ())
    return {f"{BACKBONE}{name}": (place, decay ** (stages - place)) for name, place in depth.items()}


def build_optimizer(groups: list[dict[str, Any]], optim: Optim, *, unless_found: bool = False) -> torch.optim.Optimizer:
    """SGD, LARS or AdamW; ``unless_found`` for one whose ``found_inf`` is set, which decides on the device whether a
    step is taken. (A fused kernel, which rounds otherwise.)"""
    kernel = {"fused": True} if unless_found else {"foreach": True}
    if optim.name == "sgd":
        return GatedSGD(groups, lr=optim.lr, momentum=optim.momentum, **kernel)
    if optim.name == "adamw":
        return torch.optim.AdamW(groups, lr=optim.lr, betas=(optim.momentum, 0.999), **kernel)
    return Lars(groups, lr=optim.lr, momentum=optim.momentum, trust_coefficient=optim.trust_coefficient)


class GatedSGD(torch.optim.SGD):
    """torch's, with a first step that may be one that is not taken."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            if group["fused"] and group["momentum"]:
                start_momentum(self, [p for p in group["params"] if p.grad is not None])
        return super().step(closure)


def schedule_factor(optim: Optim, step: int, *, total_steps: int, warmup_steps: int) -> float:
    """Multiplier of the learning rate at optimiser step ``step`` of ``total_steps``, both ends of [0, 1] included.

    Linear warm-up from 1 / warmup_steps, then half a cosine to 0 at ``total_steps``, or constant.
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    if optim.schedule == "constant":
        return 1.0
    progress = (step - warmup_steps) / max(total_steps - warmup_steps, 1)
    return 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))


def set_learning_rates(optimizer: torch.optim.Optimizer, lr: float, factor: float) -> None:
    """Every group at ``lr * its ratio``, times ``factor`` unless the group's schedule is constant."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_ratio"] * (1.0 if group["constant"] else factor)


def named_state(optimizer: torch.optim.Optimizer) -> dict[str, dict[str, Any]]:
    """Optimiser state by parameter name, so that it survives a change in the order of parameters."""
    return {name: dict(optimizer.state[p]) for name, p in _named(optimizer) if p in optimizer.state}


def load_named_state(optimizer: torch.optim.Optimizer, state: dict[str, dict[str, Any]]) -> None:
    """Inverse of :func:`named_state`; :class:`UsageError` where a name is not one of this optimiser's.

    AdamW counts its steps on the host, unless it is fused.
    """
    parameters, fused = dict(_named(optimizer)), bool(optimizer.param_groups[0].get("fused"))
    unknown = sorted(state.keys() - parameters.keys())
    if unknown:
        raise UsageError(f"the checkpoint's optimiser has {unknown[0]!r}, which this model does not train")
    for name, values in state.items():
        p = parameters[name]
        optimizer.state[p] = {
            key: value.to(p.device) if isinstance(value, torch.Tensor) and (value.ndim or fused) else value
            for key, value in values.items()
        }


def _named(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, torch.Tensor]]:
    for group in optimizer.param_groups:
        yield from zip(group["names"], group["params"], strict=True)
