"""A linear classifier on frozen features, and its files: ``heads/<dataset>.safetensors`` and ``.json``."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from ssl_hub.atomic import make_folder, replace_file
from ssl_hub.codec import plain
from ssl_hub.errors import UsageError
from ssl_hub.model import files
from ssl_hub.model.files import HEADS_FOLDER
from ssl_hub.model.reading import read_json, read_tensors


@dataclass(frozen=True, eq=False)
class ProbeHead:
    """A fitted linear classifier of raw (not standardised) features.

    Legend: K classes, C feature width. ``weight`` float32 [K, C], ``bias`` float32 [K], ``classes`` their K names,
    ``dataset`` what it was fitted on and ``settings`` how. There is no empty head: one is made by fitting or loading.
    Raises UsageError where the parts do not fit together or are not finite.
    """

    weight: Tensor
    bias: Tensor
    classes: tuple[str, ...]
    dataset: str
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = len(self.classes)
        if self.weight.ndim != 2 or len(self.weight) != count or self.bias.shape != (count,) or count < 2:
            raise UsageError(
                f"a head for {self.dataset!r} has weight {list(self.weight.shape)} and bias {list(self.bias.shape)} "
                f"for {count} classes, expected [K, C] and [K] with K the number of classes, at least 2"
            )
        if not (self.weight.isfinite().all() and self.bias.isfinite().all()):
            raise UsageError(f"the head for {self.dataset!r} has weights that are not finite; fit it again")
        object.__setattr__(self, "settings", plain(self.settings, f"settings of the head for {self.dataset!r}"))

    @property
    def value_range(self) -> str | None:
        """``data.range`` of the images that it was fitted to, where that was not the backbone's own."""
        found = self.settings.get("range")
        return None if found is None else str(found)

    @property
    def width(self) -> int:
        return int(self.weight.shape[1])

    def check_width(self, width: int) -> None:
        """Raise UsageError unless features of ``width`` fit this head."""
        if width != self.width:
            raise UsageError(
                f"head of width {self.width} on a backbone of width {width}: the head for {self.dataset!r} belongs to "
                "another backbone; probe this one to fit its own"
            )

    def as_linear(self) -> nn.Linear:
        """The same classifier as a module. Draws no random numbers."""
        linear = nn.utils.skip_init(nn.Linear, self.width, len(self.classes))
        with torch.no_grad():
            linear.weight.copy_(self.weight)
            linear.bias.copy_(self.bias)
        assert isinstance(linear, nn.Linear)
        return linear

    def save(self, folder: Path) -> Path:
        """Write ``heads/<dataset>.safetensors`` and ``.json`` below ``folder``; returns the former's path.

        Raises UsageError where they cannot be written, ``folder`` is gone (a head alone is no release), or the file is
        that of other data.
        """
        path = head_path(folder, self.dataset)
        check_place(folder, self.dataset)
        make_folder(path.parent, parents=False)
        tensors = {"weight": self.weight.contiguous(), "bias": self.bias.contiguous()}
        about = {"dataset": self.dataset, "width": self.width, "classes": self.classes, "settings": self.settings}
        replace_file(path, save(tensors, metadata={"format": "pt"}))  # one entry: several come in any order
        replace_file(path.with_suffix(".json"), (json.dumps(about, indent=2, allow_nan=False) + "\n").encode())
        files.record(folder, *(f"{HEADS_FOLDER}/{written.name}" for written in (path, path.with_suffix(".json"))))
        return path

    @classmethod
    def load(cls, folder: Path, dataset: str, *, width: int | None = None) -> ProbeHead:
        """The head for ``dataset`` below ``folder``; ``width`` is the backbone's, where one is at hand to check.

        Raises UsageError where there is no such head, its files are damaged or incomplete, or the widths differ.
        """
        path = head_path(folder, dataset)
        if not path.exists():
            noted = {Path(name) for name in files.read_hashes(folder) or {} if name.startswith(f"{HEADS_FOLDER}/")}
            there = sorted({p.stem for p in (*path.parent.glob("*.safetensors"), *noted) if p.suffix == path.suffix})
            if path in {folder / name for name in noted}:
                raise UsageError(f"{path} is missing, and {files.HASHES} lists it; restore it, or fetch it again")
            raise UsageError(
                f"no head for {dataset!r} in {path.parent}; there: {', '.join(there) or 'none'}; "
                + (f"its name is {Path(dataset).name!r}" if Path(dataset).name in there else "probe the backbone first")
            )
        try:
            tensors = read_tensors(path)
            about = read_json(path.with_suffix(".json"))
            head = cls(tensors["weight"], tensors["bias"], tuple(about["classes"]), about["dataset"], about["settings"])
        except (KeyError, TypeError, AttributeError) as error:
            raise UsageError(
                f"cannot read the head {path} with its .json: {type(error).__name__}: {error}; probe the backbone again"
            ) from None
        if head.dataset != dataset:
            raise UsageError(f"{path} is a head for {head.dataset!r}, expected one for {dataset!r}; probe again")
        if width is not None:
            head.check_width(width)
        return head


def head_path(folder: Path, dataset: str) -> Path:
    """Where the head for ``dataset`` lives: ``owner/name`` becomes ``owner--name``, so that it is one file."""
    stem = re.sub(r"[^\w.+-]+", "--", dataset).strip("-.")
    if not stem:
        raise UsageError(f"dataset {dataset!r} gives no file name; use a name with letters or digits")
    return Path(folder) / HEADS_FOLDER / f"{stem}.safetensors"


def check_place(folder: Path, dataset: str) -> None:
    """Raise UsageError where a head for ``dataset`` has no place in ``folder``: its file is that of other data."""
    path = head_path(folder, dataset).with_suffix(".json")
    there = None
    with suppress(UsageError, KeyError, TypeError):  # of a damaged file, which gives way
        there = read_json(path)["dataset"]
    if there not in (None, dataset):
        raise UsageError(f"{path} is of the head for {there!r}; rename {dataset!r}, so that its head has another file")
