"""Colour and sharpness of a batch of images, each sample by its own parameters, on whatever device the batch is.

Images are float32 ``[n, 3, H, W]`` in 0..1, parameters ``[n]`` on the same device. Each operation gives what
torchvision's functional of the same name gives for each sample alone.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

_GREY_WEIGHTS = (0.2989, 0.587, 0.114)  # torchvision's rounding of ITU-R 601-2


def grey(images: Tensor) -> Tensor:
    """Luminance ``[n, 1, H, W]``."""
    red, green, blue = images.unbind(dim=1)
    weighted = red * _GREY_WEIGHTS[0]
    weighted.add_(green, alpha=_GREY_WEIGHTS[1]).add_(blue, alpha=_GREY_WEIGHTS[2])
    return weighted.unsqueeze(1)


def adjust_brightness(images: Tensor, factors: Tensor) -> Tensor:
    """``factor * image``, clipped."""
    return (images * _per_image(factors)).clamp_(0, 1)


def adjust_contrast(images: Tensor, factors: Tensor) -> Tensor:
    """Blend with the image's mean luminance, clipped: factor 0 is flat, 1 leaves the image."""
    return _blend(images, grey(images).mean(dim=(1, 2, 3), keepdim=True), factors)


def adjust_saturation(images: Tensor, factors: Tensor) -> Tensor:
    """Blend with each pixel's luminance, clipped: factor 0 is grey, 1 leaves the image."""
    return _blend(images, grey(images), factors)


def adjust_hue(images: Tensor, factors: Tensor) -> Tensor:
    """Turn the hue by ``factor`` (-0.5..0.5) of the circle, through HSV."""
    red, green, blue = images.unbind(dim=1)
    value, largest = images.max(dim=1)
    chroma = value - images.amin(dim=1)
    divisor = torch.where(chroma == 0, 1, chroma)
    sixth = torch.where(
        largest == 0,
        (green - blue) / divisor,
        torch.where(largest == 1, (blue - red) / divisor + 2, (red - green) / divisor + 4),
    )
    sixth += 6 * factors[:, None, None]
    out = torch.empty_like(images)
    for channel, offset in enumerate((5.0, 3.0, 1.0)):
        place = torch.remainder(sixth + offset, 6)
        share = torch.minimum(place, 4 - place).clamp_(0, 1)
        torch.addcmul(value, chroma, share, value=-1, out=out[:, channel])
    return out


def kernel_size(size: int) -> int:
    """The odd number of pixels nearest a tenth of ``size``, and at least 3: 23 of 224 (BYOL, appendix B)."""
    return max(3, 2 * (size // 20) + 1)


def gaussian_blur(images: Tensor, sigmas: Tensor, size: int) -> Tensor:
    """Separable Gaussian of ``size`` (odd) taps and standard deviation ``sigma`` pixels; edges are reflected."""
    n, channels, height, width = images.shape
    half = size // 2
    if half >= min(height, width):
        raise ValueError(f"a blur of {size} pixels needs images over {half} pixels, got {height} x {width}")
    offsets = torch.arange(-half, half + 1, device=images.device, dtype=torch.float32)
    taps = torch.exp(-0.5 * (offsets / sigmas[:, None]) ** 2)
    taps = (taps / taps.sum(dim=1, keepdim=True)).repeat_interleave(channels, dim=0)
    out = functional.pad(images, (half, half, half, half), mode="reflect").reshape(
        1, n * channels, height + 2 * half, -1
    )
    out = functional.conv2d(out, taps[:, None, None, :], groups=n * channels)
    out = functional.conv2d(out, taps[:, None, :, None], groups=n * channels)
    return out.reshape(n, channels, height, width)


def solarise(images: Tensor) -> Tensor:
    """Invert values of 0.5 and more: 0.75 becomes 0.25."""
    return torch.where(images >= 0.5, 1 - images, images)


JITTER: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    adjust_brightness,
    adjust_contrast,
    adjust_saturation,
    adjust_hue,
)


def _per_image(factors: Tensor) -> Tensor:
    return factors[:, None, None, None]


def _blend(images: Tensor, other: Tensor, factors: Tensor) -> Tensor:
    share = _per_image(factors)
    return torch.addcmul(other * (1 - share), images, share).clamp_(0, 1)
