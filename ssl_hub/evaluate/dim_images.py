"""A warning where images of more than 8 bits use so little of their range that a model sees nearly one grey.

Training says so as it starts. A number that is measured on such images, with a model whose range is another's, is as
wrong, and says nothing by itself.
"""

from __future__ import annotations

import sys

from ssl_hub.data.inventory import look_over
from ssl_hub.data.sources import Source
from ssl_hub.data.value_range import ValueRange
from ssl_hub.processes import speaks
from ssl_hub.zoo.advice import dim_in_words, is_dim, is_wide, suggested_range


def warn_of_dim_images(source: Source, value_range: str) -> None:
    """Look at a sample, and say on stderr where its images are nearly of one grey in this range."""
    if not speaks():
        return
    seen = look_over(source, ValueRange.parse(value_range))
    if "values" in seen and is_wide(seen) and is_dim(seen):
        told = dim_in_words(source.split, seen)
        print(f"warning: {told}; their range is {suggested_range(seen)} (--range, data.range)", file=sys.stderr)
