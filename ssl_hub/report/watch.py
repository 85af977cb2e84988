"""A run followed while it trains: a panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ssl_hub.atomic import expanded
from ssl_hub.evaluate.measurement import listed
from ssl_hub.hub.store import home
from ssl_hub.report.follow import Follower, Sight
from ssl_hub.report.html import ABSENT, duration
from ssl_hub.report.record import Record, finite

BARS = "▁▂▃▄▅▆▇█"
CURVES = (
    ("loss", "loss", "{:.4f}"),
    ("knn_top1", "kNN", "{:.1f} %"),
    ("probe_top1", "probe", "{:.1f} %"),
    ("feature_std", "feature std", "{:.4f}"),
    ("effective_rank", "eff. rank", "{:.2f}"),
)

OPTIONAL = ("probe_top1",)  # that only runs with --monitor-data have


def watch(run: str | Path, *, refresh_seconds: float = 1.0, console: Console | None = None) -> None:
    """Follow a run until it is finished, or until Ctrl-C.

    The run need not have started, and may stop and be resumed or started over meanwhile.

    Args:
        run: a run folder, or a name in the store.
        refresh_seconds: how often the folder is looked at.
        console: where to write; by default standard output, with a live panel where that is a terminal.
    """
    console = console or Console(highlight=False)
    follower = Follower(locate(run))
    try:
        if console.is_terminal:
            with Live(console=console, auto_refresh=False, transient=False) as live:
                for sight in _sights(follower, refresh_seconds):
                    live.update(panel(sight, width=console.width), refresh=True)
        else:
            _print_lines(follower, refresh_seconds, console)
    except KeyboardInterrupt:
        console.print("stopped watching; the run goes on", style="dim")


def locate(run: str | Path) -> Path:
    """The folder meant by a path or a name in the store, whether or not it exists yet."""
    folder = expanded(run)
    is_name = len(folder.parts) == 1 and str(run) not in (".", "..")
    return home() / folder if is_name and not folder.exists() else folder


def _sights(follower: Follower, refresh_seconds: float) -> Iterator[Sight]:
    """The run now and after each pause, up to the sight of it complete."""
    while True:
        sight = follower.look()
        yield sight
        if sight.complete:
            return
        time.sleep(refresh_seconds)


def sparkline(values: Sequence[float], width: int) -> str:
    """A curve of at most ``width`` characters, from its lowest ▁ to its highest █; a constant is in the middle."""
    if not values or width < 1:
        return ""
    count = min(width, len(values))
    edges = [round(i * len(values) / count) for i in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    low, high = min(means), max(means)
    if high == low:
        return BARS[len(BARS) // 2] * count
    return "".join(BARS[round((value - low) / (high - low) * (len(BARS) - 1))] for value in means)


def panel(sight: Sight, *, width: int) -> RenderableType:
    """The live view, ``width`` characters wide."""
    record = sight.record
    head = Text.assemble((record.name, "bold"), "  ", (sight.state, "dim"), no_wrap=True, overflow="ellipsis")
    progress = Table.grid(padding=(0, 2))
    left = sight.seconds_left
    progress.add_row(
        ProgressBar(total=record.steps or 1, completed=min(record.step, record.steps or 1), width=max(width // 3, 10)),
        Text(progress_words(record)),
        Text("" if left is None or record.trained else f"{duration(left)} left", "dim"),
    )
    curves = Table.grid(padding=(0, 2))
    for key, title, form in CURVES:
        values = record.logged(key)
        if key in OPTIONAL and not values:
            continue
        line = Text(sparkline(values, max(width - 50, 10)), "cyan")
        last = Text(form.format(values[-1]) if values else ABSENT, justify="right")
        span = f"{form.format(min(values))} to {form.format(max(values))}" if values else ""
        curves.add_row(Text(title, "dim"), last, line, Text(span, "dim", no_wrap=True))
    verdict, style = sight.health
    measured = [Text(line, no_wrap=True, overflow="ellipsis") for line in result_lines(sight)]
    return Group(head, progress, curves, Text(verdict, style), *measured)


def progress_words(record: Record) -> str:
    """``step 400 of 1,200, epoch 20``, as far as it is known."""
    of = "" if record.steps is None else f" of {record.steps:,}"
    epoch = record.last.get("epoch")
    return f"step {record.step:,}{of}" + ("" if epoch is None else f", epoch {epoch}")


def plain_line(sight: Sight) -> str:
    """One line for a log file."""
    record = sight.record
    words = [progress_words(record)]
    for key, title, form in CURVES:
        if (value := finite(record.last.get(key))) is not None:
            words.append(f"{title} {form.format(value)}")
    if sight.seconds_left is not None and not record.trained:
        words.append(f"{duration(sight.seconds_left)} left")
    return "  ".join([*words, sight.health[0]])


def result_lines(sight: Sight) -> list[str]:
    return listed(sight.record.results) if sight.complete else []


def _print_lines(follower: Follower, refresh_seconds: float, console: Console) -> None:
    """A line for the first reading and for the end of each epoch, and one whenever the state changes."""
    state, told = "", -1  # the step of the last line; a run's start is step 0
    for sight in _sights(follower, refresh_seconds):
        # "no word for 1:02" changes all the time; that the run is silent is said once
        now = "no word for a while: stopped?" if sight.stopped else sight.state
        if now != state:
            console.print(f"{sight.record.name}: {now}", markup=False, soft_wrap=True)
            state = now
        readings = sight.record.readings
        ends = (place for place in range(len(readings), 0, -1) if "spectrum" in readings[place - 1])
        latest = next(ends, len(readings) if told < 0 else 0)
        if latest and readings[latest - 1]["step"] != told:
            told = readings[latest - 1]["step"]
            then = replace(sight, record=replace(sight.record, readings=readings[:latest]))
            console.print(plain_line(then), markup=False, soft_wrap=True)
        for line in result_lines(sight):
            console.print(line, markup=False, soft_wrap=True)
