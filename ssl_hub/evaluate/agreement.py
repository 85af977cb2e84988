"""Processes that share work act alike: what one of them cannot do, or sees otherwise than the others, ends all."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from accelerate import Accelerator
from accelerate.utils import gather_object

from ssl_hub.data.fingerprint import fingerprint
from ssl_hub.data.shards import Shards
from ssl_hub.data.sources import Source
from ssl_hub.errors import UsageError

T = TypeVar("T")


def everywhere(accelerator: Accelerator | None, act: Callable[[], T]) -> T:
    """What ``act`` returns on this process, once it has succeeded on all. Collective.

    Raises the UsageError of the first process that had one on every process: none goes on and waits for the others.
    """
    if accelerator is None or accelerator.num_processes == 1:
        return act()
    result: list[T] = []
    failure = ""
    try:
        result.append(act())
    except UsageError as error:
        failure = str(error)
    for message in gather_object([failure]):
        if message:
            raise UsageError(message)
    return result[0]


def same_data(accelerator: Accelerator | None, data: Source | Shards) -> str:
    """The fingerprint of the data, which is the same on all processes. Collective.

    Raises UsageError where processes see other images, as with copies on each node that are not the same.
    """
    mine = fingerprint(data)
    if accelerator is None or accelerator.num_processes == 1:
        return mine
    count = len(data) if isinstance(data, Source) else data.images
    seen: list[tuple[int | None, str]] = gather_object([(count, mine)])
    other = next((rank for rank, (_, digest) in enumerate(seen) if digest != seen[0][1]), None)
    if other is None:
        return mine
    counts = f"{_images(seen[0][0])} on rank 0, {_images(seen[other][0])} on rank {other}"
    same = "" if seen[0][0] != seen[other][0] else ", and not the same ones"
    raise UsageError(f"processes see different data: {counts}{same}; give every node the same copy")


def _images(count: int | None) -> str:
    return "a stream" if count is None else f"{count} images"
