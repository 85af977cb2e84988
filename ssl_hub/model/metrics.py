"""metrics.jsonl, the training log of a run folder: one JSON object a line, a line for each logged step."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from ssl_hub.atomic import replace_file
from ssl_hub.errors import UsageError

METRICS = "metrics.jsonl"


class Metrics:
    """metrics.jsonl: one JSON object a line, flushed as it is written."""

    def __init__(self, folder: Path, *, from_step: int, from_batch: int | None = None) -> None:
        """Open for appending; lines of later steps, which a resumed run will write again, are dropped first.

        Steps that were skipped leave lines of the same step: ``from_batch`` counts those too.
        """
        path = folder / METRICS
        if path.exists():
            latest = (from_step, math.inf if from_batch is None else from_batch)
            kept = [line for line, record in _complete(path) if (record["step"], record.get("batch", 0)) <= latest]
            replace_file(path, "".join(line + "\n" for line in kept).encode())
        self._file = path.open("a", encoding="utf-8")

    def write(self, record: dict[str, Any]) -> None:
        self._file.write(json.dumps(record, allow_nan=True) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _complete(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Whole lines and the records that they hold."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no training log ({error}); restore it, or move it away to go on without") from None
    complete = []
    for line in text.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue  # a killed process can leave half a line
        if not isinstance(record, dict) or not isinstance(record.get("step"), int):
            raise UsageError(f"{path} is no training log: a line of it is {line[:80]!r}, which names no step")
        complete.append((line, record))
    return complete


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The records of metrics.jsonl, in order; none where there is no file. Half a line from a kill is left out.

    Raises UsageError where the file is damaged.
    """
    path = folder / METRICS
    return [record for _, record in _complete(path)] if path.exists() else []
