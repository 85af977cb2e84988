"""Charts of numbers over training: loss, schedules, accuracy, spectrum, health and speed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ssl_hub.model.health import COLLAPSE_SHARE, NARROW_RANK, NARROW_SHARE
from ssl_hub.report.html import Markup, Missing, data_block, duration, element, number, together
from ssl_hub.report.record import Reading, Record, finite, spread_of
from ssl_hub.report.story import Story, missing_note

POINTS = 500  # a curve; more readings are averaged in equal groups
EIGENVALUES = 24  # of a spectrum, evenly spaced by rank

Value = str | Callable[[Reading], float | None]


def training(story: Story) -> Markup:
    """Loss, learning rate, momentum of the target, kNN accuracy and, where it was measured, that of the quick probe."""
    probed = any(record.logged("probe_top1") for record in story.records)
    return _grid(
        _chart(story, "Loss", "loss"),
        _chart(story, "kNN accuracy, top-1", "knn_top1", unit="%", dots=True),
        *([_chart(story, "Linear probe while training, top-1", "probe_top1", unit="%", dots=True)] if probed else []),
        _chart(story, "Learning rate", "lr"),
        _chart(story, "Momentum of the target", "momentum", absent="the target is no moving average"),
    )


def health(story: Story) -> Markup:
    """Does the representation keep its directions, and does the predictor share F's?"""
    ranks = {"narrow below": NARROW_RANK, "one direction alone:": 1.0}
    spreads = {"narrow below": 100 * NARROW_SHARE, "collapsed below": 100 * COLLAPSE_SHARE}
    return _grid(
        _chart(story, "Effective rank of F", "effective_rank", lines=ranks),
        _chart(story, "Spread of features, of the healthy 1/√D", spread_of, unit="%", lines=spreads),
        _chart(story, "Alignment of predictor and F", "alignment", absent="the predictor is no matrix", span=(0, 1)),
        _chart(story, "Asymmetry of the predictor", "asymmetry", absent="the predictor is no matrix", span=(0, 0.1)),
    )


def spectrum(story: Story) -> Markup:
    """Eigenvalues of F, and of a predictor that is a matrix, at the end of each epoch."""
    return story.each(_spectrum_of, kind="spectrum")


def throughput(story: Story) -> Markup:
    """Speed, and what the time went into."""
    return together(
        _grid(
            _chart(story, "Images per second, since the last reading", "images_per_second"),
            _chart(story, "Time spent waiting for data", _waiting, unit="%"),
        ),
        story.each(_time_spent, kind="time"),
    )


def _spectrum_of(record: Record) -> Markup:
    logged = [r for r in record.readings if isinstance(r.get("spectrum"), dict)]
    if not logged:
        raise Missing("no spectrum was logged: one is at the end of each epoch, for projections of width 512 at most")
    charts = [_eigenvalues(record, logged, "correlation", "Eigenvalues of F", log=True)]
    if any("predictor" in reading["spectrum"] for reading in logged):
        charts.append(_eigenvalues(record, logged, "predictor", "Eigenvalues of the predictor"))
    return _grid(*charts)


def _eigenvalues(record: Record, logged: Sequence[Reading], key: str, title: str, *, log: bool = False) -> Markup:
    placed = zip(_places(record, logged), (reading["spectrum"].get(key) for reading in logged), strict=True)
    spectra = [(x, spectrum) for x, spectrum in placed if spectrum]
    width = min((len(spectrum) for _, spectrum in spectra), default=0)
    if not width:
        return _figure(title, missing_note("not logged"))
    ranks = np.unique(np.linspace(0, width - 1, min(EIGENVALUES, width)).round().astype(int))
    floor = max(max((finite(v) or 0.0) for _, s in spectra for v in s), 1e-30) * 1e-9  # rounding leaves some below 0
    series = []
    for rank in ranks:
        values = [finite(spectrum[rank]) for _, spectrum in spectra]
        if log:
            values = [None if v is None else max(v, floor) for v in values]
        name = f"eigenvalue {width - rank} of {width}"
        series.append({"label": name, "x": [x for x, _ in spectra], "y": _rounded(values)})
    return _drawn(title, series, _axis([record]), spectra[-1][0], Look(log=log, ramp=True))


def _chart(story: Story, title: str, value: Value, *, absent: str = "not logged", **look: Any) -> Markup:
    """A curve for each run that logged the value, drawn as :class:`Look` says."""
    read = value if callable(value) else lambda reading: finite(reading.get(value))
    axis = _axis(story.records)
    series: list[dict[str, Any]] = []
    without: list[str] = []
    for place, record in enumerate(story.records):
        pairs = zip(_places(record, record.readings, axis), map(read, record.readings), strict=True)
        known = [(x, y) for x, y in pairs if y is not None]
        if known:
            xs, ys = _averaged(known)
            series.append({"label": record.name, "run": place, "x": xs, "y": ys})
        else:
            without.append(record.name)
    if not series:
        return _figure(title, missing_note("no reading yet" if value in ("loss", "knn_top1") else absent))
    drawn = Look(**look)
    note = element("p", ", ".join(without), f": {absent}", class_="note") if without else None
    if not drawn.lines and not drawn.dots and all(_is_constant(s["y"]) for s in series):
        return _constant(title, series, drawn.unit, note)
    end = max(place for record in story.records for place in _places(record, record.readings[-1:], axis))
    return _drawn(title, series, axis, end, drawn, note)


