"""How data is read where its layout does not say it: which columns, and which values are black and white."""

from __future__ import annotations

from typing import NamedTuple

from ssl_hub.data.value_range import AUTO, ValueRange
from ssl_hub.errors import UsageError


class Reading(NamedTuple):
    """Columns are for tables alone, and found by type where they are not named. ``together`` names the splits that are
    opened at once, as ``train+extra`` does."""

    image_column: str | None = None
    label_column: str | None = None
    values: ValueRange = AUTO
    together: frozenset[str] = frozenset()

    def refuse_columns(self, what: str) -> None:
        """Raise :class:`UsageError` where a column is named and ``what`` has none."""
        for setting in ("image_column", "label_column"):
            value = getattr(self, setting)
            if value is not None:
                raise UsageError(f"{what} has no columns, but data.{setting} is {value!r}; set data.{setting} to none")
