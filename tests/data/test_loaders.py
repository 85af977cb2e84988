"""Loaders: an order by (seed, epoch) alone, steps that no split of the work changes, both paths alike, none lost."""

import multiprocessing
import pickle
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from PIL import Image
from torch import Tensor

from ssl_hub.config import View, Views
from ssl_hub.data.images import Source
from ssl_hub.data.loaders import TrainLoader, epoch_order, eval_batches
from ssl_hub.data.sources import open_source
from ssl_hub.data.stored import Files, Pixels
from ssl_hub.data.views import TwoViews, eval_transform
from ssl_hub.data.workers import Batches
from ssl_hub.errors import UsageError

UNIT = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
PLAIN = View(crop_scale=(1.0, 1.0), flip=0, jitter=0, grey=0, blur=0, solarise=0)
SMOOTH = View(crop_scale=(0.5, 1.0), blur=0)


def flat(count: int, side: int = 8) -> Source:
    """Image ``i`` has value ``i`` in every pixel, so that a batch says which images are in it."""
    values = np.arange(count, dtype=np.uint8)[:, None, None, None]
    return Source("flat", "train", Pixels(np.broadcast_to(values, (count, side, side, 3)).copy()))


def files(folder: Path, count: int, side: int = 8) -> Source:
    for i in range(count):
        Image.new("RGB", (side, side), (i, i, i)).save(folder / f"{i:03}.png")
    return Source("files", "train", Files(folder, [f"{i:03}.png" for i in range(count)]))


def loader(
    source: Source, view: View = PLAIN, *, batch_size: int = 8, resident: bool = True, **options: object
) -> TrainLoader:
    views = TwoViews(Views(size=8, view1=view, view2=view, **UNIT), seed=0)
    settings = {"workers": 0, "seed": 0, "device": "cpu", **options}
    memory = 2**30 if resident else 0
    if not resident:
        source = Source(source.name, source.split, _Unheld(source))
    return TrainLoader(source, views, batch_size=batch_size, resident_bytes=memory, **settings)  # type: ignore[arg-type]


