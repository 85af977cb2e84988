"""Which values of an image are black and white where its channels have more than 8 bits: one answer for a data set.

Cameras and microscopes store 10, 12 or 14 bits in files of 16, and measurements come as floats. A range that each image
chose for itself would make a dark image and a bright one alike, so none is ever taken from an image.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ssl_hub.errors import UsageError
from ssl_hub.limits import VALUE_RANGE

_OUTSIDE = 1e-3  # of a float image's 0..1: what resampling overshoots by


class OutsideRange(UsageError):
    """An image has values that ``auto`` does not hold."""


class ValueRange(NamedTuple):
    """``low`` becomes black and ``high`` white, in images of more than 8 bits a channel; others are as they are.

    Both are None for ``auto``: 0 to 65535 for whole numbers, 0 to 1 for floats, and what lies outside is an error.
    """

    low: float | None = None
    high: float | None = None

    @classmethod
    def parse(cls, text: str) -> ValueRange:
        """Of ``data.range``: ``auto``, a number of bits (``12``: 0 to 4095), or ``low,high``. UsageError otherwise."""
        VALUE_RANGE.check("data.range", text)
        if text == "auto":
            return AUTO
        if text.isdecimal():
            return cls(0.0, 2.0 ** int(text) - 1)
        low, high = map(float, text.split(","))
        return cls(low, high)

    def to_bytes(self, values: NDArray[np.generic], name: str) -> NDArray[np.uint8]:
        """8-bit values of an image's; not-a-number is black. ``name`` starts the error of one outside auto's ends."""
        numbers = values.astype(np.float64)
        numbers = np.nan_to_num(numbers, copy=False, nan=self.low or 0.0, posinf=np.inf, neginf=-np.inf)
        low, high = self._ends(values, numbers, name)
        return np.clip(np.round((numbers - low) * (255 / (high - low))), 0, 255).astype(np.uint8)

    def _ends(self, values: NDArray[np.generic], numbers: NDArray[np.float64], name: str) -> tuple[float, float]:
        if self.low is not None and self.high is not None:
            return self.low, self.high
        high, beyond = (1.0, _OUTSIDE) if values.dtype.kind == "f" else (65535.0, 0.0)
        if numbers.size and (numbers.min() < -beyond or numbers.max() > high + beyond):
            raise OutsideRange(
                f"{name} has values from {numbers.min():g} to {numbers.max():g}, outside 0 to {high:g}; set data.range "
                f"to the low and high end of the data set, as in data.range={numbers.min():g},{numbers.max():g}"
            )
        return 0.0, high


AUTO = ValueRange()
