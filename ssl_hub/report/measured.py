"""Measured numbers on the page: which stand side by side, and all of them with why some do not count."""

from __future__ import annotations

from collections.abc import Sequence

from ssl_hub.evaluate.measurement import accuracy, alike, described, measurement_of, protocol_of, why_apart
from ssl_hub.model.results import Result, interval_text
from ssl_hub.model.standing import standing
from ssl_hub.report.html import Child, Markup, element, table, together
from ssl_hub.report.record import Record

KINDS = {"linear": ("linear",), "knn": ("knn", "k-nn", "nearest"), "finetune": ("fine-tun", "finetun")}


def side_by_side(records: Sequence[Record], kind: str) -> tuple[list[Result | None], list[str]]:
    """A number of each run that measures the same as the others', None where a run has none; and in words the
    headlines that measure something else: than most, and of equally many than the first."""
    headlines = [record.result(kind) for record in records]
    counted = [standing(record.results, train_split=record.train_split).counted for record in records]
    same = alike(measurement_of(result) for results in counted for result in results)
    found = [None if result is None else same[measurement_of(result)] for result in headlines]
    shared = max((m for m in found if m is not None), key=found.count, default=None)
    if shared is None:
        return headlines, []
    shown: list[Result | None] = []
    unlike = []
    for record, headline, results in zip(records, headlines, counted, strict=True):
        fitting = [result for result in results if same[measurement_of(result)] == shared]
        shown.append(max(fitting, key=lambda result: result.when, default=None))
        if shown[-1] is None and headline is not None:
            why = why_apart(measurement_of(headline), shared)
            unlike.append(f"{accuracy(headline)} of {record.name}, {protocol_name(headline)}: not comparable ({why})")
    return shown, unlike


def measurements(record: Record, *, several: bool) -> Markup:
    """Every number of a run with the settings that define it, behind a fold; and why those that do not count do not."""
    aside = {id(result): reason for result, reason in standing(record.results, train_split=record.train_split).aside}
    rows: list[list[Child]] = [
        [
            protocol_name(result),
            f"{result.dataset} ({result.split})",
            described(result),
            None if result.seed is None else str(result.seed),
            result.date[:10],
            result.metric,
            *([aside.get(id(result))] if aside else []),
            interval_text(result.interval),
            f"{result.value:.2f}",
        ]
        for result in record.results
    ]
    head: list[Child] = ["Protocol", "Data", "Settings", "Seed", "Measured", "Metric"]
    head += [*(["Left out because"] if aside else []), "95 % interval", "%"]
    title = f"{record.name}: all measurements" if several else "All measurements"
    whole = table(head, rows, numeric=2)
    fold = element("details", element("summary", f"{title} ({len(rows)})"), whole, open=not several)
    return together(fold, *(_left_out(record) if not several else ()))


def _left_out(record: Record) -> list[Markup]:
    """What does not stand for a run though it is of a kind that does."""
    found = [each for kind in KINDS for each in record.headline(kind).aside]
    return [
        element("p", f"Left out: {accuracy(result)}, {protocol_name(result)}: {reason}.", class_="note")
        for result, reason in found
    ]


def protocol_name(result: Result) -> str:
    return protocol_of(result.protocol, result.settings)
