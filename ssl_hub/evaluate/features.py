"""Features of every image of a source, taken from a frozen backbone, in the source's order."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn

from ssl_hub.data.loaders import eval_batches
from ssl_hub.data.sources import Source
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.agreement import everywhere
from ssl_hub.evaluate.labels import UNLABELLED, Labels, check_labels, labels_of
from ssl_hub.evaluate.progress import Progress
from ssl_hub.evaluate.standardise import row_slices
from ssl_hub.limits import COUNT, ZERO_OR_MORE
from ssl_hub.model.modes import eval_mode

IN_MEMORY_BYTES = 4 * 2**30  # of one split's features, up to which they are not put on disk
GATHERED_ROWS = 8192  # rows per rank and exchange, so that a device never holds the features of a whole data set


@dataclass(frozen=True, eq=False)
class Features:
    """What a frozen backbone says about one split.

    Legend: N images, C feature width. ``x`` float32 [N, C], finite; ``y`` int64 [N], an index into ``classes``, or -1
    where the label is unknown; ``classes`` None where the split has no labels at all. ``layer`` names where the
    features were taken. Raises UsageError where the arrays do not fit together or ``x`` is not finite.
    """

    x: np.ndarray
    y: np.ndarray
    classes: tuple[str, ...] | None
    dataset: str
    split: str
    layer: str = "backbone"

    def __post_init__(self) -> None:
        object.__setattr__(self, "x", np.asarray(self.x, dtype=np.float32))
        object.__setattr__(self, "y", np.asarray(self.y, dtype=np.int64))
        if self.x.ndim != 2 or self.y.shape != (len(self.x),) or self.x.size == 0:
            raise UsageError(
                f"features of {self.name} have shape {list(self.x.shape)} with labels {list(self.y.shape)}, "
                "expected [N, C] with [N], neither of them empty"
            )
        bad = sum(int((~np.isfinite(self.x[rows]).all(axis=1)).sum()) for rows in row_slices(len(self.x)))
        if bad:
            raise UsageError(
                f"{bad} of {len(self.x)} images of {self.name} have features that are not finite; "
                "the backbone diverged, or runs in a precision that overflows"
            )
        highest = len(self.classes or ()) - 1
        if self.y.min() < UNLABELLED or self.y.max() > highest:
            raise UsageError(
                f"labels of {self.name} run from {self.y.min()} to {self.y.max()}, expected 0 to {highest} "
                f"for {highest + 1} classes, or {UNLABELLED} where unknown"
            )

    def __len__(self) -> int:
        return len(self.x)

    def rows(self, chosen: np.ndarray) -> Features:
        """Those of some images alone."""
        return replace(self, x=self.x[chosen], y=self.y[chosen])

    @property
    def name(self) -> str:
        return f"{self.dataset}/{self.split}"

    @property
    def width(self) -> int:
        return int(self.x.shape[1])

    @property
    def labels(self) -> Labels:
        return Labels(self.name, self.y, self.classes)


class PixelModel(nn.Module):
    """Images as their own features: [B, 3, S, S] to [B, 3 S S]. The baseline that a backbone has to beat."""

    feature_layer = "pixels"

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)


def extract(
    model: nn.Module,
    source: Source,
    transform: Callable[[Any], Tensor],
    *,
    batch_size: int = 256,
    workers: int = 0,
    device: torch.device | str | None = None,
    accelerator: Accelerator | None = None,
    show_progress: bool = False,
) -> Features:
    """Features of every image of ``source``, each exactly once and in order, on every rank.

    ``model`` maps float images [B, 3, S, S] to pooled features [B, C]. It runs in eval mode, without gradients; its
    state is untouched and each submodule's training flag is as before. With an ``accelerator`` of several processes
    every rank computes one contiguous share, and all ranks return all rows.

    ``device`` is where the images go: by default to the model's parameters, else to the accelerator's device.
    ``show_progress`` lets the main process say on stderr how far it is. Features of more than 4 GiB are memory-mapped.

    Raises UsageError, on all ranks alike, where the source is empty or an image unreadable, the model does not return
    [B, C], or features are not finite.
    """
    count, name = len(source), f"{source.name}/{source.split}"
    if count == 0:
        raise UsageError(f"{name} has no images, so there are no features to extract")
    COUNT.check("batch_size", batch_size)
    ZERO_OR_MORE.check("workers", workers)
    device = torch.device(device) if device is not None else _device_of(model, accelerator)

    main = accelerator is None or accelerator.is_main_process
    take_share = partial(
        _share_of_features, model, transform=transform, batch_size=batch_size, workers=workers, device=device,
        progress=f"features of {name}" if show_progress and main else None,
    )  # fmt: skip
    if accelerator is None or accelerator.num_processes == 1:
        x = take_share(source)
    else:
        # Contiguous shares of one size: rank r holds rows [r * share, (r + 1) * share), so that only the tail of the
        # ranks' concatenation is padding, and cutting it at N leaves each row once and in order.
        share = -(-count // accelerator.num_processes)
        rows = np.arange(count)[accelerator.process_index * share :][:share]
        nothing = np.empty((0, 0), np.float32)
        mine = everywhere(accelerator, lambda: take_share(source.subset(rows)) if len(rows) else nothing)
        x = _gather_shares(mine, share, accelerator)[:count]

    layer = getattr(model, "feature_layer", "backbone")
    return Features(x, labels_of(source).y, source.classes, source.name, source.split, layer)


def check_pair(train: Features, test: Features) -> None:
    """Raise UsageError unless ``test`` can be judged by a classifier fitted on ``train``: labels, classes and width."""
    check_labels(train.labels, test.labels)
    if train.width != test.width:
        raise UsageError(
            f"features of {train.name} have width {train.width} and those of {test.name} width {test.width}; "
            "extract both with the same model and transform"
        )


@torch.no_grad()  # not inference_mode: a timm layer may cache a tensor here that the next training step back-propagates
def _share_of_features(
    model: nn.Module,
    source: Source,
    transform: Callable[[Any], Tensor],
    batch_size: int,
    workers: int,
    device: torch.device,
    progress: str | None,
) -> np.ndarray:
    """float32 [len(source), C] of this process's images."""
    x: np.ndarray | None = None
    rows_seen = 0
    batches = eval_batches(source, transform, batch_size=batch_size, workers=workers, device=device)
    with eval_mode(model), closing(batches), Progress(progress, len(source), "images") as shown:
        for images, rows in batches:
            features = model(images)
            _check_pooled(features, len(rows))
            if x is None:
                x = _table(len(source), features.shape[1])
            x[rows] = features.float().cpu().numpy()
            rows_seen += len(rows)
            shown.advance(len(rows))
    assert x is not None and rows_seen == len(source), f"{rows_seen} of {len(source)} images were loaded"
    return x


