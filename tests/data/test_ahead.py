"""Batches made ahead: on their own stream, in their order, two at most, and none lost or doubled by a stop.

Of the device only the calls are seen here, by a stand-in for its streams; that views and steps overlap, a GPU shows.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import ssl_hub
from ssl_hub.data import ahead
from ssl_hub.data.ahead import MOST, made_ahead
from ssl_hub.data.images import Source
from ssl_hub.data.labelled import LabelledCrops
from ssl_hub.data.loaders import TrainLoader
from ssl_hub.data.stored import Pixels
from ssl_hub.data.streams import StreamLoader
from ssl_hub.data.views import TwoViews
from ssl_hub.errors import UsageError
from ssl_hub.model.devices import side_stream
from ssl_hub.stopping import Interrupted
from tests.data.test_streams import Numbered

CPU = torch.device("cpu")
VIEWS = TwoViews(ssl_hub.get_recipe("byol-r50-300ep", **{"views.size": 16}).views, seed=0)


class Stream:
    """What a device is asked for, in order."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log, self.events = name, log, 0

    def __enter__(self) -> None:
        self.log.append(f"on {self.name}")

    def __exit__(self, *error: object) -> None:
        self.log.append(f"off {self.name}")

    def record_event(self) -> str:
        self.events += 1
        self.log.append(f"event {self.events}")
        return f"event {self.events}"

    def wait_event(self, event: str) -> None:
        self.log.append(f"{self.name} waits for {event}")

    def wait_stream(self, other: "Stream") -> None:
        self.log.append(f"{self.name} waits for {other.name}")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The CPU taken for a device with streams."""
    found: list[str] = []
    main = Stream("main", found)
    monkeypatch.setattr(ahead, "side_stream", lambda device: Stream("side", found))
    monkeypatch.setattr(torch.accelerator, "current_stream", lambda device: main)
    monkeypatch.setattr(Tensor, "record_stream", lambda tensor, stream: found.append(f"kept for {stream.name}"))
    return found


def numbered(count: int, log: list[str], error: BaseException | None = None) -> Iterator[Any]:
    for number in range(count):
        log.append(f"make {number}")
        yield (torch.tensor(number), torch.tensor(-number)), number
    if error is not None:
        raise error


def test_a_device_with_one_queue_makes_nothing_ahead() -> None:
    made: list[str] = []
    batches = made_ahead(numbered(3, made), CPU)
    assert side_stream(CPU) is None and side_stream(torch.device("meta")) is None
    assert next(batches)[1] == 0 and made == ["make 0"]


def test_what_is_made_is_waited_for_and_kept(log: list[str]) -> None:
    batches = made_ahead(numbered(5, log), CPU)
    (one, other), number = next(batches)
    made = [line for n in range(3) for line in ("on side", f"make {n}", f"event {n + 1}", "off side")]
    handed = ["main waits for event 1", "kept for main", "kept for main"]
    assert log == ["side waits for main", *made, *handed]
    assert (int(one), int(other), number) == (0, 0, 0)
    log.clear()
    assert next(batches)[1] == 1
    assert log == ["on side", "make 3", "event 4", "off side", "main waits for event 2", *handed[1:]]
    assert [number for _, number in batches] == [2, 3, 4]


def test_never_more_than_two_are_ahead(log: list[str]) -> None:
    for handed, _ in enumerate(made_ahead(numbered(9, log), CPU), 1):
        assert sum(line.startswith("make") for line in log) == min(handed + MOST, 9)


def test_an_error_comes_after_the_batches_before_it(log: list[str]) -> None:
    batches = made_ahead(numbered(4, log, UsageError("the fifth")), CPU)
    assert [number for _, number in islice(batches, 4)] == [0, 1, 2, 3]
    with pytest.raises(UsageError, match="the fifth"):
        next(batches)
    with pytest.raises(Interrupted):  # at once
        next(made_ahead(numbered(1, log, Interrupted()), CPU))


def source(count: int) -> Source:
    pixels = np.random.default_rng(0).integers(0, 256, (count, 20, 20, 3), dtype=np.uint8)
    return Source("noise", "train", Pixels(pixels), classes=["0", "1"], labels=np.arange(count) % 2)


def train(resident: bool, at_once: int = 1) -> TrainLoader:
    made = TrainLoader(
        source(40), VIEWS, batch_size=8, accumulation=2, seed=0, device="cpu", workers=0,
        resident_bytes=2**30 if resident else 0,
    )  # fmt: skip
    made._at_once = at_once
    if not resident:
        made._pixels = None
    return made


def pairs(steps: Iterator[Iterator[Any]], left_early: bool = False) -> list[list[Any]]:
    return [list(islice(step, 1 if left_early else None)) for step in steps]


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, Tensor):
        return torch.equal(found, expected)
    return len(found) == len(expected) and all(map(same, found, expected))


@pytest.mark.parametrize("left_early", [False, True])
@pytest.mark.parametrize(("resident", "at_once"), [(True, 1), (True, 3), (False, 1)])
def test_steps_are_those_of_nothing_ahead_from_any_step_on(
    resident: bool, at_once: int, left_early: bool, request: pytest.FixtureRequest
) -> None:
    plain = [pairs(train(resident, at_once).epoch(epoch), left_early) for epoch in (0, 1)]
    log = request.getfixturevalue("log")
    loader = train(resident, at_once)
    assert same([pairs(loader.epoch(epoch), left_early) for epoch in (0, 1)], plain)
    assert log.count("on side") >= 20
    for start in (1, 4, 5):
        assert same(pairs(train(resident, at_once).epoch(1, start), left_early), plain[1][start:])


@pytest.mark.parametrize("stop", [1, 4, 6, 9])
def test_a_stream_goes_on_after_what_was_handed_out(stop: int, request: pytest.FixtureRequest) -> None:
    def loader() -> StreamLoader:
        return StreamLoader(
            Numbered(7, 8, 3), VIEWS, steps_per_epoch=12, batch_size=4, accumulation=2, seed=0, device="cpu",
            workers=0, shuffle_buffer=5,
        )  # fmt: skip

    plain = pairs(loader().epoch(0))
    log = request.getfixturevalue("log")
    first, second = loader(), loader()
    done = pairs(islice(first.epoch(0), stop))
    second.load_state(first.state())
    assert same(done + pairs(second.epoch(0, stop)), plain) and "on side" in log
    first.close(), second.close()


def test_labelled_batches_are_those_of_nothing_ahead(request: pytest.FixtureRequest) -> None:
    def epoch() -> list[Any]:
        loader = LabelledCrops(
            source(20), size=16, mean=(0.5,) * 3, std=(0.25,) * 3, batch_size=8, micro_batch_size=4, seed=0,
            device="cpu", workers=0,
        )  # fmt: skip
        return [list(batch) for _, batch in loader.epoch(3)]

    plain = epoch()
    log = request.getfixturevalue("log")
    assert same(epoch(), plain) and log.count("kept for main") == 10


def test_a_stopped_run_goes_on_to_the_same_bits(log: list[str], tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    settings = {"train.max_steps": 4, "train.batch_size": 8, "runtime.knn_every_epochs": 0, "runtime.workers": 0}

    def run(name: str, **options: Any) -> bytes:
        folder = ssl_hub.pretrain("directpred-digits", output=tmp_path / name, overrides=settings, **options)
        return (folder / "method.safetensors").read_bytes()

    monkeypatch.setattr("ssl_hub.train.loop.measure", lambda *_, **__: ([], None))
    straight, enough = run("straight"), len(log) + 30
    with monkeypatch.context() as stopping:
        stopping.setattr("ssl_hub.train.loop.Agreement", lambda *_, **__: lambda flags: [len(log) > enough, *flags[1:]])
        with pytest.raises(Interrupted):
            run("stopped")
    monkeypatch.setattr(ahead, "side_stream", side_stream)
    assert run("stopped", resume=True) == straight  # and nothing ahead from there on
