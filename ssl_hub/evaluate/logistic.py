"""Multinomial logistic regression at its optimum, on features that need not fit in memory.

Legend: N rows, C feature width, K classes. The objective is mean cross entropy + strength ||W||^2 / 2 on standardised
features, the bias free, so that a strength means the same for any N.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor
from torch.nn import functional

from ssl_hub.evaluate.standardise import ROWS_AT_ONCE, Scaling, row_slices
from ssl_hub.evaluate.work import ALONE, Work

TOLERANCE, ROUGHLY = 1e-7, 1e-5  # relative, of the objective: of a fit that is kept, and of one that is compared
HELD_NUMBERS = 2**28  # of features up to which a standardised copy is kept: 1 GiB
EXACT_NUMBERS = 2**24  # of features up to which the work is in float64
WHITENED_WIDTH = 4096  # features up to which directions are told apart; eigenvectors beyond it cost more than they save
CURVATURE_CHANGE = 1.5  # factor after which the scales of the directions are set anew
MEMORY = 10  # past steps that L-BFGS keeps

_PASS, _ENDED, _CONVERGED = 0.0, 1.0, 2.0  # what process 0 tells the others

Array = NDArray[np.float64]


class Classifier(NamedTuple):
    """Weight float64 [K, C] and bias [K] on standardised features."""

    weight: Array
    bias: Array


class _Pass(NamedTuple):
    """What one pass over the rows gives: the mean cross entropy, its gradient, and the mean of p (1 - p)."""

    loss: float
    weight: Array
    bias: Array
    curvature: float


class Logistic:
    """Fits rows of features ``x`` [N, C] with labels ``y`` [N] in [0, K), each time from where it is told to start.

    L-BFGS in coordinates in which the curvature is about one in every direction: along the eigenvectors u of the
    features' covariance, with eigenvalues l, scaled by (p (1 - p) l + strength)^(-1/2), p (1 - p) the current mean over
    rows and classes. Features have a few wide directions and many narrow ones, so this takes tens of passes where plain
    L-BFGS takes hundreds or thousands, and there half the squared gradient estimates the distance to the optimum.

    ``x`` may be memory-mapped: beyond :data:`HELD_NUMBERS` it is read in parts. Memory beyond ``x`` is then
    at most :func:`memory_bound`. Every process of ``work`` takes its share of the parts, and all find the same.
    """

    def __init__(
        self,
        x: NDArray[np.float32],
        y: NDArray[np.int64],
        rows: NDArray[np.int64],
        num_classes: int,
        scaling: Scaling,
        work: Work = ALONE,
    ) -> None:
        self._x, self._y, self._rows, self._scaling, self._work = x, y, rows, scaling, work
        self._device = torch.device("cpu") if work.device.type == "mps" else work.device  # which has no float64
        self.num_classes, self.width, self.passes = num_classes, x.shape[1], 0
        numbers = len(rows) * self.width
        self._dtype = torch.float64 if numbers <= EXACT_NUMBERS else torch.float32
        self._held = list(self._read()) if numbers <= HELD_NUMBERS else None
        # One class against another has one direction: as scikit-learn does, the penalty is that of their difference.
        self._penalty = 2.0 if num_classes == 2 else 1.0

    def directions(self) -> tuple[Array, Array]:
        """Eigenvalues [C] and eigenvectors [C, C] of the covariance; all alike where there are too many to tell."""
        if self.width > WHITENED_WIDTH:
            return np.ones(self.width), np.empty((0, 0))
        total = torch.zeros(self.width, self.width, dtype=torch.float64, device=self._device)
        for x, _ in self._parts():
            total += x.T @ x
        values, vectors = torch.linalg.eigh(self._work.summed(total) / len(self._rows))
        return values.clamp(min=0).cpu().numpy(), vectors.cpu().numpy()

    def fit(
        self,
        strength: float,
        start: Classifier | None,
        directions: tuple[Array, Array],
        *,
        tolerance: float,
        max_iter: int,
    ) -> tuple[Classifier, bool]:
        """The optimum, and whether it was reached within ``max_iter`` iterations and the rounding of sums.

        Process 0 searches, and the others do their share of each of its passes: on another processor a search of their
        own would take another number of them.
        """
        nowhere = Classifier(np.zeros((self.num_classes, self.width)), np.zeros(self.num_classes))
        if self._work.rank:
            return self._follow(nowhere)
        at, converged = self._search(self._penalty * strength, start or nowhere, directions, tolerance, max_iter)
        self._told(at, _CONVERGED if converged else _ENDED)
        return at, converged

    def _search(
        self, penalty: float, at: Classifier, directions: tuple[Array, Array], tolerance: float, max_iter: int
    ) -> tuple[Classifier, bool]:
        curvature, left = self._pass(at).curvature, max_iter
        while True:
            coordinates = _Coordinates.of(curvature, penalty, *directions)
            search = _Search(self._pass, coordinates, penalty, curvature, tolerance)
            found = minimize(
                search.objective,
                coordinates.inwards(at),
                jac=True,
                method="L-BFGS-B",
                callback=search.look,
                options={"maxiter": left, "maxfun": 10 * left, "gtol": 0.0, "ftol": 0.0, "maxcor": MEMORY},
            )
            at, left = coordinates.outwards(found.x), left - int(found.nit)
            if left < 1 or not search.outdated:
                return at, search.converged
            curvature = search.last.curvature

    def _follow(self, nowhere: Classifier) -> tuple[Classifier, bool]:
        while True:
            at, state = self._told(nowhere, _PASS)
            if state != _PASS:
                return at, state == _CONVERGED
            self._share(at)

    def _told(self, at: Classifier, state: float) -> tuple[Classifier, float]:
        """Where process 0 is, and whether it asks for a pass or has ended."""
        if self._work.world == 1:
            return at, state
        flat = torch.from_numpy(np.concatenate([at.weight.ravel(), at.bias, [state]])).to(self._device)
        weight, bias, last = np.split(self._work.of_first(flat).cpu().numpy(), [at.weight.size, -1])
        return Classifier(weight.reshape(at.weight.shape), bias), float(last[0])

    def judge(self, at: Classifier, rows: NDArray[np.int64]) -> tuple[float, float]:
        """Share of hits and mean cross entropy on any rows of ``x``, by process 0."""
        hits, loss = 0, 0.0
        for part in row_slices(len(rows)):
            x, y = self._scaling.apply(self._x[rows[part]]), torch.from_numpy(self._y[rows[part]])
            logits = torch.from_numpy(x @ at.weight.T + at.bias)
            hits += int((logits.argmax(dim=1) == y).sum())
            loss += float(functional.cross_entropy(logits, y, reduction="sum"))
        judged = torch.tensor([hits / len(rows), loss / len(rows)], dtype=torch.float64, device=self._device)
        share, cross_entropy = self._work.of_first(judged).tolist()
        return share, cross_entropy

    def _pass(self, at: Classifier) -> _Pass:
        self._told(at, _PASS)
        return self._share(at)

    def _share(self, at: Classifier) -> _Pass:
        """One pass over the rows, of which this process takes its parts."""
        self.passes += 1
        device, count = self._device, len(self._rows)
        weight, bias = (torch.from_numpy(part).to(device, self._dtype) for part in at)
        gradient = torch.zeros(self.num_classes, self.width + 1, dtype=torch.float64, device=device)
        loss, spread = torch.zeros(2, dtype=torch.float64, device=device)
        for x, y in self._parts():
            logits = torch.addmm(bias, x, weight.T)
            normaliser = logits.logsumexp(dim=1, keepdim=True)
            loss += (normaliser - logits.gather(1, y)).sum(dtype=torch.float64)
            probabilities = logits.sub_(normaliser).exp_()
            spread += 1.0 * len(x) - probabilities.square().sum(dtype=torch.float64)
            probabilities.scatter_add_(1, y, torch.full_like(y, -1, dtype=self._dtype))
            gradient[:, :-1] += probabilities.T @ x
            gradient[:, -1] += probabilities.sum(dim=0)
        numbers = torch.cat([gradient.flatten(), loss[None], spread[None]])
        numbers = (self._work.summed(numbers) / count).cpu()
        whole = numbers[:-2].view(self.num_classes, -1).numpy()
        curvature = max(float(numbers[-1]) / self.num_classes, 1e-12)
        return _Pass(float(numbers[-2]), whole[:, :-1], whole[:, -1], curvature)

    def _parts(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(self._held) if self._held is not None else self._read()

    def _read(self) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's parts of the rows: standardised features [b, C] and labels [b, 1], on the device."""
        for index, part in enumerate(row_slices(len(self._rows))):
            if index % self._work.world == self._work.rank:
                rows = self._rows[part]
                x = torch.from_numpy(self._scaling.apply(self._x[rows]))
                yield x.to(self._device, self._dtype), torch.from_numpy(self._y[rows, None]).to(self._device)


