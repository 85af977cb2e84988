"""Pixels without Pillow in between are Pillow's pixels, and what is wrong with a file is said in the same words."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image

from ssl_hub.data import decoding
from ssl_hub.data.decoding import decode, decode_array
from ssl_hub.errors import UsageError


def smooth(height: int = 37, width: int = 51) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)).resize((width, height))


def encoded(image: Image.Image, form: str = "JPEG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def turned_by_xmp() -> bytes:
    plain = encoded(smooth())
    xmp = b'http://ns.adobe.com/xap/1.0/\0<rdf:Description tiff:Orientation="6"/>'
    return plain[:2] + b"\xff\xe1" + (len(xmp) + 2).to_bytes(2, "big") + xmp + plain[2:]


def turned() -> bytes:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    return encoded(smooth(), exif=exif)


FILES = {
    "jpeg": encoded(smooth(), quality=90),
    "jpeg without subsampling": encoded(smooth(), subsampling=0),
    "progressive jpeg": encoded(smooth(), progressive=True),
    "grey jpeg": encoded(smooth().convert("L")),
    "cmyk jpeg": encoded(smooth().convert("CMYK")),
    "turned jpeg": turned(),
    "jpeg turned by XMP": turned_by_xmp(),
    "jpeg with a filled marker": encoded(smooth())[:2] + b"\xff" + encoded(smooth())[2:],
    "jpeg with broken exif": encoded(smooth(), exif=b"Exif\0\0II*\0\xff\xff\xff\xff"),
    "png": encoded(smooth(), "PNG"),
    "png with transparency": encoded(smooth().convert("RGBA"), "PNG"),
    "gif": encoded(smooth(), "GIF"),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("fast", [True, False], ids=["simplejpeg", "Pillow alone"])
def test_the_same_pixels(name: str, fast: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if not fast:
        monkeypatch.setattr(decoding, "decode_jpeg", None)
    path = tmp_path / "image"
    path.write_bytes(FILES[name])
    expected = np.asarray(decode(path, name))
    for array in (decode_array(path, name), decode_array(FILES[name], name)):
        assert array.dtype == np.uint8 and array.flags.writeable and np.array_equal(array, expected)


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xd8", FILES["jpeg"][: len(FILES["jpeg"]) // 2], FILES["jpeg"][:-40], b"\xff\xd8 text", b"text"],
    ids=["empty", "start", "half", "end cut off", "text after the mark", "text"],
)
def test_the_same_words(content: bytes) -> None:
    def words(read) -> str:  # type: ignore[no-untyped-def]
        with pytest.raises(UsageError) as error:
            read(content, "a/b.jpg")
        return str(error.value)

    assert words(decode_array) == words(decode) and words(decode).startswith("a/b.jpg ")


def test_a_missing_file() -> None:
    with pytest.raises(UsageError, match=r"gone\.jpg cannot be read \(.*No such file"):
        decode_array("/nowhere/gone.jpg", "gone.jpg")


def jpeg_of(width: int, height: int) -> bytes:
    """A small JPEG whose header claims another size."""
    content = bytearray(encoded(Image.new("RGB", (8, 8)), subsampling=0))
    place = content.index(b"\xff\xc0") + 5
    content[place : place + 4] = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    return bytes(content)


@pytest.mark.parametrize(("lifted", "limit"), [(False, 178), (True, 200)])
def test_both_refuse_images_of_the_same_size(lifted: bool, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """14000 x 13500 lies between Pillow's limit and 200 megapixels."""
    if lifted:
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    for read in (decode, decode_array):
        with pytest.raises(UsageError, match=f"^x has more than {limit} megapixels; make it smaller or remove it$"):
            read(jpeg_of(15000, 14500), "x")
        if not lifted:
            with pytest.raises(UsageError, match=f"^x has more than {limit} megapixels"):
                read(jpeg_of(14000, 13500), "x")
