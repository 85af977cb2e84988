"""Training on data that is read from front to back: an endless, shuffled order that ranks share and a resume finds.

A *lap* is one pass over all shards, in an order drawn for the lap. Whole shards go round the ranks; those that are left
over when the ranks do not divide their number are read by all ranks, each of which takes every so many-th image. So
over all ranks each lap has each image once, whatever the ranks do by way of steps. A rank reads its part of a lap
window by window and shuffles within each, and a thread reads the next window as one is used up. Workers only decode, so
their number changes nothing. What is held beside the images of a window is the order of the shards: nothing grows with
the number of images.

Views are drawn by lap, shard and place in the shard, so they are the same whoever reads the image and when.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple

import torch

from ssl_hub.data.ahead import made_ahead
from ssl_hub.data.bad_images import BadImages
from ssl_hub.data.draws import permutation
from ssl_hub.data.loaders import Crops, Pair, share_of_batch, views_of_crops
from ssl_hub.data.read_ahead import ReadAhead
from ssl_hub.data.shards import Shards
from ssl_hub.data.value_range import ValueRange
from ssl_hub.data.views import TwoViews
from ssl_hub.data.workers import BatchWorkers, StreamBatches, useful_workers
from ssl_hub.errors import UsageError
from ssl_hub.stopping import Interrupted

Key = tuple[int, str, bytes | str]  # an image's index, name and file: what a worker gets

_SHARD_ORDER, _WINDOW_ORDER = 2, 3  # set these permutations' hashes apart from each other and from an epoch's
_TAKEN: Key = (0, "", b"")  # in the place of an image that has left the window, so that its bytes are freed
WORTH_SAYING = 1.5  # times the bytes of the data
_LAP_BITS, _SHARD_BITS, _PLACE_BITS = 15, 20, 28  # of an image's index


class Cursor(NamedTuple):
    """A place in a rank's order: the window that is open, and how many of its images have been taken.

    The window starts at image ``place`` of the lap's ``turn``-th shard.
    """

    lap: int = 0
    turn: int = 0
    place: int = 0
    taken: int = 0


class StreamOrder:
    """The endless order of one rank's images, by (seed, rank, world, window) alone.

    Raises :class:`UsageError` where a lap has fewer than ``at_least`` images for the rank.
    """

    def __init__(
        self,
        shards: Shards,
        *,
        seed: int,
        rank: int,
        world: int,
        window: int,
        at_least: int = 1,
        gives_way: bool = False,
    ) -> None:
        if window < 1:
            raise UsageError(f"data.shuffle_buffer is {window}, expected at least 1 image")
        self.shards, self.seed, self.rank, self.world, self.window = shards, seed, rank, world, window
        self.at_least, self.gives_way = at_least, gives_way

    def after(self, cursor: Cursor) -> Generator[tuple[Key, Cursor]]:
        """Images from ``cursor`` on, each with the cursor that follows it.

        A thread reads on meanwhile, into what the images that have been taken leave free of the window, and two
        batches beyond; it ends when this is closed. See :class:`~ssl_hub.data.read_ahead.ReadAhead` for
        ``gives_way``.
        """
        most = self.window + 2 * self.at_least + 1
        with closing(ReadAhead(self._laps(cursor), most, gives_way=self.gives_way)) as images:
            while True:
                count = 0
                for opened, window in self._windows(iter(images.__next__, None)):
                    order = permutation(len(window), self.seed, *opened[:3], _WINDOW_ORDER)
                    taken = cursor.taken if opened[:3] == cursor[:3] else 0
                    images.release(taken)
                    for number in range(taken, len(window)):
                        key, window[order[number]] = window[order[number]], _TAKEN
                        images.release()
                        yield key, opened._replace(taken=number + 1)
                    count += len(window)
                images.release()  # the end of the lap
                if count < self.at_least and cursor[1:] == (0, 0, 0):
                    raise UsageError(
                        f"a process reads {count} images in one pass over the stream and needs at least "
                        f"{self.at_least}; lower train.batch_size or start fewer processes"
                    )
                cursor = Cursor(cursor.lap + 1)

    def _windows(self, images: Iterator[tuple[Cursor, Key]]) -> Iterator[tuple[Cursor, list[Key]]]:
        """What is left of a lap in windows, each with where it starts."""
        while head := next(images, None):
            at, first = head
            yield at, [first, *(key for _, key in islice(images, self.window - 1))]

    def _laps(self, start: Cursor) -> Iterator[tuple[Cursor, Key] | None]:
        """This rank's images from ``start`` on without end, with None after each lap."""
        while True:
            yield from self._lap(start)
            yield None
            start = Cursor(start.lap + 1)

    def _lap(self, start: Cursor) -> Iterator[tuple[Cursor, Key]]:
        """This rank's images of a lap from ``start`` on, each with its own place."""
        order = permutation(len(self.shards), self.seed, start.lap, _SHARD_ORDER)
        whole = len(order) - len(order) % self.world
        for turn in range(start.turn, len(order)):
            is_shared = turn >= whole
            if not is_shared and turn % self.world != self.rank:
                continue
            shard, begin = int(order[turn]), start.place if turn == start.turn else 0
            for place, image in enumerate(self.shards.read(shard, begin), begin):
                if not is_shared or (place + turn) % self.world == self.rank:
                    yield Cursor(start.lap, turn, place), (index_of(start.lap, shard, place), *image)