class _Unheld:
    """Images that are not an array, so that they take the worker path."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, position: int) -> Image.Image:
        return self.source.image(position)


def members(view: Tensor) -> list[int]:
    return (view[:, 0, 0, 0] * 255).round().int().tolist()


def epoch_members(train: TrainLoader, epoch: int, start_step: int = 0) -> list[list[list[int]]]:
    return [[members(first) for first, _ in step] for step in train.epoch(epoch, start_step)]


def test_order_is_a_permutation_by_seed_and_epoch() -> None:
    order = epoch_order(100, seed=3, epoch=5)
    assert sorted(order.tolist()) == list(range(100))
    assert order.tolist() == epoch_order(100, seed=3, epoch=5).tolist()
    assert order.tolist() != epoch_order(100, seed=3, epoch=6).tolist()
    assert order.tolist() != epoch_order(100, seed=4, epoch=5).tolist()


@pytest.mark.parametrize("resident", [True, False])
def test_epochs_see_each_image_once(resident: bool) -> None:
    train = loader(flat(65), batch_size=32, resident=resident)
    assert train.resident is resident and train.steps_per_epoch == 2
    epochs = [np.array(epoch_members(train, epoch)).ravel().tolist() for epoch in (0, 1)]
    for seen in epochs:
        assert len(set(seen)) == len(seen) == 64
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize("resident", [True, False])
def test_65_images_in_batches_of_32_on_two_ranks(resident: bool) -> None:
    ranks = [epoch_members(loader(flat(65), batch_size=32, resident=resident, rank=r, world=2), 0) for r in range(2)]
    assert [[len(micro) for step in rank for micro in step] for rank in ranks] == [[16, 16]] * 2
    assert len(set(np.array(ranks).ravel().tolist())) == 64


@pytest.mark.parametrize(("world", "accumulation"), [(2, 1), (1, 4), (2, 2), (4, 2)])
def test_a_step_has_the_same_views_however_the_work_is_split(world: int, accumulation: int) -> None:
    source = flat(40)
    alone = [next(iter(step)) for step in loader(source, SMOOTH, batch_size=16).epoch(1)]
    ranks = [
        loader(source, SMOOTH, batch_size=16, world=world, rank=rank, accumulation=accumulation)
        for rank in range(world)
    ]
    assert ranks[0].micro_batch_size == 16 // (world * accumulation)
    steps = list(zip(*([list(step) for step in rank.epoch(1)] for rank in ranks), strict=True))
    assert len(steps) == len(alone) == 2
    for (first, second), by_rank in zip(alone, steps, strict=True):
        pairs = [by_rank[rank][a] for a in range(accumulation) for rank in range(world)]
        assert (torch.cat([pair[0] for pair in pairs]) - first).abs().max() < 1e-5
        assert (torch.cat([pair[1] for pair in pairs]) - second).abs().max() < 1e-5
    with_views = {round(float(v), 6) for v in alone[0][0][:, 0, 0, 0]} ^ {
        round(float(v), 6) for v in alone[0][1][:, 0, 0, 0]
    }
    assert with_views  # the two views of an image differ


@pytest.mark.parametrize("resident", [True, False])
@pytest.mark.parametrize("start_step", [0, 3, 7, 8])
def test_starting_in_the_middle_gives_the_rest(resident: bool, start_step: int) -> None:
    source = flat(64)
    straight = epoch_members(loader(source, resident=resident, accumulation=2), 1)
    resumed = loader(source, resident=resident, accumulation=2)
    assert epoch_members(resumed, 1, start_step) == straight[start_step:]
    assert epoch_members(resumed, 2) == epoch_members(loader(source, resident=resident, accumulation=2), 2)


@pytest.mark.parametrize("resident", [True, False])
def test_a_step_left_early_does_not_shift_the_next(resident: bool) -> None:
    whole = epoch_members(loader(flat(32), resident=resident, accumulation=4), 0)
    firsts = [members(next(step)[0]) for step in loader(flat(32), resident=resident, accumulation=4).epoch(0)]
    assert firsts == [step[0] for step in whole]


def test_views_are_made_one_micro_batch_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    original = TwoViews.__call__
    monkeypatch.setattr(TwoViews, "__call__", lambda self, *a: (calls.append(len(a[1])), original(self, *a))[1])
    step = next(loader(flat(32), accumulation=4).epoch(0))
    assert calls == []
    next(step)
    assert calls == [2]


def test_workers_give_what_one_process_gives() -> None:
    source = open_source("digits", "train").subset(slice(0, 48))
    expected = [pair for step in loader(source, SMOOTH, resident=False).epoch(0) for pair in step]
    train = loader(source, SMOOTH, resident=False, workers=2)
    next(next(train.epoch(0)))  # one batch, then the epoch is left
    for _ in range(2):  # persistent workers: the second time they exist already
        got = [pair for step in train.epoch(0) for pair in step]
        assert len(got) == len(expected) == 6
        for ours, theirs in zip(got, expected, strict=True):
            assert torch.equal(ours[0], theirs[0]) and torch.equal(ours[1], theirs[1])


def test_both_paths_give_the_same_views() -> None:
    source = open_source("digits", "train").subset(slice(0, 16))
    pairs = zip(
        next(loader(source, SMOOTH).epoch(0)), next(loader(source, SMOOTH, resident=False).epoch(0)), strict=True
    )
    for (first, second), (other_first, other_second) in pairs:
        assert (first - other_first).abs().max() < 4 / 255 and (second - other_second).abs().max() < 4 / 255


@pytest.mark.parametrize("workers", [0, 2])
def test_global_randomness_is_left_alone(tmp_path: Path, workers: int) -> None:
    source = files(tmp_path, 8, side=200)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    for resident in (True, False):
        list(loader(source, SMOOTH, resident=resident, workers=workers).epoch(0))
    list(eval_batches(source, eval_transform(size=8, **UNIT), batch_size=4, workers=workers))
    assert torch.equal(torch.get_rng_state(), before)


def test_what_workers_get_survives_spawn(tmp_path: Path) -> None:
    train = loader(files(tmp_path, 8), resident=False)
    list(train.epoch(0))
    assert train._loader is not None
    batches: Batches = pickle.loads(pickle.dumps(train._loader._loader.dataset))
    result = batches.__getitems__([(0, 3), (0, 5)])
    assert not isinstance(result, UsageError)
    assert result.indices.tolist() == [3, 5] and result.tensors[0].shape == (2, 8, 8, 3)


def test_one_size_in_memory_else_workers(tmp_path: Path) -> None:
    source = files(tmp_path, 10)
    views = TwoViews(Views(size=8, view1=PLAIN, view2=PLAIN, **UNIT), seed=0)

    def built(resident_bytes: int) -> TrainLoader:
        return TrainLoader(source, views, batch_size=2, seed=0, device="cpu", workers=0, resident_bytes=resident_bytes)

    assert built(10 * 3 * 64).resident
    assert not built(10 * 3 * 64 - 1).resident
    Image.new("RGB", (9, 8)).save(tmp_path / "009.png")
    assert not built(2**30).resident


def test_channels_last() -> None:
    first, second = next(next(loader(flat(8), channels_last=True).epoch(0)))
    assert first.is_contiguous(memory_format=torch.channels_last)
    assert second.is_contiguous(memory_format=torch.channels_last) and first.shape == (8, 3, 8, 8)


def test_batches_must_be_full_and_even() -> None:
    text = r"batch_size 64 is larger than the 30 images of flat \(split 'train'\); set train.batch_size to at most 30"
    with pytest.raises(UsageError, match=text):
        loader(flat(30), batch_size=64)
    text = r"batch_size 8 does not split evenly over 3 processes x 2 accumulation steps; .* a multiple of 6"
    with pytest.raises(UsageError, match=text):
        loader(flat(30), world=3, accumulation=2)


def complaint(run: Callable[[], object]) -> str:
    """The error's text alone: the error would keep worker processes alive through its traceback."""
    try:
        run()
    except UsageError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("workers", [0, 2])
