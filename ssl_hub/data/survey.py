"""The inventory of a whole dataset: each of its splits, what they are called, and images that are in two of them."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from typing import Any

from ssl_hub.atomic import expanded
from ssl_hub.data.addresses import has_ending, is_address
from ssl_hub.data.columns import holds_no_images
from ssl_hub.data.endings import ARCHIVES, TABLES, image_endings
from ssl_hub.data.file_splits import files_below, missing_files
from ssl_hub.data.fingerprint import fingerprint
from ssl_hub.data.images import Source
from ssl_hub.data.inventory import Progress, inventory, summary, without_progress
from ssl_hub.data.layouts import find_layout
from ssl_hub.data.look import look_at
from ssl_hub.data.overlap import duplicates
from ssl_hub.data.passed_over import MISSING, PassedOver
from ssl_hub.data.reading import Reading
from ssl_hub.data.registered import SOURCES
from ssl_hub.data.shard_files import shard_files
from ssl_hub.data.shards import Shards, open_shards
from ssl_hub.data.splits import WORDS, meaning
from ssl_hub.data.value_range import AUTO, ValueRange
from ssl_hub.errors import UsageError

_ORDER = {split: place for place, split in enumerate(WORDS)}  # in which splits are named
CHEAP_BYTES = 256 * 2**20  # data up to this size is compared without being asked
_FEW = 500  # images of a split that are all read without being asked
_OF_A_STREAM = 64  # images of a stream's first shard that are looked at


def survey(
    data: str,
    *,
    image_column: str | None = None,
    label_column: str | None = None,
    value_range: str = "auto",
    thorough: bool = False,
    progress: Progress = without_progress,
) -> dict[str, Any]:
    """All that is known of ``data`` without training on it, as plain JSON.

    Keys: ``data``; ``is_path`` (whether it is no name of registered data or of the Hub);
    ``stream`` (whether it can be read as nothing else); ``range``; ``thorough``; ``splits``, each an
    :func:`~ssl_hub.data.inventory.inventory` with ``called``, what the data calls it, and a ``fingerprint``, or with
    ``error``, why it cannot be opened; and ``duplicates``, None where contents were not compared (over 256 MB, unless
    ``thorough``).

    Raises :class:`UsageError` where no split can be opened.
    """
    values = ValueRange.parse(value_range)
    is_path = data not in SOURCES and expanded(data).exists()
    found: dict[str, Any] = {
        "data": data,
        "is_path": is_path,
        "stream": False,
        "range": value_range,
        "thorough": thorough,
    }
    if files := _streamed(data):
        return found | {"stream": True, "splits": _of_streams(data, files, image_column, values), "duplicates": None}
    layout = find_layout(data, Reading(image_column, label_column, values))
    splits: dict[str, Any] = {}
    opened: dict[str, Source] = {}
    first_error: UsageError | None = None
    names = layout.splits
    for split in sorted(names, key=lambda name: _ORDER.get(meaning(name) or "", len(_ORDER))):
        try:
            source = layout.open(split)
        except UsageError as error:
            first_error = first_error or error
            splits[split] = {"called": names[split], "error": str(error)}
            continue
        opened[split] = source
        whole = thorough or len(source) <= _FEW
        known = inventory(source, values=values, thorough=whole, progress=progress)
        splits[split] = {"called": names[split]} | known | {"fingerprint": fingerprint(source)}
    if not opened:
        raise first_error or UsageError(f"{data} has no split")
    found["data"] = next(iter(opened.values())).name
    compared = thorough or sum(_stored_bytes(source) for source in opened.values()) <= CHEAP_BYTES
    return found | {"splits": splits, "duplicates": duplicates(opened, progress) if compared else None}


def _stored_bytes(source: Source) -> int:
    """Bytes of a source's images as they are stored; the sum stops soon after it exceeds CHEAP_BYTES."""
    total = 0
    for position in range(len(source)):
        try:
            encoded = source.stored(position)
            if encoded is None:
                total += source.array(position).nbytes
            else:
                total += len(encoded[0]) if isinstance(encoded[0], bytes) else Path(encoded[0]).stat().st_size
        except (OSError, UsageError):
            continue
        if total > CHEAP_BYTES:
            break
    return total


def _streamed(data: str) -> dict[str, list[str]]:
    """Files by split of what can be read as a stream alone: an address, a pattern, archives."""
    path = expanded(data)
    archives = _archives_alone(path) if path.is_dir() else path.is_file() and has_ending(data, ARCHIVES)
    if not (archives or is_address(data) or (re.search(r"[*{\[]", data) and not path.exists())):
        return {}
    return shard_files(data) or {}


def _archives_alone(folder: Path) -> bool:
    """Whether a folder has archives and neither tables of images nor images, which would be read and not they."""
    tables = files_below(folder, TABLES).values()
    if not files_below(folder, ARCHIVES) or not all(map(holds_no_images, islice(tables, 1))):
        return False
    return not any(path.suffix.lower() in image_endings() for path in folder.rglob("*"))


def _of_streams(data: str, files: dict[str, list[str]], image_column: str | None, values: ValueRange) -> dict[str, Any]:
    return {
        split: {"called": "", "shards": len(its)}
        | start_of_stream(open_shards(data, split, image_column=image_column), values)
        for split, its in files.items()
    }


def start_of_stream(shards: Shards, values: ValueRange = AUTO) -> dict[str, Any]:
    """What is known of a stream without reading it: an inventory that has looked at its first images alone."""
    passed = PassedOver(shards.passed_over)
    if gone := missing_files(shards.names()):
        passed.add(MISSING, gone[0], len(gone))
    looks = [look_at((image.file, image.name), values) for image in islice(shards.read(0, 0), _OF_A_STREAM)]
    return {
        "images": shards.images, "classes": None, "unlabelled": None, "endings": {}, "passed_over": passed.as_json(),
        "looked_at": summary(looks, values),
    }  # fmt: skip
