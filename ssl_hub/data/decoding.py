"""From encoded files and bytes to upright RGB images, whatever their colour mode."""

from __future__ import annotations

import io
import os
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from ssl_hub.errors import UsageError

try:
    from simplejpeg import decode_jpeg, decode_jpeg_header
except ImportError:  # optional: the same pixels, a quarter of the time of decoding and cutting saved
    decode_jpeg = None

EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".pbm")
MAX_PIXELS = 200_000_000

_MAYBE_TURNED = (b"Exif\0\0", b"tiff:Orientation")  # where Pillow finds an orientation: EXIF and XMP

# What Pillow's decoders raise on broken input; a memory or programming error is none of these and keeps its traceback.
_DECODING_ERRORS = (OSError, SyntaxError, ValueError, EOFError, IndexError, struct.error, zlib.error)


def decode(file: str | os.PathLike[str] | bytes, name: str) -> Image.Image:
    """The image in a file or in bytes, as :func:`to_rgb` makes it.

    Raises :class:`UsageError` that starts with ``name`` where the image is empty, truncated, not an image, missing, or
    has more than 200 megapixels (less where Pillow's own limit, 2 ``Image.MAX_IMAGE_PIXELS``, is lower).
    """
    try:
        if isinstance(file, bytes):
            if not file:
                raise UsageError(f"{name} is empty; replace it or remove it")
            return _decode_open(Image.open(io.BytesIO(file)), name)
        with open(file, "rb") as stream:
            if not stream.seekable() or not os.fstat(stream.fileno()).st_size:
                raise UsageError(f"{name} is empty; replace it or remove it")
            return _decode_open(Image.open(stream), name)
    except UsageError:
        raise
    except Image.DecompressionBombError:
        limit = min(2 * (Image.MAX_IMAGE_PIXELS or MAX_PIXELS), MAX_PIXELS)
        raise UsageError(
            f"{name} has more than {limit // 1_000_000} megapixels; make it smaller or remove it"
        ) from None
    except UnidentifiedImageError:
        raise UsageError(f"{name} is not an image that can be read; replace it or remove it") from None
    except _DECODING_ERRORS as error:
        cause = " ".join(str(error).split()) or type(error).__name__
        raise UsageError(f"{name} cannot be read ({cause}); replace it or remove it") from None


def decode_array(file: str | os.PathLike[str] | bytes, name: str) -> NDArray[np.uint8]:
    """The same pixels as an array ``[H, W, 3]``; sooner, with simplejpeg, for an upright JPEG file in RGB or grey.

    Raises as :func:`decode` does.
    """
    try:
        encoded = file if isinstance(file, bytes) else Path(file).read_bytes()
        pixels = _plain_jpeg(encoded)
    except (*_DECODING_ERRORS, Image.DecompressionBombError):  # Pillow says what is wrong
        pixels = None
    return np.array(decode(file, name)) if pixels is None else pixels


def _plain_jpeg(encoded: bytes) -> NDArray[np.uint8] | None:
    """What Pillow's own decoder gives, or None where there would be more to do, such as turning.

    Both call libjpeg-turbo; Pillow then spreads its rows to four bytes a pixel, and packs them again for numpy.
    """
    if decode_jpeg is None or not encoded.startswith(b"\xff\xd8"):
        return None
    height, width, colours, _ = decode_jpeg_header(encoded)
    if colours not in ("YCbCr", "RGB", "Gray") or height * width > MAX_PIXELS:
        return None
    segments = _before_pixels(encoded)
    if any(mark in segments for mark in _MAYBE_TURNED) and _is_turned(Image.open(io.BytesIO(encoded))):
        return None
    return np.asarray(decode_jpeg(encoded))


def _before_pixels(encoded: bytes) -> bytes:
    """A JPEG file's segments up to the start of its scan, each 0xFF, its kind and its length; all where it is odd."""
    end = 2
    while encoded[end] == 0xFF and encoded[end + 1] not in (0xDA, 0xFF):
        end += 2 + int.from_bytes(encoded[end + 2 : end + 4], "big")
    return encoded[:end] if encoded[end : end + 2] == b"\xff\xda" else encoded


def _decode_open(image: Image.Image, name: str) -> Image.Image:
    if image.width * image.height > MAX_PIXELS:
        raise UsageError(
            f"{name} has {image.width} x {image.height} pixels, over the limit of {MAX_PIXELS // 1_000_000} "
            "megapixels; make it smaller or remove it"
        )
    return to_rgb(image)


def to_rgb(image: Image.Image) -> Image.Image:
    """An upright image of mode RGB: EXIF orientation applied, transparency put on white, 16 bits scaled to 8.

    Of an animation, the frame it stands at (the first, when just opened). An RGB image that is upright already is
    returned as it is. A float image (mode F) is taken as 0..1 where no value exceeds 1, else as 0..255.
    """
    image.load()
    upright = _upright(image)
    if upright.mode in ("I", "F") or upright.mode.startswith("I;16"):
        return Image.fromarray(_to_grey8(upright)).convert("RGB")
    if upright.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in upright.info:
        if upright.mode in ("La", "RGBa"):
            upright = upright.convert({"La": "LA", "RGBa": "RGBA"}[upright.mode])
        colours = upright.convert("RGBA")
        white = Image.new("RGBA", colours.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, colours).convert("RGB")
    return upright if upright.mode == "RGB" else upright.convert("RGB")


def _upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image) if _is_turned(image) else image
    except _DECODING_ERRORS:
        return image


def _is_turned(image: Image.Image) -> bool:
    try:
        return image.getexif().get(ExifTags.Base.Orientation, 1) in range(2, 9)
    except _DECODING_ERRORS:  # broken EXIF around good pixels, as in some ImageNet files: nothing says it is turned
        return False


def _to_grey8(image: Image.Image) -> NDArray[np.uint8]:
    values = np.nan_to_num(np.asarray(image).astype(np.float64))
    if image.mode != "F":
        values = values / 257  # 65535 to 255; mode I holds 16-bit PNG files in some versions of Pillow
    elif values.max() <= 1:
        values = values * 255
    return np.clip(np.round(values), 0, 255).astype(np.uint8)
