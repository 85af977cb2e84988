"""No batch waits for an accelerator, and its views ask little of one: counted on torch's meta device."""

import sys

import numpy as np
import pytest
import torch

import ssl_hub
from ssl_hub.data.images import Source
from ssl_hub.data.labelled import LabelledCrops
from ssl_hub.data.loaders import TrainLoader, views_of_crops
from ssl_hub.data.stored import Pixels
from ssl_hub.data.views import TwoViews
from ssl_hub.model.devices import to_device
from tests.end_to_end.test_launchers import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
try:
    from step_counts import VIEWS, Asked, count_views, pretended
finally:
    sys.path.pop(0)

META = torch.device("meta")
STRONG = ssl_hub.get_recipe("byol-r50-300ep", **{"views.size": 32}).views  # with every operation


def source(count: int) -> Source:
    pixels = np.zeros((count, 32, 32, 3), np.uint8)
    return Source("black", "train", Pixels(pixels), classes=["0"], labels=np.zeros(count, np.int64))


@pytest.mark.parametrize("name", VIEWS)
def test_views_are_a_few_hundred_launches_and_three_uploads_each(name: str) -> None:
    found = count_views(ssl_hub.get_recipe(name))
    assert found["host_reads"] == 0 and found["uploads"] <= 6 and found["launches"] <= 660, found


def test_views_of_crops_of_workers_do_not_wait() -> None:
    with pretended(), Asked() as asked:
        crops = [torch.zeros(64, 32, 32, 3, dtype=torch.uint8).pin_memory() for _ in range(2)]
        views = views_of_crops(TwoViews(STRONG, seed=0), crops, np.arange(64), 0, META, torch.channels_last)
    assert all(view.device == META for view in views)
    assert not asked.reads and asked.uploads == 6, dict(asked.reads)


@pytest.mark.parametrize("channels_last", [False, True])
def test_batches_that_lie_on_the_device_do_not_wait(channels_last: bool) -> None:
    settings = {"seed": 0, "device": META, "workers": 0, "batch_size": 16}
    views = TwoViews(STRONG, seed=0)
    with pretended():
        train = TrainLoader(source(64), views, channels_last=channels_last, **settings)  # type: ignore[arg-type]
        with Asked() as asked:
            assert sum(len(first) for step in train.epoch(0) for first, _ in step) == 64
    assert not asked.reads, dict(asked.reads)


def test_labelled_batches_that_lie_on_the_device_do_not_wait() -> None:
    normal = {"mean": (0.5,) * 3, "std": (0.25,) * 3}
    with pretended():
        labelled = LabelledCrops(
            source(64), size=24, batch_size=16, micro_batch_size=16, seed=0, device=META, workers=0, **normal
        )
        with Asked() as asked:
            assert sum(len(labels) for _, batch in labelled.epoch(0) for _, labels in batch) == 64
    assert not asked.reads, dict(asked.reads)


def test_what_waits_is_counted() -> None:
    array = np.zeros(4, np.float32)
    with pretended(), Asked() as asked:
        to_device(array, META)
        assert not asked.reads
        torch.from_numpy(array).clone().to(META, non_blocking=True)  # not pinned
        torch.from_numpy(array).pin_memory().to(META)
        torch.tensor([1.0], device=META)
    assert asked.reads == {"upload by to": 2, "upload by tensor": 1} and asked.uploads == 3
