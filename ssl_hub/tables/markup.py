"""Text in rows and columns as Markdown and as LaTeX, whatever is in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ssl_hub.hub.markdown import one_line

_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%_#${}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
)


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table that a terminal shows as well. What would end a cell or a row is replaced."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(one_line(text).replace('|', '/') for text in line)} |" for line in lines)


def tabular(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A tabular, escaped; needs booktabs."""
    lines = [" & ".join(map(_escaped, row)) + r" \\" for row in (header, *rows)]
    begin, end = rf"\begin{{tabular}}{{{'l' * len(header)}}}", r"\end{tabular}"
    return "\n".join([begin, r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule", end])


def _escaped(text: str) -> str:
    """In braces where it starts with a bracket, which would be the option of the line end before it."""
    plain = one_line(text).translate(_LATEX)
    return f"{{{plain}}}" if plain.startswith(("[", "*")) else plain
