"""Which files are taken for images, and which formats are never opened whatever a file is called."""

from pathlib import Path

import pytest
from datasets.data_files import SPLIT_KEYWORDS
from PIL import Image

from ssl_hub.data.decoding import decode
from ssl_hub.data.endings import image_endings, image_formats
from ssl_hub.data.paths import Paths
from ssl_hub.data.splits import WORDS, meaning
from ssl_hub.errors import UsageError


def test_every_ending_is_one_that_pillow_decodes_by_itself() -> None:
    assert {".jpg", ".jpe", ".jfif", ".apng", ".tif", ".webp", ".avif", ".jp2", ".tga", ".pnm"} <= {*image_endings()}
    assert not {".eps", ".ps", ".pdf", ".mpg", ".h5", ".grib", ".wmf", ".emf", ".txt", ".mp4"} & {*image_endings()}
    assert image_formats()[:2] == ("JPEG", "PNG")


def test_a_program_for_a_printer_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *a, **k: pytest.fail("ran Ghostscript"))
    (tmp_path / "x.jpg").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n")
    assert Image.open(tmp_path / "x.jpg").format == "EPS"  # so Pillow would
    with pytest.raises(UsageError, match=r"x\.jpg is not an image that can be read"):
        decode(tmp_path / "x.jpg", "x.jpg")


def test_the_words_for_splits_are_those_of_datasets() -> None:
    for split, words in SPLIT_KEYWORDS.items():
        assert set(words) <= set(WORDS[str(split)])
        assert all(meaning(word) == str(split) for word in words)


def test_paths_are_a_sequence_of_any_names() -> None:
    names = ["a/é.png", "", "b\udce9.jpg", "c"]
    paths = Paths(names)
    assert list(paths) == names and paths[-1] == "c" and paths[1:3] == ["", "b\udce9.jpg"] and len(paths) == 4
    assert [paths[i] for i in range(4)] == names and Paths(names) == paths != Paths(names[:3]) and list(Paths([])) == []
    many = [f"{i}.png" for i in range(140_000)]
    assert list(Paths(many)) == many
    with pytest.raises(IndexError, match="name 4 of 4"):
        paths[4]
