"""CIFAR-10 in one small file, for a machine that has neither pyarrow nor much bandwidth."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ssl_hub.data.images import Source
from ssl_hub.data.sources import SOURCES, open_source
from ssl_hub.data.stored import Pixels
from ssl_hub.errors import UsageError

PACKED = "cifar10-packed"


def pack(data: str, file: Path) -> None:
    """Both splits as JPEG files in one array, deflated: most of such a small file is tables that all have in common."""
    arrays: dict[str, Any] = {}
    for split in ("train", "test"):
        source = open_source(data, split)
        encoded = [encoded_image(source, index) for index in range(len(source))]
        arrays[f"{split}_files"] = np.frombuffer(b"".join(encoded), np.uint8)
        arrays[f"{split}_ends"] = np.cumsum([len(one) for one in encoded])
        arrays[f"{split}_labels"] = source.labels
        arrays["classes"] = np.array(source.classes)
    np.savez_compressed(file, **arrays)
    print(f"{file}: {file.stat().st_size / 2**20:.1f} MiB")


def encoded_image(source: Source, index: int) -> bytes:
    stored = source.stored(index)
    if stored is None:
        raise UsageError(f"{source.name} holds pixels and not files, which --pack packs: give the files' folder")
    return stored[0] if isinstance(stored[0], bytes) else Path(stored[0]).read_bytes()


def register_packed(file: Path) -> None:
    with np.load(file) as arrays:
        found = {name: arrays[name] for name in arrays.files}

    @SOURCES.register(PACKED)
    def packed(split: str) -> Source:
        ends = found[f"{split}_ends"]
        files = np.split(found[f"{split}_files"], ends[:-1])
        pixels = np.stack([np.asarray(Image.open(io.BytesIO(one.tobytes())).convert("RGB")) for one in files])
        classes = [str(name) for name in found["classes"]]
        return Source("cifar10", split, Pixels(pixels), classes=classes, labels=found[f"{split}_labels"])
