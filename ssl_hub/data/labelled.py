"""Labelled batches for training a classifier: a random resized crop of each image, flipped half of the time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from ssl_hub.data.ahead import made_ahead
from ssl_hub.data.crops import CROP_DRAWS, crop_boxes, cut, cut_batch
from ssl_hub.data.draws import uniforms
from ssl_hub.data.images import Source, decoded
from ssl_hub.data.loaders import EpochKeys, epoch_order
from ssl_hub.data.workers import Batches, BatchWorkers, useful_workers
from ssl_hub.model.devices import to_device

CROP_SCALE = (0.08, 1.0)  # share of the image's area
_VIEW = 2  # sets these draws apart from those of the two views of pre-training

Shares = list[tuple[int, list[NDArray[np.int64]]]]


def batch_shares(
    count: int,
    *,
    batch_size: int,
    micro_batch_size: int,
    seed: int,
    epoch: int,
    rank: int = 0,
    world: int = 1,
    drop_last: bool = False,
) -> Shares:
    """One rank's rows of an epoch: for each batch its size over all ranks, and micro-batches of this rank's rows.

    The order of rows is by (seed, epoch) alone, so that any number of ranks sees the same batches. The last batch may
    be smaller, and a rank's share of it empty, unless ``drop_last`` leaves it out.
    """
    order = epoch_order(count, seed=seed, epoch=epoch)
    end = count - count % batch_size if drop_last else count
    batches = [order[start : start + batch_size] for start in range(0, end, batch_size)]
    shares: Shares = []
    for batch in batches:
        mine = batch[rank::world]
        micro = [mine[start : start + micro_batch_size] for start in range(0, len(mine), micro_batch_size)]
        shares.append((len(batch), micro))
    return shares


class LabelledCrops:
    """One rank's batches of augmented images with labels, a fresh crop of every image in every epoch.

    Every draw is a pure function of (seed, epoch, image index). Images that share one size and fit ``resident_bytes``
    are decoded once and stay on the device; else worker processes decode and crop. ``mean`` and ``std`` normalise.
    """

    def __init__(
        self,
        source: Source,
        *,
        size: int,
        mean: Sequence[float],
        std: Sequence[float],
        batch_size: int,
        micro_batch_size: int,
        rank: int = 0,
        world: int = 1,
        seed: int,
        device: torch.device | str,
        workers: int = 8,
        drop_last: bool = False,
        resident_bytes: int = 4 * 2**30,
    ) -> None:
        assert source.labels is not None
        self.source, self.seed = source, seed
        self.batch_size, self.micro_batch_size, self.rank, self.world = batch_size, micro_batch_size, rank, world
        self.device = torch.device(device)
        self.drop_last = drop_last
        self.steps_per_epoch = len(source) // batch_size if drop_last else -(-len(source) // batch_size)
        self._crops = _Crops(size, seed)
        self._labels = source.labels
        self._mean, self._std = torch.tensor([list(mean), list(std)], device=self.device)[:, :, None, None]
        self._workers = useful_workers(workers, max(self.steps_per_epoch, 1))
        self._keys = EpochKeys()
        self._loader: BatchWorkers | None = None
        pixels = decoded(source, resident_bytes).pixels()
        self._pixels = None if pixels is None else torch.from_numpy(pixels).to(self.device).permute(0, 3, 1, 2)

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[tuple[int, Iterator[tuple[Tensor, Tensor]]]]:
        """For each batch from ``start_step`` on: its size over all ranks, and this rank's micro-batches of it.

        A micro-batch is float images [b, 3, S, S] on the device, normalised, and int64 labels [b] there. Each batch's
        iterator is to be used up, or left, before the next batch is taken.
        """
        shares = batch_shares(
            len(self.source), batch_size=self.batch_size, micro_batch_size=self.micro_batch_size,
            seed=self.seed, epoch=epoch, rank=self.rank, world=self.world, drop_last=self.drop_last,
        )[start_step:]  # fmt: skip
        rows = [micro for _, share in shares for micro in share]
        images = self._from_device(rows, epoch) if self._pixels is not None else self._from_workers(rows, epoch)
        images = made_ahead(images, self.device)
        for size, share in shares:
            batch = islice(images, len(share))
            yield size, batch
            for _ in batch:  # what the caller left of it
                pass

    def close(self) -> None:
        """End the worker processes, where there are any."""
        if self._loader is not None:
            self._loader.close()

    def _from_device(self, batches: list[NDArray[np.int64]], epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        assert self._pixels is not None
        for rows in batches:
            images = self._pixels[to_device(rows, self.device)].float().div_(255)
            boxes = self._crops.boxes(rows, epoch, *images.shape[2:])
            yield self._finished(cut_batch(images, boxes, self._crops.size), rows, epoch)

    def _from_workers(self, batches: list[NDArray[np.int64]], epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        # The epoch travels with each index, because persistent workers keep the data set they started with.
        self._keys.epoch, self._keys.batches = epoch, batches
        if self._loader is None:
            cutting = Batches(self.source, self._crops)
            self._loader = BatchWorkers(cutting, self._keys, self._workers, self.device, persistent=True)
        for (crops,), rows in self._loader:
            on_device = crops.to(self.device, non_blocking=True).permute(0, 3, 1, 2).float().div_(255)
            yield self._finished(on_device.contiguous(), rows, epoch)

    def _finished(self, crops: Tensor, rows: NDArray[np.int64], epoch: int) -> tuple[Tensor, Tensor]:
        """Flipped and normalised, in place, with the labels."""
        flipped = to_device(np.flatnonzero(self._crops.flips(rows, epoch)), crops.device)
        crops.index_copy_(0, flipped, crops.index_select(0, flipped).flip(-1))
        return crops.sub_(self._mean).div_(self._std), to_device(self._labels[rows], crops.device)


class _Crops:
    """Where each image's crop lies and whether it is flipped; cuts it out of one image in a worker process."""

    def __init__(self, size: int, seed: int) -> None:
        self.size, self.seed = size, seed

    def __call__(self, image: Image.Image, index: int, epoch: int) -> tuple[Tensor, ...]:
        (box,) = self.boxes(np.array([index]), epoch, image.height, image.width)
        return (torch.from_numpy(cut(image, box, self.size)),)

    def boxes(self, rows: NDArray[np.int64], epoch: int, height: int, width: int) -> NDArray[np.int64]:
        return crop_boxes(self._draws(rows, epoch)[:, :CROP_DRAWS], height, width, CROP_SCALE)

    def flips(self, rows: NDArray[np.int64], epoch: int) -> NDArray[np.bool_]:
        return np.asarray(self._draws(rows, epoch)[:, CROP_DRAWS] < 0.5)

    def _draws(self, rows: NDArray[np.int64], epoch: int) -> NDArray[np.float64]:
        return uniforms(self.seed, epoch, rows[:, None], _VIEW, np.arange(CROP_DRAWS + 1)[None])
