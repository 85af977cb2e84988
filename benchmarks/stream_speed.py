"""Streams: reading beside training, rates from local servers, and what an order of a billion images holds.

python benchmarks/stream_speed.py            # all of it; S3 where moto[server] and s3fs are installed
python benchmarks/stream_speed.py --order    # a part: --beside, --rates, --order

Beside: wall time a batch where reading an image and a step take a known time, asleep; the same with reading in the
training's own thread. Rates: images/s of 100 kB that one process reads, encoded, from tar files on disk, over HTTP and
from an S3-compatible server, both in a process of their own on this machine.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import os
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent.parent))

from ssl_hub.config import View, Views
from ssl_hub.data import streams
from ssl_hub.data.shards import Encoded, open_shards
from ssl_hub.data.streams import Cursor, StreamLoader, StreamOrder
from ssl_hub.data.views import TwoViews
from tests.data.file_server import served

BATCH, WINDOW, BATCHES = 8, 64, 24
PLAIN = View(
    crop_scale=(1.0, 1.0), flip=0, jitter=0, grey=0, blur=0, solarise=0
)  # making views takes no time to speak of
SHARDS, IMAGES, BYTES = 8, 250, 100_000


class Simulated:
    """``count`` shards of ``each`` images, of which reading one takes ``seconds``."""

    images: int | None = None

    def __init__(self, count: int, each: int, seconds: float = 0.0) -> None:
        self.count, self.each, self.seconds = count, each, seconds
        stream = io.BytesIO()
        Image.new("RGB", (8, 8)).save(stream, "PNG")
        self.file = stream.getvalue()

    def __len__(self) -> int:
        return self.count

    def names(self) -> list[str]:
        return ["simulated"]

    def read(self, shard: int, start: int) -> Iterator[Encoded]:
        for _ in range(start, self.each):
            if self.seconds:
                time.sleep(self.seconds)
            yield Encoded("image", self.file)


class InTurn:
    """Reads when it is asked, in the thread that asks: what there was before."""

    def __init__(self, items: Iterator[object], most: int) -> None:
        self.items = items

    def __next__(self) -> object:
        return next(self.items)

    def release(self, count: int = 1) -> None:
        pass

    def close(self) -> None:
        pass


def beside() -> None:
    torch.set_num_threads(1)
    print(f"{'read (ms)':>10}{'step (ms)':>10}{'max':>8}{'beside':>8}{'in turn':>8}   of a batch of {BATCH}, in ms")
    for read, step in ((200, 100), (200, 200), (100, 200)):
        ours = batch_time(read / BATCH / 1e3, step / 1e3)
        with patch.object(streams, "ReadAhead", InTurn):
            before = batch_time(read / BATCH / 1e3, step / 1e3)
        print(f"{read:>10}{step:>10}{max(read, step):>8}{1e3 * ours:>8.1f}{1e3 * before:>8.1f}")


def batch_time(read: float, step: float) -> float:
    """Seconds a batch once the first window is there."""
    views = TwoViews(Views(size=8, view1=PLAIN, view2=PLAIN), seed=0)
    loader = StreamLoader(
        Simulated(4, 1000, read), views, steps_per_epoch=BATCHES + 1, batch_size=BATCH, seed=0, device="cpu", workers=0,
        shuffle_buffer=WINDOW,
    )  # fmt: skip
    began = 0.0
    for number, micro_batches in enumerate(loader.epoch(0)):
        list(micro_batches)
        began = began if number else time.perf_counter()
        time.sleep(step)
    seconds = time.perf_counter() - began
    loader.close()
    return seconds / BATCHES


def rates() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        noise = np.random.default_rng(0).bytes(BYTES)
        for shard in range(SHARDS):
            with tarfile.open(folder / f"train-{shard:03}.tar", "w") as archive:
                for image in range(IMAGES):
                    member = tarfile.TarInfo(f"{image:05}.jpg")
                    member.size = BYTES
                    archive.addfile(member, io.BytesIO(noise))
        report("disk", str(folder))
        with served(folder) as server:
            report("HTTP", f"{server}/plain/train-{{000..{SHARDS - 1:03}}}.tar")
        if importlib.util.find_spec("moto") and importlib.util.find_spec("s3fs"):
            with bucket(folder) as address:
                report("S3 (moto)", address)


def report(where: str, data: str) -> None:
    images = StreamOrder(open_shards(data, "train"), seed=0, rank=0, world=1, window=256, at_least=64).after(Cursor())
    next(images)
    began = time.perf_counter()
    count = len([None for _ in islice(images, SHARDS * IMAGES)])
    seconds = time.perf_counter() - began
    images.close()
    print(f"{where:<10} {count / seconds:>7,.0f} images/s  {count * BYTES / seconds / 1e6:>6,.0f} MB/s")


@contextmanager
def bucket(folder: Path) -> Iterator[str]:
    import s3fs

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1",
                   "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}  # fmt: skip
    server = subprocess.Popen([sys.executable, "-m", "moto.server", "-p", str(port)], stderr=subprocess.DEVNULL)
    try:
        while socket.socket().connect_ex(("127.0.0.1", port)):
            time.sleep(0.1)
        s3 = s3fs.S3FileSystem()
        s3.mkdir("bench")
        s3.put(f"{folder}/", "bench/", recursive=True)
        yield "s3://bench"
    finally:
        server.kill()
        server.wait()


def order() -> None:
    for shards, each in ((1_000, 1_000), (10_000, 10_000), (100_000, 10_000)):
        simulated = Simulated(shards, each)
        began = time.perf_counter()
        tracemalloc.start()
        images = StreamOrder(simulated, seed=0, rank=0, world=8, window=4096).after(Cursor())
        for _ in islice(images, 10_000):
            pass
        held, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        images.close()
        seconds = time.perf_counter() - began
        memory = f"{held / 1e6:.1f} MB held, {peak / 1e6:.1f} MB at most"
        print(f"{shards * each:>13,} images in {shards:>7,} shards: {memory}; 10,000 keys after {seconds:.2f} s")


PARTS = {"beside": beside, "rates": rates, "order": order}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for part in PARTS:
        parser.add_argument(f"--{part}", action="store_true")
    arguments = vars(parser.parse_args())
    for name, part in PARTS.items():
        if arguments[name] or not any(arguments.values()):
            part()


if __name__ == "__main__":
    main()
