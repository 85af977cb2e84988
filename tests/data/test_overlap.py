"""Images that two splits share: by file, by row and by content, whatever they are called, and what is read for it."""

import io
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ssl_hub.data import overlap as module
from ssl_hub.data.images import Source
from ssl_hub.data.overlap import copies, duplicates, overlap
from ssl_hub.data.sources import open_source
from ssl_hub.data.stored import Pixels


def png(seed, *, size=8):
    stream = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (size, size, 3), np.uint8)
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def write(root, split, contents):
    for place, content in enumerate(contents):
        folder = root / split / f"class {place % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{place:03}.png").write_bytes(content)


@pytest.fixture
def folder(tmp_path):
    """20 training images and 6 test images, two of which are training images under other names."""
    write(tmp_path, "train", [png(seed) for seed in range(20)])
    write(tmp_path, "test", [png(3), png(103), png(104), png(17), png(105), png(106)])
    return tmp_path


@pytest.fixture
def table(folder, tmp_path_factory):
    """The same images in parquet files."""
    from datasets import Dataset, Features, Value
    from datasets import Image as Images

    root = tmp_path_factory.mktemp("table")
    for split in ("train", "test"):
        source = open_source(str(folder), split)
        rows = [{"bytes": source.encoded(place), "path": None} for place in range(len(source))]
        columns = Features({"image": Images(), "label": Value("int64")})
        made = Dataset.from_dict({"image": rows, "label": source.labels.tolist()}, features=columns)
        made.to_parquet(str(root / f"{split}.parquet"))
    return root


def opened(root, *splits):
    return [open_source(str(root), split) for split in splits]


@pytest.mark.parametrize("kind", ["folder", "table"])
@pytest.mark.parametrize(
    ("fitted", "judged", "shared"),
    [
        ("train", "train", 20),
        ("train", "train[::5]", 4),
        ("train[:15]", "train[10:]", 5),
        ("train[::2]", "train[1::2]", 0),
        ("train", "test", 2),
        ("train[:1]", "test", 0),
        ("train+test", "test[:1]", 1),
        ("test", "train+test", 8),
    ],
)
def test_slices_copies_and_joined_splits(request, kind, fitted, judged, shared):
    found = overlap(*opened(request.getfixturevalue(kind), fitted, judged))
    assert found.images == shared
    assert len(found.examples) == min(shared, 2)


def test_the_same_content_in_another_kind_of_storage(folder, table):
    (train,), (test,) = opened(folder, "train"), opened(table, "test")
    assert overlap(train, test).images == 2
    assert overlap(train, open_source(str(table), "train")).images == 20


def test_examples_name_both_files(folder):
    found = overlap(*opened(folder, "train", "test"))
    assert found.places == (0, 4)
    assert found.examples == (("class 1/003.png", "class 0/000.png"), ("class 1/017.png", "class 1/003.png"))


def test_links_are_the_files_that_they_lead_to(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("links") / "test" / "class 0"
    other.mkdir(parents=True)
    (other.parent / "class 1").mkdir()
    os.symlink(folder / "train" / "class 0" / "004.png", other / "a.png")
    os.link(folder / "train" / "class 1" / "005.png", other.parent / "class 1" / "b.png")
    assert overlap(*opened(folder, "train"), *opened(other.parents[1], "test")).images == 2


def test_pixels_are_compared_by_content():
    pixels = np.random.default_rng(0).integers(0, 256, (12, 4, 4, 3), np.uint8)
    one, other = Source("a", "train", Pixels(pixels[:8])), Source("b", "test", Pixels(pixels[6:]))
    assert overlap(one, other).images == 2
    assert overlap(one.subset(np.arange(6)), other).images == 0


def test_unreadable_images_are_nobody_elses(folder):
    for split in ("train", "test"):
        (folder / split / "class 0" / "gone.png").symlink_to(folder / "train" / "class 0" / "000.png")
    sources = opened(folder, "train", "test")
    for split in ("train", "test"):
        (folder / split / "class 0" / "gone.png").unlink()
    assert overlap(*sources).images == 2


def test_of_images_that_differ_in_size_nothing_is_read(tmp_path, monkeypatch):
    """And of those that agree in it, 12 kilobytes; only those that agree in these are read whole."""
    big = np.random.default_rng(0).integers(0, 256, 60_000, np.uint8).tobytes()
    end = bytes(60_000)
    write(tmp_path, "train", [big + bytes(n + 1) for n in range(10)] + [end + b"\1", big + bytes(40)])
    write(tmp_path, "test", [end + b"\2", big[1:] + bytes(20), big + bytes(40)])
    sources = opened(tmp_path, "train", "test")
    read: dict[str, int] = {}
    sampled, content_of = module._sampled, module.content_of

    def pieces(file):
        read[Path(file.name).name] = read.get(Path(file.name).name, 0) + 1
        return sampled(file)

    whole = []
    monkeypatch.setattr(module, "_sampled", pieces)
    monkeypatch.setattr(
        module, "content_of", lambda source, place: whole.append(source.id(place)) or content_of(source, place)
    )
    assert overlap(*sources).images == 1
    assert set(read) == {"000.png", "010.png", "002.png", "011.png"}  # of two sizes
    assert sorted(whole) == ["class 0/002.png", "class 1/011.png"]


def test_copies_inside_a_split_are_found_by_content(tmp_path):
    write(tmp_path, "train", [png(seed) for seed in (0, 1, 2, 0, 4, 5, 1, 7, 0)])
    (source,) = opened(tmp_path, "train")
    found = [sorted(source.id(place)[-7:-4] for place in places) for places in copies(source)]
    assert sorted(found) == [["000", "003", "008"], ["001", "006"]]
    assert copies(source.subset([0])) == []


def test_duplicates_within_and_across_splits(tmp_path):
    for split, seeds in {"train": (0, 1, 0), "val": (1, 2), "test": (0, 3, 0)}.items():
        write(tmp_path, split, [png(seed) for seed in seeds])
    sources = dict(zip(("train", "val", "test"), opened(tmp_path, "train", "val", "test"), strict=True))
    twice = {"images": 1, "examples": [["class 0/000.png", "class 0/002.png"]]}
    both = [["class 0/000.png", "class 0/000.png"], ["class 0/000.png", "class 0/002.png"]]
    assert duplicates(sources) == {
        "within": {"train": twice, "test": twice},
        "across": [
            {"splits": ["train", "val"], "images": 1, "examples": [["class 1/001.png", "class 0/000.png"]]},
            {"splits": ["train", "test"], "images": 2, "examples": both},
        ],
    }
