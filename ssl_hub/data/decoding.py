"""From encoded files and bytes to upright RGB images, whatever their colour mode."""

from __future__ import annotations

import io
import os
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from ssl_hub.data.endings import image_formats
from ssl_hub.data.value_range import AUTO, ValueRange
from ssl_hub.errors import UsageError

try:
    from simplejpeg import decode_jpeg, decode_jpeg_header
except ImportError:  # optional: the same pixels, a quarter of the time of decoding and cutting saved
    decode_jpeg = None

MAX_PIXELS = 200_000_000

_LONGEST = 200  # characters of an error's cause: an image's text taken for its path is thousands

_UNSIGNED, _SIGNED = 1, 2  # sample formats of TIFF files
_MAYBE_TURNED = (b"Exif\0\0", b"tiff:Orientation")  # where Pillow finds an orientation: EXIF and XMP

# What Pillow's decoders raise on broken input; a memory or programming error is none of these and keeps its traceback.
_DECODING_ERRORS = (OSError, SyntaxError, ValueError, EOFError, IndexError, struct.error, zlib.error)


def most_pixels() -> int:
    """Of one image: 178 million, Pillow's own limit (2 ``Image.MAX_IMAGE_PIXELS``), 200 where a user lifts that.

    Every way of decoding asks here, so that what training reads evaluation reads too.
    """
    return min(2 * (Image.MAX_IMAGE_PIXELS or MAX_PIXELS), MAX_PIXELS)


def decode(file: str | os.PathLike[str] | bytes, name: str, values: ValueRange = AUTO) -> Image.Image:
    """The image in a file or in bytes, as :func:`to_rgb` makes it.

    Raises :class:`UsageError` that starts with ``name`` where the image is empty, truncated, not an image, missing, or
    larger than :func:`most_pixels`.
    """
    try:
        if isinstance(file, bytes):
            if not file:
                raise UsageError(f"{name} is empty; replace it or remove it")
            return _decode_open(io.BytesIO(file), name, values)
        with open(file, "rb") as stream:
            if not stream.seekable() or not os.fstat(stream.fileno()).st_size:
                raise UsageError(f"{name} is empty; replace it or remove it")
            return _decode_open(stream, name, values)
    except UsageError:
        raise
    except Image.DecompressionBombError:
        raise _too_large(name) from None
    except UnidentifiedImageError:
        raise UsageError(f"{name} is not an image that can be read; replace it or remove it") from None
    except _DECODING_ERRORS as error:
        cause = " ".join(str(error).split())[:_LONGEST] or type(error).__name__
        raise UsageError(f"{name} cannot be read ({cause}); replace it or remove it") from None


def decode_array(file: str | os.PathLike[str] | bytes, name: str, values: ValueRange = AUTO) -> NDArray[np.uint8]:
    """The same pixels as an array ``[H, W, 3]``; sooner, with simplejpeg, for an upright JPEG file in RGB or grey.

    Raises as :func:`decode` does.
    """
    try:
        encoded = file if isinstance(file, bytes) else Path(file).read_bytes()
        pixels = _plain_jpeg(encoded)
    except (*_DECODING_ERRORS, Image.DecompressionBombError):  # Pillow says what is wrong
        pixels = None
    return np.array(decode(file, name, values)) if pixels is None else pixels


def _plain_jpeg(encoded: bytes) -> NDArray[np.uint8] | None:
    """What Pillow's own decoder gives, or None where there would be more to do, such as turning.

    Both call libjpeg-turbo; Pillow then spreads its rows to four bytes a pixel, and packs them again for numpy.
    """
    if decode_jpeg is None or not encoded.startswith(b"\xff\xd8"):
        return None
    height, width, colours, _ = decode_jpeg_header(encoded)
    if colours not in ("YCbCr", "RGB", "Gray") or height * width > most_pixels():
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


def _decode_open(stream: BinaryIO, name: str, values: ValueRange) -> Image.Image:
    image = Image.open(stream, formats=image_formats())
    if image.width * image.height > most_pixels():
        raise _too_large(name)
    if image.mode == "L" and _sample_format(image) == _SIGNED:
        raise UsageError(f"{name} has 8 bits with a sign, which cannot be read; store it without one, or in 16 bits")
    if values != AUTO and has_wide_colours(image):
        return _upright(_wide_colours(image, stream, name, values), image)
    return to_rgb(image, values, name)


def _too_large(name: str) -> UsageError:
    return UsageError(f"{name} has more than {most_pixels() // 1_000_000} megapixels; make it smaller or remove it")


