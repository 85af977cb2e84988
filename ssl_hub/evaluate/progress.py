"""What a person sees while an evaluation works: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Self

from tqdm import tqdm

PLAIN_SECONDS = 30  # between two lines where there is no terminal


class Progress:
    """Progress of one piece of work on stderr; silent where it has no name, as on all processes but the main one."""

    def __init__(self, what: str | None, total: int, unit: str) -> None:
        self._what, self._total, self._unit, self._done = what, total, unit, 0
        self._live = what is not None and sys.stderr.isatty()
        self._bar = tqdm(
            total=total, desc=what, unit=f" {unit}", disable=not self._live, dynamic_ncols=True, leave=False
        )
        self._started = self._said = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.close()

    def advance(self, count: int, note: str = "") -> None:
        """``count`` more are done; ``note`` stands beside the numbers."""
        self._done += count
        self._bar.set_postfix_str(note, refresh=False)
        self._bar.update(count)
        now = time.monotonic()
        if self._what is not None and not self._live and now - self._said >= PLAIN_SECONDS:
            self._said = now
            left = (now - self._started) / max(self._done, 1) * (self._total - self._done)
            minutes, seconds = divmod(round(left), 60)
            numbers = f"{self._done} of {self._total} {self._unit}, {minutes}:{seconds:02d} left"
            print(f"{self._what}: {numbers}{f', {note}' if note else ''}", file=sys.stderr, flush=True)
