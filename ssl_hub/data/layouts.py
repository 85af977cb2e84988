"""How data lies: the one protocol of all layouts, and which of them a name means."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from ssl_hub.atomic import expanded
from ssl_hub.data.addresses import is_address, shown
from ssl_hub.data.folders import ImageFolder
from ssl_hub.data.hub_datasets import hub_address
from ssl_hub.data.images import Source
from ssl_hub.data.reading import Reading
from ssl_hub.data.registered import SOURCES, Registered
from ssl_hub.data.tables import copy_of_hub, find_table, hub_table
from ssl_hub.errors import UsageError


class Layout(Protocol):
    """A dataset that is found and not yet read.

    ``name`` is what messages call it. ``splits`` are the names that splits are recorded under, with what the data
    itself calls them (``{"train": "Training"}``); empty text where it has no word for it.
    """

    name: str

    @property
    def splits(self) -> Mapping[str, str]: ...

    def open(self, split: str) -> Source:
        """The images and labels of the split that ``split`` means; UsageError where there is none such."""
        ...


def find_layout(data: str, reading: Reading) -> Layout:
    """The first that fits: a registered name, a path that exists, a dataset of the Hub. Else UsageError. Warns of a
    folder that has the name of registered data."""
    if data in SOURCES:
        if os.path.isdir(data):
            warnings.warn(f"{data!r} is the registered data, not the folder: write ./{data} for that", stacklevel=2)
        return Registered(data, reading)
    if is_address(data):
        raise UsageError(
            f"{shown(data)} is an address, which pre-training alone reads, as a stream: set data.stream=true; to "
            "measure on it, give a local folder of images or tables"
        )
    path = expanded(data)
    if path.exists():
        return _of_path(path, reading)
    folder, _, config = data.rpartition(":")
    if folder and expanded(folder).is_dir():
        return copy_of_hub(expanded(folder), config, reading)
    address = hub_address(data)
    registered = ", ".join(repr(name) for name in SOURCES.names())
    if address is None:
        raise UsageError(f"data path {data!r} does not exist; give a folder that does, or one of {registered}")
    try:
        return hub_table(data, address, reading)
    except UsageError as error:
        raise UsageError(
            f"data {data!r} is no registered name ({registered}), no path that exists, and no Hub dataset that "
            f"loads: {error}"
        ) from error.__cause__


def _of_path(path: Path, reading: Reading) -> Layout:
    """Tables come first: a saved dataset holds nothing else, and parquet files may lie beside example images.
    But those that are about images beside them, and hold none, are no table.
    """
    if not path.is_dir():
        raise UsageError(f"data path '{path}' is a file; give the folder of images or parquet files it lies in")
    return find_table(path, reading) or ImageFolder(path, reading)
