"""Streams: each image once a lap whoever reads it, steps without end, and any stop continued exactly."""

from collections import Counter, deque
from collections.abc import Iterator
from itertools import chain, islice
from weakref import WeakSet

import numpy as np
import pytest
import torch
from torch import Tensor

from ssl_hub.config import View, Views
from ssl_hub.data.shards import Encoded
from ssl_hub.data.streams import (
    Cursor,
    StreamLoader,
    StreamOrder,
    index_of,
    left_over,
    read_too_often,
    steps_per_epoch,
)
from ssl_hub.data.views import TwoViews
from ssl_hub.errors import UsageError
from tests.data.encoded import png


class Numbered:
    """Shards of these sizes; over all shards, image ``i`` has value ``i`` in every pixel."""

    def __init__(self, *sizes: int, broken: tuple[int, ...] = ()) -> None:
        self.sizes, self.broken = sizes, broken
        self.images: int | None = None

    def __len__(self) -> int:
        return len(self.sizes)

    def read(self, shard: int, start: int) -> Iterator[Encoded]:
        for number in range(start, self.sizes[shard]):
            value = sum(self.sizes[:shard]) + number
            yield Encoded(f"image {value}", b"broken" if value in self.broken else png(value))


def order(*sizes: int, rank: int = 0, world: int = 1, window: int = 4, seed: int = 0) -> StreamOrder:
    return StreamOrder(Numbered(*sizes), seed=seed, rank=rank, world=world, window=window)


def taken(stream: StreamOrder, count: int, start: Cursor = Cursor()) -> list[tuple[int, str]]:  # noqa: B008
    return [(key[0], key[1]) for key, _ in islice(stream.after(start), count)]


def first_lap(stream: StreamOrder) -> list[str]:
    keys = []
    for key, cursor in stream.after(Cursor()):
        if cursor.lap:
            return keys
        keys.append(key[1])
    raise AssertionError("a stream has no end")


@pytest.mark.parametrize("sizes", [(23,), (10, 13), (9, 8, 6), (5, 5, 5, 5, 3), (1,) * 23])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_over_all_ranks_each_lap_has_each_image_once(sizes: tuple[int, ...], world: int) -> None:
    laps = [first_lap(order(*sizes, rank=rank, world=world)) for rank in range(world)]
    assert sorted(name for lap in laps for name in lap) == sorted(f"image {i}" for i in range(23))
    assert all(laps)


def test_whole_shards_go_to_ranks_and_what_is_left_is_shared_evenly() -> None:
    sizes = (10,) * 7
    counts = [len(first_lap(order(*sizes, rank=rank, world=3))) for rank in range(3)]
    assert sorted(counts) == [23, 23, 24]


@pytest.mark.parametrize(("shards", "world"), [(12, 4), (13, 4), (7, 4), (10, 3)])
def test_shards_that_are_left_over_are_read_by_every_rank(shards: int, world: int) -> None:
    opened: list[int] = []
    for rank in range(world):
        stream = order(*(4,) * shards, rank=rank, world=world)
        read = stream.shards.read
        stream.shards.read = lambda shard, start, read=read: opened.append(shard) or read(shard, start)  # type: ignore
        deque(stream._lap(Cursor()), maxlen=0)
    assert set(opened) == set(range(shards))
    assert len(opened) / shards == pytest.approx(read_too_often(shards, world))


def test_reading_much_more_than_the_data_is_said() -> None:
    assert left_over(1024, 512) is None and left_over(100, 1) is None and left_over(10_000, 64) is None
    assert left_over(1000, 512) == (
        "1000 shards leave 488 over for 512 processes, each of which reads all of those: 250.4 times the bytes of the"
        " data; make the number of shards a multiple of the processes"
    )


def test_orders_differ_by_seed_and_lap_and_are_shuffled() -> None:
    names = [name for _, name in taken(order(12, 12, window=24), 48)]
    assert sorted(names[:24]) == sorted(names[24:]) and names[:24] != names[24:]
    assert names != [name for _, name in taken(order(12, 12, window=24, seed=1), 48)]
    assert names[:24] != sorted(names[:24])
    assert names == [name for _, name in taken(order(12, 12, window=24), 48)]


