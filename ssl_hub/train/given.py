"""What a run was given beside its settings: recorded with it, and compared when it goes on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from accelerate import Accelerator
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from ssl_hub.errors import UsageError
from ssl_hub.model.siamese import Siamese

IMAGES, PRECISION, AT_ONCE = "images", "precision", "images_at_once"
GIVEN = {
    IMAGES: "how many images, and which",
    PRECISION: "of the forward and backward passes",
    AT_ONCE: "how many of them batch normalisation, or a predictor's split, sees",
}
"""Facts that a result rests on, by the name that ``--allow-change`` takes."""

FINGERPRINT = "data_fingerprint"


class Change(NamedTuple):
    """A setting or a fact that is not what it was when the run was started."""

    name: str
    before: Any
    now: Any


def images_at_once(model: nn.Module, micro_batch: int, sharing: int) -> int | None:
    """How many images are seen together by what looks at more than one: predictors that split a batch, and batch
    normalisation, whose statistics so many processes are ``sharing``. None where nothing does, and a result depends on
    the total batch alone."""
    if isinstance(model, Siamese) and model.predictor.per_process:
        return micro_batch
    return micro_batch * sharing if any(isinstance(module, _BatchNorm) for module in model.modules()) else None


def given_to(
    model: nn.Module, micro_batch: int, sharing: int, accelerator: Accelerator, images: int | None, fingerprint: str
) -> dict[str, Any]:
    """What a result rests on beside settings: :data:`GIVEN`, and which images; see :func:`images_at_once`."""
    at_once = images_at_once(model, micro_batch, sharing)
    return {PRECISION: accelerator.mixed_precision, AT_ONCE: at_once, IMAGES: images, FINGERPRINT: fingerprint}


def changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Change]:
    """The facts of :data:`GIVEN` that differ; those that an older version did not record count as unchanged."""
    found = [
        Change(name, before[name], now.get(name)) for name in GIVEN if before.get(name, ...) not in (..., now.get(name))
    ]
    others = before.get(FINGERPRINT, now.get(FINGERPRINT)) != now.get(FINGERPRINT)
    if others and not any(change.name == IMAGES for change in found):
        found.append(Change(IMAGES, before[IMAGES], now[IMAGES]))
    return found


def refuse(changes: Collection[Change], allowed: Collection[str] | None = None) -> None:
    """Raise UsageError for changed facts that are not allowed, with what they were, what they are, and the flags that
    would allow them; none are for a command without such flags."""
    refused = [change for change in changes if change.name not in (allowed or ())]
    if refused:
        flags = " ".join(f"--allow-change {change.name}" for change in refused)
        raise UsageError(
            f"the run was started with {', '.join(_in_words(change) for change in refused)}; resume it with what it was"
            f" given{'' if allowed is None else f', or name the change: {flags}'}"
        )


def _in_words(change: Change) -> str:
    if change.name != IMAGES:
        return f"{change.name} {change.before} and now has {change.now}"
    before = "an unknown number of images" if change.before is None else f"{change.before} images"
    if change.before == change.now:
        return f"{before} and now has {'others' if change.now is None else f'{change.now} others'}"
    return f"{before} and now has {'an unknown number' if change.now is None else change.now}"
