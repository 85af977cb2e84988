"""The built-in data: scikit-learn's handwritten digits, turned and shifted, for runs that need no download."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ssl_hub.data.draws import hashed, uniforms
from ssl_hub.data.images import Source
from ssl_hub.data.splits import resolve_split
from ssl_hub.data.stored import Pixels

SIZE = 16  # pixels
_SEED = 20211  # of the rendering and of the split: fixed, so that everybody measures on the same images
_TEST_IMAGES = 500


def digits(split: str) -> Source:
    """1,797 grey digits of 10 classes as 16 x 16 RGB images; splits ``train`` (about 1,297) and ``test`` (about 500).

    The 8 x 8 images of ``sklearn.datasets.load_digits`` (Alpaydin and Kaynak, UCI, 1998), each under its own fixed
    rotation of up to 45 degrees, scale of 0.8 to 1.2 and shift of up to 1 pixel: logistic regression on
    raw pixels gets about 70 % of the test split right.
    """
    split = resolve_split(split, ("train", "test"), "data 'digits'")
    pixels, labels, is_test = _rendered()
    chosen = is_test if split == "test" else ~is_test
    return Source("digits", split, Pixels(pixels[chosen]), classes=[str(d) for d in range(10)], labels=labels[chosen])


@functools.cache
def _rendered() -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.bool_]]:
    """Pixels uint8 ``[1797, 16, 16, 3]``, labels int64 ``[1797]`` and which are in the test split."""
    rows = np.loadtxt(_file(), delimiter=",")
    grey = _transformed(rows[:, :-1].reshape(-1, 8, 8) * (255 / 16))
    labels = rows[:, -1].astype(np.int64)
    pixels = np.repeat(np.round(grey).astype(np.uint8)[..., None], 3, axis=3)
    return pixels, labels, _stratified(labels, _TEST_IMAGES / len(labels))


def _file() -> Path:
    """What ``load_digits`` reads: a row for each digit, 64 pixels and the label.

    scikit-learn itself is not imported: with scipy.stats and pandas that takes as long as importing torch.
    """
    package = importlib.util.find_spec("sklearn")
    assert package is not None and package.origin is not None
    return Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"


def _transformed(images: NDArray[np.float64]) -> NDArray[np.float64]:
    """``[N, 8, 8]`` to ``[N, 16, 16]``: output pixels look up their place in the input, bilinear, black outside."""
    draws = uniforms(_SEED, np.arange(len(images))[:, None], np.arange(4)[None])
    angle = np.deg2rad(90 * draws[:, 0] - 45)
    scale = (0.8 + 0.4 * draws[:, 1]) * 2  # the input's 8 pixels cover the output's 16
    shift = (draws[:, 2:] * 2 - 1)[:, :, None, None]
    y, x = np.mgrid[:SIZE, :SIZE][:, None] - (SIZE - 1) / 2 - np.moveaxis(shift, 1, 0)
    sine, cosine = (np.sin(angle) / scale)[:, None, None], (np.cos(angle) / scale)[:, None, None]
    rows = cosine * y - sine * x + 3.5 + 1  # + 1: of the input padded by one black pixel
    columns = sine * y + cosine * x + 3.5 + 1
    padded = np.pad(images, ((0, 0), (1, 2), (1, 2)))
    rows, columns = np.clip(rows, 0, 9), np.clip(columns, 0, 9)
    top, left = rows.astype(np.int64), columns.astype(np.int64)
    down, right = rows - top, columns - left
    n = np.arange(len(images))[:, None, None]
    upper = padded[n, top, left] * (1 - right) + padded[n, top, left + 1] * right
    lower = padded[n, top + 1, left] * (1 - right) + padded[n, top + 1, left + 1] * right
    return np.asarray(upper * (1 - down) + lower * down)


def _stratified(labels: NDArray[np.int64], share: float) -> NDArray[np.bool_]:
    """True for ``share`` of each class, chosen by hash."""
    is_test = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        order = np.argsort(hashed(_SEED + 1, members), kind="stable")
        is_test[members[order[: round(share * len(members))]]] = True
    return is_test
