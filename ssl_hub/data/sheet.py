"""A contact sheet of originals and their views, so that a person can look at what a recipe makes of the data."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont, ImageOps
from torch import Tensor

from ssl_hub.atomic import expanded, refuse_missing_folder, replace_file
from ssl_hub.config import Recipe, Views
from ssl_hub.data.bad_images import skipping
from ssl_hub.data.decoding import decode
from ssl_hub.data.shards import open_shards
from ssl_hub.data.sources import open_part
from ssl_hub.data.streams import Cursor, StreamOrder
from ssl_hub.data.value_range import ValueRange
from ssl_hub.data.views import TwoViews
from ssl_hub.errors import UsageError

_LEAST_CELL = 96  # pixels; smaller views are enlarged by a whole factor
_GAP, _TEXT = 4, 14  # pixels


class Sample(NamedTuple):
    """An image, the index (``number``) that its views are drawn by, and what to write under it."""

    image: Image.Image
    number: int
    caption: str


def sheet_of(recipe: Recipe, *, images: int = 8, draws: int = 3) -> Image.Image:
    """``images`` of a recipe's pre-training data, evenly spaced over it, as :func:`contact_sheet` lays them out."""
    if images < 1 or draws < 1:
        raise UsageError(f"a sheet of {images} images with {draws} draws is empty; both must be at least 1")
    samples = _of_stream(recipe, images) if recipe.data.stream else _of_source(recipe, images)
    return contact_sheet(samples, recipe.views, seed=recipe.train.seed, draws=draws)


def _of_source(recipe: Recipe, count: int) -> list[Sample]:
    data = recipe.data
    source = open_part(data, data.pretrain_split)
    if data.on_bad_image == "skip":
        source = skipping(source, data.max_bad_images)
    samples = []
    for index in np.linspace(0, len(source) - 1, min(count, len(source))).round().astype(int).tolist():
        image = source.image(index)
        label = -1 if source.labels is None else int(source.labels[index])
        name = f", {source.classes[label]}" if source.classes is not None and label >= 0 else ""
        samples.append(Sample(image, index, f"{source.id(index)}{name}, {image.width} x {image.height}"))
    return samples


def _of_stream(recipe: Recipe, count: int) -> list[Sample]:
    data = recipe.data
    shards = open_shards(data.name, data.pretrain_split, image_column=data.image_column)
    order = StreamOrder(shards, seed=recipe.train.seed, rank=0, world=1, window=count)
    samples = []
    for (index, name, file), _ in islice(order.after(Cursor()), count):
        image = decode(file, name, ValueRange.parse(data.range))
        samples.append(Sample(image, index, f"{name.split(' in ')[0]}, {image.width} x {image.height}"))
    return samples


def contact_sheet(samples: Sequence[Sample], views: Views, *, seed: int = 0, draws: int = 3) -> Image.Image:
    """A row for each sample: the original, then ``draws`` draws of view 1 and of view 2, denormalised.

    Draw ``k`` is what a run with this seed is shown in epoch ``k``.
    """
    cell = views.size * max(1, -(-_LEAST_CELL // views.size))
    titles = ["original", *(f"view {view + 1}, draw {draw}" for view in range(2) for draw in range(draws))]
    width, height = (_GAP + cell) * len(titles) + _GAP, _GAP + _TEXT + (cell + _TEXT + _GAP) * len(samples)
    sheet = Image.new("RGB", (width, height), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(_TEXT - 3)
    lefts = [_GAP + (cell + _GAP) * column for column in range(len(titles))]
    for left, title in zip(lefts, titles, strict=True):
        pen.text((left, 1), title, "black", font)
    drawn = _views_of(samples, views, seed, draws)
    for row, sample in enumerate(samples):
        top = _GAP + _TEXT + (cell + _TEXT + _GAP) * row
        enlarged = max(sample.image.size) < cell
        kernel = Image.Resampling.NEAREST if enlarged else Image.Resampling.BICUBIC
        sheet.paste(ImageOps.pad(sample.image, (cell, cell), kernel, "white"), (lefts[0], top))
        for left, view in zip(lefts[1:], drawn[row], strict=True):
            sheet.paste(Image.fromarray(view).resize((cell, cell), Image.Resampling.NEAREST), (left, top))
        pen.text((lefts[0], top + cell), sample.caption, "black", font)
    return sheet


def _views_of(samples: Sequence[Sample], views: Views, seed: int, draws: int) -> np.ndarray:
    """uint8 ``[samples, 2 * draws, S, S, 3]``: all draws of view 1, then all of view 2."""
    drawer = TwoViews(views, seed=seed)
    indices = [sample.number for sample in samples]
    columns: list[list[Tensor]] = [[], []]
    for draw in range(draws):
        crops = [drawer.crop(sample.image, sample.number, draw) for sample in samples]
        for view in range(2):
            stacked = torch.from_numpy(np.stack([pair[view] for pair in crops])).permute(0, 3, 1, 2)
            columns[view].append(drawer.photometric(stacked, indices, draw, view))
    mean, std = torch.tensor([views.mean, views.std])[:, :, None, None]
    values = torch.stack([*columns[0], *columns[1]], dim=1) * std + mean
    pixels: np.ndarray = values.mul(255).round().clamp(0, 255).byte().permute(0, 1, 3, 4, 2).numpy()
    return pixels


def save_sheet(sheet: Image.Image, path: str | Path) -> Path:
    """Write a sheet as the kind of picture that the file's name asks for; returns the path.

    Raises UsageError for an ending that is none of a picture, a folder that does not exist, or a disk that is full.
    """
    path = sheet_path(path)
    kind = Image.registered_extensions()[path.suffix.lower()]
    replace_file(path, lambda aside: sheet.save(aside, format=kind))
    return path


def sheet_path(path: str | Path) -> Path:
    """Where a sheet may be written, or the UsageError that :func:`save_sheet` would raise: before it is drawn."""
    path = expanded(path)
    if Image.registered_extensions().get(path.suffix.lower()) not in Image.SAVE:
        raise UsageError(f"{path.name} does not end as a picture does; give a .png or .jpg file")
    refuse_missing_folder(path)
    return path
