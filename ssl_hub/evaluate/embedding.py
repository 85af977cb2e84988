"""What a frozen backbone makes of images: features in a table, and the images that are nearest to one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from ssl_hub.atomic import expanded, refuse_missing_folder, replace_file
from ssl_hub.data.decoding import decode, to_rgb
from ssl_hub.data.look import digest
from ssl_hub.data.overlap import content_of
from ssl_hub.data.sources import Source, open_source
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.extraction import known_of, warn_of_dim_images, warn_of_what_was_left_out
from ssl_hub.evaluate.features import Features, extract
from ssl_hub.evaluate.knn import largest
from ssl_hub.evaluate.labels import UNLABELLED
from ssl_hub.evaluate.picture_rows import row_of
from ssl_hub.evaluate.similarity_index import kept
from ssl_hub.evaluate.subject import Subject, check_pools, open_model, range_of
from ssl_hub.limits import COUNT
from ssl_hub.model.devices import usual_device

if TYPE_CHECKING:
    from datasets import Dataset

QUERIES_AT_ONCE = 1024


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """An image near another one: ``similarity`` is the cosine of their features, ``row`` its place in its split, and
    ``same`` says that it has the same content, so that finding it says nothing of the features."""

    id: str
    row: int
    label: str | None
    similarity: float
    same: bool = False


def embed(
    model: str | Path | nn.Module,
    data: str | None = None,
    *,
    split: str = "test",
    out: str | Path,
    image_column: str | None = None,
    label_column: str | None = None,
    batch_size: int = 256,
    workers: int = 4,
) -> Path:
    """Write the features of every image of a split to a parquet file, in the split's order.

    Columns: ``id`` (a file's path below the data's root, else the place in the split), ``label`` (an index whose class
    names ``datasets`` knows; null where unknown), ``class`` (the name), and ``features``, float32, a list of the
    backbone's fixed width C. Any parquet reader reads it.

    Args:
        model: as in :func:`ssl_hub.knn`.
        data: a registered name, path or Hub dataset id; by default what the release was pre-trained on.
        out: the file, which ends in ``.parquet``.

    Raises:
        UsageError: another ending, a folder that does not exist, or what opening the model and data raises.
    """
    path = expanded(out)
    if path.suffix != ".parquet":
        raise UsageError(f"features go to a parquet file, got {path.name!r}; name it {path.stem or 'features'}.parquet")
    refuse_missing_folder(path)
    subject = open_model(model)
    source = open_split(subject, data, split, image_column=image_column, label_column=label_column)
    features = features_of(subject, source, batch_size=batch_size, workers=workers)
    table = _table(source, features)
    replace_file(path, lambda aside: table.to_parquet(str(aside)))
    return path


def similar(
    model: str | Path | nn.Module,
    image: str | Path | Image.Image,
    data: str | None = None,
    *,
    split: str = "train",
    k: int = 8,
    out: str | Path | None = None,
    index: str | Path | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
    batch_size: int = 256,
    workers: int = 4,
) -> list[Neighbour]:
    """The ``k`` images of a split whose features have the highest cosine similarity to those of ``image``, best first.

    Args:
        model: as in :func:`ssl_hub.knn`.
        image: a file or a PIL image.
        data: a registered name, path or Hub dataset id; by default what the release was pre-trained on.
        k: how many; all where the split has fewer.
        out: a picture of the image and its neighbours, of any format that Pillow writes.
        index: a folder where the features of the split are kept, and taken from the next time; see
            :mod:`ssl_hub.evaluate.similarity_index`.

    Raises:
        UsageError: k below 1, an image that cannot be read, or what opening the model and data raises.
    """
    COUNT.check("k", k)
    if out is not None:
        refuse_missing_folder(expanded(out))
        _format_of(out)
    subject = open_model(model)
    values = subject.transform.values
    query = to_rgb(image, values) if isinstance(image, Image.Image) else decode(image, str(image), values)
    content = None if isinstance(image, Image.Image) else digest((str(image), str(image)))
    source = open_split(subject, data, split, image_column=image_column, label_column=label_column)
    make = partial(features_of, subject, source, batch_size=batch_size, workers=workers)
    bank = make() if index is None else kept(index, subject, source, make)[0]
    asked = features_of(subject, Source("image", "query", [query]), batch_size=1, workers=0)
    similarities, rows = nearest(bank.x, asked.x, k)
    neighbours = [
        Neighbour(
            id=source.id(row),
            row=row,
            label=class_of(source, row),
            similarity=similarity,
            same=content is not None and content_of(source, row) == content,
        )
        for similarity, row in zip(similarities[0].tolist(), rows[0].tolist(), strict=True)
    ]
    if out is not None:
        sheet = neighbour_sheet(query, [(source.image(n.row), _caption(n)) for n in neighbours])
        replace_file(expanded(out), lambda aside: sheet.save(aside, format=_format_of(out)))
    return neighbours


def _format_of(out: str | Path) -> str:
    """Pillow's name of the format that a file's ending asks for."""
    ending = Path(out).suffix.lower()
    if ending not in Image.registered_extensions():
        raise UsageError(f"Pillow writes no {Path(out).suffix or 'file without an ending'}; use .png or .jpg")
    return Image.registered_extensions()[ending]


def open_split(
    subject: Subject,
    data: str | None,
    split: str,
    *,
    image_column: str | None = None,
    label_column: str | None = None,
) -> Source:
    """A split of ``data``, by default of what trained the subject; columns left out are its recipe's for that data."""
    name, known = known_of(subject.recipe, data)
    values = range_of(subject)
    source = open_source(
        name,
        split,
        image_column=image_column or known.image_column,
        label_column=label_column or known.label_column,
        value_range=values,
    )
    warn_of_dim_images(source, values)
    warn_of_what_was_left_out([source])
    return source