class Look(NamedTuple):
    """How a chart is drawn: ``lines`` are dashed, each under its words; ``span`` is in view; ``ramp`` colours series by
    their order."""

    unit: str = ""
    lines: Mapping[str, float] = MappingProxyType({})
    dots: bool = False
    span: tuple[float, float] | None = None
    log: bool = False
    ramp: bool = False


def _drawn(
    title: str, series: list[dict[str, Any]], x: str, end: float, look: Look, below: Markup | None = None
) -> Markup:
    spec = {**look._asdict(), "lines": list(look.lines.values()), "x": x, "end": end, "series": series}
    unit = look.unit
    ends = [f"{s['label']}: {s['y'][-1]:g}{unit}" for s in series if s["y"][-1] is not None and not look.ramp]
    label = f"{title}, last values {'; '.join(ends)}" if ends else title
    told = ", ".join(f"{words} {value:g}{unit and f' {unit}'}" for words, value in look.lines.items())
    dashed = element("p", f"Dashed: {told}.", class_="note") if told else None
    plot = element("div", class_="plot", role="img", aria_label=label)
    return _figure(title, together(plot, element("div", class_="readout"), dashed, below, data_block(spec)), chart=True)


def _is_constant(values: Sequence[float | None]) -> bool:
    return len(values) > 1 and len(set(values)) == 1


def _constant(title: str, series: Sequence[dict[str, Any]], unit: str, below: Markup | None) -> Markup:
    """What never changed needs no curve."""
    values = [number(s["y"][0], 5) + (f" {unit}" if unit else "") for s in series]
    said = values[:1] if len(set(values)) == 1 else [f"{s['label']} {v}" for s, v in zip(series, values, strict=True)]
    return _figure(title, together(element("p", element("b", ", ".join(said)), ", constant"), below))


def _figure(title: str, body: Markup, *, chart: bool = False) -> Markup:
    return element("figure", element("figcaption", title), body, class_="chart" if chart else None)


def _grid(*figures: Markup) -> Markup:
    return element("div", *figures, class_="grid")


def _axis(records: Sequence[Record]) -> str:
    return "epoch" if all(record.steps_per_epoch for record in records) else "step"


def _places(record: Record, readings: Sequence[Reading], axis: str = "epoch") -> list[float]:
    """Where readings lie: epochs and parts of them, or steps where that cannot be known."""
    per_epoch = (record.steps_per_epoch if axis == "epoch" else None) or 1
    return [round(reading["step"] / per_epoch, 4) for reading in readings]


def _averaged(pairs: Sequence[tuple[float, float]]) -> tuple[list[float], list[float | None]]:
    """The curve, as at most ``POINTS`` means over neighbouring readings; the last reading stays itself."""
    values = np.array(pairs)
    if len(values) > POINTS:
        groups = np.array_split(values[:-1], POINTS - 1)
        values = np.array([*(group.mean(axis=0) for group in groups), values[-1]])
    return [float(f"{x:.6g}") for x in values[:, 0]], _rounded(values[:, 1].tolist())


def _rounded(values: Sequence[float | None]) -> list[float | None]:
    return [None if v is None else float(f"{v:.5g}") for v in values]


def _waiting(reading: Reading) -> float | None:
    share = finite(reading.get("data_share"))
    return None if share is None else 100 * share


def _time_spent(record: Record) -> Markup:
    timed = [(s, r) for r in record.readings if (s := finite(r.get("seconds"))) is not None]
    if not timed:
        raise Missing("this run logged no durations, so where its time went is unknown")
    total = sum(seconds for seconds, _ in timed)
    waiting = sum(seconds * (finite(r.get("data_share")) or 0.0) for seconds, r in timed)
    knn = sum(record.logged("knn_seconds"))
    parts = [("training steps", total - waiting), ("waiting for data", waiting), ("kNN accuracy", knn)]
    whole = max(total + knn, 1e-9)
    shares = [
        element("span", class_=f"part run-{i}", style=f"flex-grow:{max(s / whole, 0):.4f}", title=name)
        for i, (name, s) in enumerate(parts)
    ]
    key = [
        element("span", element("i", class_=f"swatch run-{i}"), f"{name} {duration(s)} ({100 * s / whole:.1f} %)")
        for i, (name, s) in enumerate(parts)
    ]
    bar, legend = element("div", *shares, class_="bar"), element("p", *key, class_="key")
    return element("figure", element("figcaption", f"Where {duration(whole)} went"), bar, legend)
