"""The ``cached`` linear probe: logistic regression on cached features, its strength chosen without the test split."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ssl_hub.evaluate.accuracy import NEVER, evaluate_head
from ssl_hub.evaluate.features import Features, check_pair
from ssl_hub.evaluate.holdout import is_better, stratified_holdout
from ssl_hub.evaluate.labels import check_trainable
from ssl_hub.evaluate.logistic import ROUGHLY, TOLERANCE, Array, Classifier, Logistic
from ssl_hub.evaluate.progress import Progress
from ssl_hub.evaluate.protocols import CACHED, Cached
from ssl_hub.evaluate.standardise import Scaling
from ssl_hub.evaluate.work import ALONE, Work
from ssl_hub.model.probe_head import ProbeHead
from ssl_hub.model.results import Result


def linear_probe(
    train: Features, test: Features, protocol: Cached = CACHED, *, seed: int = 0, work: Work = ALONE
) -> tuple[ProbeHead, list[Result]]:
    """Fit a linear classifier on ``train`` and measure it once on ``test``.

    Features are standardised with the training split's mean and standard deviation. Each strength is fitted, from
    strong to weak with warm starts, on the training split less a stratified share; the one with the best accuracy on
    that share (then the lowest cross entropy there, and of equals the strongest) is refitted on the whole training
    split. The returned head takes raw features: the standardisation is folded into it.

    A class with one training image is never held out; where all are so, the middle strength is taken, and ``settings``
    says so in ``chosen_by``. Two classes are told apart by one weight vector, as in scikit-learn.

    Collective over the processes of ``work``, which return the same. Raises UsageError where labels are missing, the
    class lists or widths differ, the training split shows one class or has fewer images than classes.
    """
    check_pair(train, test)
    check_trainable(train.labels)
    assert train.classes is not None
    present, y = np.unique(train.y, return_inverse=True)
    kept, held_out = stratified_holdout(y, protocol.holdout, seed)
    scaling, strengths = Scaling.of(train.x), sorted(set(protocol.strengths), reverse=True)

    with Progress(work.titled("linear-cached"), len(strengths) + 1, "fits") as progress:
        part = Logistic(train.x, y, kept, len(present), scaling, work)
        directions = part.directions()  # those of the whole are nearly the same, and any do
        start, about = _choose(part, held_out, strengths, directions, protocol.max_iter, progress)
        del part  # before the whole split takes its place
        whole = Logistic(train.x, y, np.arange(len(train)), len(present), scaling, work)
        fitted, converged = whole.fit(
            about["strength"], start, directions, tolerance=TOLERANCE, max_iter=protocol.max_iter
        )

    weight, bias = torch.zeros(len(train.classes), train.width), torch.full((len(train.classes),), NEVER)
    weight[present], bias[present] = scaling.fold(fitted.weight, fitted.bias)
    settings = {
        "protocol": "linear-cached",
        **about,
        "converged": converged,
        "strengths": strengths,
        "holdout": protocol.holdout,
        "holdout_size": len(held_out),
        "seed": seed,
        "max_iter": protocol.max_iter,
        "train_split": train.split,
        "train_size": len(train),
        "absent_classes": len(train.classes) - len(present),
        "layer": train.layer,
    }
    head = ProbeHead(weight, bias, train.classes, train.dataset, settings)
    return head, evaluate_head(head, test)


def _choose(
    part: Logistic,
    held_out: NDArray[np.int64],
    strengths: list[float],
    directions: tuple[Array, Array],
    max_iter: int,
    progress: Progress,
) -> tuple[Classifier | None, dict[str, Any]]:
    """Where the fit at the chosen strength may start, and what is to be said about the choice."""
    if len(strengths) == 1:
        return None, {"strength": strengths[0], "chosen_by": "given"}
    if len(held_out) == 0:
        return None, {"strength": strengths[len(strengths) // 2], "chosen_by": "middle: no class has two images"}
    at: Classifier | None = None
    best: tuple[float, float] | None = None
    for strength in strengths:
        at, _ = part.fit(strength, at, directions, tolerance=ROUGHLY, max_iter=max_iter)
        judged = part.judge(at, held_out)
        if best is None or is_better(judged, best):
            best, start, chosen = judged, at, strength
        progress.advance(1)
    assert best is not None
    return start, {"strength": chosen, "chosen_by": "held-out accuracy", "holdout_top1": 100 * best[0]}
