"""What a report tells of its runs, and the features behind its pictures, taken once and only when asked for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ssl_hub.data.images import Source
from ssl_hub.data.overlap import overlap
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.embedding import features_of, open_split
from ssl_hub.evaluate.extraction import known_of
from ssl_hub.evaluate.features import Features
from ssl_hub.evaluate.subject import open_model
from ssl_hub.report.html import Markup, Missing, element, together
from ssl_hub.report.record import Record
from ssl_hub.train.outcome import readable, thinned
from ssl_hub.train.sweep import Outcome

BANK, QUERIES = 5_000, 1_000  # images looked at, evenly spaced over their splits


@dataclass(frozen=True, eq=False)
class Evidence:
    """Images of a run's data and what its backbone makes of them."""

    bank: Source
    queries: Source
    bank_features: Features
    query_features: Features
    bank_size: int  # of the whole split
    same_split: bool  # whether queries come from the bank, so that each finds itself


@dataclass(eq=False)
class Story:
    """Runs side by side, on ``data`` (by default on what each was trained on), or those of a ``sweep``."""

    records: Sequence[Record]
    data: str | None = None
    sweep: Outcome | None = None
    _evidence: dict[str, Evidence | Missing] = field(default_factory=dict)

    @property
    def several(self) -> bool:
        return len(self.records) > 1

    def evidence(self, record: Record) -> Evidence:
        """Raises Missing, with the reason, where there are no weights or no data to look at."""
        if record.name not in self._evidence:
            try:
                self._evidence[record.name] = self._gather(record)
            except UsageError as error:
                self._evidence[record.name] = Missing(str(error))
        found = self._evidence[record.name]
        if isinstance(found, Missing):
            raise found
        return found

    def _gather(self, record: Record) -> Evidence:
        subject = open_model(record.model)
        own = record.recipe.data if record.recipe is not None else None
        _, known = known_of(subject.recipe, self.data)  # splits of other data are not those of the recipe
        bank = open_split(subject, self.data, known.train_split)
        try:
            queries = open_split(subject, self.data, known.test_split)
        except UsageError:
            queries = bank
        seen, asked = thinned(bank, BANK), thinned(queries, QUERIES)
        if queries is not bank:  # what is in both would be its own nearest neighbour
            others = np.setdiff1d(np.arange(len(asked)), overlap(seen, asked).places)
            queries, asked = (queries, asked.subset(others)) if len(others) else (bank, thinned(bank, QUERIES))
        if own is not None:
            seen, asked = readable(seen, own), readable(asked, own)
        return Evidence(
            bank=seen,
            queries=asked,
            bank_features=features_of(subject, seen),
            query_features=features_of(subject, asked),
            bank_size=len(bank),
            same_split=queries is bank,
        )

    def each(self, draw: Callable[[Record], Markup], *, kind: str) -> Markup:
        """What ``draw`` makes of each run, or why it makes nothing of it: behind tabs where there are several."""
        if not self.records:
            raise Missing("no run has begun")
        panels = [present(functools.partial(draw, record)) for record in self.records]
        if not self.several:
            return panels[0]
        keys = [f"{kind}-{place}" for place in range(len(panels))]
        tabs = [
            element("button", swatch(i), record.name, type="button", data_tab=keys[i], aria_pressed=pressed(i == 0))
            for i, record in enumerate(self.records)
        ]
        behind = [element("div", panel, data_panel=keys[i], hidden=i > 0) for i, panel in enumerate(panels)]
        return together(element("div", *tabs, class_="tabs", data_tabs=kind), *behind)


def present(draw: Callable[[], Markup]) -> Markup:
    """What ``draw`` makes, or a note that says why it makes nothing."""
    try:
        return draw()
    except Missing as missing:
        return missing_note(str(missing))


def missing_note(reason: str) -> Markup:
    return element("p", "Missing: ", reason, class_="missing")


def swatch(place: int) -> Markup:
    """The colour of a run."""
    return element("i", class_=f"swatch run-{place % 8}")


def pressed(value: bool) -> str:
    """The state of a button, as ARIA writes it."""
    return "true" if value else "false"
