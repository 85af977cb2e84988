"""Batches made while the device computes the steps before theirs, on a stream of their own where it has such.

One thread asks for everything, so what is made ahead is made in the order in which it is handed out, of the same draws.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor

from ssl_hub.model.devices import side_stream

T = TypeVar("T")

MOST = 2  # batches that wait on the device beside the one that is handed out


def made_ahead(batches: Iterator[T], device: torch.device) -> Iterator[T]:
    """The same batches, of which up to :data:`MOST` more are made by the time one is handed out.

    Each is a tensor of the device or a tuple, which may hold tuples and what is no tensor. Where the device has one
    queue of work alone, a CPU say, nothing is made before it is asked for. What ``batches`` raises is raised after the
    batches before it; what ends the process is raised at once. Of batches that nobody asks for any more nothing is
    told: what a checkpoint says of the data is to travel with each batch.
    """
    stream = side_stream(device)
    return batches if stream is None else _made_on(stream, batches, device)


def _made_on(stream: torch.Stream, batches: Iterator[T], device: torch.device) -> Iterator[T]:
    stream.wait_stream(torch.accelerator.current_stream(device))  # the images may still be on their way to the device
    waiting: deque[tuple[T, torch.Event]] = deque()
    ended: Exception | None = None
    while True:
        while ended is None and len(waiting) <= MOST:
            try:
                with stream:
                    waiting.append((next(batches), stream.record_event()))
            except Exception as error:
                ended = error
        if not waiting:
            break
        batch, made = waiting.popleft()
        current = torch.accelerator.current_stream(device)
        current.wait_event(made)
        for tensor in _tensors(batch):
            tensor.record_stream(current)  # its memory goes back to the other stream once this one is done with it
        yield batch
        del batch
    if not isinstance(ended, StopIteration):
        assert ended is not None
        raise ended


def _tensors(batch: Any) -> Iterator[Tensor]:
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, tuple):
        for part in batch:
            yield from _tensors(part)
