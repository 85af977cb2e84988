"""metrics.jsonl, the training log of a run folder: one JSON object a line, a line for each logged step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ssl_hub.atomic import replace_file

METRICS = "metrics.jsonl"


class Metrics:
    """metrics.jsonl: one JSON object a line, flushed as it is written."""

    def __init__(self, folder: Path, *, from_step: int) -> None:
        """Open for appending; lines of later steps, which a resumed run will write again, are dropped first."""
        path = folder / METRICS
        if path.exists():
            kept = [line for line in _complete_lines(path) if json.loads(line)["step"] <= from_step]
            replace_file(path, "".join(line + "\n" for line in kept).encode())
        self._file = path.open("a", encoding="utf-8")

    def write(self, record: dict[str, Any]) -> None:
        self._file.write(json.dumps(record, allow_nan=True) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _complete_lines(path: Path) -> list[str]:
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            json.loads(line)
        except ValueError:
            continue  # a killed process can leave half a line
        lines.append(line)
    return lines


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The records of metrics.jsonl, in order; none where there is no file. Half a line from a kill is left out."""
    path = folder / METRICS
    return [json.loads(line) for line in _complete_lines(path)] if path.exists() else []
