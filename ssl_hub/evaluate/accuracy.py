"""Class scores to recorded accuracies, of any scores or of a probe head's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ssl_hub.errors import UsageError
from ssl_hub.evaluate.features import Features
from ssl_hub.evaluate.intervals import wilson
from ssl_hub.evaluate.standardise import ROWS_AT_ONCE
from ssl_hub.model.probe_head import ProbeHead
from ssl_hub.model.results import Result

NEVER = -1e9  # bias of a class without training images: finite, because files and later layers need it so


def accuracy_results(
    scores: Tensor,
    labels: Tensor,
    counted: Tensor,
    *,
    dataset: str,
    split: str,
    protocol: str,
    settings: dict[str, Any],
    seed: int | None = None,
    classes: Sequence[str] = (),
) -> list[Result]:
    """Top-1, and top-5 where there are at least five classes, of class scores; each with its 95 % interval over images
    and top-1 with the counts of each class, where ``classes`` names them.

    Legend: Q images, K classes. ``scores`` float [Q, K]; ``labels`` int64 [Q]; ``counted`` bool [Q, K] or [K] marks the
    classes that may be counted as predicted. A class that got no vote or was never trained is not a fifth guess. Of
    classes with equal scores the first is guessed first.
    """
    places = _places(scores.masked_fill(~counted, -torch.inf), labels)
    results = []
    for top in (1, 5):
        if top > scores.shape[1]:
            continue
        right = places < top
        percent = 100.0 * int(right.sum()) / len(labels)
        results.append(
            Result(
                metric=f"top{top}",
                value=percent,
                dataset=dataset,
                split=split,
                protocol=protocol,
                settings=settings,
                seed=seed,
                images=len(labels),
                interval=wilson(percent, len(labels)),
                per_class=_per_class(right, labels, classes) if top == 1 else {},
            )
        )
    return results


def _per_class(right: Tensor, labels: Tensor, classes: Sequence[str]) -> dict[str, list[int]]:
    """Images that are right, and all, of each class."""
    hits = torch.bincount(labels[right], minlength=len(classes)).tolist()
    images = torch.bincount(labels, minlength=len(classes)).tolist()
    return {name: [hits[place], images[place]] for place, name in enumerate(classes)}


def _places(scores: Tensor, labels: Tensor) -> Tensor:
    """The place of each row's own class [Q] in the order of its scores [Q, K], from 0; K where it has no score.

    Counted, because the order in which ``topk`` gives equal scores is nobody's promise.
    """
    places = torch.empty_like(labels)
    earlier = torch.arange(scores.shape[1])
    for start in range(0, len(scores), ROWS_AT_ONCE):
        part, own = scores[start : start + ROWS_AT_ONCE], labels[start : start + ROWS_AT_ONCE, None]
        score = part.gather(1, own)
        ahead = (part > score) | ((part == score) & (earlier < own))
        places[start : start + ROWS_AT_ONCE] = ahead.sum(dim=1).where(score[:, 0] > -torch.inf, scores.shape[1])
    return places


def evaluate_head(head: ProbeHead, test: Features) -> list[Result]:
    """Top-1, and top-5 where there are at least five classes, of ``head`` on ``test``.

    Raises UsageError where the features have another width, another class list, or no labels.
    """
    head.check_width(test.width)
    if head.classes != test.classes or test.y.min() < 0:
        raise UsageError(
            f"the head for {head.dataset!r} knows {len(head.classes)} classes, and {test.name} has "
            f"{len(test.classes or ())} others or images without a label; "
            f"evaluate it on a labelled split of {head.dataset!r}"
        )
    with torch.inference_mode():
        scores = torch.cat([part @ head.weight.T + head.bias for part in torch.from_numpy(test.x).split(ROWS_AT_ONCE)])
    settings = {name: value for name, value in head.settings.items() if name not in ("seed", "protocol")}
    if head.dataset != test.dataset:
        settings["train_dataset"] = head.dataset
    return accuracy_results(
        scores,
        torch.from_numpy(test.y),
        head.bias > NEVER,
        dataset=test.dataset,
        split=test.split,
        protocol=head.settings.get("protocol", "linear-cached"),
        settings=settings,
        seed=head.settings.get("seed"),
        classes=test.classes or (),
    )
