"""Copies of the same images have one fingerprint; other images, and others' labels, have another."""

import shutil

import numpy as np
import pytest
from datasets import Dataset
from datasets import Image as ImageFeature
from PIL import Image

from ssl_hub.data.bad_images import skipping
from ssl_hub.data.fingerprint import fingerprint
from ssl_hub.data.images import Source, joined
from ssl_hub.data.shards import open_shards
from ssl_hub.data.sources import open_source
from ssl_hub.data.stored import Pixels
from tests.data.encoded import png


@pytest.fixture
def photos(tmp_path):
    for split in ("train", "test"):
        for label in ("cat", "dog"):
            for index in range(3):
                folder = tmp_path / "photos" / split / label
                folder.mkdir(parents=True, exist_ok=True)
                Image.effect_noise((8, 8), 20 + 10 * index).convert("RGB").save(folder / f"{index}.png")
    return tmp_path / "photos"


def of(folder, split="train"):
    return fingerprint(open_source(str(folder), split))


def test_a_copy_is_the_same_in_whatever_order_its_files_were_made(photos, tmp_path):
    copy = tmp_path / "elsewhere"
    for path in sorted(photos.rglob("*.png"), reverse=True):
        target = copy / path.relative_to(photos)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    assert of(copy) == of(photos)
    ours, theirs = (open_source(str(folder), "train") for folder in (photos, copy))
    assert ours.paths() == theirs.paths()  # so that training takes them in one order
    assert [ours.encoded(i) for i in range(6)] == [theirs.encoded(i) for i in range(6)]


def test_another_name_content_label_or_number_is_another(photos):
    seen = {of(photos), of(photos, "test"), of(photos, "train[:5]"), of(photos, "train+test")}
    (photos / "train" / "cat" / "0.png").rename(photos / "train" / "cat" / "9.png")
    seen.add(of(photos))
    Image.effect_noise((8, 8), 77).convert("RGB").save(photos / "train" / "dog" / "1.png")
    seen.add(of(photos))
    (photos / "train" / "dog" / "1.png").write_bytes(b"")
    seen.add(of(photos))
    assert len(seen) == 7


def test_arrays_and_labels_count():
    pixels = np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3)
    plain = Source("a", "train", Pixels(pixels))
    labelled = [Source("a", "train", Pixels(pixels), classes=("x", "y"), labels=labels) for labels in ([0, 1], [1, 0])]
    changed = Source("a", "train", Pixels(pixels + 1))
    assert len({fingerprint(source) for source in (plain, *labelled, changed)}) == 4
    assert fingerprint(skipping(plain, 1)) == fingerprint(plain)
    both = joined([plain, changed], "a", "train+test")
    assert fingerprint(both) != fingerprint(joined([changed, plain], "a", "train+test"))


def test_an_empty_source_has_one_too():
    assert fingerprint(Source("a", "train", Pixels(np.zeros((0, 4, 4, 3), np.uint8))))


def test_tables_and_streams(tmp_path):
    for name, values in (("a", range(5)), ("b", range(5)), ("c", range(1, 6))):
        (tmp_path / name).mkdir()
        rows = Dataset.from_dict({"image": [{"bytes": png(40 * value), "path": None} for value in values]})
        rows.cast_column("image", ImageFeature()).to_parquet(tmp_path / name / "train-00000-of-00001.parquet")
    assert of(tmp_path / "a") == of(tmp_path / "b") != of(tmp_path / "c")
    shards = [open_shards(str(tmp_path / name), "train") for name in "ab"]
    assert fingerprint(shards[0]) == fingerprint(shards[1])
    (tmp_path / "b" / "train-00000-of-00001.parquet").rename(tmp_path / "b" / "train-00001-of-00001.parquet")
    assert fingerprint(open_shards(str(tmp_path / "b"), "train")) != fingerprint(shards[0])
