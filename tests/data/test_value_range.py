"""Black and white of images of more than 8 bits: one range for all, the same however an image comes in."""

import io
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ssl_hub.data.decoding import decode, decode_array, to_rgb
from ssl_hub.data.sources import open_source
from ssl_hub.data.value_range import AUTO, ValueRange
from ssl_hub.data.views import eval_transform
from ssl_hub.errors import UsageError
from tests.data.encoded import png16

RAMP = np.linspace(0, 4095, 64).astype(np.uint16).reshape(8, 8)


def encoded(values: np.ndarray, form: str = "TIFF") -> bytes:
    stream = io.BytesIO()
    Image.fromarray(values).save(stream, form)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("auto", AUTO), ("12", (0, 4095)), ("16", (0, 65535)), ("0,4095", (0, 4095)), ("-1000,400", (-1000, 400)),
     ("0.5, 1.5", (0.5, 1.5)), ("1e-3,2e3", (0.001, 2000))],
)  # fmt: skip
def test_ranges(text: str, expected: tuple[float, float]) -> None:
    assert ValueRange.parse(text) == expected


@pytest.mark.parametrize("text", ["", "0", "33", "12.5", "5,5", "9,1", "0,inf", "a,b", "1,2,3", "AUTO", "-8"])
def test_what_is_no_range(text: str) -> None:
    with pytest.raises(UsageError, match=f"^data.range is '{text}', expected 'auto', a number of bits from 1 to 32"):
        ValueRange.parse(text)


@pytest.mark.parametrize("read", [decode, decode_array])
@pytest.mark.parametrize(
    "content",
    [encoded(RAMP), encoded(RAMP, "PNG"), encoded(RAMP.astype(np.int32)), encoded(RAMP.astype(np.float32)),
     png16(RAMP[..., None]), png16(np.repeat(RAMP[..., None], 3, axis=2))],
    ids=["16-bit tiff", "16-bit png", "32-bit tiff", "float tiff", "16-bit png by hand", "16-bit colour png"],
)  # fmt: skip
def test_twelve_bits_in_files_of_more(read, content: bytes) -> None:  # type: ignore[no-untyped-def]
    values = np.asarray(read(content, "x", ValueRange.parse("12")))
    assert values.shape == (8, 8, 3) and values.min() == 0 and values.max() == 255
    assert len(np.unique(values)) == 64  # and not 17
    assert (values == np.round(RAMP / 4095 * 255).astype(np.uint8)[..., None]).all()


def tiff_of(values: np.ndarray, sample_format: int) -> bytes:
    """An uncompressed TIFF file of one channel, which Pillow does not write for every type."""
    pixels = values.astype(values.dtype.newbyteorder("<")).tobytes()
    tags = {256: values.shape[1], 257: values.shape[0], 258: 8 * values.itemsize, 259: 1, 262: 1, 273: 8, 277: 1,
            278: values.shape[0], 279: len(pixels), 339: sample_format}  # fmt: skip
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    start = struct.pack("<2sHI", b"II", 42, 8 + len(pixels))
    return start + pixels + struct.pack("<H", len(tags)) + entries + struct.pack("<I", 0)


@pytest.mark.parametrize("read", [decode, decode_array])
def test_numbers_without_a_sign_and_with_one(read) -> None:  # type: ignore[no-untyped-def]
    whole = np.array([[0, 2**31, 2**32 - 1]], np.uint32)  # as numbers with a sign, the upper half would be below 0
    assert np.asarray(read(tiff_of(whole, 1), "x", ValueRange.parse("32")))[0, :, 0].tolist() == [0, 128, 255]
    with pytest.raises(UsageError, match=r"^x has values from 0 to 4\.29497e\+09, outside 0 to 65535"):
        read(tiff_of(whole, 1), "x", AUTO)
    signed = np.array([[-1000, 0, 1000]], np.int32)
    assert np.asarray(read(tiff_of(signed, 2), "x", ValueRange(-1000, 1000)))[0, :, 0].tolist() == [0, 128, 255]
    with pytest.raises(UsageError, match=r"^x has 8 bits with a sign, which cannot be read; store it without one"):
        read(tiff_of(np.array([[-1, 0, 1]], np.int8), 2), "x", AUTO)


def test_auto_is_the_range_of_the_type() -> None:
    assert np.asarray(decode(encoded(RAMP), "x")).max() == 16
    assert np.asarray(decode(encoded(np.array([[0, 0.5, 1.0]], np.float32)), "x"))[0, :, 0].tolist() == [0, 128, 255]


