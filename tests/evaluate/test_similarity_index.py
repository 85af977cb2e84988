"""Features that are kept: taken again for the same model and images alone."""

import os
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from ssl_hub.cli import main
from ssl_hub.data.images import Source
from ssl_hub.data.sources import open_source
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.embedding import features_of, similar
from ssl_hub.evaluate.similarity_index import index_path, kept
from ssl_hub.evaluate.subject import open_model
from ssl_hub.exporting.parity import pictures


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos" / "train" / "a"
    folder.mkdir(parents=True)
    for place, picture in enumerate(pictures(4, 24)):
        Image.fromarray(picture.permute(1, 2, 0).numpy()).save(folder / f"{place}.png")
    return tmp_path / "photos"


def state_of(photos, folder, model="pixels", **options):
    """What ``kept`` says, and whether it made the features."""
    subject, source = open_model(model, **options), open_source(str(photos), "train")
    made = []

    def make():
        made.append(True)
        return features_of(subject, source, workers=0)

    features, state = kept(folder, subject, source, make)
    assert np.array_equal(features.x, features_of(subject, source, workers=0).x)
    assert (features.classes, features.y.tolist()) == (source.classes, source.labels.tolist())
    assert bool(made) == (state != "reused")
    return state


def test_features_are_kept_and_taken_again(photos, tmp_path):
    assert state_of(photos, tmp_path / "index") == "made"
    assert state_of(photos, tmp_path / "index") == "reused"
    (path,) = (tmp_path / "index").iterdir()
    tensors = load_file(path)
    assert bytes(tensors["names"].numpy()).decode() == "".join(f"a/{i}.png\0" for i in range(4))
    assert tensors["features"].shape == (4, 3 * 32 * 32)


def test_an_image_in_memory_that_is_not_sampled_counts_too(tmp_path):
    subject, images = open_model("pixels"), [Image.new("RGB", (8, 8), (place, 0, 0)) for place in range(100)]
    states = []
    for one in (images[1], images[1], Image.new("RGB", (8, 8), (0, 0, 200))):
        images[1] = one  # 0 and 2 are sampled
        source = Source("mine", "train", images)
        make = partial(features_of, subject, source, workers=0)
        features, state = kept(tmp_path / "index", subject, source, make)
        assert np.array_equal(features.x, make().x)
        states.append(state)
    assert states == ["made", "reused", "made again: it was of other images"]


def changed_pixels(photos):
    path = photos / "train/a/2.png"
    before = path.stat()
    Image.open(path).rotate(90).save(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))


def another_label(photos):
    (photos / "train/b").mkdir()
    (photos / "train/a/3.png").rename(photos / "train/b/3.png")


@pytest.mark.parametrize("change", [changed_pixels, another_label, lambda photos: (photos / "train/a/3.png").unlink()])
def test_other_images_are_another_index(photos, tmp_path, change):
    state_of(photos, tmp_path / "index")
    change(photos)
    assert state_of(photos, tmp_path / "index") == "made again: it was of other images"
    assert state_of(photos, tmp_path / "index") == "reused"


def test_another_model_is_another_index(photos, tmp_path):
    states = [
        state_of(photos, tmp_path / "index", model, **options)
        for model, options in (
            ("timm:resnet10_tiny", {"image_size": 16}),
            ("timm:resnet10_tiny", {"image_size": 16, "seed": 1}),
            ("timm:resnet10_tiny", {"image_size": 24, "seed": 1}),
        )
    ]
    assert states == ["made", *["made again: it was of another model"] * 2]
    # A stem's padding is in no weight.
    subject, source = open_model("timm:resnet10_tiny", image_size=16), open_source(str(photos), "train")
    kept(tmp_path / "padded", subject, source, lambda: features_of(subject, source, workers=0))
    subject.model.conv1.padding = (2, 2)
    again = kept(tmp_path / "padded", subject, source, lambda: features_of(subject, source, workers=0))
    assert again[1] == "made again: it was of another model"


@pytest.mark.parametrize("content", ["a model", "not safetensors", "cut"])
def test_what_is_no_index_is_neither_read_nor_replaced(photos, tmp_path, content):
    path = index_path(tmp_path / "index", open_source(str(photos), "train"))
    state_of(photos, tmp_path / "index")
    if content == "a model":
        save_file({"weight": torch.zeros(2)}, path)
    else:
        path.write_bytes(b"text" if content == "not safetensors" else path.read_bytes()[:-100])
    before = path.read_bytes()
    with pytest.raises(UsageError, match="is no similarity index, or a damaged one"):
        state_of(photos, tmp_path / "index")
    assert path.read_bytes() == before


def test_splits_with_names_of_the_same_letters_have_files_of_their_own(photos, tmp_path):
    source = open_source(str(photos), "train")
    paths = {index_path(tmp_path, source.subset([0, 1]))}
    for split in ("train[:2]", "train[:3]", "train[:1]+train[1:]"):
        paths.add(index_path(tmp_path, open_source(str(photos), split)))
    assert len(paths) == 4 and all(path.parent == tmp_path for path in paths)


def test_similar_asks_the_index(photos, tmp_path, monkeypatch, capsys):
    image = f"{photos}/train/a/1.png"
    options = ["--data", str(photos), "--index", str(tmp_path / "index"), "--workers", "0", "--k", "2"]
    assert main(["similar", "pixels", image, *options]) == 0
    first = capsys.readouterr().out
    asked = []

    def noted(subject, source, **options):
        asked.append(len(source))
        return features_of(subject, source, **options)

    monkeypatch.setattr("ssl_hub.evaluate.embedding.features_of", noted)
    assert main(["similar", "pixels", image, *options]) == 0
    assert capsys.readouterr().out == first and "1.0000" in first
    assert asked == [1]  # the query alone
    with pytest.raises(UsageError, match="the folder .*gone/index does not exist"):
        similar("pixels", image, str(photos), index=tmp_path / "gone" / "index" / "deeper")