def test_bad_image_is_one_line(tmp_path: Path, workers: int) -> None:
    source = files(tmp_path, 8, side=200)
    (tmp_path / "005.png").write_text("x")
    expected = f"{tmp_path / '005.png'} is not an image that can be read; replace it or remove it"
    train = loader(source, resident=False, workers=workers)
    assert complaint(lambda: [list(step) for step in train.epoch(0)]) == expected
    transform = eval_transform(size=8, **UNIT)
    assert complaint(lambda: list(eval_batches(source, transform, batch_size=4, workers=workers))) == expected


MODES = ("L", "LA", "P", "RGB", "RGBA", "CMYK", "1")


@pytest.mark.parametrize("resident", [True, False])
def test_a_folder_of_all_colour_modes_is_one_batch(tmp_path: Path, resident: bool) -> None:
    for mode in MODES:
        image = Image.new("RGB", (12, 12), (90, 90, 90)).convert(mode)
        options = {"transparency": 0} if mode == "P" else {}
        image.save(tmp_path / f"{mode}.{'tif' if mode == 'CMYK' else 'png'}", **options)
    source = open_source(str(tmp_path), "train")
    first, second = next(next(loader(source, batch_size=7, resident=resident).epoch(0)))
    assert first.shape == second.shape == (7, 3, 8, 8)
    batches = list(eval_batches(source, eval_transform(size=8, **UNIT), batch_size=16, workers=0))
    assert len(batches) == 1 and batches[0][0].shape == (7, 3, 8, 8)


@pytest.mark.parametrize("resident", [True, False])
def test_one_pixel_is_an_image_too(tmp_path: Path, resident: bool) -> None:
    source = files(tmp_path, 2, side=1)
    first, second = next(next(loader(source, View(), batch_size=2, resident=resident).epoch(0)))
    assert first.shape == second.shape == (2, 3, 8, 8) and bool(
        torch.isfinite(first).all() and torch.isfinite(second).all()
    )
    images, _ = next(eval_batches(source, eval_transform(size=8, **UNIT), batch_size=2, workers=0))
    assert members(images) == [0, 1]


