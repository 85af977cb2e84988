"""The two random views of an image, and the only evaluation transform.

The order is BYOL's (appendix B), which SimSiam shares: crop, flip, colour jitter, grey, blur, solarise, normalise.
With ``operations="byol"`` a view's brightness is an offset, its contrast about each channel's mean, its saturation that
of HSV, its blur padded with zeros, and a crop too long is cut to the image: BYOL's released code. Its crops are resized
as all are.
Every draw is a pure function of (seed, epoch, image index, view, draw number): views do not change with the batch,
worker or rank that an image comes up in, nor by resuming, and they repeat exactly for a repeated seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2

from ssl_hub.config import View, Views
from ssl_hub.data import photometric
from ssl_hub.data.crops import CROP_DRAWS, crop_boxes, cut, cut_batch
from ssl_hub.data.decoding import to_rgb
from ssl_hub.data.draws import uniforms
from ssl_hub.data.value_range import AUTO, ValueRange
from ssl_hub.errors import UsageError
from ssl_hub.model.devices import all_to_device

Indices = NDArray[np.int64] | Tensor | Sequence[int]

# Draw numbers of one view. A new operation takes new numbers at the end, so that it leaves older draws as they are.
_FLIP = CROP_DRAWS
_JITTER = CROP_DRAWS + 1
_JITTER_ORDER = slice(CROP_DRAWS + 2, CROP_DRAWS + 6)
_JITTER_FACTORS = slice(CROP_DRAWS + 6, CROP_DRAWS + 10)
_GREY = CROP_DRAWS + 10
_BLUR = CROP_DRAWS + 11
_SIGMA = CROP_DRAWS + 12
_SOLARISE = CROP_DRAWS + 13
_NUM_DRAWS = CROP_DRAWS + 14

_THINNEST = 8  # sides of an image are compared to, see `_less_thin`
_CHUNK_BYTES = 2**20  # of float images: what lies in a CPU core's own cache, with temporaries beside it

# What is done, to which rows of a batch (ascending), and by what amounts [rows, k].
_Step = tuple[photometric.Operation, NDArray[np.int64], NDArray[Any]]


class TwoViews:
    """Draws views of images, by ``config.Views`` and a seed.

    Small data lies on the device as one tensor: call the object. Large data is cropped by workers, image by image
    (:meth:`crop`), and the rest is done in batches on the device (:meth:`photometric`).
    """

    def __init__(self, views: Views, *, seed: int) -> None:
        self.views = views
        self.seed = seed
        self._ranges = [_jitter_ranges(view) for view in (views.view1, views.view2)]

    def __call__(self, images: Tensor, indices: Indices, epoch: int) -> tuple[Tensor, Tensor]:
        """Both views, float32 ``[B, 3, S, S]``, normalised, of images ``[B, 3, H, W]``: uint8, or float in 0..1.

        ``indices`` ``[B]`` are the images' places in their source.
        """
        size = self.views.size
        boxes = self._boxes(indices, epoch, *images.shape[-2:])

        def cut_rows(view: int) -> Callable[[slice], Tensor]:
            return lambda rows: cut_batch(_as_float(images[rows]), boxes[view, rows], size)

        first, second = (
            self._changed(cut_rows(view), (len(images), 3, size, size), images.device, indices, epoch, view)
            for view in (0, 1)
        )
        return first, second

    def crop(
        self, image: Image.Image | NDArray[np.uint8], index: int, epoch: int
    ) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """The two random resized crops of one RGB image, uint8 ``[S, S, 3]``, before any change of colour.

        ``image`` is PIL's or uint8 ``[H, W, 3]``.
        """
        height, width = (image.height, image.width) if isinstance(image, Image.Image) else image.shape[:2]
        first, second = self._boxes([index], epoch, height, width)
        return cut(image, first[0], self.views.size), cut(image, second[0], self.views.size)

    def photometric(self, crops: Tensor, indices: Indices, epoch: int, view: int) -> Tensor:
        """Flip, jitter, grey, blur, solarise and normalise crops ``[B, 3, S, S]``: uint8, or float in 0..1.

        ``view`` is 0 or 1. A sample that an operation does not fall on passes it bit for bit.
        """
        return self._changed(
            lambda rows: _as_float(crops[rows].contiguous()), crops.shape, crops.device, indices, epoch, view
        )

    def _changed(
        self,
        crops: Callable[[slice], Tensor],
        shape: Sequence[int],
        device: torch.device,
        indices: Indices,
        epoch: int,
        view: int,
    ) -> Tensor:
        """One view ``[B, 3, S, S]`` (``shape``) of crops, which are given by rows and float.

        A CPU does a few samples at a time, from first operation to last, so that they stay in its cache.
        """
        count = shape[0]
        chunk = max(1, _CHUNK_BYTES // (4 * math.prod(shape[1:])) if device.type == "cpu" else count)
        starts = range(0, count, chunk)
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            out = _empty(shape, device)
            steps = list(self._steps(self._draws(indices, epoch, view), view, shape))
            bounds = [np.searchsorted(rows, [*starts, count]).tolist() for _, rows, _ in steps]
            all_rows = all_to_device([rows % chunk for _, rows, _ in steps], device)
            floats = [np.array([self.views.mean, self.views.std]), *(amounts for _, _, amounts in steps)]
            (mean, std), *all_amounts = all_to_device([part.astype(np.float32) for part in floats], device)
            for number, start in enumerate(starts):
                part = out[start : start + chunk]
                part.copy_(crops(slice(start, start + chunk)))
                for (change, _, _), rows, amounts, ends in zip(steps, all_rows, all_amounts, bounds, strict=True):
                    here = slice(ends[number], ends[number + 1])
                    if here.start < here.stop:
                        _apply(part, change, rows[here], amounts[here])
                part.sub_(mean[:, None, None]).div_(std[:, None, None])
        return out

    def _steps(self, draws: NDArray[np.float64], view: int, shape: Sequence[int]) -> Iterator[_Step]:
        """The operations in order, with the rows that they fall on."""
        settings = (self.views.view1, self.views.view2)[view]
        as_byol = settings.operations == "byol"
        jitter = photometric.BYOL_JITTER if as_byol else photometric.JITTER

        def rows_of(draw: int, probability: float) -> NDArray[np.int64]:
            return np.flatnonzero(draws[:, draw] < probability)

        rows = rows_of(_FLIP, settings.flip)
        yield photometric.flip, rows, draws[rows, :0]
        rows = rows_of(_JITTER, settings.jitter)
        order = draws[rows, _JITTER_ORDER].argsort(axis=1)  # each sample has its own
        factors = _between(draws[rows, _JITTER_FACTORS], np.array(self._ranges[view]).T)
        for slot in range(4):
            for operation, (low, high) in enumerate(self._ranges[view]):
                if low != high:
                    now = order[:, slot] == operation
                    yield jitter[operation], rows[now], factors[now, operation, None]
        rows = rows_of(_GREY, settings.grey)
        yield photometric.make_grey, rows, draws[rows, :0]
        rows = rows_of(_BLUR, settings.blur)
        blur = photometric.blur_onto_zeros if as_byol else photometric.gaussian_blur
        sigmas = _between(draws[rows, _SIGMA], settings.blur_sigma)
        yield blur, rows, photometric.blur_filters(sigmas, *shape[-2:])
        rows = rows_of(_SOLARISE, settings.solarise)
        yield photometric.solarise, rows, draws[rows, :0]

    def _draws(
        self, indices: Indices, epoch: int, view: int | NDArray[np.int64], numbers: int = _NUM_DRAWS
    ) -> NDArray[np.float64]:
        """Uniform numbers ``[B, numbers]``, column ``i`` being draw ``i``."""
        places = np.asarray(indices.cpu() if isinstance(indices, Tensor) else indices, np.int64)
        return uniforms(self.seed, epoch, places[:, None], view, np.arange(numbers))

    def _boxes(self, indices: Indices, epoch: int, height: int, width: int) -> NDArray[np.int64]:
        """Where both views lie, ``[2, B, 4]``."""
        draws = self._draws(indices, epoch, np.arange(2)[:, None, None], CROP_DRAWS)
        views = (self.views.view1, self.views.view2)
        scales = np.array([view.crop_scale for view in views]).repeat(draws.shape[1], axis=0)
        clipped = np.array([view.operations == "byol" for view in views]).repeat(draws.shape[1])
        boxes = crop_boxes(draws.reshape(-1, CROP_DRAWS), height, width, scales, clipped)
        return boxes.reshape(2, -1, 4)


@dataclass(frozen=True)
class EvalTransform:
    """See :func:`eval_transform`."""

    size: int
    resize: int
    interpolation: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    values: ValueRange = AUTO

    def __call__(self, image: Image.Image | Tensor) -> Tensor:
        """Float32 ``[3, S, S]`` of a PIL image or a tensor ``[3, H, W]``; ``[B, 3, S, S]`` of a batch ``[B, 3, H, W]``.

        Tensors are uint8, or float in 0..1. Of an image over eight times as long as wide, the middle so long is taken.
        """
        if isinstance(image, Image.Image):
            image = to_rgb(image, self.values)
        elif image.dtype != torch.uint8:
            image = _as_float(image)
        image = _less_thin(image)
        mode = v2.InterpolationMode(self.interpolation)
        image = v2.functional.resize(image, [self.resize], interpolation=mode, antialias=True)
        image = v2.functional.center_crop(image, [self.size, self.size])
        values = v2.functional.to_dtype(v2.functional.to_image(image), torch.float32, scale=True)
        values = values.as_subclass(Tensor).clamp(0, 1)  # bicubic overshoots where the image is float already
        normalised: Tensor = v2.functional.normalize(values, list(self.mean), list(self.std))
        return normalised

    def __repr__(self) -> str:
        return (
            f"EvalTransform(resize shorter side to {self.resize} ({self.interpolation}, antialias), "
            f"centre crop {self.size}, mean {self.mean}, std {self.std}"
            f"{'' if self.values == AUTO else f', {self.values.low:g} to {self.values.high:g} as black to white'})"
        )


def eval_transform(
    *,
    size: int,
    crop_pct: float = 1.0,
    interpolation: str = "bilinear",
    mean: Sequence[float],
    std: Sequence[float],
    value_range: str = "auto",
) -> EvalTransform:
    """The evaluation transform: shorter side to ``size / crop_pct`` with antialias, central square, normalised.

    The one transform of probing, kNN, fine-tuned evaluation and released models. ``crop_pct`` is in (0, 1], 0.875 for
    the usual 256 to 224; ``interpolation`` is ``bilinear`` or ``bicubic``. ``value_range`` is ``data.range`` of a
    recipe. Raises :class:`UsageError` otherwise.
    """
    if not 0 < crop_pct <= 1:
        raise UsageError(f"crop_pct is {crop_pct}, expected a share over 0 and up to 1, such as 0.875")
    if interpolation not in ("bilinear", "bicubic"):  # of these alone, PIL and tensor kernels agree
        raise UsageError(f"interpolation is {interpolation!r}, expected 'bilinear' or 'bicubic'")
    values = ValueRange.parse(value_range)
    return EvalTransform(size, round(size / crop_pct), interpolation, tuple(mean), tuple(std), values)


def _less_thin(image: Image.Image | Tensor) -> Image.Image | Tensor:
    """The middle of an image whose sides differ by more than a factor of eight, else the image itself.

    The square that is kept lies inside. Resized whole, one of 9000 x 1 pixels would take gigabytes.
    """
    height, width = (image.height, image.width) if isinstance(image, Image.Image) else image.shape[-2:]
    longest = _THINNEST * min(height, width)
    if max(height, width) <= longest:
        return image
    # An even number goes, so that the middle stays where it was.
    keep = longest + (max(height, width) - longest) % 2
    return v2.functional.center_crop(image, [min(height, keep), min(width, keep)])


def _jitter_ranges(view: View) -> list[tuple[float, float]]:
    """Ranges of the amounts of brightness, contrast, saturation and hue: ``ColorJitter``'s, but for BYOL's offset."""
    ranges = [(max(0.0, 1 - s), 1 + s) for s in (view.brightness, view.contrast, view.saturation)]
    if view.operations == "byol":
        ranges[0] = (-view.brightness, view.brightness)
    return [*ranges, (-view.hue, view.hue)]


def _between(draws: NDArray[np.float64], bounds: Any) -> NDArray[np.float64]:
    return np.asarray(bounds[0] + (bounds[1] - bounds[0]) * draws)


def _as_float(images: Tensor) -> Tensor:
    if images.dtype == torch.uint8:
        return images.to(torch.float32).div_(255)
    if images.is_floating_point():
        return images.to(torch.float32)
    raise UsageError(f"images are {images.dtype}, expected uint8, or float in 0..1")


def _empty(shape: Sequence[int], device: torch.device) -> Tensor:
    if device.type == "cpu":  # numpy asks for huge pages: a fresh batch costs a tenth of torch's page faults
        return torch.from_numpy(np.empty(shape, np.float32))
    return torch.empty(*shape, device=device)


def _apply(images: Tensor, change: photometric.Operation, rows: Tensor, amounts: Tensor) -> None:
    """``change`` some rows of ``images`` in place, by their amounts."""
    if len(rows) == len(images):
        change(images, amounts)
        return
    part = images.index_select(0, rows)
    change(part, amounts)
    images.index_copy_(0, rows, part)
