"""A run folder looked at again and again while another process writes it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from ssl_hub.model.metrics import METRICS
from ssl_hub.model.results import RESULTS_FILE, read_results
from ssl_hub.report.html import duration
from ssl_hub.report.record import Reading, Record, finite, is_reading, parsed, read_about

STYLES = {"collapsed": "bold red", "not finite": "bold red", "narrow": "yellow", "healthy": "green"}
QUIET = 60.0  # seconds without a word after which a run counts as stopped, or a trained one as complete


class Tail:
    """The readings of a metrics.jsonl that another process writes; each poll reads only what is new."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.readings: list[Reading] = []
        self._file: IO[bytes] | None = None
        self._identity: tuple[int, int] | None = None
        self._half = b""

    def poll(self) -> bool:
        """Read on; whether there was anything new. A file that was replaced or cut is read from its start."""
        try:
            found = self.path.stat()
        except OSError:
            changed = bool(self.readings)
            self._forget()
            return changed
        replaced = self._identity != (found.st_dev, found.st_ino)
        if self._file is None or replaced or found.st_size < self._file.tell():
            self._forget()
            self._file = self.path.open("rb")
            self._identity = (found.st_dev, found.st_ino)
        new = self._file.read()
        lines = (self._half + new).split(b"\n")
        self._half = lines.pop()
        self.readings += filter(is_reading, map(parsed, lines))
        return bool(new) or replaced

    def _forget(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._identity, self._half, self.readings = None, None, b"", []


@dataclass(frozen=True, kw_only=True)
class Sight:
    """A run at one moment. ``quiet_seconds`` since it last said anything; ``complete`` once nothing more will come."""

    record: Record
    quiet_seconds: float = 0.0
    complete: bool = False

    @property
    def stopped(self) -> bool:
        return bool(self.record.readings) and not self.record.trained and self.quiet_seconds > self.patience

    @property
    def patience(self) -> float:
        """How long the run may be silent: a minute, or ten times what lay between its readings lately."""
        lately = replace(self.record, readings=self.record.readings[-20:])
        return max(QUIET, 10 * max(lately.logged("seconds"), default=0.0))

    @property
    def seconds_left(self) -> float | None:
        """What the rest of training will take at the speed so far."""
        record, batch = self.record, self.record.fact("batch_size", "total")
        speed = finite(record.last.get("images_per_second"))
        if record.steps is None or not batch or not speed:
            return None
        return max(record.steps - record.step, 0) * batch / speed

    @property
    def health(self) -> tuple[str, str]:
        """A verdict in words, and its style."""
        health = self.record.health
        if finite(self.record.last.get("loss", 0)) is None:
            return "the loss is not finite", "bold red"
        if health is None:
            return "no reading yet", "dim"
        return str(health), STYLES[health.state]

    @property
    def state(self) -> str:
        if self.complete:
            return "finished"
        if not self.record.readings:
            return "waiting for its first reading" if self.record.recipe is not None else "waiting for the run to start"
        if self.record.trained:
            return "trained, being measured"
        return f"no word for {duration(self.quiet_seconds)}: stopped?" if self.stopped else "training"


@dataclass
class Follower:
    """Looks at a run folder again and again."""

    folder: Path
    _tail: Tail = field(init=False)
    _heard_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._tail = Tail(self.folder / METRICS)

    def look(self) -> Sight:
        if self._tail.poll():
            self._heard_at = time.monotonic()
        recipe, facts = read_about(self.folder, [])
        try:
            results = tuple(read_results(self.folder))
        except ValueError:  # being repaired by hand, or not a run's
            results = ()
        record = Record(
            name=self.folder.resolve().name,
            folder=self.folder,
            recipe=recipe,
            facts=facts,
            readings=tuple(self._tail.readings),
            results=results,
        )
        quiet = time.monotonic() - self._heard_at
        # The weights are written when training ends, the measurements after them, if the data can be measured on.
        released = record.trained and (self.folder / "config.json").is_file()
        complete = released and ((self.folder / RESULTS_FILE).is_file() or quiet > QUIET)
        return Sight(record=record, quiet_seconds=quiet, complete=complete)
