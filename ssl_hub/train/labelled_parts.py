"""Parts of the images that a backbone is fine-tuned on: a fraction of each class, and what epochs are judged on."""

from __future__ import annotations

from ssl_hub.data.sources import Source
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.holdout import stratified_holdout
from ssl_hub.train.classifier import Finetuning


def without_holdout(train: Source, settings: Finetuning) -> tuple[Source, Source | None]:
    """The images to train on, and those on which the best epoch is chosen, where there are to be any."""
    if not settings.holdout:
        return train, None
    assert train.labels is not None
    kept, held = stratified_holdout(train.labels, settings.holdout, settings.seed)
    if not len(held):
        raise UsageError(
            f"holdout={settings.holdout} takes none of {len(train)} images: every class has one alone; set holdout=0"
        )
    parts = train.subset(kept), train.subset(held)
    for part, share in zip(parts, (1 - settings.holdout, settings.holdout), strict=True):
        part.split = f"{train.split}, {100 * share:g} %"
    return parts


def fraction_of(source: Source, fraction: float, seed: int) -> Source:
    """A stratified part of a source, and its split's name says so."""
    assert source.labels is not None
    _, rows = stratified_holdout(source.labels, fraction, seed)
    part = source.subset(rows)
    part.split = f"{source.split}, {100 * fraction:g} % of each class"
    return part
