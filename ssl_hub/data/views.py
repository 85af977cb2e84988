"""The two random views of an image, and the only evaluation transform.

The order is BYOL's (appendix B), which SimSiam shares: crop, flip, colour jitter, grey, blur, solarise, normalise.
Every draw is a pure function of (seed, epoch, image index, view, draw number): views do not change with the batch,
worker or rank that an image comes up in, nor by resuming, and they repeat exactly for a repeated seed.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from ssl_hub.errors import UsageError

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
        with torch.no_grad(), torch.autocast(images.device.type, enabled=False):
            values = _as_float(images)
            first, second = (
                self.photometric(cut_batch(values, boxes, self.views.size), indices, epoch, view)
                for view, boxes in enumerate(self._boxes(indices, epoch, *images.shape[-2:]))
            )
        return first, second

    def crop(self, image: Image.Image, index: int, epoch: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """The two random resized crops of one RGB image, uint8 ``[S, S, 3]``, before any change of colour."""
        first, second = self._boxes([index], epoch, image.height, image.width)
        return cut(image, first[0], self.views.size), cut(image, second[0], self.views.size)

    def photometric(self, crops: Tensor, indices: Indices, epoch: int, view: int) -> Tensor:
        """Flip, jitter, grey, blur, solarise and normalise crops ``[B, 3, S, S]``: uint8, or float in 0..1.

        ``view`` is 0 or 1. A sample that an operation does not fall on passes it bit for bit.
        """
        settings = (self.views.view1, self.views.view2)[view]
        draws = self._draws(indices, epoch, view)
        device = crops.device
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            out = _as_float(crops) if crops.dtype == torch.uint8 else _as_float(crops).clone()
            flipped = _chosen(draws[:, _FLIP] < settings.flip, device)
            if len(flipped):
                out[flipped] = out[flipped].flip(-1)
            self._jitter(out, draws, settings, view)
            greyed = _chosen(draws[:, _GREY] < settings.grey, device)
            if len(greyed):
                out[greyed] = photometric.grey(out[greyed]).expand(-1, 3, -1, -1)
            is_blurred = draws[:, _BLUR] < settings.blur
            blurred = _chosen(is_blurred, device)
            if len(blurred):
                sigmas = _between(draws[is_blurred, _SIGMA], settings.blur_sigma)
                sigmas_on_device = torch.from_numpy(sigmas).to(device, torch.float32, non_blocking=True)
                out[blurred] = photometric.gaussian_blur(
                    out[blurred], sigmas_on_device, photometric.kernel_size(min(out.shape[-2:]))
                )
            solarised = _chosen(draws[:, _SOLARISE] < settings.solarise, device)
            if len(solarised):
                out[solarised] = photometric.solarise(out[solarised])
            mean, std = torch.tensor([self.views.mean, self.views.std], device=device)[:, :, None, None]
            return out.sub_(mean).div_(std)

    def _jitter(self, out: Tensor, draws: NDArray[np.float64], settings: View, view: int) -> None:
        """Colour jitter in place: the four operations in each sample's own order, with its own factors."""
        samples = np.flatnonzero(draws[:, _JITTER] < settings.jitter)
        order = draws[samples, _JITTER_ORDER].argsort(axis=1)
        factors = _between(draws[samples, _JITTER_FACTORS], np.array(self._ranges[view]).T)
        factors_on_device = torch.from_numpy(factors).to(out.device, torch.float32, non_blocking=True)
        steps = [  # which rows of `samples` get which operation; (slot, operation), in order
            (operation, np.flatnonzero(order[:, slot] == operation))
            for slot in range(4)
            for operation, (low, high) in enumerate(self._ranges[view])
            if low != high
        ]
        if not len(samples) or not steps:
            return
        rows = _on_device(np.concatenate([rows for _, rows in steps]), out.device)  # one copy for all steps
        places = _on_device(samples, out.device)[rows]
        sizes = [len(rows) for _, rows in steps]
        for (operation, _), row, place in zip(steps, torch.split(rows, sizes), torch.split(places, sizes), strict=True):
            if len(row):
                out[place] = photometric.JITTER[operation](out[place], factors_on_device[row, operation])

    def _draws(self, indices: Indices, epoch: int, view: int, numbers: int = _NUM_DRAWS) -> NDArray[np.float64]:
        """Uniform numbers ``[B, numbers]``, column ``i`` being draw ``i``."""
        places = np.asarray(indices.cpu() if isinstance(indices, Tensor) else indices, np.int64)
        return uniforms(self.seed, epoch, places[:, None], view, np.arange(numbers)[None])

    def _boxes(self, indices: Indices, epoch: int, height: int, width: int) -> list[NDArray[np.int64]]:
        return [
            crop_boxes(self._draws(indices, epoch, view, CROP_DRAWS), height, width, settings.crop_scale)
            for view, settings in enumerate((self.views.view1, self.views.view2))
        ]


