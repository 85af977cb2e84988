"""What a run is fed: the loader of this process's views, and what is known of the images before the first step."""

from __future__ import annotations

import sys
from typing import Any

from accelerate import Accelerator

from ssl_hub.config import Recipe
from ssl_hub.data.bad_images import skipping
from ssl_hub.data.inventory import for_the_record, inventory
from ssl_hub.data.loaders import Loader, TrainLoader
from ssl_hub.data.shards import open_shards
from ssl_hub.data.sources import open_part
from ssl_hub.data.streams import StreamLoader, left_over, steps_per_epoch
from ssl_hub.data.survey import start_of_stream
from ssl_hub.data.value_range import ValueRange
from ssl_hub.data.views import TwoViews
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.agreement import everywhere, same_data
from ssl_hub.zoo.advice import while_training


def open_loader(recipe: Recipe, accelerator: Accelerator) -> tuple[TrainLoader | StreamLoader, int | None, str]:
    """Where this process's views come from, the number of images that they are of (None where unknown), and what tells
    these images from others: the same on all processes."""
    data, schedule = recipe.data, recipe.train
    views = TwoViews(recipe.views, seed=schedule.seed)
    settings: dict[str, Any] = {
        "batch_size": schedule.batch_size,
        "accumulation": schedule.accumulation,
        "rank": accelerator.process_index,
        "world": accelerator.num_processes,
        "seed": schedule.seed,
        "device": accelerator.device,
        "workers": recipe.runtime.workers,
        "channels_last": recipe.runtime.channels_last,
    }
    max_bad_images = data.max_bad_images if data.on_bad_image == "skip" else None
    if data.stream:
        if data.label_column is not None:
            raise UsageError(
                f"data.label_column is {data.label_column!r}, and a stream's labels are not read; set it to none"
            )
        shards = everywhere(
            accelerator, lambda: open_shards(data.name, data.pretrain_split, image_column=data.image_column)
        )
        fingerprint = same_data(accelerator, shards)
        steps = steps_per_epoch(
            shards.images, schedule.batch_size, epochs=schedule.epochs, max_steps=schedule.max_steps
        )
        settings |= {"shuffle_buffer": data.shuffle_buffer, "max_bad_images": max_bad_images, "value_range": data.range}
        return StreamLoader(shards, views, steps_per_epoch=steps, **settings), shards.images, fingerprint
    source = everywhere(accelerator, lambda: open_part(data, data.pretrain_split))
    fingerprint = same_data(accelerator, source)
    if max_bad_images is not None:
        source = skipping(source, max_bad_images)
    return everywhere(accelerator, lambda: TrainLoader(source, views, **settings)), len(source), fingerprint


def inventory_of(recipe: Recipe, loader: Loader) -> dict[str, Any] | None:
    """What the run trains on, without names of files; what is wrong with it is said. Of a stream the start is looked
    at, and nothing recorded."""
    values = ValueRange.parse(recipe.data.range)
    if isinstance(loader, TrainLoader):
        known = inventory(loader.source, values=values)
        recorded = for_the_record(known)
    else:
        assert isinstance(loader, StreamLoader)
        order = loader.order
        known, recorded = start_of_stream(order.shards, values), None
        if (said := left_over(len(order.shards), order.world)) is not None:
            print(f"warning: {said}", file=sys.stderr)
    for warning in while_training(recipe.data.pretrain_split, known):
        print(f"warning: {warning}", file=sys.stderr)
    return recorded
