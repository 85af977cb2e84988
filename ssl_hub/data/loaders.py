"""Batches: two views of each image for training, one transformed image for evaluation."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from ssl_hub.data.ahead import made_ahead
from ssl_hub.data.bad_images import BadImages
from ssl_hub.data.draws import permutation
from ssl_hub.data.images import Source, decoded, decoding_threads
from ssl_hub.data.views import EvalTransform, TwoViews
from ssl_hub.data.workers import Batches, BatchWorkers, useful_workers
from ssl_hub.errors import UsageError
from ssl_hub.limits import COUNT
from ssl_hub.model.devices import to_device

Pair = tuple[Tensor, Tensor]

_SMALL_SIDE = 128  # pixels; images up to this are decoded by threads: sending them between processes costs more
_VIEWS_AT_ONCE = 32 * 2**20  # bytes of one view's float images
_ORDER = 1  # sets the permutation's hashes apart from the views', which have more counters


class Loader(Protocol):
    """Micro-batches of one rank, step by step. What ``TrainLoader`` and ``streams.StreamLoader`` have in common."""

    steps_per_epoch: int
    micro_batch_size: int
    bad: BadImages | None  # where unreadable images are stood in for, those that this process met

    @property
    def resident(self) -> bool:
        """Whether all images lie on the device, decoded."""
        ...

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[Iterator[Pair]]:
        """For each optimiser step from ``start_step`` on, an iterator over its ``accumulation`` micro-batches.

        Views are made when they are asked for, so one micro-batch is alive at a time; on an accelerator two more, see
        :func:`~ssl_hub.data.ahead.made_ahead`. Each step's iterator is to be used up, or left, before the next step is
        taken.
        """
        ...

    def state(self) -> list[int]:
        """What a later process needs to go on exactly from here, beside the number of steps taken."""
        ...

    def load_state(self, state: list[int]) -> None: ...

    def close(self) -> None:
        """End the worker processes, where there are any."""
        ...


def share_of_batch(batch_size: int, world: int, accumulation: int) -> int:
    """Images in a micro-batch of one rank, or :class:`UsageError` where the total does not split evenly."""
    COUNT.check("batch_size", batch_size)
    if batch_size % (world * accumulation):
        raise UsageError(
            f"batch_size {batch_size} does not split evenly over {world} processes x {accumulation} accumulation "
            f"steps; set train.batch_size to a multiple of {world * accumulation}"
        )
    return batch_size // (world * accumulation)


def epoch_order(length: int, *, seed: int, epoch: int) -> NDArray[np.int64]:
    """The order of images in one epoch: a permutation of ``range(length)`` by (seed, epoch) alone."""
    return permutation(length, seed, epoch, _ORDER)


class TrainLoader:
    """Micro-batches of one rank: two float views ``[b, 3, S, S]`` on the device, in an order by (seed, epoch) alone.

    Step ``k`` of an epoch takes images ``order[k * B : (k + 1) * B]`` (``B``: ``batch_size``, over all ranks and
    accumulation), and the remainder of the permutation is left out, so that every batch is full. Micro-batch ``a`` of a
    rank is slice ``a * world + rank`` of that, so any split of the work gives a step the same images and views.

    Images that share one size and fit ``resident_bytes`` are decoded once and stay on the device (``resident``); else
    worker processes decode and crop, and the device does the rest.

    Raises :class:`UsageError` where ``batch_size`` does not split evenly or exceeds the number of images.
    """

    def __init__(
        self,
        source: Source,
        views: TwoViews,
        *,
        batch_size: int,
        accumulation: int = 1,
        rank: int = 0,
        world: int = 1,
        seed: int,
        device: torch.device | str,
        workers: int = 8,
        channels_last: bool = False,
        resident_bytes: int = 4 * 2**30,
    ) -> None:
        self.micro_batch_size = share_of_batch(batch_size, world, accumulation)
        if len(source) < batch_size:
            raise UsageError(
                f"batch_size {batch_size} is larger than the {len(source)} images of {source.name} "
                f"(split {source.split!r}); set train.batch_size to at most {len(source)}"
            )
        self.source = source
        self.bad = source.bad
        self.views = views
        self.batch_size = batch_size
        self.accumulation = accumulation
        self.rank, self.world = rank, world
        self.seed = seed
        self.device = torch.device(device)
        self.steps_per_epoch = len(source) // batch_size
        self._memory_format = torch.channels_last if channels_last else torch.contiguous_format
        self._workers = useful_workers(workers, self.steps_per_epoch * accumulation)
        # An accelerator makes views of several micro-batches at once: small kernels cost more to launch than to run.
        view_bytes = self.micro_batch_size * 4 * 3 * views.views.size**2
        self._at_once = 1 if self.device.type == "cpu" else max(1, _VIEWS_AT_ONCE // view_bytes)
        self._keys = EpochKeys()
        self._loader: BatchWorkers | None = None
        pixels = decoded(source, resident_bytes).pixels()
        self._pixels = None if pixels is None else _channels_first(pixels, self.device)

    @property
    def resident(self) -> bool:
        """Whether all images lie on the device, decoded."""
        return self._pixels is not None

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[Iterator[Pair]]:
        """See :class:`Loader`."""
        pairs = self._from_device(epoch, start_step) if self.resident else self._from_workers(epoch, start_step)
        pairs = made_ahead(pairs, self.device)
        for _ in range(start_step, self.steps_per_epoch):
            step = islice(pairs, self.accumulation)
            yield step
            for _ in step:  # what the caller left of this step
                pass

    def state(self) -> list[int]:
        """Nothing: the order is a pure function of the step."""
        return []

    def load_state(self, state: list[int]) -> None:
        assert not state, "the order is a pure function of the step"

    def close(self) -> None:
        """See :class:`Loader`."""
        if self._loader is not None:
            self._loader.close()

    def _indices(self, epoch: int, start_step: int) -> list[NDArray[np.int64]]:
        """This rank's micro-batches of image indices, from ``start_step`` on."""
        order = epoch_order(len(self.source), seed=self.seed, epoch=epoch)[: self.steps_per_epoch * self.batch_size]
        shape = (self.steps_per_epoch, self.accumulation, self.world, self.micro_batch_size)
        return list(order.reshape(shape)[start_step:, :, self.rank].reshape(-1, self.micro_batch_size))

    def _from_device(self, epoch: int, start_step: int) -> Iterator[Pair]:
        assert self._pixels is not None
        batches, start = self._indices(epoch, 0), start_step * self.accumulation
        left_out = start % self._at_once  # groups lie alike in every epoch, so that a resumed one repeats their bits
        for first in range(start - left_out, len(batches), self._at_once):
            indices = np.concatenate(batches[first : first + self._at_once])
            images = self._pixels[to_device(indices, self.device)]
            pair = (self._arranged(view).split(self.micro_batch_size) for view in self.views(images, indices, epoch))
            yield from islice(zip(*pair, strict=True), left_out, None)
            left_out = 0

    def _from_workers(self, epoch: int, start_step: int) -> Iterator[Pair]:
        batches = self._indices(epoch, start_step)
        # The epoch travels with each index, because persistent workers keep the data set they started with.
        self._keys.epoch, self._keys.batches = epoch, batches
        if self._loader is None:
            cutting = Batches(self.source, Crops(self.views), arrays=True)
            self._loader = BatchWorkers(cutting, self._keys, self._workers, self.device, persistent=True, bad=self.bad)
        for crops, indices in self._loader:
            yield views_of_crops(self.views, crops, indices, epoch, self.device, self._memory_format)

    def _arranged(self, view: Tensor) -> Tensor:
        return view.contiguous(memory_format=self._memory_format)


