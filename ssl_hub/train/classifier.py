"""A pretrained backbone with a new classifier, trained as one: groups, frozen stages, one optimiser step."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from accelerate import Accelerator
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from ssl_hub.config import Optim
from ssl_hub.errors import UsageError
from ssl_hub.limits import COUNT, NOT_NEGATIVE, POSITIVE, SEED, ZERO_OR_MORE, above, below, check, whole
from ssl_hub.model.normalisation import synchronised, with_statistics
from ssl_hub.model.roles import weights
from ssl_hub.model.stages import depths, frozen_modules
from ssl_hub.train.launch import synchronises
from ssl_hub.train.mixing import Mixing
from ssl_hub.train.optim import load_named_state, named_state, schedule_factor, set_learning_rates


@dataclass(frozen=True, kw_only=True)
class Finetuning:
    """How a classifier is fine-tuned: SGD with Nesterov momentum and a cosine to 0 at every step.

    The defaults are those of BYOL's semi-supervised setting (Grill et al. 2020, appendix C.2): no regularisation, one
    learning rate for all. There it was swept over 0.005 to 0.1 and the epochs over 30 and 50; choose on images that are
    neither trained nor tested on.
    """

    lr: float = 0.05  # peak learning rate, times batch_size / reference_batch
    reference_batch: int = 256  # batch that lr is for
    layer_decay: float = 1.0  # factor of the learning rate from each stage, or block, to the one before it
    head_lr_ratio: float = 1.0  # factor of the new classifier's learning rate
    # what BN normalises by: each batch, or (frozen) the running statistics it has, while its scale and shift train
    bn_statistics: Literal["batch", "frozen"] = "batch"
    freeze: int = 0  # stages, or blocks, from the images on that stay as they are; 1 is the stem alone
    epochs: int = 50  # passes over the training images
    warmup_epochs: float = 0.0  # first epochs, in which the learning rate rises linearly
    batch_size: int = 256  # images of one step, over all processes and accumulation
    accumulation: int = 1  # micro-batches that one step is made of
    momentum: float = 0.9  # Nesterov momentum
    weight_decay: float = 0.0  # of weights, not of biases, normalisation, position embeddings or tokens
    label_smoothing: float = 0.0  # share of the target that is spread over all classes
    class_weights: Literal["none", "balanced"] = "none"  # in the loss; balanced: each class counts the same
    mixup: float = 0.0  # alpha of the Beta that images of a micro-batch are blended by; 0: not blended
    cutmix: float = 0.0  # the same for pasted boxes; with both, each micro-batch takes one of them
    holdout: float = 0.0  # stratified share of the training images that the best epoch is chosen on; 0: the last one
    patience: int = 0  # epochs without a better one on the held-out part after which training ends; 0: all epochs
    sync_bn: bool = True  # whether BN takes its statistics over all processes; on several GPUs alone
    seed: int = 0  # fixes the new classifier, order of images and augmentation

    def __post_init__(self) -> None:
        check(self, LIMITS)
        if self.patience and not self.holdout:
            raise UsageError(
                f"patience is {self.patience} and holdout is 0: there is nothing to judge an epoch on; set a share,"
                " for example holdout=0.1"
            )

    @property
    def peak_lr(self) -> float:
        return self.lr * self.batch_size / self.reference_batch


LIMITS = {
    "lr": POSITIVE,
    "reference_batch": COUNT,
    "layer_decay": above(0, 1),
    "head_lr_ratio": POSITIVE,
    "freeze": whole(0),
    "epochs": COUNT,
    "warmup_epochs": NOT_NEGATIVE,
    "batch_size": COUNT,
    "accumulation": COUNT,
    "momentum": below(1),
    "weight_decay": NOT_NEGATIVE,
    "label_smoothing": below(1),
    "mixup": NOT_NEGATIVE,
    "cutmix": NOT_NEGATIVE,
    "holdout": below(1),
    "patience": ZERO_OR_MORE,
    "seed": SEED,
}


class ClassifierTrainer:
    """A classifier [B, 3, S, S] -> [B, K] with its optimiser, advanced one optimiser step at a time.

    ``classifier`` names the new part of it, as :func:`~ssl_hub.model.stages.with_classifier` does. ``images_of`` [K]
    are the training images of each class, which a balanced loss goes by.
    """

    def __init__(
        self,
        model: nn.Module,
        classifier: Collection[str],
        settings: Finetuning,
        accelerator: Accelerator,
        *,
        steps_per_epoch: int,
        images_of: NDArray[np.int64],
    ) -> None:
        self.network, self.settings, self.accelerator, self.step = model, settings, accelerator, 0
        self.steps_per_epoch, self.total_steps = steps_per_epoch, settings.epochs * steps_per_epoch
        if synchronises(accelerator, settings.sync_bn):
            self.network = synchronised(model)
        if settings.bn_statistics == "frozen" and not with_statistics(model):
            raise UsageError(
                f"bn_statistics is 'frozen', and {type(model).__name__} has no batch normalisation: set"
                " bn_statistics=batch"
            )
        groups = parameter_groups(self.network, classifier, settings)
        self._frozen = list(frozen_modules(self.network, classifier))  # of the layers that train, so after conversion
        optimizer = torch.optim.SGD(
            groups, lr=settings.lr, momentum=settings.momentum, nesterov=settings.momentum > 0, foreach=True
        )
        self.model, self.optimizer = accelerator.prepare(self.network.to(accelerator.device), optimizer)
        self._schedule = Optim(schedule="cosine")
        self._weights = None
        if settings.class_weights == "balanced":
            self._weights = balanced_weights(images_of).to(accelerator.device)
        self._mixing = None
        if settings.mixup or settings.cutmix:
            seeds = settings.seed, accelerator.process_index
            self._mixing = Mixing(settings.mixup, settings.cutmix, classes=len(images_of), seeds=seeds)

    @property
    def done(self) -> bool:
        return self.step >= self.total_steps

    def train_mode(self) -> None:
        """Train mode, but for what is frozen: its normalisation keeps its statistics."""
        self.model.train()
        keeping = with_statistics(self.network) if self.settings.bn_statistics == "frozen" else []
        for module in (*self._frozen, *keeping):
            module.eval()

    def advance(self, micro_batches: Iterator[tuple[Tensor, Tensor]]) -> Tensor:
        """One optimiser step on ``accumulation`` micro-batches; this process's mean cross entropy, on the device."""
        settings = self.settings
        factor = schedule_factor(
            self._schedule,
            self.step,
            total_steps=self.total_steps,
            warmup_steps=round(settings.warmup_epochs * self.steps_per_epoch),
        )
        set_learning_rates(self.optimizer, settings.peak_lr, factor)
        self.optimizer.zero_grad(set_to_none=True)
        losses = []
        for index, (images, labels) in enumerate(micro_batches):
            last = index == settings.accumulation - 1
            with nullcontext() if last else self.accelerator.no_sync(self.model):
                loss = self._loss(images, labels, index)
                self.accelerator.backward(loss / settings.accumulation)
            losses.append(loss.detach())
        self.optimizer.step()
        self.step += 1
        return torch.stack(losses).mean()

    def _loss(self, images: Tensor, labels: Tensor, index: int) -> Tensor:
        """The cross entropy of micro-batch ``index`` of this step, in float32."""
        targets = labels
        if self._mixing is not None:
            images, targets = self._mixing(images, labels, self.step, index)
        smoothing = self.settings.label_smoothing
        return functional.cross_entropy(
            self.model(images).float(), targets, weight=self._weights, label_smoothing=smoothing
        )

    def state_dict(self) -> dict[str, Any]:
        """Everything a later process needs to continue exactly, except random states."""
        state = {"step": self.step, "model": dict(self.network.state_dict()), "optimizer": named_state(self.optimizer)}
        if self.accelerator.scaler is not None:
            state["scaler"] = self.accelerator.scaler.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["model"], strict=True)
        load_named_state(self.optimizer, state["optimizer"])
        if self.accelerator.scaler is not None and "scaler" in state:
            self.accelerator.scaler.load_state_dict(state["scaler"])
        self.step = int(state["step"])


