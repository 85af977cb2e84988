"""Weighted nearest-neighbour classification of frozen features: the monitor's metric, with nothing to train."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ssl_hub.errors import UsageError
from ssl_hub.evaluate.accuracy import accuracy_results
from ssl_hub.evaluate.features import Features, check_pair
from ssl_hub.limits import COUNT, number
from ssl_hub.model.results import Result

SMALLEST_NORM = 1e-12


@torch.no_grad()
def knn_classify(
    train_x: Tensor | np.ndarray,
    train_y: Tensor | np.ndarray,
    test_x: Tensor | np.ndarray,
    *,
    k: int = 200,
    temperature: float = 0.07,
    num_classes: int,
    chunk_size: int = 1024,
) -> Tensor:
    """Class scores of each query from its ``k`` nearest neighbours in the bank.

    Legend: N bank rows, Q queries, C feature width. ``train_x`` [N, C], ``train_y`` integer [N] in
    [0, ``num_classes``), ``test_x`` [Q, C]; returns float32 [Q, num_classes] on ``train_x``'s device, where a class
    without a neighbour has exactly 0.

    Each neighbour votes for its class with exp(s / temperature), s its cosine similarity to the query (Wu et al. 2018,
    arXiv 1805.01978, section 3.4). Here a query's votes are divided by its nearest neighbour's, exp((s - s_max) /
    temperature), which leaves their ranking as it was and cannot overflow. A zero vector has similarity 0 to all.

    Of rows that are equally near the first have a vote. ``k`` beyond N is N. Memory beyond the inputs is about
    ``chunk_size`` x N floats. Raises UsageError for an empty bank, widths or label counts that differ, labels, k,
    temperature and chunk_size out of range.
    """
    bank, labels, queries = torch.as_tensor(train_x), torch.as_tensor(train_y), torch.as_tensor(test_x)
    _check(bank, labels, queries, k=k, temperature=temperature, num_classes=num_classes, chunk_size=chunk_size)
    bank, labels = bank.float(), labels.to(bank.device, torch.int64)
    k = min(k, len(bank))
    # The similarities are divided by the bank's norms, not the bank itself: a normalised copy could dwarf a chunk.
    inverse_norms = torch.linalg.vector_norm(bank, dim=1).clamp_min_(SMALLEST_NORM).reciprocal_()
    scores = torch.zeros(len(queries), num_classes, device=bank.device)
    for start in range(0, len(queries), chunk_size):
        chunk = functional.normalize(queries[start : start + chunk_size].to(bank.device).float(), eps=SMALLEST_NORM)
        similarity = _products(chunk, bank).mul_(inverse_norms)
        nearest, neighbours = largest(similarity, k)
        del similarity  # before the next chunk's is allocated
        votes = ((nearest - nearest[:, :1]) / temperature).exp_()
        scores[start : start + chunk_size].scatter_add_(1, labels[neighbours], votes)
    return scores


def largest(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The ``k`` largest of each row of ``values`` [Q, N], descending [Q, k], and their places: the first of equals.

    ``topk`` promises no choice among equals, and images that are twice in a bank are equal.
    """
    found, places = values.topk(min(k + 1, values.shape[1]), dim=1)
    if k < values.shape[1]:
        for row in (found[:, k - 1] == found[:, k]).nonzero().flatten().tolist():
            last = found[row, k]
            larger = int((found[row, :k] > last).sum())
            places[row, larger:k] = (values[row] == last).nonzero().flatten()[: k - larger]
    return found[:, :k], places[:, :k]


def _products(queries: Tensor, bank: Tensor) -> Tensor:
    """``queries @ bank.T``.

    On a CPU by the operator that torch's own compiler takes for linear layers: oneDNN's float32 product, where ``@`` is
    MKL's, which has been seen to take 1.7 times as long on an AMD processor.
    """
    by_onednn = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None
    if by_onednn is None or bank.device.type != "cpu":
        return queries @ bank.T
    product: Tensor = by_onednn(queries, bank, None, "none", [], "")
    return product


def knn(
    train: Features,
    test: Features,
    *,
    k: int = 20,
    temperature: float = 0.07,
    chunk_size: int = 1024,
    device: torch.device | str | None = None,
) -> list[Result]:
    """Top-1, and top-5 where there are at least five classes, of ``test`` classified by its neighbours in ``train``.

    The recorded ``k`` is the one used, after clipping to the bank. ``device`` (default: CPU) is where the bank and the
    similarities live. Raises UsageError where the two splits do not belong together; see :func:`knn_classify`.
    """
    check_pair(train, test)
    assert train.classes is not None
    scores = knn_classify(
        torch.from_numpy(train.x).to(device or "cpu"),
        train.y,
        test.x,
        k=k,
        temperature=temperature,
        num_classes=len(train.classes),
        chunk_size=chunk_size,
    ).cpu()
    settings = {
        "k": min(k, len(train)),
        "temperature": temperature,
        "bank_size": len(train),
        "bank_split": train.split,
        "layer": train.layer,
    }
    return accuracy_results(
        scores,
        torch.from_numpy(test.y),
        scores > 0,
        dataset=test.dataset,
        split=test.split,
        protocol="knn",
        settings=settings,
        classes=train.classes,
    )


def check_vote(k: int, temperature: float) -> None:
    """Raise UsageError where they are out of range; below a temperature of 1e-4 only the nearest has a vote."""
    COUNT.check("k", k)
    number(1e-4, fix="0.07 is usual").check("temperature", temperature)


def _check(
    bank: Tensor,
    labels: Tensor,
    queries: Tensor,
    *,
    k: int,
    temperature: float,
    num_classes: int,
    chunk_size: int,
) -> None:
    check_vote(k, temperature)
    COUNT.check("chunk_size", chunk_size)
    if bank.ndim != 2 or queries.ndim != 2 or bank.shape[1:] != queries.shape[1:]:
        raise UsageError(
            f"the bank has shape {list(bank.shape)} and the queries {list(queries.shape)}, expected [N, C] and [Q, C]"
        )
    if len(bank) == 0 or labels.shape != bank.shape[:1]:
        raise UsageError(
            f"the bank has {len(bank)} rows and labels of shape {list(labels.shape)}, expected one label per row"
        )
    lowest, highest = int(labels.min()), int(labels.max())
    if lowest < 0 or highest >= num_classes:
        raise UsageError(f"bank labels run from {lowest} to {highest}, expected 0 to {num_classes - 1}")
