"""A process with two workers, which says who they are and what it got from them; see test_workers.

python tests/data/busy_workers.py fork|spawn|forkserver read|hang|leave
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from contextlib import suppress

import numpy as np
import psutil
import torch
from numpy.typing import NDArray

from ssl_hub.data.images import Source
from ssl_hub.data.stored import Pixels
from ssl_hub.data.workers import Batches, BatchWorkers
from ssl_hub.stopping import ENDING, StopSignal

BATCHES, BATCH = 40, 20_000  # the indices of one batch alone fill a pipe


class Blank:
    """A tensor for each image, after a while."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, image: NDArray[np.uint8], index: int, epoch: int) -> tuple[torch.Tensor, ...]:
        if self.seconds > 1e-3:
            time.sleep(self.seconds)
        return (torch.zeros(1),)


def workers(batch: int) -> BatchWorkers:
    source = Source("blank", "train", Pixels(np.zeros((2, 1, 1, 3), np.uint8)))
    batches = Batches(source, Blank(0.02 / batch), arrays=True)
    sampler = [[(0, position % 2) for position in range(batch)] for _ in range(BATCHES)]
    return BatchWorkers(batches, sampler, 2, torch.device("cpu"), persistent=True)


def signalled() -> None:
    """Signal the whole process group over and over, from before the workers are there."""
    while True:
        for number in ENDING:  # a second SIGINT is for the trainer
            os.killpg(0, number)
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # it has ended since
                child.send_signal(signal.SIGINT)
        time.sleep(0.01)


def main(method: str, act: str) -> None:
    multiprocessing.set_start_method(method)
    multiprocessing.set_forkserver_preload(["ssl_hub.data.workers"])  # once, and not by each worker
    loader = workers(BATCH if act == "hang" else 1)
    if act == "read":
        with StopSignal():
            threading.Thread(target=signalled, daemon=True).start()
            for _ in range(2):
                print(sum(1 for _ in loader), flush=True)
            loader.close()
            loader.close()
            print(len(multiprocessing.active_children()), flush=True)
            os._exit(0)
    batches = iter(loader)
    next(batches)
    print(*(child.pid for child in multiprocessing.active_children()), flush=True)
    if act == "hang":
        time.sleep(60)


if __name__ == "__main__":
    main(*sys.argv[1:])