def balanced_weights(images_of: NDArray[np.int64]) -> Tensor:
    """Weights [K] by which each class counts the same, whatever its number of images [K]; 0 for one without images.

    They average to 1 over the images, as scikit-learn's ``balanced`` do.
    """
    counts = torch.from_numpy(images_of).float()
    shown = counts > 0
    return torch.where(shown, counts.sum() / (shown.sum() * counts.clamp_min(1)), 0.0)


def parameter_groups(model: nn.Module, classifier: Collection[str], settings: Finetuning) -> list[dict[str, Any]]:
    """Parameters by depth and role, deeper ones with higher learning rates; what is to be frozen is, here.

    UsageError where ``freeze`` is more than the backbone has.
    """
    depth, stages = depths(model, classifier)
    if settings.freeze > stages:
        raise UsageError(
            f"freeze is {settings.freeze}, and {type(model).__name__} has {stages} stages before its classifier; "
            f"expected 0 (none) to {stages} (all of the backbone)"
        )
    deepest, decaying = max(depth.values()), weights(model)
    groups: dict[tuple[int, bool, bool], dict[str, Any]] = {}
    for name, parameter in model.named_parameters():
        new, plain = name in classifier, name not in decaying
        if depth[name] < settings.freeze and not new:
            parameter.requires_grad_(False)
        if not parameter.requires_grad:
            continue
        ratio = settings.layer_decay ** (deepest - depth[name]) * (settings.head_lr_ratio if new else 1.0)
        decay = 0.0 if plain else settings.weight_decay
        empty = {"params": [], "names": [], "lr_ratio": ratio, "weight_decay": decay, "constant": False}
        group = groups.setdefault((depth[name], new, plain), empty)
        group["params"].append(parameter)
        group["names"].append(name)
    return [groups[key] for key in sorted(groups)]
