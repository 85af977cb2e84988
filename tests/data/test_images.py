"""A source keeps images and labels in step through subsets, joins, pickling and decoding ahead."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ssl_hub.data.images import Source, decoded, joined
from ssl_hub.data.stored import Files, Pixels
from ssl_hub.errors import UsageError


def numbered(count: int, split: str = "train", labelled: bool = True) -> Source:
    """Image ``i`` has red value ``i`` and label ``i % 3``."""
    pixels = np.zeros((count, 4, 5, 3), np.uint8)
    pixels[..., 0] = np.arange(count)[:, None, None]
    labels = np.arange(count) % 3 if labelled else None
    return Source("numbered", split, Pixels(pixels), classes=["a", "b", "c"] if labelled else None, labels=labels)


def reds(source: Source) -> list[int]:
    return [source.image(i).getpixel((0, 0))[0] for i in range(len(source))]


@pytest.mark.parametrize("indices", [[5, 0, 5], np.array([2, 4]), slice(1, 7, 2), range(3), [], np.arange(8) > 5])
def test_subset(indices: object) -> None:
    whole = numbered(8)
    part = whole.subset(indices)
    expected = np.arange(8)[indices if not isinstance(indices, range) else list(indices)].tolist()
    assert reds(part) == expected
    assert part.labels is not None and part.labels.tolist() == [i % 3 for i in expected]
    assert part.pixels()[:, 0, 0, 0].tolist() == expected  # type: ignore[index]
    assert len(whole) == 8 and reds(whole) == list(range(8))


def test_subset_of_a_subset() -> None:
    part = numbered(8).subset([7, 5, 3]).subset([2, 0])
    assert reds(part) == [3, 7]
    assert part.labels is not None and part.labels.tolist() == [0, 1]


def test_images_outside_are_refused() -> None:
    source = numbered(3)
    for index in (3, -1):
        with pytest.raises(IndexError, match=f"image {index} of 3"):
            source.image(index)
    with pytest.raises(IndexError):
        source.subset([3])


def test_join() -> None:
    both = joined([numbered(3), numbered(2, "extra", labelled=False), numbered(1)], "numbered", "train+extra")
    assert reds(both) == [0, 1, 2, 0, 1, 0]
    assert both.labels is not None and both.labels.tolist() == [0, 1, 2, -1, -1, 0]
    assert joined([numbered(2, labelled=False)] * 2, "n", "s").labels is None
    other = Source("numbered", "odd", Pixels(np.zeros((1, 4, 5, 3), np.uint8)), classes=["z"], labels=[0])
    with pytest.raises(UsageError, match="splits 'train' and 'odd' of numbered have different classes"):
        joined([numbered(3), other], "numbered", "train+odd")


def test_pickle_round_trip(tmp_path: Path) -> None:
    for i in range(3):
        Image.new("RGB", (4, 4), (i, 0, 0)).save(tmp_path / f"{i}.png")
    source = Source("files", "train", Files(tmp_path, [f"{i}.png" for i in range(3)])).subset([2, 1])
    assert reds(pickle.loads(pickle.dumps(source))) == [2, 1]


@pytest.mark.parametrize(
    ("labels", "text"),
    [([0, 1], r"3 images but labels of shape \(2,\)"), ([0, 1, 3], "label 3, expected -1"), ([0, -2, 1], "label -2")],
)
def test_labels_must_fit(labels: list[int], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        Source("bad", "train", Pixels(np.zeros((3, 4, 4, 3), np.uint8)), classes=["a", "b", "c"], labels=labels)


def test_pixels_must_be_rgb() -> None:
    with pytest.raises(UsageError, match=r"images are float64 \[2, 3, 4, 4\], expected uint8 \[N, height, width, 3\]"):
        Pixels(np.zeros((2, 3, 4, 4)))  # type: ignore[arg-type]


def test_decoded_holds_the_same_images(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for i in range(70):
        Image.fromarray(rng.integers(0, 256, (5, 7, 3), dtype=np.uint8)).save(tmp_path / f"{i:02}.png")
    source = Source("files", "train", Files(tmp_path, [f"{i:02}.png" for i in range(70)]))
    held = decoded(source)
    pixels = held.pixels()
    assert pixels is not None and pixels.shape == (70, 5, 7, 3)
    assert all(np.array_equal(pixels[i], np.asarray(source.image(i))) for i in range(70))
    assert decoded(held) is held
    assert decoded(source, limit_bytes=70 * 5 * 7 * 3 - 1) is source
    Image.new("RGB", (7, 6)).save(tmp_path / "69.png")
    assert decoded(source) is source  # one image differs in size
    (tmp_path / "69.png").write_text("x")
    with pytest.raises(UsageError, match=r"69\.png is not an image"):
        decoded(source)