@pytest.mark.parametrize("kind", ["array", "files", "large files"])
def test_evaluation_sees_every_image_once_in_order(tmp_path: Path, kind: str) -> None:
    source = flat(23) if kind == "array" else files(tmp_path, 23, side=150 if "large" in kind else 10)
    transform = eval_transform(size=8, **UNIT)
    for workers in (0, 2):
        batches = list(eval_batches(source, transform, batch_size=8, workers=workers))
        assert [len(indices) for _, indices in batches] == [8, 8, 7]
        assert np.concatenate([indices for _, indices in batches]).tolist() == list(range(23))
        assert [m for images, _ in batches for m in members(images)] == list(range(23))
    assert list(eval_batches(source.subset([]), transform, batch_size=8)) == []
    part = list(eval_batches(source.subset([4, 2]), transform, batch_size=8, workers=0))
    assert members(part[0][0]) == [4, 2] and part[0][1].tolist() == [0, 1]


def test_small_images_of_different_sizes_and_other_transforms(tmp_path: Path) -> None:
    source = files(tmp_path, 4, side=10)
    Image.new("RGB", (30, 20), (2, 2, 2)).save(tmp_path / "002.png")
    images, _ = next(eval_batches(source, eval_transform(size=8, **UNIT), batch_size=4, workers=0))
    assert members(images) == [0, 1, 2, 3]
    own = lambda image: torch.full((3, 2, 2), image.getpixel((0, 0))[0] / 255)  # noqa: E731
    images, _ = next(eval_batches(source, own, batch_size=4, workers=0))
    assert members(images) == [0, 1, 2, 3]


def test_no_worker_outlives_its_loader() -> None:
    before = set(multiprocessing.active_children())
    train = loader(flat(16), resident=False, workers=2)
    list(train.epoch(0))
    own = set(multiprocessing.active_children()) - before
    assert own
    ended = weakref.ref(train)
    del train  # and no reference cycle keeps it: the collector would end its workers in an order that takes seconds
    assert ended() is None
    for child in own:
        child.join(60)  # where other processes are busy, its end takes as long as theirs
        assert not child.is_alive()


def test_a_worker_does_not_grow() -> None:
    """Tensors that the queue has to move to shared memory leave holes behind: about a batch for each batch."""

    class Large:
        def __len__(self) -> int:
            return 400

        def __getitem__(self, position: int) -> Image.Image:
            return Image.new("RGB", (4, 4))

    views = TwoViews(Views(size=96, view1=PLAIN, view2=PLAIN, **UNIT), seed=0)
    source = Source("large", "train", Large())
    train = TrainLoader(source, views, batch_size=40, seed=0, device="cpu", workers=1, resident_bytes=0)
    before = set(psutil.Process().children())
    sizes = []
    for epoch in range(4):
        list(map(list, train.epoch(epoch)))
        sizes.append([p.memory_info().rss for p in psutil.Process().children() if p not in before])
    assert len(sizes[0]) == 1
    assert sizes[-1][0] - sizes[1][0] < 8 * 2**20  # 20 batches of 2 MB


def test_views_of_several_batches_at_once_are_the_same_and_so_is_a_resumed_epoch() -> None:
    def pairs(at_once: int, start_step: int = 0) -> list[tuple[Tensor, Tensor]]:
        train = loader(flat(80), SMOOTH, batch_size=8, accumulation=2)
        train._at_once = at_once  # what an accelerator does; 1 on a CPU
        return [pair for step in train.epoch(3, start_step) for pair in step]

    one_by_one, together, resumed = pairs(1), pairs(7), pairs(7, start_step=4)
    assert len(one_by_one) == len(together) == 20 and len(resumed) == 12
    for expected, found in zip([*one_by_one, *together[8:]], [*together, *resumed], strict=True):
        for a, b in zip(expected, found, strict=True):
            assert (a - b).abs().max() < 1e-6