class EpochKeys:
    """Batches of (epoch, index), what a worker gets of each image, made of arrays of indices when they are asked for.

    As a list of Python objects they would take 92 bytes an image.
    """

    def __init__(self, batches: Sequence[NDArray[np.int64]] = ()) -> None:
        self.epoch = 0
        self.batches = batches

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        epoch = self.epoch
        return ([(epoch, index) for index in indices.tolist()] for indices in self.batches)


def views_of_crops(
    views: TwoViews,
    crops: Sequence[Tensor],
    indices: NDArray[np.int64],
    epoch: int,
    device: torch.device,
    memory_format: torch.memory_format,
) -> Pair:
    """The two views of a batch of both crops, which workers cut: the rest of the augmentation, on the device."""
    first, second = (
        views.photometric(crop.to(device, non_blocking=True).permute(0, 3, 1, 2), indices, epoch, view)
        for view, crop in enumerate(crops)
    )
    return first.contiguous(memory_format=memory_format), second.contiguous(memory_format=memory_format)


def eval_batches(
    source: Source,
    transform: Callable[[Any], Tensor],
    *,
    batch_size: int,
    workers: int = 8,
    device: torch.device | str = "cpu",
) -> Generator[tuple[Tensor, NDArray[np.int64]]]:
    """Every image of the source once, in order: float ``[b, 3, S, S]`` on the device, and their indices int64 ``[b]``.

    The last batch may be smaller. Small images under an :class:`~ssl_hub.data.views.EvalTransform` are transformed in
    batches on the device; others one by one in worker processes, which end with the iterator: close one that is left
    early. A source that is read again and again is best
    :func:`~ssl_hub.data.images.decoded` once.
    """
    device = torch.device(device)
    positions = [np.arange(i, min(i + batch_size, len(source))) for i in range(0, len(source), batch_size)]
    if not positions:
        return
    if isinstance(transform, EvalTransform) and max(source.image(0).size) <= _SMALL_SIDE:
        for images, indices in _small_batches(source, positions):
            yield _transformed(images, transform, device), indices
        return
    keys, workers = EpochKeys(positions), useful_workers(workers, len(positions))
    with closing(BatchWorkers(Batches(source, _Whole(transform)), keys, workers, device, persistent=False)) as made:
        for (transformed,), indices in made:
            yield transformed.to(device, non_blocking=True), indices


