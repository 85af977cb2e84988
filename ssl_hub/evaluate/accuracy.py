"""Class scores to recorded accuracies."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ssl_hub.model.results import Result


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