def test_a_window_of_one_reads_each_shard_in_its_order() -> None:
    names = [int(name.split()[1]) for _, name in taken(order(6, 6, window=1), 12)]
    assert sorted([names[:6], names[6:]]) == [list(range(6)), list(range(6, 12))]


@pytest.mark.parametrize("world", [1, 2])
def test_any_cursor_continues_exactly(world: int) -> None:
    def stream() -> StreamOrder:
        return order(5, 3, 7, 4, 4, rank=world - 1, world=world)

    straight = list(islice(stream().after(Cursor()), 60))
    for stop, (_, cursor) in enumerate(straight[:40], 1):
        again = list(islice(stream().after(Cursor(*cursor)), 10))
        assert [key[:2] for key, _ in again] == [key[:2] for key, _ in straight[stop : stop + 10]]
        assert [end for _, end in again] == [end for _, end in straight[stop : stop + 10]]


def test_an_index_is_of_one_image_and_no_other() -> None:
    seen = Counter(
        index_of(lap, shard, place) for lap in (0, 1, 7) for shard in (0, 1, 9) for place in (0, 5, 2**28 - 1)
    )
    assert len(seen) == 27 and max(seen) < 2**63
    with pytest.raises(UsageError, match=r"a stream has at most 2\^20 shards"):
        index_of(0, 2**20, 0)


def test_a_share_that_fills_no_batch_is_an_error() -> None:
    with pytest.raises(UsageError, match="reads 1 images in one pass over the stream and needs at least 2"):
        list(islice(StreamOrder(Numbered(2), seed=0, rank=0, world=2, window=4, at_least=2).after(Cursor()), 3))
    with pytest.raises(UsageError, match="data.shuffle_buffer is 0, expected at least 1"):
        order(3, window=0)


UNIT = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
PLAIN = View(crop_scale=(1.0, 1.0), flip=0, jitter=0, grey=0, blur=0, solarise=0)
VARIED = View(crop_scale=(1.0, 1.0), flip=0, jitter=1, grey=0, blur=0)


OPEN: WeakSet[StreamLoader] = WeakSet()


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """Loaders are closed, as training closes them: collected with their workers they would wait for these."""
    yield
    for left in list(OPEN):
        left.close()


def loader(shards: Numbered, view: View = PLAIN, **options: object) -> StreamLoader:
    views = TwoViews(Views(size=8, view1=view, view2=view, **UNIT), seed=0)
    settings = {
        "steps_per_epoch": 6, "batch_size": 2, "seed": 0, "device": "cpu", "workers": 0, "shuffle_buffer": 5, **options,
    }  # fmt: skip
    made = StreamLoader(shards, views, **settings)  # type: ignore[arg-type]
    OPEN.add(made)
    return made


def members(view: Tensor) -> list[int]:
    return (view[:, 0, 0, 0] * 255).round().int().tolist()


def steps(train: StreamLoader, epoch: int = 0, start_step: int = 0) -> list[list[list[int]]]:
    return [[members(first) for first, _ in step] for step in train.epoch(epoch, start_step)]


def test_23_images_over_2_ranks_with_2_workers_each() -> None:
    shards = Numbered(6, 6, 6, 5)
    ranks = [steps(loader(shards, steps_per_epoch=12, rank=rank, world=2, workers=2), epoch=0) for rank in range(2)]
    assert [len(rank) for rank in ranks] == [12, 12]  # as many steps on each
    seen = [image for rank in ranks for step in rank for micro in step for image in micro]
    assert len(seen) == 24
    assert set(seen) == set(range(23))  # 24 places: all are seen, and one begins the next lap


def test_workers_change_nothing() -> None:
    alone = [pair for step in loader(Numbered(7, 7), VARIED).epoch(0) for pair in step]
    helped = [pair for step in loader(Numbered(7, 7), VARIED, workers=2).epoch(0) for pair in step]
    assert len(alone) == 6
    for ours, theirs in zip(alone, helped, strict=True):
        assert torch.equal(ours[0], theirs[0]) and torch.equal(ours[1], theirs[1])
        assert not torch.equal(ours[0], ours[1])


