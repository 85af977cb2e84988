"""The pictures of a model card, from what a run logged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ssl_hub.atomic import scratch
from ssl_hub.errors import UsageError
from ssl_hub.model.metrics import read_metrics
from ssl_hub.theory.figures import render
from ssl_hub.theory.painting import BLUE, GREY, VERMILION
from ssl_hub.theory.run_spectrum import draw_run

TRAINING, SPECTRUM = "training.png", "spectrum.png"


def pictures(folder: Path, name: str) -> dict[str, bytes]:
    """PNG files by name: the training curve and the spectrum, as far as metrics.jsonl has what they need.

    The same log gives the same bytes.
    """
    records = read_metrics(folder)
    drawn = {}
    with scratch() as aside:
        for file, draw in ((TRAINING, _draw_training), (SPECTRUM, draw_run)):
            try:
                drawn[file] = draw(records, aside / file, name=name).read_bytes()
            except UsageError:
                continue  # not logged: a release has no log, wide projections no spectrum
    return drawn


def _draw_training(records: Sequence[Mapping[str, Any]], out: Path, *, name: str) -> Path:
    """Loss, standard deviation of the features beside a healthy one's, and kNN accuracy where it was measured."""
    if len(records) < 2:
        raise UsageError(f"{name} has logged {len(records)} readings, expected two or more")
    return render(lambda figure: _paint(figure, records), out, [f"{name}: what the run logged."], height=2.3)


def _paint(figure: Any, records: Sequence[Mapping[str, Any]]) -> None:
    def series(key: str) -> tuple[list[int], list[float]]:
        logged = [(record["step"], record[key]) for record in records if record.get(key) is not None]
        return [step for step, _ in logged], [value for _, value in logged]

    nearest = series("knn_top1")
    panels = figure.subplots(1, 3 if nearest[0] else 2)
    panels[0].plot(*series("loss"), color=BLUE)
    panels[0].set(title="loss", xlabel="step")
    panels[1].plot(*series("feature_std"), color=BLUE)
    panels[1].plot(*series("healthy_std"), color=GREY, linestyle="--")
    panels[1].set(title="feature std (dashed: healthy)", xlabel="step")
    panels[1].set_ylim(bottom=0)
    if nearest[0]:
        panels[2].plot(*nearest, color=VERMILION, marker="o", markersize=3)
        panels[2].set(title="kNN top-1 (%)", xlabel="step")
