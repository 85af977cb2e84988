"""Text that someone wrote, as Markdown that shows it and does nothing else."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from ssl_hub.model.lineage import public_name as public_name


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table of plain text."""
    lines = [" | ".join(map(plain_text, row)) for row in (header, *rows)]
    return "\n".join(f"| {line} |" for line in (lines[0], " | ".join(["---"] * len(header)), *lines[1:]))


def plain_text(text: str) -> str:
    """One line that Markdown and HTML show as it is."""
    return re.sub(r"([\\`*_\[\]|#~])", r"\\\1", html.escape(one_line(text), quote=False))


def code(text: str) -> str:
    """One line for inside back quotes or a code block, which it cannot end."""
    return one_line(text).replace("`", "'")


def one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())


def slug(text: str) -> str:
    """Letters, digits and ``. _ - /`` only."""
    return re.sub(r"[^A-Za-z0-9._/-]+", "-", text).strip("-./") or "unnamed"