def test_views_belong_to_the_image_and_its_lap() -> None:
    """Whatever the rank, window and batch that an image comes up in."""

    def drawn(count: int, **options: object) -> list[tuple[float, float]]:
        train = loader(Numbered(1, 1, 1, 1), VARIED, steps_per_epoch=count, **options)
        pairs = [pair for step in train.epoch(0) for pair in step]
        return sorted(
            (float(a.mean()), float(b.mean())) for first, second in pairs for a, b in zip(first, second, strict=True)
        )

    whole, ranks = drawn(2, shuffle_buffer=1), drawn(2, rank=0, world=2) + drawn(2, rank=1, world=2)
    assert len(whole) == 4 and np.diff(whole, axis=0)[:, 0].min() > 1e-4
    assert np.abs(np.array(sorted(ranks)) - whole).max() < 1e-6  # batches of other sizes may round otherwise
    twice = np.diff(drawn(4), axis=0)[:, 0]  # the second lap draws anew, but black stays black
    assert (twice > 1e-5).sum() == 6


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stop", [1, 4, 6, 9])
def test_a_saved_place_continues_exactly(workers: int, stop: int) -> None:
    """Workers are batches ahead of training: what counts is what was trained on."""
    options = {"accumulation": 2, "batch_size": 4, "workers": workers}
    straight = loader(Numbered(7, 8, 3), **options)
    expected = steps(straight, 0) + steps(straight, 1)
    stopped = loader(Numbered(7, 8, 3), **options)
    both = chain.from_iterable(stopped.epoch(epoch) for epoch in range(2))
    done = [[members(first) for first, _ in step] for step in islice(both, stop)]
    resumed = loader(Numbered(7, 8, 3), **options)
    resumed.load_state(stopped.state())
    epoch, start = divmod(stop, 6)
    rest = steps(resumed, epoch, start) + (steps(resumed, 1) if epoch == 0 else [])
    assert done + rest == expected


def test_a_bad_image_is_an_error_or_stood_in_for() -> None:
    with pytest.raises(UsageError, match="^image 3 is not an image that can be read"):
        steps(loader(Numbered(6, broken=(3,))))
    options = {"batch_size": 3, "steps_per_epoch": 2, "shuffle_buffer": 6}
    whole = steps(loader(Numbered(6), **options))
    tolerant = loader(Numbered(6, broken=(3,)), max_bad_images=1, workers=2, **options)
    found = steps(tolerant)
    assert tolerant.bad is not None and list(tolerant.bad.found.values()) == [
        "image 3 is not an image that can be read; replace it or remove it"
    ]
    for (with_all,), (without,) in zip(whole, found, strict=True):
        place = with_all.index(3) if 3 in with_all else None
        expected = list(with_all)
        if place is not None:
            expected[place] = with_all[(place + 1) % 3]
        assert without == expected
    with pytest.raises(UsageError, match="2 images cannot be read, more than data.max_bad_images=1; the last: image "):
        steps(loader(Numbered(6, broken=(1, 3)), max_bad_images=1, **options))
    with pytest.raises(UsageError, match="none of the 3 images of a batch can be read; the first: image"):
        steps(loader(Numbered(3, broken=(0, 1, 2)), max_bad_images=9, **options))


def test_steps_of_an_epoch() -> None:
    assert steps_per_epoch(100, 32, epochs=5, max_steps=None) == 3
    assert steps_per_epoch(None, 32, epochs=4, max_steps=10) == 3
    assert steps_per_epoch(None, 32, epochs=400, max_steps=10) == 1
    with pytest.raises(UsageError, match="does not say how many images it has.*set train.max_steps, for example"):
        steps_per_epoch(None, 32, epochs=4, max_steps=None)
    with pytest.raises(UsageError, match="batch_size 64 is larger than the 30 images of the stream; set .* at most 30"):
        steps_per_epoch(30, 64, epochs=1, max_steps=None)


def test_batches_must_be_even() -> None:
    with pytest.raises(UsageError, match="batch_size 3 does not split evenly over 2 processes x 1 accumulation"):
        loader(Numbered(9), batch_size=3, world=2)