def test_a_range_is_never_that_of_an_image() -> None:
    dark, bright = (np.asarray(decode(encoded(RAMP // part), "x", ValueRange(0, 4095))) for part in (8, 1))
    assert dark.max() == 32 and bright.max() == 255


@pytest.mark.parametrize(
    ("values", "found"),
    [([[0.0, 50.0, 300.0]], "0 to 300, outside 0 to 1; set data.range .* as in data.range=0,300"),
     ([[-2.0, 1.0]], "-2 to 1, outside 0 to 1"), ([[-5, 70000]], "-5 to 70000, outside 0 to 65535")],
)  # fmt: skip
def test_values_that_the_type_does_not_bound(values: list[list[float]], found: str) -> None:
    image = np.array(values, np.float32 if isinstance(values[0][0], float) else np.int32)
    with pytest.raises(UsageError, match=f"^a.tif has values from {found}"):
        decode(encoded(image), "a.tif")
    ends = ValueRange(float(image.min()), float(image.max()))
    assert {0, 255} <= set(np.asarray(decode(encoded(image), "a.tif", ends)).flat)


def test_not_a_number_is_black_and_infinity_white() -> None:
    image = np.array([[np.nan, 7, np.inf, -np.inf]], np.float32)
    assert np.asarray(decode(encoded(image), "x", ValueRange(5, 9)))[0, :, 0].tolist() == [0, 128, 255, 0]


def test_eight_bits_are_as_they_are() -> None:
    image = Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16))
    for values in (AUTO, ValueRange(0, 4095)):
        assert np.array_equal(np.asarray(to_rgb(image, values))[..., 0], np.asarray(image))


def test_sixteen_bits_a_colour_that_cannot_be_read_whole(tmp_path: Path) -> None:
    content = tiff16(np.repeat(RAMP[..., None], 3, axis=2))
    assert np.asarray(decode(content, "x")).max() == 15  # the upper 8 bits
    with pytest.raises(UsageError, match=r"^x has 16 bits a colour in a TIFF file.*data\.range cannot.*as PNG"):
        decode(content, "x", ValueRange(0, 4095))


def test_the_length_of_a_row_is_no_number_of_bits() -> None:
    image = Image.effect_noise((138, 4), 90).convert("RGB")  # rows of 416 bytes in a BMP file, with their padding
    stream = io.BytesIO()
    image.save(stream, "BMP")
    assert "416" in str(Image.open(io.BytesIO(stream.getvalue())).tile[0].args)
    assert np.array_equal(np.asarray(decode(stream.getvalue(), "x", ValueRange(0, 4095))), np.asarray(image))


def tiff16(pixels: np.ndarray) -> bytes:
    """An uncompressed RGB file of 16 bits a colour, which Pillow reads and does not write."""
    height, width, _ = pixels.shape
    data = pixels.astype("<u2").tobytes()
    values = 8 + 2 + 9 * 12 + 4  # where what is longer than a tag begins: three bit depths, then the pixels
    tags = [(256, 3, 1, width), (257, 3, 1, height), (258, 3, 3, values), (259, 3, 1, 1), (262, 3, 1, 2)]
    tags += [(273, 4, 1, values + 6), (277, 3, 1, 3), (278, 3, 1, height), (279, 4, 1, len(data))]
    directory = struct.pack("<H", 9) + b"".join(struct.pack("<HHII", *tag) for tag in tags) + struct.pack("<I", 0)
    return b"II*\0" + struct.pack("<I", 8) + directory + struct.pack("<HHH", 16, 16, 16) + data


def test_transparency_of_sixteen_bits_is_put_on_white() -> None:
    pixels = np.zeros((8, 8, 4), np.uint16)
    pixels[..., 3] = np.where(np.arange(8) < 4, 65535, 0)
    values = np.asarray(decode(png16(pixels), "x", ValueRange(0, 4095)))
    assert (values[:, :4] == 0).all() and (values[:, 4:] == 255).all()


def test_views_evaluation_and_the_released_transform_agree(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(encoded(RAMP, "PNG"))
    source = open_source(str(tmp_path), "train", value_range="12")
    assert np.array_equal(source.array(0), np.asarray(source.image(0))) and source.array(0).max() == 255
    transform = eval_transform(size=8, mean=[0.5] * 3, std=[0.5] * 3, value_range="12")
    assert np.array_equal(transform(Image.open(tmp_path / "a.png")), transform(source.image(0)))
    assert "0 to 4095 as black to white" in repr(transform)


def test_the_colour_file_is_what_it_says() -> None:
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(png16(RAMP[..., None])))), RAMP)
