"""Features in a table, and the images nearest to one."""

import os

import numpy as np
import pytest
import torch
from datasets import Dataset
from PIL import Image

from ssl_hub.cli import main
from ssl_hub.data.images import Source
from ssl_hub.data.sources import SOURCES, open_source
from ssl_hub.data.stored import Pixels
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.embedding import embed, nearest, similar
from ssl_hub.evaluate.features import PixelModel, extract
from ssl_hub.evaluate.subject import open_model


@pytest.fixture
def photos(tmp_path):
    """Two classes of images of one colour each, in folders."""
    for split, count in (("train", 3), ("test", 2)):
        for place, name in enumerate(("blue, light", "réd")):
            folder = tmp_path / "photos" / split / name
            folder.mkdir(parents=True)
            for i in range(count):
                colour = (220, 10 * i, 10) if place else (10, 10 * i, 220)
                Image.new("RGB", (20, 20), colour).save(folder / f"{i}.png")
    return str(tmp_path / "photos")


def test_features_read_back_with_ids_and_classes(photos, tmp_path):
    path = embed("pixels", photos, split="test", out=tmp_path / "features.parquet", workers=0)
    table = Dataset.from_parquet(str(path), cache_dir=str(tmp_path / "cache"))
    assert table.column_names == ["id", "label", "class", "features"]
    assert list(table["id"]) == [f"{name}/{i}.png" for name in ("blue, light", "réd") for i in range(2)]
    assert list(table["class"]) == ["blue, light"] * 2 + ["réd"] * 2
    assert table.features["label"].names == ["blue, light", "réd"]
    subject = open_model("pixels")
    expected = extract(PixelModel(), open_source(photos, "test"), subject.transform)
    assert np.array_equal(np.array(table["features"], np.float32), expected.x)
    assert table.features["features"].length == expected.width


def test_names_that_are_not_utf_8(tmp_path):
    folder = tmp_path / "photos" / os.fsdecode(b"caf\xe9")
    folder.mkdir(parents=True)
    Image.new("RGB", (20, 20)).save(folder / os.fsdecode(b"\xfc.png"))
    path = embed("pixels", str(tmp_path / "photos"), split="train", out=tmp_path / "features.parquet", workers=0)
    table = Dataset.from_parquet(str(path), cache_dir=str(tmp_path / "cache"))
    assert (list(table["id"]), list(table["class"])) == (["caf\\xe9/\\xfc.png"], ["caf\\xe9"])


def test_unknown_labels_are_null(tmp_path, monkeypatch):
    pixels = Pixels(np.zeros((3, 8, 8, 3), np.uint8))
    for labels in ([0, -1, 0], None):
        source = Source("part", "test", pixels, classes=None if labels is None else ["a"], labels=labels)
        monkeypatch.setitem(SOURCES._entries, "part", lambda split, source=source: source)
        path = embed("pixels", "part", out=tmp_path / f"{labels is None}.parquet")
        table = Dataset.from_parquet(str(path), cache_dir=str(tmp_path / "cache"))
        assert list(table["label"]) == ([None] * 3 if labels is None else [labels[0], None, labels[2]])
        assert list(table["class"]) == ([None] * 3 if labels is None else ["a", None, "a"])
        assert list(table["id"]) == ["0", "1", "2"]


def test_ids_stay_those_of_the_data_in_subsets_and_joined_splits(photos):
    source = open_source(photos, "train+test").subset([7, 0])
    assert [source.id(i) for i in range(2)] == ["test/blue, light/1.png", "train/blue, light/0.png"]
    assert open_source("digits", "test").subset([4, 2]).id(1) == "2"


def test_an_image_of_the_split_finds_itself_first(photos, tmp_path):
    found = similar("pixels", f"{photos}/train/réd/1.png", photos, k=3, out=tmp_path / "sheet.png", workers=0)
    assert found[0].id == "réd/1.png"
    assert found[0].similarity == pytest.approx(1, abs=1e-4)
    assert [n.same for n in found] == [True, False, False]
    assert [n.label for n in found] == ["réd"] * 3
    assert [n.similarity for n in found] == sorted((n.similarity for n in found), reverse=True)
    sheet = Image.open(tmp_path / "sheet.png")
    assert sheet.getpixel((60, 60)) == (220, 10, 10)  # the query
    assert len(similar("pixels", f"{photos}/train/réd/1.png", photos, k=99, workers=0)) == 6


def test_nearest_equals_a_full_sort():
    draw = torch.Generator().manual_seed(0)
    bank, queries = torch.randn(50, 6, generator=draw), torch.randn(2100, 6, generator=draw)
    bank[3] = 0
    similarities, rows = nearest(bank.numpy(), queries.numpy(), 5)
    full = torch.nn.functional.cosine_similarity(queries[:, None], bank[None], dim=2)
    expected, places = full.sort(dim=1, descending=True)
    assert np.allclose(similarities, expected[:, :5].numpy(), atol=1e-6)
    assert (rows == places[:, :5].numpy()).mean() > 0.999  # ties


def test_images_that_are_equally_near_come_in_their_order():
    bank = np.eye(3, dtype=np.float32)[np.arange(40) % 2]
    similarities, rows = nearest(bank, np.eye(3, dtype=np.float32)[[1, 1]], 25)
    assert rows.tolist() == [[*range(1, 40, 2), *range(0, 10, 2)]] * 2
    assert similarities.tolist() == [[1.0] * 20 + [0.0] * 5] * 2


def test_commands(photos, tmp_path, capsys):
    assert main(["similar", "pixels", f"{photos}/test/réd/0.png", "--data", photos, "--k", "2", "--workers", "0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "  1  1.0000  réd  réd/0.png  (the same content)"
    assert len(lines) == 2
    out = str(tmp_path / "f.parquet")
    assert main(["embed", "pixels", "--data", photos, "--split", "train", "--out", out, "--workers", "0"]) == 0
    assert capsys.readouterr().out == f"{out}\n"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: embed("pixels", p, out="f.csv"), "features go to a parquet file, got 'f.csv'; name it f.parquet"),
        (lambda p: embed("pixels", p, out="gone/f.parquet"), "the folder gone does not exist"),
        (lambda p: embed("pixels", out="f.parquet"), "give data: a name, a path or a Hub id"),
        (lambda p: similar("pixels", "gone.png", p), "gone.png cannot be read"),
        (lambda p: similar("pixels", f"{p}/test/réd/0.png", p, k=0), "k is 0, expected a whole number of at least 1"),
        (lambda p: similar("pixels", f"{p}/test/réd/0.png", p, k=2.5), "k is 2.5, expected a whole number"),
        (lambda p: similar("pixels", f"{p}/test/réd/0.png", p, out="x.xyz"), "Pillow writes no .xyz; use .png or .jpg"),
    ],
)
def test_bad_input_says_what_to_do(photos, call, message):
    with pytest.raises(UsageError, match=message):
        call(photos)
