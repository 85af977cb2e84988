"""Unreadable images: stood in for in training, left out of evaluation, counted, capped, and named always."""

from pathlib import Path

import numpy as np
import pytest
import torch

from ssl_hub.config import View, Views
from ssl_hub.data.bad_images import BadImages, skipping, without_bad
from ssl_hub.data.images import Source
from ssl_hub.data.loaders import TrainLoader, eval_batches
from ssl_hub.data.stored import Files, Pixels
from ssl_hub.data.views import TwoViews, eval_transform
from ssl_hub.errors import UsageError
from tests.data.encoded import png

UNIT = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
VARIED = View(crop_scale=(1.0, 1.0), flip=0, jitter=1, grey=0, blur=0)


def folder(root: Path, count: int, *broken: int) -> Source:
    """Image ``i`` has value ``10 i`` in every pixel; the last two of each four are of class b."""
    for number in range(count):
        path = root / "ab"[number // 2 % 2] / f"{number:02}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"broken" if number in broken else png(10 * number))
    names = [f"{'ab'[i // 2 % 2]}/{i:02}.png" for i in range(count)]
    return Source("photos", "train", Files(root, names), classes=["a", "b"], labels=np.arange(count) // 2 % 2)


def reds(source: Source) -> list[int]:
    return [source.image(i).getpixel((0, 0))[0] for i in range(len(source))]  # type: ignore[index]


def train_loader(source: Source, *, resident: bool, **options: object) -> TrainLoader:
    views = TwoViews(Views(size=8, view1=VARIED, view2=VARIED, **UNIT), seed=0)
    settings = {"batch_size": 4, "seed": 0, "device": "cpu", "workers": 0, **options}
    return TrainLoader(source, views, resident_bytes=2**30 if resident else 0, **settings)  # type: ignore[arg-type]


def pairs(loader: TrainLoader, epoch: int = 0, start_step: int = 0) -> list[torch.Tensor]:
    return [torch.stack(pair) for step in loader.epoch(epoch, start_step) for pair in step]


def test_the_next_readable_image_stands_in(tmp_path: Path) -> None:
    source = skipping(folder(tmp_path, 6, 1, 2, 5), 3)
    assert reds(source) == [0, 30, 30, 30, 40, 0]  # after the last comes the first
    assert source.bad is not None and sorted(source.bad.found) == [1, 2, 5]
    assert source.bad.found[5] == f"{tmp_path}/a/05.png is not an image that can be read; replace it or remove it"
    assert source.labels is not None and len(source.labels) == 6


def test_more_than_the_limit_are_an_error(tmp_path: Path) -> None:
    source = skipping(folder(tmp_path, 6, 1, 2, 5), 2)
    with pytest.raises(
        UsageError,
        match=r"^3 images cannot be read, more than data\.max_bad_images=2; the last: .*05\.png is not an im",
    ):
        reds(source)
    nothing = skipping(folder(tmp_path, 3, 0, 1, 2), 9)
    with pytest.raises(UsageError, match=r"^none of the 3 images of photos can be read; see .*00\.png is not"):
        nothing.image(1)
    with pytest.raises(UsageError, match="data.max_bad_images is -1, expected 0 or more"):
        BadImages(-1)
    with pytest.raises(UsageError, match=r"^1 images cannot be read, more than data\.max_bad_images=0"):
        reds(skipping(folder(tmp_path, 3, 1), 0))


@pytest.mark.parametrize("resident", [True, False])
def test_batches_and_all_other_views_stay_as_they_are(tmp_path: Path, resident: bool) -> None:
    (tmp_path / "good").mkdir()
    (tmp_path / "bad").mkdir()
    whole = pairs(train_loader(folder(tmp_path / "good", 8), resident=resident))
    loader = train_loader(skipping(folder(tmp_path / "bad", 8, 3), 1), resident=resident)
    found = pairs(loader)
    assert loader.resident is resident and loader.bad is not None and list(loader.bad.found) == [3]
    differing = [
        (step, sample)
        for step in range(2)
        for sample in range(4)
        if not torch.equal(whole[step][:, sample], found[step][:, sample])
    ]
    assert len(differing) == 1  # and not equal to the views of the image that stands in, which has draws of its own
    every = torch.cat([pair.transpose(0, 1) for pair in found])
    assert len({tuple(views.flatten().tolist()) for views in every}) == 8
    again = pairs(train_loader(skipping(folder(tmp_path / "bad", 8, 3), 1), resident=resident), start_step=1)
    assert torch.equal(again[0], found[1])


def test_every_split_of_the_work_has_the_same_stand_ins(tmp_path: Path) -> None:
    source = folder(tmp_path, 9, 3, 4, 8)
    alone = pairs(train_loader(skipping(source, 9), resident=False, batch_size=8))
    for options in ({"workers": 2}, {"accumulation": 2}):
        split = pairs(train_loader(skipping(source, 9), resident=False, batch_size=8, **options))
        assert same(split, alone)
    ranks = [
        pairs(train_loader(skipping(source, 9), resident=False, batch_size=8, rank=rank, world=2)) for rank in range(2)
    ]
    assert same([*ranks[0], *ranks[1]], alone)


def same(found: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
    """The same views, in batches of other sizes, which may round otherwise."""
    return bool((torch.cat(found, dim=1) - torch.cat(expected, dim=1)).abs().max() < 1e-6)


def test_what_workers_find_is_counted_once_and_capped(tmp_path: Path) -> None:
    source = folder(tmp_path, 12, 0, 3, 7)
    loader = train_loader(skipping(source, 3), resident=False, workers=2, batch_size=2)
    for epoch in range(2):
        pairs(loader, epoch)
    assert loader.bad is not None and sorted(loader.bad.found) == [0, 3, 7]
    capped = train_loader(skipping(source, 2), resident=False, workers=2, batch_size=2)
    with pytest.raises(
        UsageError, match=r"^3 images cannot be read, more than data\.max_bad_images=2; the last: .*png"
    ):
        pairs(capped)


def test_evaluation_leaves_them_out_with_their_labels_and_says_so(tmp_path: Path) -> None:
    source = folder(tmp_path, 8, 1, 6)
    kept = without_bad(source, 2)
    assert reds(kept) == [0, 20, 30, 40, 50, 70]
    assert kept.labels is not None and kept.labels.tolist() == [0, 1, 1, 0, 0, 1]
    assert kept.split == "train without 2 unreadable" and kept.classes == ("a", "b")
    assert source.split == "train" and without_bad(kept, 0) is kept
    with pytest.raises(UsageError, match=r"^2 images cannot be read, more than data\.max_bad_images=1; the last: .*06"):
        without_bad(source, 1)


def test_evaluation_on_its_own_never_drops_one(tmp_path: Path) -> None:
    source = folder(tmp_path, 4, 2)
    with pytest.raises(UsageError, match=r"02\.png is not an image that can be read"):
        list(eval_batches(source, eval_transform(size=8, **UNIT), batch_size=2, workers=0))


def test_images_in_memory_need_no_standing_in() -> None:
    held = Source("held", "train", Pixels(np.zeros((3, 4, 4, 3), np.uint8)))
    assert skipping(held, 5) is held and without_bad(held, 5) is held
