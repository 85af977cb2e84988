"""Features that are kept for the next question: which images are near this one, which are there twice.

An index is a folder with one safetensors file for each split: ``features`` float32 [N, C], and ``names``, what
identifies each row, as UTF-8 with a zero byte after each. The file says which model and which images it is of, and is
taken only where both are the same: the model by the hash of its weights, architecture and transform, the images by
:func:`~ssl_hub.data.fingerprint.fingerprint` and the size and time of change of every file. (Images in tables have no
such time: of those a sample's content counts.) Else it is made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ssl_hub.atomic import expanded, make_folder, refuse_missing_folder, replace_file
from ssl_hub.data.fingerprint import fingerprint
from ssl_hub.data.sources import Source
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.features import Features
from ssl_hub.evaluate.labels import labels_of
from ssl_hub.evaluate.subject import Subject
from ssl_hub.hub.weights import sha256_of

State = Literal["made", "reused", "made again: it was of other images", "made again: it was of another model"]
ABOUT = "ssl_hub_index"  # the key in the file's metadata
FORMAT = 1


def kept(folder: str | Path, subject: Subject, source: Source, make: Callable[[], Features]) -> tuple[Features, State]:
    """Features of ``source``: those in the index where they are of this model and these images, else ``make()``'s,
    which are then kept. And which of the two it was.

    Raises UsageError where the folder above does not exist, or a file in the place of the index is none.
    """
    path = index_path(folder, source)
    refuse_missing_folder(path.parent)
    about = {"format": FORMAT, "model": _subject_hash(subject), "images": _images_hash(source)}
    state: State = "made"
    if path.exists():
        x, was = _read(path)
        if was == about and len(x) == len(source):
            layer = getattr(subject.model, "feature_layer", "backbone")
            return Features(x, labels_of(source).y, source.classes, source.name, source.split, layer), "reused"
        other_images = was.get("images") != about["images"]
        state = "made again: it was of other images" if other_images else "made again: it was of another model"
    features = make()
    make_folder(path.parent, parents=False)
    _write(path, features, source, about)
    return features, state


def index_path(folder: str | Path, source: Source) -> Path:
    """The file of a split in an index: named after it, and apart from others whose names have the same letters."""
    name = f"{Path(source.name).name}-{source.split}"
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:80]
    which = hashlib.sha256(os.fsencode(f"{source.name}\n{source.split}")).hexdigest()[:8]
    return expanded(folder) / f"{slug}-{which}.safetensors"


def _subject_hash(subject: Subject) -> str:
    """Of all that features of an image depend on: the weights, the architecture (a stem's padding is in no weight) and
    the evaluation transform."""
    words = (sha256_of(subject.model.state_dict()), repr(subject.model), repr(subject.transform))
    return hashlib.sha256("\n".join(words).encode()).hexdigest()


def _images_hash(source: Source) -> str:
    """The fingerprint, which reads 64 images alone, and of all others what shows that they are not what they were: of
    files their size and date, of what lies in a table its size, of pixels in memory all of them. And what is white."""
    digest = hashlib.sha256(f"{fingerprint(source)} {source.value_range}\n".encode())
    for position in range(len(source)):
        stored = source.stored(position)
        if stored is None:
            digest.update(source.encoded(position))
            continue
        if isinstance(stored[0], bytes):
            digest.update(source.sizes().tobytes())
            break
        try:
            found = os.stat(stored[0])
        except OSError:
            continue  # the fingerprint has it, and reading it says what is wrong
        digest.update(f"{position} {found.st_size} {found.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _read(path: Path) -> tuple[np.ndarray, dict[str, object]]:
    try:
        with safe_open(path, "pt") as file:
            about = json.loads((file.metadata() or {})[ABOUT])
            features = file.get_tensor("features")
            if not isinstance(about, dict) or features.ndim != 2 or features.dtype != torch.float32:
                raise ValueError("it holds something else")
            return features.numpy(), about
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise UsageError(
            f"{path} is no similarity index, or a damaged one ({error}); remove it, or choose another folder"
        ) from None


def _write(path: Path, features: Features, source: Source, about: dict[str, object]) -> None:
    names = b"".join(source.id(row).encode() + b"\0" for row in range(len(source)))
    tensors = {
        "features": torch.from_numpy(np.ascontiguousarray(features.x)),
        "names": torch.frombuffer(bytearray(names), dtype=torch.uint8),
    }
    metadata = {"format": "pt", ABOUT: json.dumps(about)}
    replace_file(path, lambda aside: save_file(tensors, aside, metadata=metadata))
