"""Colour and sharpness of a batch of images, each sample by its own parameters, on whatever device the batch is.

Images are float32 ``[n, 3, H, W]`` in 0..1 and are changed in place, by amounts float32 ``[n, k]`` on the same device:
each sample's factor, its filter (:func:`blur_filters`), or nothing (``k`` is 0). An operation gives what torchvision's
functional of the same name gives for each sample alone; those of :data:`BYOL_JITTER` and :func:`blur_onto_zeros` do
what BYOL's released code does.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ssl_hub.errors import UsageError
from ssl_hub.model.devices import is_queued

Operation = Callable[[Tensor, Tensor], None]

_GREY_WEIGHTS = (0.2989, 0.587, 0.114)  # torchvision's rounding of ITU-R 601-2
_REACH = 5.0  # standard deviations beyond which a Gaussian's taps (below 4e-6 of the middle one) are left out
_SPAN = 32  # output pixels of one product on a CPU; the fastest of 16 to 112 at sides of 32 to 224
_LEAST_REACH = 3.0  # standard deviations that a kernel holds at least: what is blurred by then is 0.99 of sigma


def grey(images: Tensor) -> Tensor:
    """Luminance ``[n, 1, H, W]``."""
    red, green, blue = images.unbind(dim=1)
    weighted = red * _GREY_WEIGHTS[0]
    weighted.add_(green, alpha=_GREY_WEIGHTS[1]).add_(blue, alpha=_GREY_WEIGHTS[2])
    return weighted.unsqueeze(1)


def adjust_brightness(images: Tensor, factors: Tensor) -> None:
    """``factor * image``, clipped."""
    images.mul_(_per_image(factors)).clamp_(0, 1)


def adjust_contrast(images: Tensor, factors: Tensor) -> None:
    """Blend with the image's mean luminance, clipped: factor 0 is flat, 1 leaves the image."""
    _blend(images, grey(images).mean(dim=(1, 2, 3), keepdim=True), factors)


def adjust_saturation(images: Tensor, factors: Tensor) -> None:
    """Blend with each pixel's luminance, clipped: factor 0 is grey, 1 leaves the image."""
    _blend(images, grey(images), factors)


def adjust_hue(images: Tensor, factors: Tensor) -> None:
    """Turn the hue by ``factor`` (-0.5..0.5) of the circle, through HSV.

    Masks are 0.0 and 1.0 and choose by ``lerp``, exactly: ten times faster on a CPU than ``where`` and booleans.
    """
    red, green, blue = images.unbind(dim=1)
    value, low = torch.maximum(red, green), torch.minimum(red, green)
    torch.maximum(value, blue, out=value)
    torch.minimum(low, blue, out=low)
    chroma, mask = value - low, torch.empty_like(value)
    # The hue in sixths of the circle, times the chroma: from the largest channel, the first of equals.
    sixth = (red - green).add_(chroma, alpha=4)
    sixth.lerp_((blue - red).add_(chroma, alpha=2), torch.eq(green, value, out=mask))
    sixth.lerp_(green - blue, torch.eq(red, value, out=mask))
    sixth.mul_(chroma.clamp_min(torch.finfo(chroma.dtype).tiny).reciprocal_())  # of grey: 0 times something finite
    sixth.add_(factors[:, :, None], alpha=6)
    sixth.sub_(sixth.mul(1 / 6).floor_(), alpha=6)
    # Red is full within a sixth of 0 and none within two of 3; green and blue are the same a third and two thirds on.
    share = mask
    torch.addcmul(low, chroma, _ramp(sixth, 3, share), out=red)
    torch.addcmul(value, chroma, _ramp(sixth, 2, share), value=-1, out=green)
    torch.addcmul(value, chroma, _ramp(sixth, 4, share), value=-1, out=blue)


def shift_brightness(images: Tensor, offsets: Tensor) -> None:
    """``image + offset``, clipped."""
    images.add_(_per_image(offsets)).clamp_(0, 1)


def stretch_channels(images: Tensor, factors: Tensor) -> None:
    """Contrast about each channel's own mean, clipped."""
    mean = images.mean(dim=(2, 3), keepdim=True)
    images.sub_(mean).mul_(_per_image(factors)).add_(mean).clamp_(0, 1)


def scale_saturation(images: Tensor, factors: Tensor) -> None:
    """The S of HSV times ``factor``, at most 1; hue and value stay."""
    value, low = images.amax(dim=1, keepdim=True), images.amin(dim=1, keepdim=True)
    chroma = (value - low).clamp_min_(torch.finfo(images.dtype).tiny)
    ratio = torch.minimum(value / chroma, _per_image(factors))  # of grey pixels any: they are value throughout
    images.sub_(value).mul_(ratio).add_(value)


def _ramp(sixth: Tensor, middle: float, out: Tensor) -> Tensor:
    """0 within 1 of ``middle``, rising to 1 at a distance of 2."""
    return torch.sub(sixth, middle, out=out).abs_().sub_(1).clamp_(0, 1)


def make_grey(images: Tensor, _: Tensor) -> None:
    """Every channel the luminance."""
    images.copy_(grey(images))


def flip(images: Tensor, _: Tensor) -> None:
    """Left becomes right."""
    images.copy_(images.flip(-1))


def solarise(images: Tensor, _: Tensor) -> None:
    """Invert values of 0.5 and more: 0.75 becomes 0.25."""
    torch.minimum(images, 1 - images, out=images)