def to_rgb(image: Image.Image, values: ValueRange = AUTO, name: str = "the image") -> Image.Image:
    """An upright image of mode RGB: EXIF orientation applied, transparency put on white, more than 8 bits scaled to 8.

    Of an animation, the frame it stands at (the first, when just opened). An RGB image that is upright already is
    returned as it is. Raises :class:`UsageError` where values of a float or whole-number image lie outside ``auto``.
    """
    image.load()
    unsigned = _is_unsigned(image)
    upright = _upright(image, image)
    if is_wide(upright):
        numbers = np.asarray(upright)
        return Image.fromarray(values.to_bytes(numbers.view(np.uint32) if unsigned else numbers, name)).convert("RGB")
    if upright.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in upright.info:
        if upright.mode in ("La", "RGBa"):
            upright = upright.convert({"La": "LA", "RGBa": "RGBA"}[upright.mode])
        colours = upright.convert("RGBA")
        white = Image.new("RGBA", colours.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, colours).convert("RGB")
    return upright if upright.mode == "RGB" else upright.convert("RGB")


def is_wide(image: Image.Image) -> bool:
    """Whether an opened image holds more than 8 bits a pixel in one channel: 16 or 32 bits, or floats."""
    return image.mode in ("I", "F") or image.mode.startswith("I;16")


def wide_values(image: Image.Image) -> NDArray[np.generic]:
    """The values of such an image, as they are stored."""
    numbers = np.asarray(image)
    return numbers.view(np.uint32) if _is_unsigned(image) else numbers


def _is_unsigned(image: Image.Image) -> bool:
    """Whether an image holds whole numbers of 32 bits without a sign, which Pillow takes for some with one."""
    bits = getattr(image, "tag_v2", {}).get(ExifTags.Base.BitsPerSample)
    return image.mode == "I" and bits == (32,) and _sample_format(image) == _UNSIGNED


def _sample_format(image: Image.Image) -> int:
    """Of a TIFF file: whether its numbers have signs, or fractions."""
    return int(getattr(image, "tag_v2", {}).get(ExifTags.Base.SampleFormat, (_UNSIGNED,))[0])


def has_wide_colours(image: Image.Image) -> bool:
    """Whether an image just opened has several channels of 16 bits, of which Pillow keeps the upper 8 alone."""
    args = [tile.args for tile in getattr(image, "tile", [])]
    raw_modes = [str(some[0] if isinstance(some, tuple) and some else some) for some in args]  # the rest are lengths
    return not is_wide(image) and any(";16" in mode and mode != "BGR;16" for mode in raw_modes)  # that is 5, 6, 5 bits


def wide_channels(image: Image.Image, stream: BinaryIO, name: str) -> NDArray[np.uint16]:
    """All bits of such an image, ``[C, H, W]``. Raises :class:`UsageError` where it is no PNG file."""
    if image.format != "PNG":
        raise UsageError(
            f"{name} has 16 bits a colour in a {image.format} file, of which the upper 8 alone can be read, so "
            "data.range cannot be applied; store it as PNG, or a channel a file"
        )
    import torch
    from torchvision.io import ImageReadMode, decode_image

    stream.seek(0)
    encoded = torch.frombuffer(bytearray(stream.read()), dtype=torch.uint8)
    channels: NDArray[np.uint16] = decode_image(encoded, mode=ImageReadMode.UNCHANGED).numpy()
    return channels


def _wide_colours(image: Image.Image, stream: BinaryIO, name: str, values: ValueRange) -> Image.Image:
    """Scaled by the range, on white where they are transparent."""
    channels = wide_channels(image, stream, name)
    colours = values.to_bytes(channels[: 3 if len(channels) > 2 else 1], name)
    if len(channels) in (2, 4):
        opaque = channels[-1] / 65535
        colours = np.round(255 + opaque * (colours.astype(np.float64) - 255)).astype(np.uint8)
    return Image.fromarray(np.ascontiguousarray(np.broadcast_to(colours, (3, *colours.shape[1:])).transpose(1, 2, 0)))


def _upright(image: Image.Image, original: Image.Image) -> Image.Image:
    """``image`` turned as the EXIF data of ``original`` says."""
    try:
        if not _is_turned(original):
            return image
        if image is not original:
            image.info["exif"] = original.getexif().tobytes()
        return ImageOps.exif_transpose(image)
    except _DECODING_ERRORS:
        return image


def _is_turned(image: Image.Image) -> bool:
    try:
        return image.getexif().get(ExifTags.Base.Orientation, 1) in range(2, 9)
    except _DECODING_ERRORS:  # broken EXIF around good pixels, as in some ImageNet files: nothing says it is turned
        return False
