"""Labelled batches: every image once an epoch with its own label, whatever the number of ranks or micro-batches."""

import numpy as np
import pytest
import torch

from ssl_hub.data.images import Source
from ssl_hub.data.labelled import LabelledCrops, batch_shares
from ssl_hub.data.stored import Pixels

MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)


def grey(count, size=10):
    """Image i is filled with grey i, and its label is i: a crop says which image it is of."""
    pixels = np.broadcast_to(np.arange(count, dtype=np.uint8)[:, None, None, None], (count, size, size, 3)).copy()
    return Source("grey", "train", Pixels(pixels), classes=[str(i) for i in range(count)], labels=np.arange(count))


def crops(source, **changes):
    settings = {"batch_size": 6, "micro_batch_size": 4, "seed": 0, "device": "cpu", "workers": 0, "size": 8}
    return LabelledCrops(source, **{**settings, "mean": MEAN, "std": STD, **changes})


def epoch(loader, number=0, start=0):
    """(size over all ranks, images, labels) of each batch of this rank."""
    found = []
    for size, parts in loader.epoch(number, start):
        parts = list(parts)
        images, labels = (torch.cat(tensors) for tensors in zip(*parts, strict=True)) if parts else (None, [])
        found.append((size, images, list(map(int, labels))))
    return found


def test_every_image_once_with_its_own_label():
    batches = epoch(crops(grey(22)))
    assert [size for size, _, _ in batches] == [6, 6, 6, 4]
    assert sorted(label for _, _, labels in batches for label in labels) == list(range(22))
    for _, images, labels in batches:
        greys = (images * 0.25 + 0.5).mean(dim=(1, 2, 3)) * 255
        assert greys.round().int().tolist() == labels


@pytest.mark.parametrize("world", [2, 3, 5])
def test_ranks_share_the_batches_of_one_process(world):
    noise = np.random.default_rng(0).integers(0, 256, (22, 10, 10, 3), dtype=np.uint8)
    source = Source("noise", "train", Pixels(noise), classes=[str(i) for i in range(22)], labels=np.arange(22))
    whole = epoch(crops(source))
    ranks = [epoch(crops(source, rank=rank, world=world)) for rank in range(world)]
    for index, (size, images, labels) in enumerate(whole):
        assert {found[index][0] for found in ranks} == {size}
        shares = [found[index] for found in ranks]
        assert sorted(label for _, _, own in shares for label in own) == sorted(labels)
        for _, own_images, own in shares:
            for place, label in enumerate(own):
                same = images[labels.index(label)]  # the same crop on any rank, up to the rounding of its resize
                assert (own_images[place] - same).abs().max() < 1e-5


def test_an_epoch_and_the_seed_give_new_orders_and_crops_and_repeat():
    noise = np.random.default_rng(0).integers(0, 256, (8, 10, 10, 3), dtype=np.uint8)
    source = Source("noise", "train", Pixels(noise), classes=["a"], labels=np.zeros(8))
    loader = crops(source, batch_size=8, micro_batch_size=8)
    (_, first, _), (_, again, _), (_, second, _) = (epoch(loader, number)[0] for number in (0, 0, 1))
    (_, other, _) = epoch(crops(source, batch_size=8, micro_batch_size=8, seed=1))[0]
    assert torch.equal(first, again)
    every = torch.cat([first, second, other]).flatten(1)
    assert len(every.unique(dim=0)) == len(every)


def test_start_step_continues_an_epoch():
    straight, resumed = epoch(crops(grey(22))), epoch(crops(grey(22)), start=2)
    assert [labels for _, _, labels in resumed] == [labels for _, _, labels in straight[2:]]
    assert all(torch.equal(a[1], b[1]) for a, b in zip(resumed, straight[2:], strict=True))


def test_drop_last_leaves_full_batches_only():
    loader = crops(grey(22), drop_last=True)
    assert loader.steps_per_epoch == 3 and [size for size, _, _ in epoch(loader)] == [6, 6, 6]


def test_images_that_are_not_resident_give_nearly_the_same_crops():
    """Cut by PIL, in eight bits, from images that a worker decodes: within a grey level of those cut on the device."""
    noise = np.random.default_rng(0).integers(0, 256, (6, 12, 12, 3), dtype=np.uint8)
    source = Source("noise", "train", Pixels(noise), classes=["a", "b"], labels=np.arange(6) % 2)
    held, read = crops(source), crops(source)
    read._pixels = None
    (_, one, labels), (_, two, also) = epoch(held)[0], epoch(read)[0]
    assert labels == also
    assert ((one - two).abs() * 0.25 * 255).max() < 1.01


def test_shares_of_more_ranks_than_rows_may_be_empty():
    shares = [batch_shares(4, batch_size=3, micro_batch_size=2, seed=0, epoch=0, rank=r, world=2) for r in range(2)]
    assert [[size for size, _ in share] for share in shares] == [[3, 1], [3, 1]]
    assert [sum(map(len, share[1][1])) for share in shares] == [1, 0]
