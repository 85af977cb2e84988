"""Reading beside training: ahead while a batch is held, bounded, in order, and gone when it is closed."""

import multiprocessing
import os
import signal
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest
import torch

from ssl_hub.data import read_ahead
from ssl_hub.data.loaders import EpochKeys
from ssl_hub.data.read_ahead import ReadAhead
from ssl_hub.data.shards import Encoded
from ssl_hub.data.streams import Cursor, StreamOrder
from ssl_hub.errors import UsageError
from ssl_hub.processes import LEFT_READING
from ssl_hub.stopping import Interrupted, StopSignal
from tests import warm
from tests.data.test_shards import parquet
from tests.data.test_streams import VARIED, Numbered, loader, steps

DEADLINE = 60  # seconds, of what comes in a moment


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name in ("read ahead", LEFT_READING)]


def eventually(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + DEADLINE
    while not holds() and time.monotonic() < end:
        time.sleep(0.001)
    return holds()


class Watched(Numbered):
    """Says when an image has been read, and waits for leave to read each from ``gate`` on."""

    def __init__(self, *sizes: int, gate: int = 10**9) -> None:
        super().__init__(*sizes)
        self.count, self.gate, self.leave, self.closed = 0, gate, threading.Event(), 0
        self.threads: set[str] = set()

    def read(self, shard: int, start: int) -> Iterator[Encoded]:
        try:
            for image in super().read(shard, start):
                if self.count >= self.gate:
                    assert self.leave.wait(DEADLINE)
                self.count += 1
                self.threads.add(threading.current_thread().name)
                yield image
        finally:
            self.closed += 1


@pytest.mark.parametrize("workers", [0, 2])
def test_reading_goes_on_while_a_batch_is_held(workers: int) -> None:
    shards = Watched(*[10] * 4)
    train = loader(shards, steps_per_epoch=20, workers=workers, shuffle_buffer=8)
    held = next(iter(next(train.epoch(0))))
    # 8 images of the window and two batches of 2, and what has left the window: 2 and what 2 batches for each of the
    # workers were made of.
    out = 2 + 2 * 2 * workers
    assert eventually(lambda: shards.count == 8 + 2 * 2 + out + 1)
    time.sleep(0.05)
    assert shards.count == 8 + 2 * 2 + out + 1  # and no further
    assert shards.threads == {"read ahead"} and len(held) == 2
    train.close()
    assert eventually(lambda: not readers()) and shards.closed >= 1


def test_the_next_window_is_read_while_this_one_is_used() -> None:
    shards = Watched(12, 12, gate=16)
    images = StreamOrder(shards, seed=0, rank=0, world=1, window=8, at_least=2).after(Cursor())
    for window in (1, 2):  # the second, too, before leave is given to read on
        assert len(list(islice(images, 8))) == 8
        assert eventually(lambda: shards.count == 16), window
    shards.leave.set()
    images.close()


def test_nothing_that_is_trained_changes() -> None:
    """Whatever is read ahead: batches and cursors are those of the images that were handed out."""
    straight = StreamOrder(Numbered(5, 3, 7), seed=0, rank=0, world=1, window=4).after(Cursor())
    slow = Watched(5, 3, 7, gate=0)
    slow.leave.set()
    watched = StreamOrder(slow, seed=0, rank=0, world=1, window=4, at_least=3).after(Cursor())
    assert list(islice(straight, 40)) == list(islice(watched, 40))
    resumed = loader(Numbered(7, 7), VARIED, workers=2)
    taken = [pair for step in islice(resumed.epoch(0), 2) for pair in step]
    place = resumed.state()
    resumed.load_state(place)
    rest = [pair for step in resumed.epoch(0, 2) for pair in step]
    resumed.close()
    whole = [pair for step in loader(Numbered(7, 7), VARIED).epoch(0) for pair in step]
    assert all(torch.equal(a, b) for ours, theirs in zip(taken + rest, whole, strict=True)
               for a, b in zip(ours, theirs, strict=True))  # fmt: skip


def test_an_error_comes_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield from range(3)
        raise UsageError("shard 3 is gone")

    reading = ReadAhead(items(), 10)
    assert [next(reading) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(UsageError, match="^shard 3 is gone$"):
        next(reading)
    assert eventually(lambda: not readers())
    assert list(reading) == []


def test_an_error_in_a_shard_ends_the_run_and_the_thread() -> None:
    class Broken(Numbered):
        def read(self, shard: int, start: int) -> Iterator[Encoded]:
            yield from islice(super().read(shard, start), 3)
            raise UsageError(f"shard {shard} is gone")

    train = loader(Broken(6), workers=2, batch_size=1, shuffle_buffer=2)
    with pytest.raises(UsageError, match="^shard 0 is gone$"):
        steps(train)
    train.close()
    assert eventually(lambda: not readers()) and not multiprocessing.active_children()


@pytest.mark.parametrize("window", [1, 9])
def test_what_was_read_before_an_error_is_trained_on(window: int) -> None:
    class Ending(Numbered):
        def read(self, shard: int, start: int) -> Iterator[Encoded]:
            yield from super().read(shard, start)
            raise UsageError("gone")

    train = loader(Ending(6), workers=2, batch_size=2, shuffle_buffer=window)
    seen = []
    with pytest.raises(UsageError, match="^gone$"):
        for step in train.epoch(0):
            seen += [len(first) for first, _ in step]
    assert seen == ([2, 2, 2] if window == 1 else [])  # a window is used once it is whole
    assert train.state() == list(Cursor(place=5, taken=1) if window == 1 else Cursor())
    train.close()
    assert eventually(lambda: not multiprocessing.active_children())


def test_dropped_without_a_word_it_ends_as_well() -> None:
    images = StreamOrder(Numbered(50), seed=0, rank=0, world=1, window=4).after(Cursor())
    next(images)
    assert len(readers()) == 1
    del images
    assert eventually(lambda: not readers())


def test_a_read_under_way_holds_up_neither_close_nor_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "_PATIENCE", 0.01)
    shards = Watched(20, gate=6)
    train = loader(shards, shuffle_buffer=2)
    next(iter(next(train.epoch(0))))
    assert eventually(lambda: shards.count == 6)
    train.close()
    assert len(readers()) == 1
    shards.leave.set()
    assert eventually(lambda: not readers()) and shards.closed == 1


LEFT = """
import time
from torch.distributed import TCPStore
from ssl_hub import cli
from ssl_hub.data import read_ahead
from ssl_hub.stopping import Interrupted

read_ahead._PATIENCE = 0.01
store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)

def items():
    yield 1
    while True:
        store.check(["never"])

def run():
    ahead = read_ahead.ReadAhead(items(), 2)
    assert next(ahead) == 1
    time.sleep(0.1)
    ahead.close()
    raise Interrupted("saved")

raise SystemExit(cli.guarded(run))
"""


def test_a_command_keeps_its_exit_code_with_a_read_under_way_in_another_language() -> None:
    done = warm.run(["-c", LEFT], env=dict(os.environ))
    assert (done.returncode, done.stderr) == (75, "saved\n")


@pytest.mark.parametrize("workers", [0, 2])
def test_a_signal_ends_the_wait_for_the_first_batch_and_for_a_later_one(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "_PATIENCE", 0.01)
    for gate in (0, 8):
        shards = Watched(40, gate=gate)
        train = loader(shards, workers=workers, shuffle_buffer=2)
        with pytest.raises(Interrupted), StopSignal():
            threading.Thread(target=lambda: (time.sleep(0.3), os.kill(os.getpid(), signal.SIGTERM))).start()
            for _, step in zip(range(100), train.epoch(0), strict=False):
                assert len(list(step)) == 1
        place = train.state()
        train.close()
        shards.leave.set()
        assert eventually(lambda: not readers()) and not multiprocessing.active_children()
        assert gate == 0 or place[3] > 0, "what was read before was trained on, and is where the run goes on from"
        assert gate or place == list(Cursor())


@pytest.mark.parametrize("shared", [{"world": 2}, {"accumulation": 2, "batch_size": 4}])
def test_a_signal_leaves_a_step_whole_that_may_have_begun(shared: dict[str, int]) -> None:
    shards = Watched(40, gate=0)
    train = loader(shards, shuffle_buffer=2, **{"batch_size": 4, **shared})
    with StopSignal() as stop:
        signal.raise_signal(signal.SIGTERM)
        threading.Timer(2 * read_ahead._LOOK_UP, shards.leave.set).start()
        assert stop and len(list(next(train.epoch(0)))) == shared.get("accumulation", 1)


SLOW = """
import io, sys, threading, time
from ssl_hub.data import shards
from ssl_hub.data.streams import Cursor, StreamOrder

class Never(io.FileIO):
    def _wait(self, *_):
        waiting.set()
        time.sleep(600)
    read = readinto = readall = _wait

stream, opened, waiting = shards.open_shards(sys.argv[1], "train"), [io.FileIO, Never], threading.Event()
shards.opened = lambda file: opened.pop(0)(file)
images = StreamOrder(stream, seed=0, rank=0, world=1, window=1).after(Cursor())
next(images)
assert waiting.wait(60)
raise SystemExit(75)
"""


def test_the_interpreter_exits_while_a_read_is_slow(tmp_path: Path) -> None:
    """Of a parquet file, whose reader is C++ that asks Python for bytes: a thread's end there may abort the process."""
    for number in range(2):
        parquet(tmp_path / f"train-{number}.parquet", 1)
    done = warm.run(["-c", SLOW, str(tmp_path)], env=dict(os.environ))
    assert (done.returncode, done.stderr) == (75, "")


class Billion:
    """A billion images in 100,000 shards."""

    images: int | None = None

    def __len__(self) -> int:
        return 100_000

    def names(self) -> list[str]:
        return ["billion"]

    def read(self, shard: int, start: int) -> Iterator[Encoded]:
        return (Encoded("image", b"") for _ in range(start, 10_000))


def test_memory_is_of_the_window_and_not_of_the_images() -> None:
    tracemalloc.start()
    images = StreamOrder(Billion(), seed=0, rank=3, world=8, window=256).after(Cursor(lap=2, turn=99_995 - 8))
    seen = len({key[0] for key, _ in islice(images, 25_000)})
    images.close()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seen == 25_000  # over a shard's end, and into the next lap's
    assert peak < 12e6  # the order of 100,000 shards is made of some arrays of 0.8 MB


def test_what_workers_get_of_an_epoch_is_made_when_it_is_asked_for() -> None:
    keys = EpochKeys(torch.arange(10**6).reshape(-1, 100).numpy())
    tracemalloc.start()
    batches = iter(keys)
    keys.epoch = 1  # of the next ones
    assert next(batches) == [(0, index) for index in range(100)]
    assert sum(len(batch) for batch in batches) == 10**6 - 100
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1e6
    assert next(iter(keys))[:2] == [(1, 0), (1, 1)]
