"""What the memory of a host holds for the data: names of files, and batches on their way from workers. Measured, small.

Legend: a *name* is a relative path as ImageNet's, ``n01440764/n01440764_10026.JPEG``.
"""

from __future__ import annotations

import os
import pickle
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from PIL import Image

import ssl_hub
from ssl_hub.data.loaders import TrainLoader
from ssl_hub.data.paths import Paths
from ssl_hub.data.sources import open_source
from ssl_hub.data.views import TwoViews

PER_CLASS = 1300
PRIVATE = "Private_Dirty:"


def host(images: int = 1_281_167) -> dict[str, Any]:
    return {"names": names(images), "shared": shared()}


def listed(images: int) -> Iterator[str]:
    for image in range(images):
        folder = f"n{1440764 + image // PER_CLASS:08d}"
        yield f"{folder}/{folder}_{10026 + image % PER_CLASS}.JPEG"


def names(images: int) -> dict[str, Any]:
    """Bytes a name: as this package holds them and as strings; held, sent to a worker that is not forked, and copied
    in one that is, once it has read all of them."""
    found: dict[str, Any] = {"images": images}
    for kind, make in (("ours", Paths), ("strings", list)):
        tracemalloc.start()
        kept: Sequence[str] = make(listed(images))
        held, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        found[kind] = {
            "held": held / images,
            "peak": peak / images,
            "sent": len(pickle.dumps(kept)) / images,
            "copied_when_forked": in_a_fork(lambda kept=kept: sum(map(len, kept))) / images,
        }
        del kept
    return found


def in_a_fork(read: Callable[[], Any]) -> int:
    """Bytes that become a forked process's own while it reads."""
    end, start = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            before = private_bytes()
            read()
            os.write(start, str(private_bytes() - before).encode())
        finally:
            os._exit(0)
    os.close(start)
    os.waitpid(child, 0)
    with os.fdopen(end) as answer:
        return max(0, int(answer.read()))


def private_bytes() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(PRIVATE))


def shared(workers: int = 2, batch: int = 16, size: int = 224, steps: int = 12) -> dict[str, Any]:
    """Bytes in /dev/shm while workers are as far ahead of training as they go, over those of one batch of crops."""
    with tempfile.TemporaryDirectory() as folder:
        draws = np.random.default_rng(0)
        for index in range(batch * steps):
            pixels = draws.integers(0, 256, (64, 64 + index % 2, 3), dtype=np.uint8)  # of two sizes: not resident
            Image.fromarray(pixels).save(Path(folder) / f"{index}.png")
        views = TwoViews(ssl_hub.get_recipe("byol-r50-300ep").views, seed=0)
        loader = TrainLoader(
            open_source(folder, "train"), views, batch_size=batch, seed=0, device="cpu", workers=workers
        )
        most = 0
        for step in loader.epoch(0):
            for _ in step:
                time.sleep(0.5)
                most = max(most, in_shared_memory())
        loader.close()
    one = 2 * batch * 3 * size**2
    return {"workers": workers, "batch_bytes": one, "most_bytes": most, "batches": most / one}


def in_shared_memory() -> int:
    """Bytes of the segments that this process and its workers hold open, each counted once."""
    found = {}
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        descriptors = Path(f"/proc/{process.pid}/fd")
        maps = Path(f"/proc/{process.pid}/map_files")
        for place in (descriptors, maps):
            try:
                entries = list(place.iterdir())
            except OSError:
                continue
            for entry in entries:
                try:
                    if os.readlink(entry).startswith("/dev/shm/"):
                        status = entry.stat()
                        found[status.st_ino] = status.st_size
                except OSError:
                    continue
    return sum(found.values())
