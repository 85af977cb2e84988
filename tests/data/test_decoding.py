"""Any image file becomes upright RGB, and any broken one an error that names it."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ssl_hub.data.decoding import decode, to_rgb
from ssl_hub.errors import UsageError

RED = (200, 30, 60)


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def pixel(file: bytes, place: tuple[int, int] = (0, 0)) -> np.ndarray:
    image = decode(file, "x")
    assert image.mode == "RGB"
    return np.array(image.getpixel(place))


def test_grey_modes_repeat_their_value() -> None:
    assert pixel(encoded(Image.new("L", (4, 4), 77), "PNG")).tolist() == [77, 77, 77]
    assert pixel(encoded(Image.new("1", (4, 4), 1), "PNG")).tolist() == [255, 255, 255]


def test_16_bits_are_scaled_and_not_clipped() -> None:
    values = np.array([[0, 257 * 100], [257 * 200, 65535]], np.uint16)
    png = encoded(Image.fromarray(values), "PNG")
    assert [pixel(png, p)[0] for p in ((0, 0), (1, 0), (0, 1), (1, 1))] == [0, 100, 200, 255]


def test_transparency_is_put_on_white() -> None:
    rgba = Image.new("RGBA", (4, 4), (*RED, 0))
    assert pixel(encoded(rgba, "PNG")).tolist() == [255, 255, 255]
    assert pixel(encoded(Image.new("LA", (4, 4), (10, 0)), "PNG")).tolist() == [255, 255, 255]
    half = pixel(encoded(Image.new("RGBA", (4, 4), (0, 0, 0, 128)), "PNG"))
    assert half == pytest.approx([127, 127, 127], abs=1)
    opaque = pixel(encoded(Image.new("RGBA", (4, 4), (*RED, 255)), "PNG"))
    assert opaque.tolist() == list(RED)


def test_palette_and_single_transparent_colour() -> None:
    palette = Image.new("P", (4, 4), 1)
    palette.putpalette([0, 0, 0, *RED])
    assert pixel(encoded(palette, "PNG")).tolist() == list(RED)
    assert pixel(encoded(palette, "PNG", transparency=1)).tolist() == [255, 255, 255]
    assert pixel(encoded(Image.new("RGB", (4, 4), RED), "PNG", transparency=RED)).tolist() == [255, 255, 255]


def test_cmyk_is_not_inverted() -> None:
    cmyk = Image.new("RGB", (8, 8), RED).convert("CMYK")
    assert pixel(encoded(cmyk, "JPEG", quality=95)) == pytest.approx(np.array(RED), abs=12)


def test_first_frame_of_an_animation() -> None:
    frames = [Image.new("RGB", (4, 4), RED), Image.new("RGB", (4, 4), (0, 0, 255))]
    assert pixel(encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])).tolist() == list(RED)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(orientation: int) -> None:
    upright = Image.new("RGB", (16, 8), (0, 0, 0))
    upright.paste((255, 255, 255), (0, 0, 8, 4))  # top left
    inverse = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }.get(orientation)
    stored = upright if inverse is None else upright.transpose(inverse)
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = decode(encoded(stored, "PNG", exif=exif), "x")
    assert np.array_equal(np.asarray(image), np.asarray(upright))


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
@pytest.mark.parametrize("exif", [b"Exif\0\0garbage", b"Exif\0\0MM\0*\0\0\0\x08\xff\xff", b"Exif\0\0"])
def test_broken_exif_does_not_lose_the_image(exif: bytes) -> None:
    assert pixel(encoded(Image.new("RGB", (8, 8), RED), "JPEG", exif=exif)) == pytest.approx(np.array(RED), abs=6)


def test_rgb_is_not_copied() -> None:
    image = Image.new("RGB", (4, 4))
    assert to_rgb(image) is image


JPEG = encoded(Image.effect_noise((64, 64), 90).convert("RGB"), "JPEG")
PNG = encoded(Image.effect_noise((64, 64), 90).convert("RGB"), "PNG")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "is empty"),
        (b"this is no image", "is not an image that can be read"),
        (JPEG[: len(JPEG) // 2], "cannot be read (image file is truncated"),
        (PNG[: len(PNG) // 2], "cannot be read ("),
        (PNG[:100] + b"\0" * 400 + PNG[500:], "cannot be read ("),
    ],
    ids=["empty", "text", "half jpeg", "half png", "zeroed png"],
)
def test_broken_file_is_named(tmp_path: Path, content: bytes, text: str) -> None:
    path = tmp_path / "bad.jpg"
    path.write_bytes(content)
    with pytest.raises(UsageError) as from_file:
        decode(path, str(path))
    with pytest.raises(UsageError) as from_bytes:
        decode(content, "image 3")
    assert str(from_file.value).startswith(f"{path} ") and text in str(from_file.value)
    assert str(from_bytes.value).startswith("image 3 ") and text in str(from_bytes.value)
    assert "\n" not in str(from_file.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.jpg cannot be read \(.*No such file"):
        decode(tmp_path / "gone.jpg", str(tmp_path / "gone.jpg"))


def test_huge_images_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = encoded(Image.new("1", (20_000, 10_001)), "PNG")
    with pytest.raises(UsageError, match=r"^big has more than 178 megapixels; make it smaller"):
        decode(bomb, "big")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)  # a user who lifts Pillow's limit still meets ours
    with pytest.raises(UsageError, match=r"^big has more than 200 megapixels; make it smaller"):
        decode(bomb, "big")