def _small_batches(
    source: Source, positions: list[NDArray[np.int64]]
) -> Iterator[tuple[Sequence[NDArray[np.uint8]] | NDArray[np.uint8], NDArray[np.int64]]]:
    pixels = source.pixels()
    if pixels is not None:
        yield from ((pixels[indices], indices) for indices in positions)
        return
    with ThreadPoolExecutor(decoding_threads(np.asarray(source.image(0)).size)) as pool:
        for indices in positions:
            yield list(pool.map(lambda index: np.asarray(source.image(index)), indices.tolist())), indices


def _transformed(
    images: Sequence[NDArray[np.uint8]] | NDArray[np.uint8], transform: EvalTransform, device: torch.device
) -> Tensor:
    if len({image.shape for image in images}) == 1:
        return transform(_channels_first(np.stack(list(images)), device))
    return torch.cat([transform(_channels_first(np.stack([image]), device)) for image in images])


def _channels_first(pixels: NDArray[np.uint8], device: torch.device) -> Tensor:
    """``[N, H, W, 3]`` to ``[N, 3, H, W]`` on the device."""
    return torch.from_numpy(pixels).to(device, non_blocking=True).permute(0, 3, 1, 2).contiguous()


class Crops:
    """The worker's part of two views: cutting them."""

    def __init__(self, views: TwoViews) -> None:
        self.views = views

    def __call__(self, image: NDArray[np.uint8], index: int, epoch: int) -> tuple[Tensor, ...]:
        first, second = self.views.crop(image, index, epoch)
        return torch.from_numpy(first), torch.from_numpy(second)


class _Whole:
    def __init__(self, transform: Callable[[Any], Tensor]) -> None:
        self.transform = transform

    def __call__(self, image: Image.Image, index: int, epoch: int) -> tuple[Tensor, ...]:
        return (self.transform(image),)
