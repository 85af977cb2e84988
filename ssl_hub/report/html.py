"""HTML in which nothing is markup unless it was made by :func:`element`: any other text is escaped."""

from __future__ import annotations

import base64
import html
import io
import json
import math
from collections.abc import Iterable
from typing import Any

from PIL import Image

ABSENT = "\N{EN DASH}"  # what stands where a number is missing
VOID = {"img", "meta"}


class Markup(str):
    """Text that is HTML already."""


class Missing(Exception):
    """A section, or a part of it, has nothing to show; the message says why, for the reader of the report."""


Child = str | int | None  # None is nothing


def element(name: str, /, *children: Child, **attributes: str | int | float | bool | None) -> Markup:
    """``<name attributes>children</name>``. Text is escaped unless it is :class:`Markup`.

    ``class_`` is written ``class`` and ``data_x`` ``data-x``; True is an attribute without a value, and False and None
    leave it out.
    """
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{html.escape(str(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    return Markup(f"<{name}{written}>" if name in VOID else f"<{name}{written}>{together(*children)}</{name}>")


def together(*children: Child) -> Markup:
    """Children one after the other, escaped where they are not markup."""
    return Markup(
        "".join(c if isinstance(c, Markup) else html.escape(str(c)) for c in children if c is not None and c != "")
    )


def data_block(value: Any) -> Markup:
    """Data for the page's script, which a browser never runs: no text in it can end the block it stands in."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))  # ASCII, so without U+2028
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(f'<script type="application/json">{text}</script>')


def picture(image: Image.Image, *, alt: str, **attributes: str | int | float | bool | None) -> Markup:
    """An image inside the page: PNG where it is small, JPEG otherwise."""
    return element("img", src=data_url(image), alt=alt, **attributes)


def data_url(image: Image.Image, *, quality: int = 82) -> str:
    small = image.width * image.height <= 48 * 48
    stream = io.BytesIO()
    if small:
        image.save(stream, "PNG", optimize=True)
    else:
        image.convert("RGB").save(stream, "JPEG", quality=quality, optimize=True)
    return f"data:image/{'png' if small else 'jpeg'};base64,{base64.b64encode(stream.getvalue()).decode()}"


def table(head: list[Child], rows: list[list[Child]], *, numeric: int = 0, **attributes: str) -> Markup:
    """A table that scrolls sideways on a phone; its last ``numeric`` columns are aligned as numbers."""
    first_number = len(head) - numeric

    def cells(kind: str, row: list[Child]) -> Markup:
        return together(
            *(
                element(kind, ABSENT if cell is None else cell, class_="number" if i >= first_number else None)
                for i, cell in enumerate(row)
            )
        )

    return framed(element("tr", cells("th", head)), [element("tr", cells("td", row)) for row in rows], **attributes)


def framed(head: Markup, rows: Iterable[Markup], **attributes: str) -> Markup:
    """A table of rows that are made already."""
    whole = element("table", element("thead", head), element("tbody", *rows), **attributes)
    return element("div", whole, class_="scroll")


def number(value: float | None, digits: int = 4) -> str:
    """A number as a person writes it, to ``digits`` significant ones; a dash for none."""
    if value is None or not math.isfinite(value):
        return ABSENT
    if value == int(value) and abs(value) < 10**9:
        return f"{int(value):,}"
    return f"{value:.{digits}g}"


def duration(seconds: float) -> str:
    """``1:02:03``, or ``2:03`` below an hour."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
