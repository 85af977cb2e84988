"""Worker processes that decode images and hand whole batches to the training process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ssl_hub.data.images import Source
from ssl_hub.errors import UsageError


class Batches(Dataset[Any]):
    """What a worker does: a whole batch of (epoch, index) to stacked tensors and the indices int64 ``[b]``.

    ``make(image, index, epoch)`` gives the tensors of one image. A bad image comes back as the error itself and not
    raised, because raising it across processes would wrap its one line in a worker's traceback.
    """

    def __init__(self, source: Source, make: Callable[[Image.Image, int, int], tuple[Tensor, ...]]) -> None:
        self.source = source
        self.make = make

    def __getitems__(self, keys: list[tuple[int, int]]) -> tuple[tuple[Tensor, ...], NDArray[np.int64]] | UsageError:
        try:
            items = [self.make(self.source.image(index), index, epoch) for epoch, index in keys]
        except UsageError as error:
            return error
        stacked = tuple(torch.stack(tensors) for tensors in zip(*items, strict=True))
        return stacked, np.array([index for _, index in keys], np.int64)


def data_loader(
    batches: Batches, sampler: list[Any], workers: int, device: torch.device, *, persistent: bool
) -> DataLoader[Any]:
    """A loader of ``batches`` in the order of ``sampler``, which may be refilled between epochs.

    Persistent workers outlive an epoch, with the data that they started with.
    """
    return DataLoader(
        batches,
        batch_sampler=sampler,
        num_workers=workers,
        collate_fn=_identity,
        pin_memory=device.type == "cuda",
        persistent_workers=persistent and workers > 0,
        prefetch_factor=2 if workers > 0 else None,
        generator=torch.Generator(),  # else each epoch draws from the global one, and a resumed run gets out of step
    )


def useful_workers(workers: int, batches: int) -> int:
    """No more than there are cores or batches; what is loaded does not depend on it."""
    return min(workers, batches, os.cpu_count() or 1)


def _identity(batch: Any) -> Any:
    return batch


def unwrapped(loader: DataLoader[Any]) -> Iterator[Any]:
    """The loader's batches; the first bad image among them raises its :class:`UsageError` here."""
    for batch in loader:
        if isinstance(batch, UsageError):
            raise batch
        yield batch
