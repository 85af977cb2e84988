"""Class scores to recorded accuracies, of any scores or of a probe head's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ssl_hub.errors import UsageError
from ssl_hub.evaluate.features import Features
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
) -> list[Result]:
    """Top-1, and top-5 where there are at least five classes, of class scores.

    Legend: Q images, K classes. ``scores`` float [Q, K]; ``labels`` int64 [Q]; ``counted`` bool [Q, K] or [K] marks the
    classes that may be counted as predicted. A class that got no vote or was never trained is not a fifth guess.
    """
    scores = scores.masked_fill(~counted, -torch.inf)
    results = []
    for top in (1, 5):
        if top > scores.shape[1]:
            continue
        best, classes = scores.topk(top, dim=1)
        hits = ((classes == labels[:, None]) & (best > -torch.inf)).any(dim=1)
        percent = 100.0 * int(hits.sum()) / len(labels)
        results.append(
            Result(
                metric=f"top{top}",
                value=percent,
                dataset=dataset,
                split=split,
                protocol=protocol,
                settings=settings,
                seed=seed,
            )
        )
    return results


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
    )
