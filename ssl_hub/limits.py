"""The values that settings may take: for a recipe one table by dotted name, checked wherever a recipe is made.

Types are checked before (``codec``). Options of predictors, targets and losses are checked by their constructors, the
settings of evaluations by their own dataclasses, all in the terms of this file. Recipes of old releases are read
without any of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from operator import attrgetter
from typing import Any

from ssl_hub.errors import UsageError


@dataclass(frozen=True)
class Range:
    """A set of values, in words and as a predicate; ``fix`` says what to do instead of leaving it."""

    words: str
    holds: Callable[[Any], bool]
    fix: str = ""

    def check(self, name: str, value: Any) -> None:
        """Raise UsageError, naming ``name``, where ``value`` is outside."""
        if not self.holds(value):
            shown = list(value) if isinstance(value, tuple) else value
            raise UsageError(f"{name} is {shown!r}, expected {self.words}{self.fix and f'; {self.fix}'}")


def whole(least: int, most: int | None = None, *, fix: str = "") -> Range:
    """Whole numbers, both ends included."""
    words = f"of at least {least}" if most is None else f"from {least} to {most}"

    def holds(value: Any) -> bool:
        number = isinstance(value, Integral) and not isinstance(value, bool)
        return number and least <= int(value) and (most is None or int(value) <= most)

    return Range(f"a whole number {words}", holds, fix)


def number(least: float, most: float = math.inf, *, fix: str = "") -> Range:
    """Finite numbers, both ends included."""
    words = f"a number from {least:g} to {most:g}" if math.isfinite(most) else f"a number of at least {least:g}"
    return Range(words, lambda value: _is_finite(value) and least <= value <= most, fix)


def above(low: float, most: float = math.inf, *, fix: str = "") -> Range:
    """Finite numbers above ``low``, which is left out, up to ``most``, which is not."""
    words = f"above {low:g}" + (f" and at most {most:g}" if math.isfinite(most) else "")
    return Range(f"a number {words}", lambda value: _is_finite(value) and low < value <= most, fix)


def below(high: float, least: float = 0) -> Range:
    """Finite numbers from ``least``, which is included, to below ``high``."""
    return Range(
        f"a number of at least {least:g} and below {high:g}",
        lambda value: _is_finite(value) and least <= value < high,
    )


def or_none(limit: Range) -> Range:
    return Range(f"{limit.words}, or none", lambda value: value is None or limit.holds(value), limit.fix)


def ends(limit: Range) -> Range:
    """Two numbers, the first at most the second."""

    def holds(value: Any) -> bool:
        return isinstance(value, tuple) and len(value) == 2 and all(map(limit.holds, value)) and value[0] <= value[1]

    return Range(f"its low and its high end, each {limit.words}", holds)


def channels(limit: Range) -> Range:
    """One number for each of red, green and blue."""

    def holds(value: Any) -> bool:
        return isinstance(value, tuple) and len(value) == 3 and all(map(limit.holds, value))

    return Range(f"three numbers, each {limit.words}", holds)


def _is_finite(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


FINITE = Range("a finite number", _is_finite)
POSITIVE = above(0)
NOT_NEGATIVE = number(0)
SHARE = number(0, 1)
COUNT = whole(1)
ZERO_OR_MORE = whole(0)
WIDTH = whole(1, 16384)
SIDE = whole(8, 2048)
SEED = whole(0, 2**63 - 1)
STRENGTH = number(0, 10)  # of a colour jitter


def _is_value_range(value: Any) -> bool:
    if value == "auto" or (isinstance(value, str) and value.isdecimal() and 1 <= int(value) <= 32):
        return True
    try:
        low, high = (float(end) for end in str(value).split(","))
    except ValueError:
        return False
    return math.isfinite(high - low) and low < high


VALUE_RANGE = Range(
    "'auto', a number of bits from 1 to 32, or its low and its high end, as in '0,4095'", _is_value_range
)

VIEW = {
    "crop_scale": ends(above(0, 1)),
    "flip": SHARE,
    "jitter": SHARE,
    "brightness": STRENGTH,
    "contrast": STRENGTH,
    "saturation": STRENGTH,
    "hue": number(0, 0.5),
    "grey": SHARE,
    "blur": SHARE,
    "blur_sigma": ends(POSITIVE),
    "solarise": SHARE,
}

RECIPE = {
    "backbone.drop_path_rate": below(1),
    "projector.layers": whole(1, 16),
    "projector.hidden_width": WIDTH,
    "projector.output_width": WIDTH,
    "views.size": SIDE,
    **{f"views.{view}.{name}": limit for view in ("view1", "view2") for name, limit in VIEW.items()},
    "views.mean": channels(SHARE),
    "views.std": channels(number(0.001, 1)),
    "data.range": VALUE_RANGE,
    "data.shuffle_buffer": COUNT,
    "data.max_bad_images": ZERO_OR_MORE,
    "optim.lr": POSITIVE,
    "optim.reference_batch": or_none(COUNT),
    "optim.momentum": below(1),
    "optim.weight_decay": NOT_NEGATIVE,
    "optim.warmup_epochs": NOT_NEGATIVE,
    "optim.predictor_lr_ratio": NOT_NEGATIVE,
    "optim.predictor_weight_decay": or_none(NOT_NEGATIVE),
    "optim.trust_coefficient": POSITIVE,
    "optim.clip_norm": or_none(POSITIVE),
    "optim.layer_decay": above(0, 1),
    "train.epochs": COUNT,
    "train.max_steps": or_none(COUNT),
    "train.batch_size": whole(2, fix="batch normalisation needs two images"),
    "train.accumulation": COUNT,
    "train.sync_bn_group": ZERO_OR_MORE,
    "train.freeze_backbone_epochs": NOT_NEGATIVE,
    "train.seed": SEED,
    "runtime.workers": ZERO_OR_MORE,
    "runtime.log_every_steps": COUNT,
    "runtime.spectra_every_readings": COUNT,
    "runtime.knn_every_epochs": ZERO_OR_MORE,
    "runtime.knn_k": COUNT,
    "runtime.checkpoint_every_epochs": ZERO_OR_MORE,
    "runtime.checkpoint_minutes": or_none(NOT_NEGATIVE),
    "runtime.keep_checkpoints": whole(1, fix="runtime.keep_every_epochs=1 keeps those of all epochs"),
    "runtime.keep_every_epochs": ZERO_OR_MORE,
}

FREE = (
    "backbone.name",
    "backbone.init",
    "data.name",
    "data.pretrain_split",
    "data.train_split",
    "data.test_split",
    "data.image_column",
    "data.label_column",
    "runtime.monitor_data",
    "runtime.monitor_split",
    "runtime.monitor_label_column",
)
"""Settings of a recipe that are any text: whether it names something shows where it is looked up."""


def check(settings: Any, limits: Mapping[str, Range]) -> None:
    """Raise UsageError for the first of ``settings``, by dotted name in ``limits``, that is out of its range."""
    for name, limit in limits.items():
        limit.check(name, attrgetter(name)(settings))
