"""The linear probes that are trained step by step: BYOL's, SimSiam's and that of DirectPred's released code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ssl_hub.config import Views
from ssl_hub.data.labelled import LabelledCrops, batch_shares
from ssl_hub.data.sources import Source
from ssl_hub.data.views import EvalTransform, eval_transform
from ssl_hub.evaluate.accuracy import evaluate_head
from ssl_hub.evaluate.features import extract
from ssl_hub.evaluate.head_bank import HeadBank
from ssl_hub.evaluate.holdout import is_better, stratified_holdout
from ssl_hub.evaluate.intervals import wilson
from ssl_hub.evaluate.labels import check_labels, check_trainable, labels_of
from ssl_hub.evaluate.progress import Progress
from ssl_hub.evaluate.protocols import Trained
from ssl_hub.evaluate.standardise import Scaling
from ssl_hub.evaluate.work import ALONE, Work
from ssl_hub.model.modes import eval_mode
from ssl_hub.model.probe_head import ProbeHead
from ssl_hub.model.results import Result

BEST_EPOCH = "top1-of-best-epoch-on-test"  # what some published tables report: optimistic, and never compared to a top1


Batch = tuple[int, Iterator[tuple[Tensor, Tensor]]]
"""The size of a batch over all processes, and this process's features [b, C] and labels [b] of it, in parts."""


