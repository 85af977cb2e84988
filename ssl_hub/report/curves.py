"""Charts of numbers over training: loss, schedules, accuracy, spectrum, health and speed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from ssl_hub.model.health import COLLAPSE_SHARE, NARROW_RANK, NARROW_SHARE
from ssl_hub.report.html import Markup, Missing, data_block, duration, element, number, together
from ssl_hub.report.record import Reading, Record, finite
from ssl_hub.report.story import Story, missing_note

POINTS = 500  # a curve; more readings are averaged in equal groups
EIGENVALUES = 24  # of a spectrum, evenly spaced by rank

Value = str | Callable[[Reading], float | None]


def training(story: Story) -> Markup:
    """Loss, learning rate, momentum of the target, kNN accuracy and, where it was measured, that of the quick probe."""
    probed = any("probe_top1" in reading for record in story.records for reading in record.readings)
    return _grid(
        _chart(story, "Loss", "loss"),
        _chart(story, "kNN accuracy, top-1", "knn_top1", unit="%", dots=True),
        *([_chart(story, "Linear probe while training, top-1", "probe_top1", unit="%", dots=True)] if probed else []),
        _chart(story, "Learning rate", "lr"),
        _chart(story, "Momentum of the target", "momentum", absent="the target is no moving average"),
    )


def health(story: Story) -> Markup:
    """Does the representation keep its directions, and does the predictor share F's?"""
    return _grid(
        _chart(
            story,
            "Effective rank of F",
            "effective_rank",
            lines={"narrow below": NARROW_RANK, "one direction alone:": 1.0},
        ),
        _chart(
            story,
            "Spread of features, of the healthy 1/√D",
            _spread,
            unit="%",
            lines={"narrow below": 100 * NARROW_SHARE, "collapsed below": 100 * COLLAPSE_SHARE},
        ),
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
    charts = [_eigenvalues(record, logged, "correlation", "Eigenvalues of F", logarithmic=True)]
    if any("predictor" in reading["spectrum"] for reading in logged):
        charts.append(_eigenvalues(record, logged, "predictor", "Eigenvalues of the predictor"))
    return _grid(*charts)


def _eigenvalues(
    record: Record, logged: Sequence[Reading], key: str, title: str, *, logarithmic: bool = False
) -> Markup:
    spectra = [
        (x, s) for x, s in zip(_places(record, logged), (r["spectrum"].get(key) for r in logged), strict=True) if s
    ]
    width = min((len(s) for _, s in spectra), default=0)
    if not width:
        return _figure(title, missing_note("not logged"))
    ranks = np.unique(np.linspace(0, width - 1, min(EIGENVALUES, width)).round().astype(int))
    floor = max(max((finite(v) or 0.0) for _, s in spectra for v in s), 1e-30) * 1e-9  # rounding leaves some below 0
    series = []
    for rank in ranks:
        values = [finite(s[rank]) for _, s in spectra]
        if logarithmic:
            values = [None if v is None else max(v, floor) for v in values]
        name = f"eigenvalue {width - rank} of {width}"
        series.append({"label": name, "x": [x for x, _ in spectra], "y": _rounded(values)})
    return _drawn(title, series, x=_axis([record]), end=spectra[-1][0], logarithmic=logarithmic, ramp=True)


def _chart(
    story: Story,
    title: str,
    value: Value,
    *,
    unit: str = "",
    lines: Mapping[str, float] = MappingProxyType({}),
    absent: str = "not logged",
    dots: bool = False,
    span: tuple[float, float] | None = None,
) -> Markup:
    read = value if callable(value) else lambda reading: finite(reading.get(value))
    by_epoch = _axis(story.records) == "epoch"
    series: list[dict[str, Any]] = []
    without: list[str] = []
    for place, record in enumerate(story.records):
        pairs = zip(_places(record, record.readings, by_epoch=by_epoch), map(read, record.readings), strict=True)
        known = [(x, y) for x, y in pairs if y is not None]
        if known:
            xs, ys = _averaged(known)
            series.append({"label": record.name, "run": place, "x": xs, "y": ys})
        else:
            without.append(record.name)
    if not series:
        return _figure(title, missing_note("no reading yet" if value in ("loss", "knn_top1") else absent))
    note = element("p", ", ".join(without), f": {absent}", class_="note") if without else None
    if not lines and not dots and all(_is_constant(s["y"]) for s in series):
        return _constant(title, series, unit, note)
    end = max(
        _places(record, record.readings[-1:], by_epoch=by_epoch)[0] for record in story.records if record.readings
    )
    x = "epoch" if by_epoch else "step"
    return _drawn(title, series, x=x, end=end, unit=unit, lines=lines, dots=dots, span=span, below=note)


def _drawn(
    title: str,
    series: list[dict[str, Any]],
    *,
    x: str,
    end: float,
    unit: str = "",
    lines: Mapping[str, float] = MappingProxyType({}),
    logarithmic: bool = False,
    ramp: bool = False,
    dots: bool = False,
    span: tuple[float, float] | None = None,
    below: Markup | None = None,
) -> Markup:
    spec = {
        "x": x,
        "end": end,
        "unit": unit,
        "series": series,
        "lines": list(lines.values()),
        "log": logarithmic,
        "ramp": ramp,
        "dots": dots,
        "span": span,
    }
    last = (
        "; ".join(f"{s['label']}: {s['y'][-1]:g}{unit}" for s in series if s["y"][-1] is not None) if not ramp else ""
    )
    told = ", ".join(f"{words} {value:g}{unit and f' {unit}'}" for words, value in lines.items())
    dashed = element("p", f"Dashed: {told}.", class_="note") if told else None
    plot = element("div", class_="plot", role="img", aria_label=f"{title}, last values {last}" if last else title)
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


def _places(record: Record, readings: Sequence[Reading], *, by_epoch: bool = True) -> list[float]:
    """Where readings lie: epochs and parts of them, or steps where that cannot be known."""
    per_epoch = (record.steps_per_epoch if by_epoch else None) or 1
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


def _spread(reading: Reading) -> float | None:
    std, healthy = finite(reading.get("feature_std")), finite(reading.get("healthy_std"))
    return 100 * std / healthy if std is not None and healthy else None


def _waiting(reading: Reading) -> float | None:
    share = finite(reading.get("data_share"))
    return None if share is None else 100 * share


def _time_spent(record: Record) -> Markup:
    timed = [(s, r) for r in record.readings if (s := finite(r.get("seconds"))) is not None]
    if not timed:
        raise Missing("this run logged no durations, so where its time went is unknown")
    total = sum(seconds for seconds, _ in timed)
    waiting = sum(seconds * (finite(r.get("data_share")) or 0.0) for seconds, r in timed)
    knn = sum(finite(r.get("knn_seconds")) or 0.0 for r in record.readings)
    parts = [("training steps", total - waiting), ("waiting for data", waiting), ("kNN accuracy", knn)]
    whole = max(total + knn, 1e-9)
    bar = element(
        "div",
        *(
            element("span", class_=f"part run-{i}", style=f"flex-grow:{max(s / whole, 0):.4f}", title=name)
            for i, (name, s) in enumerate(parts)
        ),
        class_="bar",
    )
    legend = element(
        "p",
        *(
            element("span", element("i", class_=f"swatch run-{i}"), f"{name} {duration(s)} ({100 * s / whole:.1f} %)")
            for i, (name, s) in enumerate(parts)
        ),
        class_="key",
    )
    return element("figure", element("figcaption", f"Where {duration(whole)} went"), bar, legend)
