"""The linear probe: multinomial logistic regression on frozen features, its strength chosen without the test split."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits
from torch.nn import functional

from ssl_hub.errors import UsageError
from ssl_hub.evaluate.accuracy import accuracy_results
from ssl_hub.evaluate.features import Features, check_pair
from ssl_hub.model.probe_head import ProbeHead
from ssl_hub.model.results import Result

__all__ = ["ProbeHead", "evaluate_head", "linear_probe", "stratified_holdout"]

STRENGTHS = (10.0, 1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
NEVER = -1e9  # bias of a class without training images: finite, because files and later layers need it so
TOLERANCE = 1e-6  # largest gradient entry; scikit-learn's 1e-4 leaves the loss at weak strengths 10 to 30 % too high
ROWS_AT_ONCE = 8192
ONE_THREAD_BELOW = 2**24  # numbers in the features


def linear_probe(
    train: Features,
    test: Features,
    *,
    strengths: Sequence[float] = STRENGTHS,
    holdout: float = 0.1,
    seed: int = 0,
    max_iter: int = 1000,
) -> tuple[ProbeHead, list[Result]]:
    """Fit a linear classifier on ``train`` and measure it once on ``test``.

    Features are standardised with the training split's mean and standard deviation. A strength s is the weight of
    ||W||^2 / 2 beside the *mean* cross entropy (scikit-learn's C is 1 / (s N)), so that it means the same for the part
    and the whole of the split. Each is fitted by L-BFGS, from strong to weak with warm starts, on the training split
    less a stratified share ``holdout``; the one with the best accuracy on that share (then the lowest cross entropy
    there) is refitted on the whole training split. The returned head takes raw features: the standardisation is folded
    into it.

    A class with one training image is never held out; where all are so, the middle strength is taken, and ``settings``
    says so in ``chosen_by``. Two classes share one weight vector, as in scikit-learn.

    Raises UsageError where labels are missing, the class lists or widths differ, the training split shows one class or
    has fewer images than classes, or an argument is out of range.
    """
    strengths = _check(train, test, strengths, holdout, max_iter)
    assert train.classes is not None
    mean, scale = _moments(train.x)
    x = _standardise(train.x, mean, scale)

    kept, held_out = stratified_holdout(train.y, holdout, seed)
    model, settings = _choose_strength(x, train.y, kept, held_out, strengths, max_iter)
    settings["converged"] = _fit(model, x, train.y, settings["strength"])

    present = np.unique(train.y)
    head = ProbeHead(
        *_fold(model, present, len(train.classes), mean, scale),
        train.classes,
        train.dataset,
        {
            **settings,
            "strengths": strengths,
            "holdout": holdout,
            "holdout_size": len(held_out),
            "seed": seed,
            "max_iter": max_iter,
            "train_split": train.split,
            "train_size": len(train),
            "absent_classes": len(train.classes) - len(present),
            "layer": train.layer,
        },
    )
    return head, evaluate_head(head, test)


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
    settings = {name: value for name, value in head.settings.items() if name != "seed"}
    if head.dataset != test.dataset:
        settings["train_dataset"] = head.dataset
    return accuracy_results(
        scores,
        torch.from_numpy(test.y),
        head.bias > NEVER,
        dataset=test.dataset,
        split=test.split,
        protocol="linear",
        settings=settings,
        seed=head.settings.get("seed"),
    )


def stratified_holdout(labels: np.ndarray, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Sorted rows (kept, held out): ``share`` of each class, at least one and never its last, by ``seed`` alone.

    A class with one row keeps it, so the second part is empty where every class has one.
    """
    generator = np.random.default_rng(seed)
    held_out = []
    for label in np.unique(labels):
        rows = generator.permutation(np.flatnonzero(labels == label))
        held_out.append(rows[: min(len(rows) - 1, max(1, round(share * len(rows))))])
    held = np.sort(np.concatenate(held_out))
    return np.setdiff1d(np.arange(len(labels)), held), held


def _choose_strength(
    x: np.ndarray,
    y: np.ndarray,
    kept: np.ndarray,
    held_out: np.ndarray,
    strengths: list[float],
    max_iter: int,
) -> tuple[LogisticRegression, dict[str, Any]]:
    """The model fitted at the chosen strength, as a start for the refit, and what is to be said about the choice."""
    model = LogisticRegression(solver="lbfgs", tol=TOLERANCE, max_iter=max_iter, warm_start=True)
    if len(strengths) == 1:
        return model, {"strength": strengths[0], "chosen_by": "given"}
    if len(held_out) == 0:
        return model, {"strength": strengths[len(strengths) // 2], "chosen_by": "middle: no class has two images"}
    kept_x, kept_y, held_x = x[kept], y[kept], x[held_out]
    best: tuple[float, float] | None = None
    for strength in strengths:
        _fit(model, kept_x, kept_y, strength)
        logits = torch.from_numpy(_logits(model, held_x))
        # Each class has a row among the kept, so the columns are exactly the training split's classes.
        columns = torch.from_numpy(np.searchsorted(model.classes_, y[held_out]))
        accuracy = float((logits.argmax(dim=1) == columns).double().mean())
        cross_entropy = float(functional.cross_entropy(logits, columns))
        if best is None or (accuracy, -cross_entropy) > best:
            best = (accuracy, -cross_entropy)
            chosen, weights = strength, (model.coef_, model.intercept_)
    assert best is not None
    model.coef_, model.intercept_ = weights
    return model, {"strength": chosen, "chosen_by": "held-out accuracy", "holdout_top1": 100.0 * best[0]}


def _fit(model: LogisticRegression, x: np.ndarray, y: np.ndarray, strength: float) -> bool:
    """Fit in place from where the model stands; whether L-BFGS reached its tolerance."""
    model.set_params(C=1.0 / (strength * len(y)))
    # Threads pay off on large features only, and on shared cores OpenBLAS spins: 154 s for what takes 8 s on one.
    threads = threadpool_limits(limits=1, user_api="blas") if x.size < ONE_THREAD_BELOW else nullcontext()
    with threads, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model.fit(x, y)
    return not any(issubclass(warning.category, ConvergenceWarning) for warning in caught)


def _fold(
    model: LogisticRegression, present: np.ndarray, num_classes: int, mean: np.ndarray, scale: np.ndarray
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weight float32 [K, C] and bias [K] on raw features: with V = W / scale, they are V and b - V mean."""
    fitted, intercept = (_row_per_class(part.astype(np.float64)) for part in (model.coef_, model.intercept_))
    fitted /= scale
    weight = np.zeros((num_classes, len(scale)))
    bias = np.full(num_classes, NEVER)
    weight[present], bias[present] = fitted, intercept - fitted @ mean
    return torch.from_numpy(weight).float(), torch.from_numpy(bias).float()


def _logits(model: LogisticRegression, x: np.ndarray) -> np.ndarray:
    """float64 [N, number of classes fitted]; scikit-learn's log-probabilities reach -inf."""
    return np.asarray((x @ _row_per_class(model.coef_).T + _row_per_class(model.intercept_)).astype(np.float64))


def _row_per_class(fitted: np.ndarray) -> np.ndarray:
    """Weights [K, C] or bias [K]. Of two classes scikit-learn keeps the difference w; -w/2 and w/2 give it too."""
    return np.concatenate([-fitted / 2, fitted / 2]) if len(fitted) == 1 else fitted


def _moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """float64 mean [C] and scale [C], the standard deviation; scale 1 where a feature does not vary beyond rounding."""
    mean = x.mean(axis=0, dtype=np.float64)
    variance = np.zeros_like(mean)
    largest = np.zeros_like(mean)
    for rows in _row_slices(len(x)):
        variance += ((x[rows] - mean) ** 2).sum(axis=0) / len(x)
        np.maximum(largest, np.abs(x[rows]).max(axis=0), out=largest)
    deviation = np.sqrt(variance)
    varies = deviation > np.maximum(np.finfo(np.float32).eps * largest, 1e-30)
    return mean, np.where(varies, deviation, 1.0)


def _standardise(x: np.ndarray, mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
    out = np.empty_like(x, order="C")
    for rows in _row_slices(len(x)):
        out[rows] = (x[rows] - mean) / scale
    return out


def _row_slices(count: int) -> Iterator[slice]:
    """Slices over ``count`` rows: float64 work in parts, because a float64 copy of all features may not fit."""
    return (slice(start, start + ROWS_AT_ONCE) for start in range(0, count, ROWS_AT_ONCE))


def _check(train: Features, test: Features, strengths: Sequence[float], holdout: float, max_iter: int) -> list[float]:
    """The strengths from strong to weak; UsageError before any work where something is out of range."""
    check_pair(train, test)
    assert train.classes is not None
    if len(train) < len(train.classes):
        raise UsageError(
            f"{train.name} has {len(train)} images for {len(train.classes)} classes, expected at least one per class; "
            "use a larger training split"
        )
    shown = np.unique(train.y)
    if len(shown) == 1:
        raise UsageError(
            f"all {len(train)} images of {train.name} are of class {train.classes[int(shown[0])]!r}, "
            "expected two or more; check the labels of the training split"
        )
    if not strengths or not all(math.isfinite(s) and s > 0 for s in strengths):
        raise UsageError(
            f"strengths are {list(strengths)}, expected one or more numbers above 0, for example {STRENGTHS}"
        )
    if not 0 < holdout < 1:
        raise UsageError(f"holdout is {holdout}, expected a share between 0 and 1, for example 0.1")
    if max_iter < 1:
        raise UsageError(f"max_iter is {max_iter}, expected at least 1 iteration")
    return sorted({float(s) for s in strengths}, reverse=True)