def train_probe(
    model: nn.Module,
    train: Source,
    test: Source,
    transform: EvalTransform,
    protocol: Trained,
    *,
    name: str,
    seed: int = 0,
    work: Work = ALONE,
) -> tuple[ProbeHead, list[Result]]:
    """Train a linear classifier on frozen features of ``train`` and measure it after the last epoch on ``test``.

    ``model`` maps images [B, 3, S, S] to features [B, C]; it stays in eval mode and its state is untouched.
    ``transform`` gives S and the normalisation. ``name`` is the protocol's in the results. With cached features
    the best epoch on test is measured too, under the metric "top1-of-best-epoch-on-test".

    Collective over the processes of ``work``: each takes its share of every batch, and all return the same. Raises
    UsageError, before any work, for splits that are not labelled by one list of classes, fewer training images than
    classes and one class alone; later, for unreadable images and for features or gradients that are not finite.
    """
    labels = labels_of(train)
    check_labels(labels, labels_of(test))
    check_trainable(labels)
    assert labels.classes is not None
    kept, held_out = np.arange(len(train)), np.arange(0)
    if len(protocol.lrs) > 1:
        kept, held_out = stratified_holdout(labels.y, protocol.holdout, seed)
    transform = transform_of(protocol, transform)
    asked = extract(model, test, transform, **work._asdict())
    material = _material(model, train, kept, held_out, transform, protocol, seed, work)

    total_steps = protocol.epochs * -(-len(kept) // protocol.batch_size)
    bank = HeadBank(asked.width, len(labels.classes), protocol, total_steps=total_steps, seed=seed, work=work)
    asked_x, asked_y = torch.from_numpy(material.scaling.apply(asked.x)), torch.from_numpy(asked.y)
    progress = Progress(work.titled(f"linear-{name}"), total_steps, "steps")
    by_epoch = []
    with closing(material), eval_mode(model), progress:
        for epoch in range(protocol.epochs):
            _train_epoch(bank, material.batches(epoch), progress, f"epoch {epoch + 1} of {protocol.epochs}")
            if protocol.images == "cached":
                by_epoch.append([accuracy for accuracy, _ in bank.judge(asked_x, asked_y)])

    chosen, about = _choose(bank, protocol, torch.from_numpy(material.held_x), labels.y[held_out])
    weight, bias = (parameters[chosen].detach().cpu().double().numpy() for parameters in (bank.weights, bank.biases))
    fitted_to = {"holdout_size": len(held_out), "seed": seed, "train_split": train.split, "train_size": len(train)}
    settings = {"protocol": f"linear-{name}", **asdict(protocol), **about, **fitted_to, "layer": asked.layer}
    head = ProbeHead(*material.scaling.fold(weight, bias), labels.classes, train.name, settings)
    results = evaluate_head(head, asked)
    if by_epoch:
        best = max(accuracies[chosen] for accuracies in by_epoch)
        interval = wilson(best, len(test))
        results.append(replace(results[0], metric=BEST_EPOCH, value=best, interval=interval, per_class={}))
    return head, results


def _train_epoch(bank: HeadBank, batches: Iterator[Batch], progress: Progress, note: str) -> None:
    for size, parts in batches:
        for features, targets in parts:
            bank.accumulate(features, targets, size)
        bank.step()
        progress.advance(1, note)


class _Material(NamedTuple):
    """What heads are trained and chosen on."""

    batches: Callable[[int], Iterator[Batch]]  # of an epoch
    held_x: np.ndarray  # features of the held-out images, scaled
    scaling: Scaling  # from the backbone's features to those that the heads see
    crops: LabelledCrops | None = None  # whose workers are to be ended

    def close(self) -> None:
        if self.crops is not None:
            self.crops.close()


def _material(
    model: nn.Module,
    train: Source,
    kept: np.ndarray,
    held_out: np.ndarray,
    transform: EvalTransform,
    protocol: Trained,
    seed: int,
    work: Work,
) -> _Material:
    assert train.labels is not None
    if protocol.images == "cached":
        x = extract(model, train, transform, **work._asdict()).x
        scaling = Scaling.of(x[kept])
        batches = cached_batches(scaling.apply(x[kept]), train.labels[kept], protocol, seed, work)
        return _Material(batches, scaling.apply(x[held_out]), scaling)
    # One image more than none, for the width of the features.
    x = extract(model, train.subset(held_out if len(held_out) else [0]), transform, **work._asdict()).x
    crops = LabelledCrops(
        train.subset(kept), size=transform.size, mean=transform.mean, std=transform.std,
        batch_size=protocol.batch_size, micro_batch_size=work.batch_size, rank=work.rank, world=work.world, seed=seed,
        device=work.device, workers=work.workers,
    )  # fmt: skip
    return _Material(augmented_batches(model, crops), x[: len(held_out)], Scaling.none(x.shape[1]), crops)


def transform_of(protocol: Trained, transform: EvalTransform) -> EvalTransform:
    """The test transform of a protocol at the size and normalisation of a model's own: for 224 pixels, the centre of a
    resize to 256; images below 128 pixels whole."""
    usual = Views(size=transform.size).evaluation
    interpolation = protocol.interpolation if usual["crop_pct"] < 1 else usual["interpolation"]
    chosen = {**usual, "interpolation": interpolation, "mean": transform.mean, "std": transform.std}
    return eval_transform(size=transform.size, **chosen)


def cached_batches(
    x: np.ndarray, y: np.ndarray, protocol: Trained, seed: int, work: Work
) -> Callable[[int], Iterator[Batch]]:
    """For each epoch, its batches of features [N, C] that are held on the device."""
    features, targets = torch.from_numpy(x).to(work.device), torch.from_numpy(y).to(work.device)

    def epoch(number: int) -> Iterator[Batch]:
        for size, parts in batch_shares(
            len(x), batch_size=protocol.batch_size, micro_batch_size=protocol.batch_size,
            seed=seed, epoch=number, rank=work.rank, world=work.world,
        ):  # fmt: skip
            rows = [torch.from_numpy(part).to(work.device) for part in parts]
            yield size, ((features[row], targets[row]) for row in rows)

    return epoch


def augmented_batches(model: nn.Module, crops: LabelledCrops) -> Callable[[int], Iterator[Batch]]:
    """For each epoch, its batches of features of random crops."""

    @torch.no_grad()
    def features_of(images: Tensor) -> Tensor:
        return model(images).float()

    def epoch(number: int) -> Iterator[Batch]:
        for size, parts in crops.epoch(number):
            yield size, ((features_of(images), targets) for images, targets in parts)

    return epoch


def _choose(bank: HeadBank, protocol: Trained, x: Tensor, y: np.ndarray) -> tuple[int, dict[str, Any]]:
    """The head of the bank to report, and what is to be said about the choice."""
    if len(protocol.lrs) == 1:
        return 0, {"lr": protocol.lrs[0], "chosen_by": "given"}
    if len(y) == 0:
        middle = len(protocol.lrs) // 2
        return middle, {"lr": protocol.lrs[middle], "chosen_by": "middle: no class has two images"}
    judged = bank.judge(x, torch.from_numpy(y))
    chosen = 0
    for index, candidate in enumerate(judged):
        chosen = index if is_better(candidate, judged[chosen]) else chosen
    return chosen, {
        "lr": protocol.lrs[chosen],
        "chosen_by": "held-out accuracy",
        "holdout_top1": judged[chosen][0],
        "holdout_top1_of_lrs": [accuracy for accuracy, _ in judged],
    }
