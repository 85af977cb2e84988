"""What a number measures: the protocol *and* the settings that define it, and the images. Two results are compared,
averaged or put in each other's place only where these are the same: tables, verdicts, comparisons, headlines and stored
heads ask here, and :mod:`ssl_hub.model.standing` before it. Nothing here imports torch: the live view of a run must
start fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, NamedTuple

from ssl_hub.evaluate.protocols import PROTOCOLS
from ssl_hub.model.results import Result, interval_text
from ssl_hub.model.standing import Aside, is_part, kind_of, standing

LINEAR = "linear-"  # what the names of linear probes start with in results
DEFAULT = "linear-cached"
LABELS = ("train_dataset", "train_split", "train_size")  # what a classifier was fitted to
PROVENANCE = ("finetuned_from", "data")  # of a fine-tuned model: whose it is, not how it was measured
OUTCOMES = ("by_fold", "best_epoch")  # what was found by measuring, not how it was


class Measurement(NamedTuple):
    """What was measured, and how: ``protocol`` with the settings in which it departs from that of its name, and every
    other setting that defines the number, as text. Seeds, and what a probe chose by itself, are no part of it. ``data``
    tells the images, judged and fitted to; empty in results that do not say."""

    protocol: str
    metric: str
    dataset: str
    split: str
    settings: tuple[tuple[str, str], ...]
    data: str = ""


def measurement_of(result: Result) -> Measurement:
    """What a result is a measurement of."""
    settings = {name: _text(value) for name, value in _defining(result).items()}
    protocol = protocol_of(result.protocol, result.settings)
    data = " ".join(fingerprint for _, fingerprint in sorted(result.data.items()))
    return Measurement(protocol, result.metric, result.dataset, result.split, tuple(sorted(settings.items())), data)


def differences(one: Measurement, other: Measurement) -> list[str]:
    """In what two measurements are not the same, in words; nothing where their numbers may be compared.

    Images that a result does not tell apart are taken for the same where all that it tells is.
    """
    found = [
        f"{name} {mine} and {its}"
        for name, mine, its in zip(Measurement._fields, one, other, strict=True)
        if mine != its and name not in ("settings", "data")
    ]
    mine, its = dict(one.settings), dict(other.settings)
    names = [name for name in _names([one, other]) if mine.get(name) != its.get(name)]
    found += [f"{name} {mine.get(name, 'not said')} and {its.get(name, 'not said')}" for name in names]
    if not found and one.data and other.data and one.data != other.data:
        found.append("other images under the same names")
    return found


def why_apart(one: Measurement, other: Measurement) -> str:
    """:func:`differences` in one text; also of two that :func:`alike` keeps apart because one tells no images."""
    return "; ".join(differences(one, other)) or "its images are not told, and may be others"


def alike(measurements: Iterable[Measurement]) -> dict[Measurement, Measurement]:
    """For each measurement the one that its numbers are pooled under: itself, or for one that does not tell its images
    the only one that does and is the same in all else."""
    every = list(dict.fromkeys(measurements))
    known: dict[Measurement, list[Measurement]] = {}
    for m in every:
        if m.data:
            known.setdefault(m._replace(data=""), []).append(m)
    return {m: known[m][0] if not m.data and len(known.get(m, ())) == 1 else m for m in every}


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
            same = [other for other in group if other.settings == m.settings]
            told += [f"images {m.data[:8] or 'not told'}"] if len(same) > 1 else []
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


def accuracy(result: Result, width: int = 0) -> str:
    """``87.00 % (83.77 to 89.67)``: with its 95 % interval, where the number of images is known."""
    interval = "" if result.interval is None else f" ({interval_text(result.interval)})"
    return f"{result.value:{width}.2f} %{interval}"


def listed(results: Sequence[Result]) -> list[str]:
    """A line for each result, in columns: protocol, metric, value with its 95 % interval, data, and the settings that
    define it."""
    rows = [
        (
            protocol_of(r.protocol, r.settings),
            r.metric,
            accuracy(r, width=6),
            f"{r.dataset} ({r.split})",
            ", ".join([described(r), *([f"{r.overlap:,} images overlap"] if r.overlap else [])]),
        )
        for r in results
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{text:{width}}" for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


class Headline(NamedTuple):
    """The result that stands for a model, None where none may; and those of its kind that do not, with the reason."""

    result: Result | None
    aside: list[Aside]


def headline(
    results: Iterable[Result],
    kind: str,
    metric: str = "top1",
    *,
    train_split: str = "train",
    test_split: str = "test",
    k: int = 20,
    temperature: float = 0.07,
) -> Headline:
    """The result of a kind ("knn", "linear", "finetune") that stands for a run.

    Of those that count (:func:`ssl_hub.model.standing.standing`): of the default protocol before others, which come in
    their order and unchanged ones first, or with ``k`` and ``temperature`` nearest to the run's own; fitted to all of
    ``train_split`` before others, then to more of it; judged on ``test_split`` before others; of equal measurements
    the newest.
    """
    order = {LINEAR + name: -place for place, name in enumerate(PROTOCOLS.names())}

    def rank(result: Result) -> tuple[float, float, bool, bool, int, bool, datetime]:
        settings = result.settings
        usual: tuple[float, float]
        if kind == "knn":
            usual = -abs(settings.get("k", k) - k), -abs(settings.get("temperature", temperature) - temperature)
        else:
            names = protocol_of(result.protocol, settings), result.protocol
            usual = order.get(names[0], -len(order)), order.get(names[1], -len(order))
        split = str(settings.get("bank_split" if kind == "knn" else "train_split", train_split))
        labels = settings.get("bank_size" if kind == "knn" else "train_size", 0)
        own = result.split == test_split
        return *usual, split == train_split, not is_part(split), labels, own, result.when

    counted, aside = standing(
        (r for r in results if kind_of(r) == kind and r.metric == metric), train_split=train_split
    )
    return Headline(max(counted, key=rank, default=None), aside)


def _defining(result: Result) -> dict[str, Any]:
    if result.protocol.removeprefix(LINEAR) in PROTOCOLS:  # whose own settings go by the protocol's name
        return {name: result.settings[name] for name in (*LABELS, "layer", "folds", "range") if name in result.settings}
    return {name: value for name, value in result.settings.items() if name not in (*PROVENANCE, *OUTCOMES)}


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
