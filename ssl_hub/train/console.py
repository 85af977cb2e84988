"""What a person sees while a run trains: a bar on a terminal, a line per epoch elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any

from tqdm import tqdm


class Console:
    """Prints on the main process and is silent on the others."""

    def __init__(self, *, total_steps: int, done: int, main: bool) -> None:
        self._main = main
        self._live = main and sys.stderr.isatty()
        self._bar = tqdm(
            total=total_steps, initial=done, disable=not self._live, unit="step", dynamic_ncols=True, mininterval=0.5
        )
        self._started, self._batches, self._total, self._done = time.monotonic(), 0, total_steps, done

    def say(self, text: str) -> None:
        if self._main:
            tqdm.write(text, file=sys.stderr)

    def step(self, step: int) -> None:
        """One batch more; ``step`` counts the optimiser steps taken, which a skipped batch does not add to."""
        self._batches += 1
        self._bar.update(step - self._done)
        self._done = step

    def show(self, epoch: int, reading: dict[str, Any]) -> None:
        """Refresh the numbers beside the bar."""
        speed = f"{reading['images_per_second']:.0f} img/s"
        self._bar.set_postfix_str(
            f"epoch {epoch}, loss {reading['loss']:.4f}, lr {reading['lr']:.3g}, {speed}", refresh=False
        )

    def epoch_line(self, epoch: int, epochs: int, reading: dict[str, Any], knn: str = "") -> None:
        """One line for an epoch, where there is no bar or there is a kNN accuracy to report."""
        if self._live and not knn:
            return
        left = max(self._total - self._done, 0) * (time.monotonic() - self._started) / max(self._batches, 1)
        minutes, seconds = divmod(round(left), 60)
        self.say(
            f"epoch {epoch}/{max(epoch, epochs)}  loss {reading['loss']:.4f}  lr {reading['lr']:.3g}  "
            f"spread {reading['feature_std'] / reading['healthy_std']:.2f}  "
            f"{reading['images_per_second']:.0f} images/s  {minutes}:{seconds:02d} left  {knn}".rstrip()
        )

    def close(self) -> None:
        self._bar.close()