def read_too_often(shards: int, world: int) -> float:
    """Bytes that all ranks read of a lap over its bytes, where shards are of one size: each reads what is left over."""
    left = shards % world
    return (shards - left + left * world) / shards


def left_over(shards: int, world: int) -> str | None:
    """What to say where shards that are left over make ranks read much more than the data; None elsewhere."""
    ratio = read_too_often(shards, world)
    if ratio <= WORTH_SAYING:
        return None
    return (
        f"{shards} shards leave {shards % world} over for {world} processes, each of which reads all of those:"
        f" {ratio:.1f} times the bytes of the data; make the number of shards a multiple of the processes"
    )


def index_of(lap: int, shard: int, place: int) -> int:
    """One number for an image of a lap, which its views are drawn by."""
    if shard >> _SHARD_BITS or place >> _PLACE_BITS:
        raise UsageError(f"image {place} of shard {shard}: a stream has at most 2^20 shards of at most 2^28 images")
    return (lap % 2**_LAP_BITS << _SHARD_BITS | shard) << _PLACE_BITS | place


def steps_per_epoch(images: int | None, batch_size: int, *, epochs: int, max_steps: int | None) -> int:
    """Steps that are called an epoch of a stream: those of one lap or, where its length is not known, of the run's.

    ``max_steps`` then has to say how long the run is; it is shared out over ``epochs``, so that what goes by epochs
    (warm-up, kNN, checkpoints) goes by the same shares of the run. Raises :class:`UsageError` where it is missing, and
    where a lap does not fill a batch.
    """
    if images is None:
        if max_steps is None:
            raise UsageError(
                "the stream does not say how many images it has, so train.epochs has no meaning; set train.max_steps, "
                "for example train.max_steps=100000"
            )
        return max(-(-max_steps // max(epochs, 1)), 1)
    if images < batch_size:
        raise UsageError(
            f"batch_size {batch_size} is larger than the {images} images of the stream; "
            f"set train.batch_size to at most {images}"
        )
    return images // batch_size


class StreamLoader:
    """Micro-batches of one rank from a stream, as :class:`~ssl_hub.data.loaders.Loader`.

    The order has no end and batches do not stop at a lap's, so every batch is full and every rank takes as many steps
    as it is asked for; ``steps_per_epoch`` only says what is called an epoch. With ``max_bad_images``, up to so many
    unreadable images are stood in for; None makes the first an error.

    A signal to stop ends the wait for a batch with :class:`Interrupted`, where no part of a step can have been done: of
    several processes others may be in it, and with accumulation this one.
    """

    resident = False

    def __init__(
        self,
        shards: Shards,
        views: TwoViews,
        *,
        steps_per_epoch: int,
        batch_size: int,
        accumulation: int = 1,
        rank: int = 0,
        world: int = 1,
        seed: int,
        device: torch.device | str,
        workers: int = 8,
        channels_last: bool = False,
        shuffle_buffer: int = 4096,
        max_bad_images: int | None = None,
        value_range: str = "auto",
    ) -> None:
        self.micro_batch_size = share_of_batch(batch_size, world, accumulation)
        self.steps_per_epoch = steps_per_epoch
        self.accumulation = accumulation
        self.bad = None if max_bad_images is None else BadImages(max_bad_images)
        self.views = views
        self._values = ValueRange.parse(value_range)
        self.device = torch.device(device)
        self._workers = useful_workers(workers, steps_per_epoch * accumulation)
        self.order = StreamOrder(
            shards,
            seed=seed,
            rank=rank,
            world=world,
            window=shuffle_buffer,
            at_least=self.micro_batch_size,
            gives_way=world == 1 and accumulation == 1,
        )
        self._memory_format = torch.channels_last if channels_last else torch.contiguous_format
        self._cursor = Cursor()
        self._images: Generator[tuple[Key, Cursor]] | None = None
        self._loader: BatchWorkers | None = None
        self._batches: Iterator[tuple[Pair, Cursor]] | None = None

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[Iterator[Pair]]:
        """The next ``steps_per_epoch - start_step`` steps, from where the last one ended."""
        if self._batches is None:
            self._batches = self._from_cursor()
        for _ in range(start_step, self.steps_per_epoch):
            step = self._step(self._batches)
            yield step
            for _ in step:  # what the caller left of this step
                pass

    def state(self) -> list[int]:
        """Where the steps taken end in this rank's order."""
        return list(self._cursor)

    def load_state(self, state: list[int]) -> None:
        self.close()
        self._cursor = Cursor(*state)

    def close(self) -> None:
        """See :class:`~ssl_hub.data.loaders.Loader`."""
        self._batches = None
        if self._loader is not None:
            self._loader.close()
        if self._images is not None:
            self._images.close()

    def _step(self, batches: Iterator[tuple[Pair, Cursor]]) -> Iterator[Pair]:
        for pair, cursor in islice(batches, self.accumulation):
            self._cursor = cursor
            yield pair

    def _from_cursor(self) -> Iterator[tuple[Pair, Cursor]]:
        # Workers are ahead of training, so each batch's cursor waits here until the batch has come back.
        ends: deque[Cursor] = deque()
        self._images = self.order.after(self._cursor)
        failed: list[UsageError | Interrupted] = []
        keys = _batched(self._images, self.micro_batch_size, ends.append, failed.append)
        batches = StreamBatches(Crops(self.views), tolerant=self.bad is not None, arrays=True, values=self._values)
        self._loader = BatchWorkers(batches, keys, self._workers, self.device, persistent=False, bad=self.bad)
        finish = partial(views_of_crops, self.views, epoch=0, device=self.device, memory_format=self._memory_format)
        made = ((finish(crops, indices), ends.popleft()) for crops, indices in self._loader)
        return made_ahead(chain(made, _raised(failed)), self.device)


def _raised(failed: list[UsageError | Interrupted]) -> Iterator[Any]:
    yield from ()
    raise failed[0]  # a stream has no other end


def _batched(
    images: Iterator[tuple[Key, Cursor]],
    size: int,
    ended: Callable[[Cursor], None],
    failed: Callable[[UsageError | Interrupted], None],
) -> Iterator[list[Key]]:
    """Keys in batches, up to an error, which is told and not raised: where workers are started, the first batches are
    asked for, and what is raised there leaves workers that nobody ends."""
    while True:
        try:
            batch = list(islice(images, size))
        except (UsageError, Interrupted) as error:
            failed(error)
            return
        ended(batch[-1][1])
        yield [key for key, _ in batch]