def _gather_shares(mine: np.ndarray, share: int, accelerator: Accelerator) -> np.ndarray:
    """Every rank's rows, padded to ``share`` each, in rank order."""
    ranks, width = accelerator.num_processes, max(gather_object([mine.shape[1]]))
    gathered = _table(ranks * share, width).reshape(ranks, share, width)
    for start in range(0, share, GATHERED_ROWS):
        part = np.zeros((min(GATHERED_ROWS, share - start), width), np.float32)
        have = mine[start : start + len(part)].reshape(-1, width)
        part[: len(have)] = have
        everyone = accelerator.gather(torch.from_numpy(part).to(accelerator.device))
        gathered[:, start : start + len(part)] = everyone.cpu().numpy().reshape(ranks, len(part), width)
    return gathered.reshape(ranks * share, width)


def _table(rows: int, width: int) -> np.ndarray:
    """Room for features: beyond :data:`IN_MEMORY_BYTES` in a file of the temporary folder that vanishes with them."""
    if 4 * rows * width <= IN_MEMORY_BYTES:
        return np.empty((rows, width), np.float32)
    with tempfile.TemporaryFile() as file:
        return np.memmap(file, np.float32, "w+", shape=(rows, width))


def _device_of(model: nn.Module, accelerator: Accelerator | None) -> torch.device:
    for parameter in model.parameters():
        return parameter.device
    return accelerator.device if accelerator is not None else torch.device("cpu")


def _check_pooled(features: Any, batch: int) -> None:
    if isinstance(features, Tensor) and features.shape[:1] == (batch,) and features.ndim == 2:
        return
    if isinstance(features, Tensor):
        got = f"a tensor of shape {list(features.shape)}"
    elif isinstance(features, (tuple, list)):
        shapes = ", ".join(str(list(f.shape)) if isinstance(f, Tensor) else type(f).__name__ for f in features)
        got = f"a {type(features).__name__} of {shapes}"
    else:
        got = f"a {type(features).__name__}"
    raise UsageError(
        f"the model returned {got}, expected pooled features [{batch}, C]; "
        "create the backbone with num_classes=0 and global_pool='avg'"
    )
