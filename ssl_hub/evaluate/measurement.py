"""What a number measures: the protocol *and* the settings that define it. Two results are compared, averaged or put in
each other's place only where these are the same. Nothing here imports torch: the live view of a run must start fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from ssl_hub.evaluate.protocols import PROTOCOLS
from ssl_hub.model.results import Result

LINEAR = "linear-"  # what the names of linear probes start with in results
DEFAULT = "linear-cached"
LABELS = ("train_dataset", "train_split", "train_size")  # what a classifier was fitted to
PROVENANCE = ("finetuned_from", "data")  # of a fine-tuned model: whose it is, not how it was measured


class Measurement(NamedTuple):
    """What was measured, and how: ``protocol`` with the settings in which it departs from that of its name, and every
    other setting that defines the number, as text. Seeds, and what a probe chose by itself, are no part of it."""

    protocol: str
    metric: str
    dataset: str
    split: str
    settings: tuple[tuple[str, str], ...]


def measurement_of(result: Result) -> Measurement:
    """What a result is a measurement of."""
    settings = {name: _text(value) for name, value in _defining(result).items()}
    protocol = protocol_of(result.protocol, result.settings)
    return Measurement(protocol, result.metric, result.dataset, result.split, tuple(sorted(settings.items())))


def titles(measurements: Iterable[Measurement]) -> dict[Measurement, str]:
    """A name for each measurement: protocol, metric and data, and the settings in which those alike in these differ."""
    alike: dict[str, list[Measurement]] = {}
    for m in dict.fromkeys(measurements):
        alike.setdefault(f"{m.protocol} {m.metric}, {m.dataset} ({m.split})", []).append(m)
    named = {}
    for base, group in alike.items():
        names = [name for name in _names(group) if len({dict(m.settings).get(name) for m in group}) > 1]
        for m in group:
            told = [f"{name}={dict(m.settings)[name]}" for name in names if name in dict(m.settings)]
            named[m] = ", ".join([base, *told])
    return named


def protocol_of(name: str, settings: Mapping[str, Any]) -> str:
    """A protocol with the settings in which it departs from the registered one: ``linear-simsiam (epochs=2)``."""
    known = name.removeprefix(LINEAR)
    if known not in PROTOCOLS:
        return name
    departed = [
        f"{key}={_text(settings[key])}"
        for key, usual in asdict(PROTOCOLS[known]).items()
        if key in settings and _text(settings[key]) != _text(usual)
    ]
    return name + (f" ({', '.join(departed)})" if departed else "")


def described(result: Result) -> str:
    """The settings that define a number, for people: ``1,297 labels (train)``, ``k=20, temperature=0.07, ...``."""
    settings = _defining(result)
    if result.protocol == "knn":
        parts = [f"{name}={_text(settings[name])}" for name in ("k", "temperature") if name in settings]
        parts += _counted(settings, "bank_size", "bank images", "bank_split")
        return ", ".join(parts)
    epochs = result.settings.get("epochs")
    parts = [] if epochs is None else [f"{epochs} epochs"]
    parts += _counted(settings, "train_size", "labels", "train_split")
    parts += [f"head of {settings['train_dataset']}"] if "train_dataset" in settings else []
    return ", ".join(parts)


def listed(results: Sequence[Result]) -> list[str]:
    """A line for each result, in columns: protocol, metric, value, data, and the settings that define it."""
    rows = [
        (
            protocol_of(r.protocol, r.settings),
            r.metric,
            f"{r.value:6.2f} %",
            f"{r.dataset} ({r.split})",
            described(r),
        )
        for r in results
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{text:{width}}" for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def headline(
    results: Iterable[Result], kind: str, metric: str = "top1", *, train_split: str = "train", k: int = 20
) -> Result | None:
    """The result of a kind ("knn", "linear", "finetune") that stands for a run: on other images than ``train_split``
    before on those; of the default protocol, or with the run's own ``k``, before others; with the labels of
    ``train_split`` before others, then with most of them; the newest of these."""

    def rank(result: Result) -> tuple[bool, bool, bool, int, str]:
        settings = result.settings
        usual = settings.get("k") == k if kind == "knn" else protocol_of(result.protocol, settings) == DEFAULT
        split = settings.get("bank_split" if kind == "knn" else "train_split", train_split)
        labels = settings.get("bank_size" if kind == "knn" else "train_size", 0)
        return result.split != train_split, usual, split == train_split, int(labels), result.date

    fitting = [r for r in results if r.protocol.partition("-")[0] == kind and r.metric == metric]
    return max(fitting, key=rank, default=None)


def _defining(result: Result) -> dict[str, Any]:
    if result.protocol.removeprefix(LINEAR) in PROTOCOLS:  # whose own settings go by the protocol's name
        return {name: result.settings[name] for name in (*LABELS, "layer") if name in result.settings}
    return {name: value for name, value in result.settings.items() if name not in PROVENANCE}


def _names(measurements: Iterable[Measurement]) -> list[str]:
    return list(dict.fromkeys(name for m in measurements for name, _ in m.settings))


def _counted(settings: Mapping[str, Any], size: str, what: str, split: str) -> list[str]:
    if size not in settings:
        return []
    return [f"{settings[size]:,} {what}" + (f" ({settings[split]})" if split in settings else "")]


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_text, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)
