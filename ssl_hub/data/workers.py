"""Worker processes that decode images and hand whole batches to the training process."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from ssl_hub.data.bad_images import BadImages
from ssl_hub.data.decoding import decode, decode_array
from ssl_hub.data.images import Source
from ssl_hub.data.value_range import AUTO, ValueRange
from ssl_hub.errors import UsageError
from ssl_hub.model.devices import can_pin
from ssl_hub.processes import share_of_cores
from ssl_hub.stopping import deferred, serve, start_tracker

Make = Callable[[Any, int, int], tuple[Tensor, ...]]
"""``(image, index, epoch)`` to the tensors of one image: PIL's, or uint8 ``[H, W, 3]`` where ``arrays`` is true."""


class Loaded(NamedTuple):
    """A batch: stacked tensors, the images' indices int64 ``[b]``, and what is new of unreadable images."""

    tensors: tuple[Tensor, ...]
    indices: NDArray[np.int64]
    bad: dict[int, str]


class Batches(Dataset[Any]):
    """What a worker does: a whole batch of (epoch, index) to :class:`Loaded`.

    A bad image that nothing stands in for comes back as the error itself and not raised, because raising it across
    processes would wrap its one line in a worker's traceback.
    """

    def __init__(self, source: Source, make: Make, *, arrays: bool = False) -> None:
        self.source = source
        self.make = make
        self.read = source.array if arrays else source.image

    def __getitems__(self, keys: list[tuple[int, int]]) -> Loaded | UsageError:
        found = {} if self.source.bad is None else self.source.bad.found
        known = len(found)
        try:
            items = [self.make(self.read(index), index, epoch) for epoch, index in keys]
        except UsageError as error:
            return error
        return Loaded(_stacked(items), _indices(index for _, index in keys), dict(list(found.items())[known:]))


class StreamBatches(Dataset[Any]):
    """The same for images that arrive with their keys: a whole batch of (index, name, file) to :class:`Loaded`.

    With ``tolerant``, the next readable image of the batch (first after last) takes the place of an unreadable one,
    under the unreadable one's own index and so its own draws.
    """

    def __init__(self, make: Make, *, tolerant: bool, arrays: bool = False, values: ValueRange = AUTO) -> None:
        self.make = make
        self.decode: Callable[[bytes | str, str, ValueRange], Any] = decode_array if arrays else decode
        self.values = values
        self.tolerant = tolerant

    def __getitems__(self, keys: list[tuple[int, str, bytes | str]]) -> Loaded | UsageError:
        images: list[Any] = []
        bad: dict[int, str] = {}
        for index, name, file in keys:
            try:
                images.append(self.decode(file, name, self.values))
            except UsageError as error:
                if not self.tolerant:
                    return error
                images.append(None)
                bad[index] = str(error)
        if len(bad) == len(keys):
            return UsageError(f"none of the {len(keys)} images of a batch can be read; the first: {bad[keys[0][0]]}")
        items = []
        for place, (index, _, _) in enumerate(keys):
            image = next(image for image in images[place:] + images[:place] if image is not None)
            items.append(self.make(image, index, 0))
        return Loaded(_stacked(items), _indices(index for index, _, _ in keys), bad)


def _stacked(items: list[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """A batch of each tensor; in a worker, in the memory that it shares with the training process.

    ``torch.stack`` would leave the move there to the queue, which frees the worker's own copy on another thread: the
    worker then grows by about a batch with each batch (measured with glibc 2.36).
    """
    return tuple(default_collate(list(tensors)) for tensors in zip(*items, strict=True))


def _indices(indices: Iterable[int]) -> NDArray[np.int64]:
    return np.fromiter(indices, np.int64)


class BatchWorkers:
    """Batches made by worker processes, in the order of ``sampler``, which may be refilled between epochs.

    Persistent workers outlive an epoch, with the data that they started with. Workers take no notice of signals; they
    end with :meth:`close`, and with this process however it ends.
    """

    def __init__(
        self, batches: Dataset[Any], sampler: Iterable[list[Any]], workers: int, device: torch.device, *,
        persistent: bool, bad: BadImages | None = None,
    ) -> None:  # fmt: skip
        self._bad = bad
        self._iterator: Any = None
        self._starting = ExitStack()
        self._loader = DataLoader(
            batches,
            batch_sampler=_Sampler(sampler, self._starting.close),
            num_workers=workers,
            collate_fn=_identity,
            pin_memory=can_pin(device),
            persistent_workers=persistent and workers > 0,
            prefetch_factor=2 if workers > 0 else None,
            worker_init_fn=_begin,
            generator=torch.Generator(),  # else each epoch draws from the global one, and a resumed run is out of step
        )

    def __iter__(self) -> Iterator[tuple[tuple[Tensor, ...], NDArray[np.int64]]]:
        """Tensors and indices of each batch; what workers found unreadable is added to ``bad``.

        The first bad image that nothing stands in for raises its :class:`UsageError` here.
        """
        if self._loader.num_workers > 0:
            start_tracker()
        with self._starting:
            self._starting.enter_context(deferred())
            others = set(multiprocessing.active_children())
            try:
                self._iterator = iter(self._loader)
            except BaseException:
                # A signal, once the workers are there: they take no notice of it, and nobody has them.
                _kill(set(multiprocessing.active_children()) - others)
                raise
            for worker in getattr(self._iterator, "_workers", ()):
                # By what torch and multiprocessing end a worker that does not leave when asked: SIGTERM it ignores.
                worker._popen.terminate = worker._popen.kill
        for batch in self._iterator:
            if isinstance(batch, UsageError):
                raise batch
            if self._bad is not None:
                self._bad.add(batch.bad)
            yield batch.tensors, batch.indices

    def close(self) -> None:
        """End the workers, after the batch that each is at. Nothing is lost where they have ended already."""
        with deferred():
            iterator, self._iterator, self._loader._iterator = self._iterator, None, None
            if isinstance(iterator, _MultiProcessingDataLoaderIter):
                iterator._shutdown_workers()


def _kill(workers: Collection[BaseProcess]) -> None:
    """End workers at once."""
    with _untold():
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.join()


@contextmanager
def _untold() -> Iterator[None]:
    """Torch's handler of SIGCHLD, which would raise an error wherever this process is then, is not told of workers that
    end: it looks for none that has been waited for."""
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return
    told = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL if told is None else told)


class _Sampler:
    """The same lists, of which the first is asked for once the workers are there: signals are held back until then and
    no longer, as the stream that it comes from may be waited for."""

    def __init__(self, lists: Iterable[list[Any]], started: Callable[[], None]) -> None:
        self._lists = lists
        self._started = started

    def __iter__(self) -> Iterator[list[Any]]:
        self._started()
        yield from self._lists


def _begin(worker: int) -> None:
    serve()


def useful_workers(workers: int, batches: int) -> int:
    """No more than this process has cores, or than there are batches; what is loaded does not depend on it."""
    return min(workers, batches, share_of_cores())


def _identity(batch: Any) -> Any:
    return batch
