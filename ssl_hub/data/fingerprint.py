"""What tells one set of images from another, cheaply enough to be taken whenever data is opened."""

from __future__ import annotations

import hashlib

import numpy as np

from ssl_hub.data.images import Source
from ssl_hub.data.shards import Shards

SAMPLED = 64  # images whose stored bytes count


def fingerprint(data: Source | Shards) -> str:
    """Hexadecimal sha256 of what is seen without reading all: the number of images, the paths below the root where
    they are files, the labels, and the stored bytes of up to 64 images evenly spaced. Of a stream: its shards' names.

    Equal for copies of the same data in other folders and on other machines.
    """
    digest = hashlib.sha256()
    if not isinstance(data, Source):
        for word in (data.images, *data.names()):
            digest.update(f"{word}\n".encode(errors="surrogateescape"))
        return digest.hexdigest()
    digest.update(f"{len(data)}\n".encode())
    for path in data.paths() or ():
        digest.update(f"{path}\n".encode(errors="surrogateescape"))
    if data.labels is not None:
        digest.update(np.ascontiguousarray(data.labels).tobytes())
    for index in np.unique(np.linspace(0, max(len(data) - 1, 0), SAMPLED).round().astype(int))[: len(data)]:
        digest.update(hashlib.sha256(data.encoded(int(index))).digest())
    return digest.hexdigest()