class EvalTransform:
    """See :func:`eval_transform`."""

    def __init__(self, size: int, resize: int, interpolation: str, mean: Sequence[float], std: Sequence[float]) -> None:
        self.size = size
        self.resize = resize
        self.interpolation = interpolation
        self.mean = tuple(mean)
        self.std = tuple(std)

    def __call__(self, image: Image.Image | Tensor) -> Tensor:
        """Float32 ``[3, S, S]`` of a PIL image or a tensor ``[3, H, W]``; ``[B, 3, S, S]`` of a batch ``[B, 3, H, W]``.

        Tensors are uint8, or float in 0..1.
        """
        if isinstance(image, Image.Image):
            image = to_rgb(image)
        elif image.dtype != torch.uint8:
            image = _as_float(image)
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
            f"centre crop {self.size}, mean {self.mean}, std {self.std})"
        )


def eval_transform(
    *,
    size: int,
    crop_pct: float = 1.0,
    interpolation: str = "bilinear",
    mean: Sequence[float],
    std: Sequence[float],
) -> EvalTransform:
    """The evaluation transform: shorter side to ``size / crop_pct`` with antialias, central square, normalised.

    The one transform of probing, kNN, fine-tuned evaluation and released models. ``crop_pct`` is in (0, 1], 0.875 for
    the usual 256 to 224; ``interpolation`` is ``bilinear`` or ``bicubic``. Raises :class:`UsageError` otherwise.
    """
    if not 0 < crop_pct <= 1:
        raise UsageError(f"crop_pct is {crop_pct}, expected a share over 0 and up to 1, such as 0.875")
    if interpolation not in ("bilinear", "bicubic"):  # of these alone, PIL and tensor kernels agree
        raise UsageError(f"interpolation is {interpolation!r}, expected 'bilinear' or 'bicubic'")
    return EvalTransform(size, round(size / crop_pct), interpolation, mean, std)


def _jitter_ranges(view: View) -> list[tuple[float, float]]:
    """Ranges of the factors of brightness, contrast, saturation and hue, as torchvision's ``ColorJitter``."""
    scaled = [(max(0.0, 1 - s), 1 + s) for s in (view.brightness, view.contrast, view.saturation)]
    return [*scaled, (-view.hue, view.hue)]


def _between(draws: NDArray[np.float64], bounds: Any) -> NDArray[np.float64]:
    return np.asarray(bounds[0] + (bounds[1] - bounds[0]) * draws)


def _as_float(images: Tensor) -> Tensor:
    if images.dtype == torch.uint8:
        return images.to(torch.float32).div_(255)
    if images.is_floating_point():
        return images.to(torch.float32)
    raise UsageError(f"images are {images.dtype}, expected uint8, or float in 0..1")


def _chosen(mask: NDArray[np.bool_], device: torch.device) -> Tensor:
    return _on_device(np.flatnonzero(mask), device)


def _on_device(positions: NDArray[np.int64], device: torch.device) -> Tensor:
    return torch.from_numpy(positions).to(device, non_blocking=True)
