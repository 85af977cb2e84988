"""What the theory says of a recipe's own run: its hyperparameters in the theory's terms, and where the run starts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from ssl_hub.config import Recipe
from ssl_hub.errors import UsageError
from ssl_hub.model.health import PATIENCE, Health, health_of
from ssl_hub.model.parts import with_defaults
from ssl_hub.model.siamese import Siamese
from ssl_hub.model.spectrum import effective_rank, healthy_std, symmetrise
from ssl_hub.theory.modes import Loss
from ssl_hub.theory.prediction import Prediction, PredictorRule, Setting, Start, flow_units, predict
from ssl_hub.train.feeding import open_loader
from ssl_hub.train.launch import open_accelerator
from ssl_hub.train.optim import schedule_factor
from ssl_hub.train.starting import begun_from, weights_of

IMAGES = 1024  # from which the start is measured, at most, rounded up to a batch
LEAST_SHARE = 1e-4  # of the trace of F, below which an eigenvalue is rounding or noise
MOVED = 64  # leading modes whose speed is measured, a backward pass each; the others take the last one's
LOSSES: dict[str, tuple[Loss, bool]] = {  # what is regressed, and whether isotropically
    "cosine": ("normalised", False),
    "iso": ("normalised", True),
    "mse": ("squared", False),
    "iso_mse": ("squared", True),
}
TARGETS: dict[str, Literal["ema", "online", "attached"]] = {"ema": "ema", "stopgrad": "online", "none": "attached"}


def not_described(recipe: Recipe) -> str | None:
    """Why the flow does not describe what the recipe trains; None where it does."""
    predictor, options = recipe.predictor.kind, dict(with_defaults(recipe).predictor.options)
    if recipe.loss.kind not in LOSSES:
        return f"loss.kind={recipe.loss.kind}; the theory has {', '.join(LOSSES)}"
    if recipe.target.kind not in TARGETS:
        return f"target.kind={recipe.target.kind}; the theory has {', '.join(TARGETS)}"
    if predictor not in ("identity", "linear", "symmetric", "direct"):
        return f"predictor.kind={predictor}; the theory has identity, linear, symmetric and direct"
    for name, value in {"layers": 1, "bias": False, "partitions": 0, "centred": False}.items():
        if options.get(name, value) != value:
            return f"predictor.{name}={options[name]}; the theory has predictor.{name}={str(value).lower()}"
    if predictor == "direct" and options["rho"] is None:
        return "predictor.rho=none, an average without end; the theory has a number"
    return None


def setting_of(recipe: Recipe) -> Setting:
    """The recipe's hyperparameters in the theory's terms.

    Raises:
        UsageError: an optimiser that is not SGD. What :func:`not_described` finds is left out.
    """
    recipe = with_defaults(recipe)
    optim, schedule = recipe.optim, recipe.train
    if optim.name != "sgd":
        raise UsageError(f"{recipe.name} is trained by {optim.name}; the theory speaks of SGD: add optim.name=sgd")
    grain = 1000
    warmup = round(grain * optim.warmup_epochs / schedule.epochs)
    mean = math.fsum(schedule_factor(optim, i, total_steps=grain, warmup_steps=warmup) for i in range(grain)) / grain
    lr = mean * optim.lr * schedule.batch_size / (optim.reference_batch or schedule.batch_size)
    alpha_p = optim.predictor_lr_ratio / (mean if optim.predictor_schedule == "constant" else 1.0)
    target, loss, options = dict(recipe.target.options), dict(recipe.loss.options), dict(recipe.predictor.options)
    lag = (1 - _number(target, "momentum", 0.996)) / (2 if target.get("schedule") == "cosine" else 1)
    decay = optim.weight_decay if optim.predictor_weight_decay is None else optim.predictor_weight_decay
    kind, isotropic = LOSSES.get(recipe.loss.kind, ("normalised", False))
    rate = _number(loss, "scale", 1.0) * (2 if loss.get("symmetrised", True) else 1) * (2 if kind == "squared" else 1)
    rule = PredictorRule(kind="identity" if recipe.predictor.kind == "identity" else "trained")
    if recipe.predictor.kind == "direct" and options["freq"] != 0:
        names = ("eps", "alpha", "c", "form", "freq")
        rho = 0.0 if options["rho"] is None else options["rho"]
        rule = PredictorRule(kind="set", rho=rho, **{name: options[name] for name in names})  # type: ignore[arg-type]
    return Setting(
        units=flow_units(lr=lr, momentum=optim.momentum, weight_decay=optim.weight_decay, ema_m=1 - lag),
        rate=rate,
        loss=kind,
        predictor=rule,
        target=TARGETS.get(recipe.target.kind, "online"),
        isotropic=isotropic,
        alpha_p=alpha_p,
        eta_p=alpha_p * decay,
    )


def _number(options: dict[str, Any], name: str, default: float) -> float:
    return float(options.get(name, default))


class Begun(NamedTuple):
    """Where runs of a recipe start, and how many steps an epoch has."""

    start: Start
    steps_per_epoch: int


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """The flow of a recipe from where its run starts; ``ends`` is the health that it ends in."""

    total_steps: int
    prediction: Prediction
    ends: Health


def forecast(recipe: Recipe, *, steps: Sequence[int] = (), begun: Begun | None = None) -> Forecast:
    """Integrate the flow of a recipe from where its run starts.

    Args:
        recipe: one that the theory describes, trained by SGD.
        steps: optimiser steps after which the prediction is reported, beside 0 and the last.
        begun: what :func:`begin` has measured, for recipes that differ in what the start does not depend on.

    Raises:
        UsageError: a recipe that the theory does not describe, or data that cannot be opened.
    """
    if why := not_described(recipe):
        raise UsageError(f"{recipe.name} is not described by the theory: {why}")
    setting = setting_of(recipe)
    start, per_epoch = begin(recipe) if begun is None else begun
    total = recipe.train.epochs * per_epoch
    total = total if recipe.train.max_steps is None else min(total, recipe.train.max_steps)
    found = predict(setting, start, steps=sorted({0, *steps, total}))
    healthy = healthy_std(recipe.projector.output_width)
    last = {
        "feature_std": float(found.spread[-1]) * healthy,
        "healthy_std": healthy,
        "effective_rank": float(effective_rank(torch.from_numpy(found.s[-1]))),
    }
    ends = health_of([last] * PATIENCE)
    assert ends is not None  # there are readings
    return Forecast(total_steps=total, prediction=found, ends=ends)


def begin(recipe: Recipe) -> Begun:
    """Build the network as a run of the recipe does, and measure its modes on the first images."""
    accelerator = open_accelerator()
    loader, _, _ = open_loader(recipe, accelerator)
    siamese = begun_from(weights_of(recipe, {}, accelerator), recipe).to(accelerator.device)
    try:
        steps = islice(loader.epoch(0, 0), max(2, -(-IMAGES // recipe.train.batch_size)))
        batches = [pair for step in steps for pair in step]
    finally:
        loader.close()
    return Begun(modes_of(siamese, batches), loader.steps_per_epoch)


def modes_of(siamese: Siamese, batches: Sequence[tuple[Tensor, Tensor]]) -> Start:
    """The modes of the projections over batches of two views; see :class:`ssl_hub.theory.prediction.Start`.

    A mode is a coordinate z of unit variance in which two views agree apart from all others: the constant, on which
    they always agree, and with F and C the covariances of a projection and of its two views, symmetrised, the
    eigenvectors of F^{-1/2} C F^{-1/2}. Half of the batches give the directions and the other half the numbers, since
    directions agree best on what they were found on.

    The gain of a mode is the squared norm of the gradient of its amplitude E[z u^T f], z held and u the direction in
    which it lies: the variance of its input, in a linear network.
    """
    with torch.no_grad():
        pairs = [[f.double() for f in siamese.encoder(pair)] for pair in batches]
    half = (len(pairs) + 1) // 2
    first, second = ([torch.cat(view) for view in zip(*part, strict=True)] for part in (pairs[:half], pairs[-half:]))
    mean = torch.cat([*first, *second]).mean(dim=0)
    to_modes, from_modes = _directions(*(f - mean for f in first))
    one, two = ((f - mean) @ to_modes for f in second)
    variance = torch.cat([one, two]).square().mean(dim=0)
    r = (one * two).mean(dim=0) / variance
    matrix = siamese.predictor.matrix()

    # The constant comes first.
    size = torch.cat([mean.norm()[None], from_modes.norm(dim=1) * variance.sqrt()])
    u = nn.functional.normalize(torch.cat([mean[None], from_modes]), dim=1)
    one_more = torch.ones_like(r[:1])
    p = torch.ones_like(size) if matrix is None else ((u @ matrix.detach().double()) * u).sum(dim=1)

    def coordinates(f: Tensor) -> Tensor:
        z = (f.double() - mean) @ to_modes / variance.sqrt()
        return torch.cat([torch.ones_like(z[:, :1]), z], dim=1)

    numbers = {
        "s": size.square(),
        "r": torch.cat([one_more, r]),
        "gain": _gains(siamese.encoder, batches[0], coordinates, u),
        "constant": torch.cat([one_more, torch.zeros_like(r)]),
        "p": p,
    }
    return Start(**{name: value.detach().cpu().numpy() for name, value in numbers.items()})


def _directions(one: Tensor, two: Tensor) -> tuple[Tensor, Tensor]:
    """From centred projections to modes [D, J] and back [J, D], by agreement, the best first; what the covariance
    hardly has is left out."""
    both = torch.cat([one, two])
    s, u = torch.linalg.eigh(symmetrise(both.mT @ both) / len(both))
    kept = s > s.sum() * LEAST_SHARE
    s, u = s[kept], u[:, kept]
    whiten = u / s.sqrt()
    _, v = torch.linalg.eigh(symmetrise(whiten.mT @ (one.mT @ two / len(one)) @ whiten))
    v = v.flip(1)
    return whiten @ v, ((u * s.sqrt()) @ v).mT


def _gains(
    encoder: nn.Module, views: tuple[Tensor, Tensor], coordinates: Callable[[Tensor], Tensor], u: Tensor
) -> Tensor:
    """Squared gradient norms of the amplitudes, [J]."""
    f = torch.cat(encoder(views))
    amplitudes = (coordinates(f.detach()).to(f.dtype) * (f @ u.mT.to(f.dtype))).mean(dim=0)
    parameters = [p for p in encoder.parameters() if p.requires_grad]
    gains = []
    for amplitude in amplitudes[:MOVED]:
        gradients = torch.autograd.grad(amplitude, parameters, retain_graph=True, allow_unused=True)
        gains.append(torch.stack([g.double().square().sum() for g in gradients if g is not None]).sum())
    found = torch.stack(gains)
    return torch.cat([found, found[-1:].expand(len(u) - len(found))])
