"""The number of a cell: which results of which runs it is made of, and why the others are not."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from ssl_hub.config import Recipe
from ssl_hub.data.hub_datasets import owned_address
from ssl_hub.data.splits import meaning
from ssl_hub.evaluate.measurement import LINEAR, Measurement, alike, measurement_of, why_apart
from ssl_hub.evaluate.protocols import PROTOCOLS
from ssl_hub.model.files import CONFIG
from ssl_hub.model.results import Result
from ssl_hub.model.standing import is_part, standing
from ssl_hub.tables.claims import Sample
from ssl_hub.tables.runs import Run


class Terms(NamedTuple):
    """What a run must have been to count in a cell, and the protocol whose number is taken where there are several.

    Numbers that are None may be any.
    """

    recipe: Recipe
    images: int  # trained on
    protocol: str
    labelled: int | None = None  # that the probe was trained on
    tested: int | None = None  # images that are judged
    classes: int | None = None
    data: str | None = None  # what was trained on; None: the recipe's data


class NotUsed(NamedTuple):
    """A result, or a run that has none, that is not in a cell that its run belongs to."""

    run: Run
    result: Result | None
    reason: str


class Pool(NamedTuple):
    """A number over the seeds of like runs, in the order of the seeds; all None and empty where nothing counts."""

    sample: Sample | None
    measurement: Measurement | None
    runs: list[Run]
    results: list[Result]
    not_used: list[NotUsed]


def why_not(run: Run, terms: Terms) -> list[str]:
    """Why a run does not count, in words; nothing where it does."""
    if run.finetuning:
        return [f"fine-tuned on {run.finetuning['finetuning.data']}"]
    reasons = [f"{key} is {got}, not {wanted}" for key, (wanted, got) in run.differences(terms.recipe).items()]
    wanted = terms.data or terms.recipe.data.name
    if not _may_be(run.recipe.data.name, wanted):
        reasons.append(f"trained on {run.recipe.data.name}, not {wanted}")
    elif None not in (run.classes, terms.classes) and run.classes != terms.classes:
        reasons.append(f"trained on data of {run.classes} classes, not {terms.classes}")
    if run.images != terms.images:
        reasons.append(f"trained on {run.images} images, not {terms.images}")
    return reasons


def _may_be(data: str, wanted: str) -> bool:
    """Whether data may be what is wanted: of a folder its name does not tell, of a name on the Hub it does."""
    address = owned_address(data)
    if data == wanted or address is None or Path(data).exists():
        return True
    return address.path.split("/")[-1] == re.split("[:@]", wanted)[0].split("/")[-1]


def pooled(runs: Sequence[Run], metric: str, terms: Terms) -> Pool:
    """A linear-probe number over the seeds of like runs.

    All results behind it are one measurement: of the protocol that the terms want before others, of an unchanged
    protocol before a changed one, then the one that most runs have, and the newest of equals. Of two runs with one
    seed, and of two results of one run, the newest counts; the same weights count once.
    """
    fitting: list[tuple[Result, Run]] = []
    not_used: list[NotUsed] = []
    for run in runs:
        counting, others = _of_run(run, metric, terms)
        fitting += [(result, run) for result in counting]
        not_used += others
    same = alike(measurement_of(result) for result, _ in fitting)
    by_measurement: dict[Measurement, list[tuple[Result, Run]]] = {}
    for result, run in fitting:
        by_measurement.setdefault(same[measurement_of(result)], []).append((result, run))
    if not by_measurement:
        return Pool(None, None, [], [], not_used)
    order = {LINEAR + name: -place for place, name in enumerate(PROTOCOLS.names())}

    def rank(m: Measurement) -> tuple[bool, bool, int, int, datetime]:
        runs_with, last = len({id(run) for _, run in by_measurement[m]}), max(r.when for r, _ in by_measurement[m])
        return m.protocol == terms.protocol, m.protocol in order, runs_with, order.get(m.protocol, -len(order)), last

    chosen = max(by_measurement, key=rank)
    pairs, repeated = _one_a_seed(by_measurement.pop(chosen))
    for measurement, others_pairs in by_measurement.items():
        why = f"another measurement: {why_apart(chosen, measurement)}"
        # A run that is in the cell has other protocols' numbers as it has kNN's: no word of them.
        in_cell = {id(run) for _, run in pairs}
        not_used += [NotUsed(run, result, why) for result, run in others_pairs if id(run) not in in_cell]
    return Pool(_sample(pairs), chosen, [run for _, run in pairs], [r for r, _ in pairs], not_used + repeated)


def _of_run(run: Run, metric: str, terms: Terms) -> tuple[list[Result], list[NotUsed]]:
    """The linear-probe results of a run that count in a cell, and the others."""
    judged = standing(run.results, train_split=run.recipe.data.train_split)
    reasons = {id(result): reason for result, reason in judged.aside}
    probed = [r for r in run.results if r.protocol.startswith(LINEAR) and r.metric == metric]
    own = [r for r in run.own_results if r in probed]
    if not own:
        finished = run.results or (run.folder / CONFIG).is_file()
        why = "probed on other data alone" if probed else "not probed" if finished else "not finished"
        return [], [NotUsed(run, probed[0] if probed else None, why)]
    counting, others = [], []
    for result in own:
        reason = reasons.get(id(result)) or _unlike(result, terms)
        if reason is None:
            counting.append(result)
        else:
            others.append(NotUsed(run, result, reason))
    return counting, others


def _unlike(result: Result, terms: Terms) -> str | None:
    """Why a result is not on the images, or not by the labels, that the terms ask for."""
    wanted, labels = terms.recipe.data.test_split, result.settings.get("train_size")
    if is_part(result.split) and result.split != wanted:
        return f"on a part of a split ({result.split})"
    if None not in (result.images, terms.tested) and result.images != terms.tested:
        return f"on {result.images:,} images ({result.split}), not {terms.tested:,}"
    known = result.images is not None and terms.tested is not None
    if not known and (meaning(result.split) or result.split) != (meaning(wanted) or wanted):
        return f"on the split {result.split}, not {wanted}"
    if terms.classes is not None and result.per_class and len(result.per_class) != terms.classes:
        return f"of {len(result.per_class)} classes, not {terms.classes}"
    if terms.labelled is not None and labels not in (None, terms.labelled):
        return f"fitted to {labels:,} labels, not {terms.labelled:,}"
    return None


def _one_a_seed(pairs: Sequence[tuple[Result, Run]]) -> tuple[list[tuple[Result, Run]], list[NotUsed]]:
    """One result for each seed of training, in their order, the newest; and the others."""
    by_seed: dict[int, tuple[Result, Run]] = {}
    weights: dict[str, Run] = {}
    not_used = []
    for result, run in sorted(pairs, key=lambda pair: pair[0].when, reverse=True):
        twin = run if result.backbone is None else weights.setdefault(result.backbone, run)
        other = by_seed[run.seed][1] if run.seed in by_seed else None
        if other is run:
            not_used.append(NotUsed(run, result, "measured again later"))
        elif twin is not run:
            not_used.append(NotUsed(run, result, f"the same weights as {twin.label}"))
        elif other is not None:
            not_used.append(NotUsed(run, result, f"seed {run.seed} again: {other.label} counts, the newest"))
        else:
            by_seed[run.seed] = result, run
    return [by_seed[seed] for seed in sorted(by_seed)], not_used


def _sample(pairs: Sequence[tuple[Result, Run]]) -> Sample:
    spreads = [run.spread for _, run in pairs if run.spread is not None]
    return Sample.of(
        [result.value for result, _ in pairs],
        collapsed=sum(result.collapsed for result, _ in pairs),
        spread=statistics.mean(spreads) if spreads else None,
        images=pairs[0][0].images,
    )