class _Coordinates(NamedTuple):
    """V with W = (V * scale) vectors^T and c with b = c * bias_scale, as one flat vector of K (C + 1) numbers."""

    scale: Array
    bias_scale: float
    vectors: Array  # [0, 0] for none

    @classmethod
    def of(cls, curvature: float, penalty: float, values: Array, vectors: Array) -> _Coordinates:
        return cls(1 / np.sqrt(curvature * values + penalty), 1 / math.sqrt(curvature), vectors)

    def inwards(self, at: Classifier) -> Array:
        weight = at.weight @ self.vectors if len(self.vectors) else at.weight
        return np.concatenate([(weight / self.scale).ravel(), at.bias / self.bias_scale])

    def outwards(self, flat: Array) -> Classifier:
        whole = flat.reshape(-1)
        split = len(whole) - len(whole) // (len(self.scale) + 1)
        weight = whole[:split].reshape(-1, len(self.scale)) * self.scale
        return Classifier(weight @ self.vectors.T if len(self.vectors) else weight, whole[split:] * self.bias_scale)

    def gradient(self, weight: Array, bias: Array) -> Array:
        """Of the flat vector, from that of W and b."""
        turned = weight @ self.vectors if len(self.vectors) else weight
        return np.concatenate([(turned * self.scale).ravel(), bias * self.bias_scale])


