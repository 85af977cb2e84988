"""Random resized crops: where each lies, and cutting it out of a batch on any device or of one image."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn import functional

from ssl_hub.model.devices import to_device

_RATIO = (3 / 4, 4 / 3)  # of width to height
_LOG_RATIO = np.log(_RATIO)
_TRIES = 10
CROP_DRAWS = 2 * _TRIES + 2


def crop_boxes(
    draws: NDArray[np.float64],
    height: int,
    width: int,
    scale: tuple[float, float] | NDArray[np.float64],
    clipped: bool | NDArray[np.bool_] = False,
) -> NDArray[np.int64]:
    """Boxes ``[B, 4]`` (top, left, height, width) of torchvision's ``RandomResizedCrop``, of draws ``[B, CROP_DRAWS]``.

    Up to ten times: an area of ``scale`` of the image's, a width-to-height ratio log-uniform in 3/4 to 4/3, both sides
    rounded, and the first that fits is placed uniformly. Where none fits: the largest central box within the ratios.
    ``scale`` is one for all or ``[B, 2]``. Where ``clipped`` (one for all or ``[B]``), a side too long is cut to the
    image's, so that the first fits, as in BYOL's released code: larger boxes, of other ratios.
    """
    smallest, largest = np.reshape(scale, (-1, 2, 1)).swapaxes(0, 1)
    areas = height * width * (smallest + (largest - smallest) * draws[:, :_TRIES])
    low, high = _LOG_RATIO
    ratios = np.exp(low + (high - low) * draws[:, _TRIES : 2 * _TRIES])
    widths, heights = np.round(np.sqrt(areas * ratios)), np.round(np.sqrt(areas / ratios))
    cut_to_image = np.reshape(clipped, (-1, 1))
    widths = np.where(cut_to_image, np.minimum(widths, width), widths)
    heights = np.where(cut_to_image, np.minimum(heights, height), heights)
    fits = (widths > 0) & (widths <= width) & (heights > 0) & (heights <= height)
    rows, first = np.arange(len(draws)), fits.argmax(axis=1)
    fallback_height, fallback_width = height, width
    if width / height < _RATIO[0]:
        fallback_height = round(width / _RATIO[0])
    elif width / height > _RATIO[1]:
        fallback_width = round(height * _RATIO[1])
    some = fits.any(axis=1)
    box_heights = np.where(some, heights[rows, first], fallback_height)
    box_widths = np.where(some, widths[rows, first], fallback_width)
    tops = np.floor(draws[:, 2 * _TRIES] * (height - box_heights + 1))
    lefts = np.floor(draws[:, 2 * _TRIES + 1] * (width - box_widths + 1))
    tops = np.where(some, tops, (height - fallback_height) // 2)
    lefts = np.where(some, lefts, (width - fallback_width) // 2)
    return np.stack([tops, lefts, box_heights, box_widths], axis=1).astype(np.int64)


def cut(image: Image.Image | NDArray[np.uint8], box: NDArray[np.int64], size: int) -> NDArray[np.uint8]:
    """One box of an RGB image, PIL's or uint8 ``[H, W, 3]``, resized with antialias: uint8 ``[size, size, 3]``.

    PIL's bilinear filter, to one grey level, from torch's own 8-bit kernel, which is several times faster.
    """
    top, left, height, width = box.tolist()
    # Cropped first, as torchvision does: `resize(box=...)` would mix in pixels from just outside the box.
    if isinstance(image, Image.Image):
        crop = np.asarray(image.crop((left, top, left + width, top + height)))
    else:
        crop = image[top : top + height, left : left + width]
    # A copy with a whole stride for the batch dimension is channels-last to torch, whose kernel is quick at that alone.
    batch = torch.from_numpy(crop[None].copy()).permute(0, 3, 1, 2)
    resized = functional.interpolate(batch, size=(size, size), mode="bilinear", antialias=True)
    return resized[0].permute(1, 2, 0).contiguous().numpy()


def cut_batch(images: Tensor, boxes: NDArray[np.int64], size: int) -> Tensor:
    """A box of each image ``[B, 3, H, W]`` (float), resized as :func:`cut` does but unrounded: ``[B, 3, size, size]``.

    The filter is separable, so each crop is two small matrix products, ``rows @ image @ columnsᵀ``; one batched product
    each on any device, with no loop over samples.
    """
    batch, channels, height, width = images.shape
    on_device = to_device(boxes.astype(np.float32), images.device)
    rows = _resize_matrix(on_device[:, 0], on_device[:, 2], height, size)
    columns = _resize_matrix(on_device[:, 1], on_device[:, 3], width, size)
    narrow = torch.bmm(images.reshape(batch, channels * height, width), columns.transpose(1, 2))
    narrow = narrow.reshape(batch, channels, height, size).transpose(1, 2).reshape(batch, height, channels * size)
    out = torch.bmm(rows, narrow).reshape(batch, size, channels, size)
    return out.transpose(1, 2).contiguous()


def _resize_matrix(start: Tensor, length: Tensor, extent: int, size: int) -> Tensor:
    """``[B, size, extent]``: the weights of input pixels in each output pixel, which sum to 1, none outside the box.

    The triangle filter of PIL and of torchvision's antialiased ``bilinear``: its half width is one output pixel where
    the box shrinks and one input pixel where it grows.
    """
    step = (length / size)[:, None]
    centres = start[:, None] + (torch.arange(size, device=start.device) + 0.5) * step
    pixels = torch.arange(extent, device=start.device, dtype=torch.float32)
    inside = ((pixels >= start[:, None]) & (pixels < (start + length)[:, None])).to(torch.float32)
    weights = (pixels + 0.5 - centres[:, :, None]).abs_().div_(-step.clamp(min=1)[:, :, None])  # less the distance
    weights.add_(1).clamp_(min=0).mul_(inside[:, None, :])
    return weights.div_(weights.sum(dim=2, keepdim=True))
