"""A table's report as Markdown, CSV, JSON, LaTeX, or a picture."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ssl_hub.atomic import replace_file
from ssl_hub.errors import UsageError
from ssl_hub.hub.markdown import one_line
from ssl_hub.tables.claims import NOT_PRINTED, Judgement, Sample
from ssl_hub.tables.markup import markdown_table, tabular
from ssl_hub.tables.report import Entry, Report

NOT_TRAINED, NOT_PROBED = "not trained", "not measured"
ENDINGS = {".csv": "csv", ".json": "json", ".tex": "latex", ".png": "png"}  # of files; any other is Markdown's
COLUMNS = ("row", "column", "metric", "paper", "measured", "interval", "difference", "runs", "protocol")
MOST_LISTED = 100  # runs that are not counted


def markdown(report: Report) -> str:
    """The whole report, for people."""
    table = report.table
    parts = [f"# {table.title}", f"{table.source} of {table.paper}."]
    if report.facts:
        parts.append("\n".join(f"- {name}: {value}" for name, value in report.facts.items()))
    if not report.comparable:
        parts.append(
            "These runs are much smaller than the paper's: compare rows with each other, not with the paper's."
        )
    parts += [markdown_table(*_grid(report)), markdown_table(COLUMNS, _rows(report))]
    if report.untrained is not None:
        parts.append(f"The same backbone, untrained: {report.untrained} ({report.untrained.runs} seeds).")
    if report.judged:
        rows = [
            [
                measured.claim.text,
                measured.verdict,
                measured.evidence,
                ": ".join(filter(None, (paper.verdict, paper.evidence))),
            ]
            for measured, paper in zip(report.judged, report.judged_in_paper, strict=True)
        ]
        parts.append(markdown_table(("claim", "here", "evidence", "the same rule on the paper's numbers"), rows))
        parts.append(
            "A difference counts where the intervals mean ± std do not overlap. A run has collapsed where its features"
            " have, or where it is no better than the untrained backbone or, to within a point, than guessing."
        )
    parts += [f"Note: {note}" for note in table.notes]
    if report.not_counted:
        listed = [f"- {one_line(line)}" for line in report.not_counted[:MOST_LISTED]]
        more = len(report.not_counted) - len(listed)
        parts.append("Not counted, and why:")
        parts.append("\n".join([*listed, *([f"- and {more} more"] if more else [])]))
    return "\n\n".join(parts) + "\n"


def comma_separated(report: Report) -> str:
    """The entries, one a line."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_rows(report))
    return out.getvalue()


def as_json(report: Report) -> str:
    """Everything, for programs."""

    def judged(judgements: Sequence[Judgement]) -> list[dict[str, str]]:
        return [{"claim": j.claim.text, "verdict": j.verdict, "evidence": j.evidence} for j in judgements]

    plain: dict[str, Any] = {
        "table": report.table.name,
        "title": report.table.title,
        "source": report.table.source,
        "facts": dict(report.facts),
        "comparable": report.comparable,
        "entries": [
            {
                "row": entry.cell.row,
                "column": entry.cell.column,
                "metric": entry.metric,
                "paper": entry.printed and {"mean": entry.printed.mean, "std": entry.printed.std},
                "measured": entry.measured and entry.measured.plain(),
                "protocol": entry.protocol,
                "runs": list(entry.runs),
            }
            for entry in report.entries
        ],
        "untrained": report.untrained and report.untrained.plain(),
        "claims": judged(report.judged),
        "claims_in_paper": judged(report.judged_in_paper),
        "not_counted": list(report.not_counted),
    }
    return json.dumps(plain, indent=2, allow_nan=False) + "\n"


def latex(report: Report) -> str:
    """The paper's layout, and the entries one a line, as two tabulars; needs booktabs."""
    parts = [f"% {report.table.title}", tabular(*_grid(report)), tabular(COLUMNS, _rows(report))]
    return "\n\n".join(parts) + "\n"