def kernel_size(size: int) -> int:
    """The odd number of pixels nearest a tenth of ``size``, and at least 3: 23 of 224 (BYOL, appendix B)."""
    return max(3, 2 * (size // 20) + 1)


def blur_filters(sigmas: NDArray[np.float64], height: int, width: int, size: int | None = None) -> NDArray[np.float32]:
    """Gaussians of ``size`` (odd) taps and standard deviations ``sigmas`` ``[n]`` in pixels, for images so large.

    ``[n, 4 * longer side - 3]``: the value at each distance from minus twice the last pixel's place to plus it, with a
    sum of 1. Where ``size`` is not given, a sample's filter is :func:`kernel_size` of the shorter side, the papers'
    rule, and wider where that would cut the Gaussian off within three standard deviations: at 224 pixels, which the
    rule was made for, it never does for the papers' sigmas up to 2; at 96 it left 1.85 of a sigma of 2, at 32 never
    more than 0.82.
    """
    shorter, longer = sorted((height, width))
    sigmas = np.asarray(sigmas, np.float64)[:, None]
    if size is None:
        halves = np.maximum(kernel_size(shorter) // 2, np.ceil(_LEAST_REACH * sigmas)).clip(max=shorter - 1)
    else:
        halves = np.full_like(sigmas, size // 2)
    half = int(halves.max(initial=0))
    if half >= shorter:
        raise UsageError(f"a blur of {2 * half + 1} pixels needs images over {half} pixels, got {height} x {width}")
    pixels = np.arange(half + 1)
    distances = pixels / sigmas
    taps = np.where((distances <= _REACH) & (pixels <= halves), np.exp(-0.5 * distances**2), 0)
    taps /= 2 * taps.sum(axis=1, keepdims=True) - 1  # the middle one counts once
    middle = 2 * longer - 2
    filters = np.zeros((len(taps), 2 * middle + 1), np.float32)
    filters[:, middle - half : middle + 1] = taps[:, ::-1]
    filters[:, middle : middle + half + 1] = taps
    return filters


def gaussian_blur(images: Tensor, filters: Tensor) -> None:
    """Separable, by :func:`blur_filters`; edges are reflected."""
    _blur(images, filters, reflects=True)


def blur_onto_zeros(images: Tensor, filters: Tensor) -> None:
    """:func:`gaussian_blur` with zeros beyond the edges, which darkens them."""
    _blur(images, filters, reflects=False)


def _blur(images: Tensor, filters: Tensor, *, reflects: bool) -> None:
    """Along each side one batched product with a band matrix for each image. A CPU takes the band a few output pixels
    at a time, which leaves out most of its zeros."""
    batch, channels, height, width = images.shape
    columns = _band(filters, width, reflects=reflects)
    rows = columns if height == width else _band(filters, height, reflects=reflects)
    narrow = torch.empty_like(images)
    images_by_row, narrow_by_row = (part.view(batch, channels * height, width) for part in (images, narrow))
    for to, of in _spans(filters, width):
        torch.bmm(images_by_row[:, :, of], columns[:, to, of].mT, out=narrow_by_row[:, :, to])
    rows = rows[:, None].expand(-1, channels, -1, -1).reshape(batch * channels, height, height)
    by_channel, narrow_by_channel = (part.view(batch * channels, height, width) for part in (images, narrow))
    for to, of in _spans(filters, height):
        torch.bmm(rows[:, to, of], narrow_by_channel[:, of], out=by_channel[:, to])


def _band(filters: Tensor, side: int, *, reflects: bool) -> Tensor:
    """The filters as matrices ``[n, side, side]``: output pixel, input pixel.

    Beyond the edges are zeros, or the image reflected about its outermost pixels.
    """
    middle, last = filters.shape[1] // 2, side - 1
    sums = filters[:, middle - 2 * last : middle + 2 * last + 1].unfold(1, side, 1)  # at i + j, less a constant: a view
    band = sums[:, last : 2 * last + 1].flip(2)  # at i - j
    if reflects:
        band[:, :, 1:].add_(sums[:, 2 * last :, 1:])  # input j lies at -j too
        band[:, :, :last].add_(sums[:, :side, :last])  # and at 2 * last - j
    return band


def _spans(filters: Tensor, side: int) -> list[tuple[slice, slice]]:
    """Stretches of output pixels, and what each comes from; all at once where launches cost more than zeros."""
    if is_queued(filters.device):
        return [(slice(side), slice(side))]
    middle = filters.shape[1] // 2
    # A sample whose filter is narrower adds zeros: it depends on no other.
    reach = int(np.flatnonzero(filters.numpy()[:, middle:].any(axis=0))[-1])
    bounds = [(start, min(start + _SPAN, side)) for start in range(0, side, _SPAN)]
    return [(slice(start, stop), slice(max(0, start - reach), min(side, stop + reach))) for start, stop in bounds]


JITTER: tuple[Operation, ...] = (adjust_brightness, adjust_contrast, adjust_saturation, adjust_hue)
BYOL_JITTER: tuple[Operation, ...] = (shift_brightness, stretch_channels, scale_saturation, adjust_hue)


def _per_image(amounts: Tensor) -> Tensor:
    """``[n, 1, 1, 1]``."""
    return amounts[:, :, None, None]


def _blend(images: Tensor, other: Tensor, factors: Tensor) -> None:
    share = _per_image(factors)
    images.mul_(share).add_(other.mul_(1 - share)).clamp_(0, 1)
