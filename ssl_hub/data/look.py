"""One image as it is stored: its size, mode, bits and values, before anything is made of it."""

from __future__ import annotations

import contextlib
import hashlib
import io
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ssl_hub.data.decoding import decode, has_wide_colours, is_wide, wide_channels, wide_values
from ssl_hub.data.endings import image_formats
from ssl_hub.data.value_range import OutsideRange, ValueRange
from ssl_hub.errors import UsageError

_OF_FRAMES = ("GIF", "TIFF", "WEBP", "PNG", "AVIF")  # not MPO, where cameras put a preview of the one image
_VALUES = 4096  # of an image that are kept, evenly spaced, for percentiles over many


class Look(NamedTuple):
    """``bits`` a channel has in the file (0: floats), its lowest and highest value, and some of them.

    ``frames`` are those of an animation, or pages, of which the first alone is ever used. Of what cannot be read,
    ``error`` names it and says why, and the rest is empty.
    """

    width: int = 0
    height: int = 0
    mode: str = ""
    bits: int = 8
    low: float = 0.0
    high: float = 0.0
    values: NDArray[np.float32] = np.empty(0, np.float32)
    error: str = ""
    frames: int = 1


def look_at(encoded: tuple[str | bytes, str], values: ValueRange) -> Look:
    """Look at a file or its bytes, decoded in full."""
    file, name = encoded
    decoded = None
    try:
        with contextlib.suppress(OutsideRange):  # which the values will tell
            decoded = decode(file, name, values)  # what training would say of it
        image = Image.open(io.BytesIO(file) if isinstance(file, bytes) else file, formats=image_formats())
        with image:
            frames = getattr(image, "n_frames", 1) if image.format in _OF_FRAMES else 1
            narrow = decoded is not None and not is_wide(image) and not has_wide_colours(image)
            stored = np.asarray(decoded) if narrow else _stored(image, file, name)
            width, height = image.size if decoded is None else decoded.size
            return _measured(stored, width, height, image.mode, _bits(image, stored))._replace(frames=frames)
    except UsageError as error:
        return Look(error=str(error))


def look_at_pixels(pixels: NDArray[np.uint8]) -> Look:
    """The same of an image that is held as uint8 ``[H, W, 3]``."""
    return _measured(pixels, pixels.shape[1], pixels.shape[0], "RGB", 8)


def _stored(image: Image.Image, file: str | bytes, name: str) -> NDArray[np.generic]:
    if has_wide_colours(image) and image.format == "PNG":
        with io.BytesIO(file if isinstance(file, bytes) else Path(file).read_bytes()) as stream:
            channels = wide_channels(image, stream, name)
            return channels[: 3 if len(channels) > 2 else 1]
    return wide_values(image) if is_wide(image) else np.asarray(image.convert("RGB"))


def _bits(image: Image.Image, stored: NDArray[np.generic]) -> int:
    if stored.dtype.kind == "f":
        return 0
    return 1 if image.mode == "1" else 8 * stored.dtype.itemsize


def _measured(stored: NDArray[np.generic], width: int, height: int, mode: str, bits: int) -> Look:
    numbers = stored.reshape(-1)
    numbers = numbers[np.isfinite(numbers)] if bits == 0 else numbers
    if not len(numbers):
        return Look(width, height, mode, bits, np.inf, -np.inf)
    some = numbers[:: -(-len(numbers) // _VALUES)].astype(np.float32)
    return Look(width, height, mode, bits, float(numbers.min()), float(numbers.max()), some)


def digest(encoded: tuple[str | bytes, str]) -> bytes:
    """What is the same for two files of the same content alone. Raises :class:`UsageError` where one cannot be read."""
    file, name = encoded
    try:
        return hashlib.blake2b(file if isinstance(file, bytes) else Path(file).read_bytes(), digest_size=16).digest()
    except OSError as error:
        raise UsageError(f"{name} cannot be read ({error.strerror}); replace it or remove it") from None