def png(report: Report) -> bytes:
    """The paper's numbers and the measured ones side by side, mean ± std, a line for each entry."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    entries = list(reversed(report.entries))
    figure = Figure(figsize=(7.5, 1.2 + 0.32 * len(entries)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for place, entry in enumerate(entries):
        if entry.printed is not None:
            _dot(axes, place + 0.12, entry.printed, "#0072b2", hollow=True)
        if entry.measured is not None:
            _dot(axes, place - 0.12, entry.measured, "#d55e00", hollow=False)
        elif entry.printed is not None:
            axes.annotate(_missing(entry), (entry.printed.mean, place - 0.3), color="grey", fontsize=7, ha="center")
    axes.set_yticks(range(len(entries)), [f"{entry.cell.name}, {entry.metric}" for entry in entries], fontsize=8)
    axes.set(xlabel="accuracy (%); hollow: the paper, filled: measured", ylim=(-0.7, len(entries) - 0.3))
    axes.margins(x=0.1)
    axes.set_title(report.table.title, fontsize=9)
    axes.grid(axis="x", alpha=0.3)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=150)
    return out.getvalue()


TEXTS: dict[str, Callable[[Report], str]] = {"md": markdown, "csv": comma_separated, "json": as_json, "latex": latex}


def kind_of(out: Path | None) -> str:
    """The format that the name of a file asks for; ``md`` where it asks for none, or nothing is written."""
    return "md" if out is None else ENDINGS.get(out.suffix.lower(), "md")


def write(report: Report, kind: str, out: Path | None = None) -> None:
    """Write a report as ``md``, ``csv``, ``json``, ``latex`` or ``png`` to a file, or print it.

    Raises UsageError for a picture without a file, and where the file cannot be written.
    """
    if out is None and kind not in TEXTS:
        raise UsageError(f"a {kind} is no text to print; give --out FILE.{kind}")
    content = TEXTS[kind](report).encode() if kind in TEXTS else png(report)
    if out is None:
        print(content.decode(), end="")
    else:
        replace_file(out, content)


def _rows(report: Report) -> list[list[str]]:
    """The text under each of COLUMNS for each entry."""
    return [
        [
            entry.cell.row,
            entry.cell.column,
            entry.metric,
            str(entry.printed or NOT_PRINTED),
            _measured(entry),
            "" if entry.measured is None else entry.measured.interval_text,
            f"{entry.difference:+.2f}" if report.comparable and entry.difference is not None else "",
            f"{len(entry.runs)}: {', '.join(entry.runs)}" if entry.runs else "",
            entry.protocol or entry.cell.protocol,
        ]
        for entry in report.entries
    ]


def _grid(report: Report) -> tuple[list[str], list[list[str]]]:
    """Header and rows as the paper prints them, such as rho by eps: of each row the printed numbers, then measured."""
    columns = list(dict.fromkeys((entry.cell.column, entry.metric) for entry in report.entries))
    several = len({metric for _, metric in columns}) > 1
    placed = {(entry.cell.row, entry.cell.column, entry.metric): entry for entry in report.entries}
    lines = []
    for row in dict.fromkeys(entry.cell.row for entry in report.entries):
        found = [placed.get((row, *column)) for column in columns]
        lines.append([row, "paper", *("" if e is None else str(e.printed or NOT_PRINTED) for e in found)])
        lines.append(["", "here", *("" if e is None else _measured(e) for e in found)])
    return ["", "", *(f"{column}, {metric}" if several else column for column, metric in columns)], lines


def _measured(entry: Entry) -> str:
    """``77.10 ± 0.30``, or why there is none; runs that have collapsed are said."""
    sample = entry.measured
    if sample is None:
        return _missing(entry)
    return str(sample) + (f" ({sample.collapsed} of {sample.runs} collapsed)" if sample.collapsed else "")


def _missing(entry: Entry) -> str:
    return NOT_PROBED if entry.runs else NOT_TRAINED


def _dot(axes: Any, height: float, sample: Sample, colour: str, *, hollow: bool) -> None:
    axes.errorbar(
        sample.mean, height, xerr=sample.std, fmt="o", color=colour, mfc="white" if hollow else colour, markersize=5
    )