def features_of(subject: Subject, source: Source, *, batch_size: int = 256, workers: int = 4) -> Features:
    """Features of a source, on a GPU where there is one."""
    check_pools(subject.model)
    device = usual_device()
    model = subject.model.to(device)
    return extract(model, source, subject.transform, batch_size=batch_size, workers=workers, device=device)


@torch.no_grad()
def nearest(bank: np.ndarray, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosine similarities [Q, k], descending, and rows [Q, k] of the ``k`` (all, where fewer) nearest rows of a bank.

    Legend: N bank rows, Q queries, C width. ``bank`` [N, C] and ``queries`` [Q, C] are float32; a zero vector has
    similarity 0 to all. Rows that are equally near come in their order.
    """
    normalise = torch.nn.functional.normalize
    unit = normalise(torch.from_numpy(bank))
    found = [
        largest((normalise(chunk) @ unit.T).clamp_(-1, 1), min(k, len(unit)))
        for chunk in torch.from_numpy(queries).split(QUERIES_AT_ONCE)
    ]
    similarities, rows = (torch.cat(parts).numpy() for parts in zip(*found, strict=True))
    order = np.lexsort((rows, -similarities), axis=1)
    return np.take_along_axis(similarities, order, axis=1), np.take_along_axis(rows, order, axis=1)


def class_of(source: Source, row: int) -> str | None:
    """The class name of an image, or None where its label is unknown."""
    if source.classes is None or source.labels is None or source.labels[row] == UNLABELLED:
        return None
    return source.classes[source.labels[row]]


def neighbour_sheet(query: Image.Image, neighbours: Sequence[tuple[Image.Image, str]]) -> Image.Image:
    """One row: the query, a gap, then each neighbour over its caption."""
    asked, found = row_of([(query, "query")]), row_of(neighbours)
    sheet = Image.new("RGB", (asked.width + found.width, found.height), "white")
    sheet.paste(asked, (0, 0))
    sheet.paste(found, (asked.width, 0))
    return sheet


def _caption(neighbour: Neighbour) -> str:
    name = " ".join((neighbour.label if neighbour.label is not None else neighbour.id).split())
    return f"{name}\n{neighbour.similarity:.3f}"


def _table(source: Source, features: Features) -> Dataset:
    from datasets import ClassLabel, Dataset, List, Value
    from datasets import Features as Columns

    rows = range(len(source))
    known = [None if label == UNLABELLED else int(label) for label in features.y]
    columns: dict[str, Any] = {
        "id": Value("string"),
        "label": Value("int64") if source.classes is None else ClassLabel(names=list(source.classes)),
        "class": Value("string"),
        "features": List(Value("float32"), length=features.width),
    }
    content = {
        "id": [source.id(row) for row in rows],
        "label": known,
        "class": [class_of(source, row) for row in rows],
        "features": features.x,
    }
    return Dataset.from_dict(content, features=Columns(columns))
