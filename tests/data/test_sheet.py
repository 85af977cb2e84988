"""The contact sheet shows the originals and, beside them, the very views that training draws."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ssl_hub.cli import main
from ssl_hub.config import View, Views
from ssl_hub.data.images import Source
from ssl_hub.data.loaders import TrainLoader
from ssl_hub.data.sheet import Sample, contact_sheet, save_sheet
from ssl_hub.data.stored import Pixels
from ssl_hub.data.views import TwoViews
from ssl_hub.errors import UsageError
from tests.data.encoded import png

SIZE, GAP, TEXT = 96, 4, 14
MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)
VIEW = View(crop_scale=(0.3, 1.0))


def cell(sheet: Image.Image, row: int, column: int) -> np.ndarray:
    left, top = GAP + (SIZE + GAP) * column, GAP + TEXT + (SIZE + TEXT + GAP) * row
    return np.asarray(sheet.crop((left, top, left + SIZE, top + SIZE))).astype(int)


def test_cells_are_the_originals_and_what_training_is_shown() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 12, 12, 3), dtype=np.uint8).repeat(8, 1).repeat(8, 2)
    source = Source("noise", "train", Pixels(pixels))
    views = Views(size=SIZE, view1=VIEW, view2=VIEW, mean=MEAN, std=STD)
    sheet = contact_sheet([Sample(source.image(i), i, f"image {i}") for i in range(3)], views, seed=7, draws=2)
    assert sheet.size == (5 * (SIZE + GAP) + GAP, GAP + TEXT + 3 * (SIZE + TEXT + GAP))
    loader = TrainLoader(
        source, TwoViews(views, seed=7), batch_size=3, seed=0, device="cpu", workers=0, resident_bytes=2**30
    )
    for row in range(3):
        assert np.array_equal(cell(sheet, row, 0), pixels[row])
    for epoch in range(2):
        ((pair,),) = [list(step) for step in loader.epoch(epoch)]
        images = loader._indices(epoch, 0)[0]
        for view, batch in enumerate(pair):
            shown = batch.permute(0, 2, 3, 1).numpy() * np.array(STD) + np.array(MEAN)
            for image, expected in zip(images, shown, strict=True):
                found = cell(sheet, int(image), 1 + 2 * view + epoch)
                assert np.abs(found - np.clip(expected * 255, 0, 255)).mean() < 1.5


def test_small_views_are_enlarged_and_odd_shapes_fit() -> None:
    samples = [
        Sample(Image.new("RGB", size, (200, 0, 0)), i, "") for i, size in enumerate([(1, 1), (300, 10), (16, 16)])
    ]
    sheet = contact_sheet(samples, Views(size=16), draws=1)
    assert sheet.width == 3 * (SIZE + GAP) + GAP
    assert all((cell(sheet, row, 0)[SIZE // 2, SIZE // 2] == (200, 0, 0)).all() for row in range(3))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for i in range(5):
        (tmp_path / f"{i}.png").write_bytes(png(40 * i, (20, 20)))
    words = ["views", "directpred-digits", "--data", str(tmp_path), "--images", "3", "--draws", "1", "views.size=32"]
    assert main([*words, "--out", str(tmp_path / "sheet.jpg")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "sheet.jpg")
    with Image.open(tmp_path / "sheet.jpg") as sheet:
        assert sheet.width == 3 * (SIZE + GAP) + GAP
        middles = [cell(sheet, row, 0)[SIZE // 2, SIZE // 2, 0] for row in range(3)]
    assert middles == pytest.approx([0, 80, 160], abs=4)  # the first, the middle and the last
    (tmp_path / "sheet.jpg").unlink()
    (tmp_path / "0.png").write_bytes(b"broken")
    assert main([*words, "--out", str(tmp_path / "sheet.png")]) == 2
    assert "0.png is not an image that can be read" in capsys.readouterr().err
    assert main([*words, "data.on_bad_image=skip", "--out", str(tmp_path / "sheet.png")]) == 0
    assert main([*words, "--out", str(tmp_path / "x.png"), "--images", "0"]) == 2
    assert "a sheet of 0 images with 1 draws is empty; both must be at least 1" in capsys.readouterr().err


def test_where_a_sheet_cannot_be_written(tmp_path: Path) -> None:
    sheet = Image.new("RGB", (4, 4))
    with pytest.raises(UsageError, match=r"the folder .*nowhere does not exist"):
        save_sheet(sheet, tmp_path / "nowhere" / "sheet.png")
    with pytest.raises(UsageError, match=r"sheet\.xyz does not end as a picture does; give a \.png or \.jpg file"):
        save_sheet(sheet, tmp_path / "sheet.xyz")


def test_a_full_disk_is_said_to_be_one_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(UsageError, match=r"cannot write .*sheet\.png: No space left on device"):
        save_sheet(Image.new("RGB", (4, 4)), tmp_path / "sheet.png")
    assert list(tmp_path.iterdir()) == []