class _Search:
    """The objective in one set of coordinates, and when to stop: at the optimum, or where they no longer fit."""

    def __init__(
        self,
        take_pass: Callable[[Classifier], _Pass],
        coordinates: _Coordinates,
        penalty: float,
        curvature: float,
        tolerance: float,
    ) -> None:
        self.converged, self.outdated = False, False
        self._take_pass, self._coordinates, self._penalty = take_pass, coordinates, penalty
        self._curvature, self._tolerance = curvature, tolerance
        self.last: _Pass
        self._distance = math.inf  # to the optimum, relative and estimated, at the last point

    def objective(self, flat: Array) -> tuple[float, Array]:
        at = self._coordinates.outwards(flat)
        self.last = self._take_pass(at)
        value = self.last.loss + 0.5 * self._penalty * float(np.square(at.weight).sum())
        gradient = self._coordinates.gradient(self.last.weight + self._penalty * at.weight, self.last.bias)
        self._distance = 0.5 * float(gradient @ gradient) / value
        return value, gradient

    def look(self, flat: Array) -> None:
        """After each iteration, whose point is the last that was evaluated."""
        self.converged = self._distance <= self._tolerance
        ratio = self.last.curvature / self._curvature
        self.outdated = not self.converged and not 1 / CURVATURE_CHANGE < ratio < CURVATURE_CHANGE
        if self.converged or self.outdated:
            raise StopIteration


def memory_bound(width: int, num_classes: int) -> int:
    """Bytes beyond the features that a fit of more than :data:`HELD_NUMBERS` numbers takes at most, on one process.

    One part of the rows (read, standardised, and three arrays of scores), the covariance with its eigenvectors and
    their working space, and L-BFGS's past steps with a dozen vectors of its size.
    """
    part = ROWS_AT_ONCE * (4 * 4 * width + 3 * 8 * num_classes)
    spectrum = 6 * 8 * width**2
    steps = 8 * num_classes * (width + 1) * (2 * MEMORY + 5 + 12)
    return part + spectrum + steps
