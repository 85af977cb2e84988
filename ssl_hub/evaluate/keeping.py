"""What a release keeps of a measurement: the numbers always, a probe's head where none that is better founded is there.

A head that is stored gives way to one of the same protocol, or of the default one, that was fitted to the same split or
to more of it, read in the same range or in the model's own. So a quick or an unusual probe is a number in results.json,
and the classifier that people load stays as it was; one whose number does not count (:mod:`ssl_hub.model.standing`) is
never stored. A fine-tuned classifier belongs to its backbone and gives way to no probe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ssl_hub.errors import UsageError
from ssl_hub.evaluate.measurement import DEFAULT, LINEAR, protocol_of
from ssl_hub.model.probe_head import ProbeHead
from ssl_hub.model.release import add_classifier
from ssl_hub.model.results import RESULTS_FILE, Result, append_results, read_results
from ssl_hub.model.standing import bases, is_part, objection, standing, trained_on


def keep_results(folder: Path, results: Sequence[Result]) -> str:
    """Add the results to a release; returns where they are, in words."""
    append_results(folder, results)
    return f"recorded in {folder / RESULTS_FILE}"


def keep_head(
    folder: Path, head: ProbeHead, results: Sequence[Result] = (), *, classifier: bool, replace: bool = False
) -> str:
    """Store a probe's head in a release, and as its ``classifier`` too, unless the one there is better founded.

    Returns what became of it, in words. ``replace`` stores it in any case but where its own ``results`` do not count.
    """
    train_split = trained_on(folder)
    if reason := next(filter(None, (objection(result, train_split) for result in results)), None):
        return f"head not stored: {reason}"
    counted = standing(read_results(folder), train_split=train_split).counted
    stored = stored_head(folder, head.dataset)
    if stored is not None and not replace and not supersedes(head, stored):
        return f"head kept: {_named(stored, counted)}; --replace-head puts this one in its place"
    head.save(folder)
    if classifier:
        add_classifier(folder, head.weight, head.bias, head.classes)
    before = "" if stored is None else f", in place of {_named(stored, counted)}"
    return f"head stored: {_named(head, counted)}{before}"


def stored_head(folder: Path, dataset: str) -> ProbeHead | None:
    """The head for ``dataset`` in a release; None where there is none that can be read."""
    try:
        return ProbeHead.load(folder, dataset)
    except UsageError:
        return None


def supersedes(new: ProbeHead, stored: ProbeHead) -> bool:
    """Whether a head takes the place of one for the same data; see the rule above."""
    protocol, before = (protocol_of(str(h.settings.get("protocol")), h.settings) for h in (new, stored))
    comparable = protocol == before or (protocol == DEFAULT and before.startswith(LINEAR))
    as_read = new.value_range in (None, stored.value_range)
    return comparable and as_read and _is_fitted_to_more(new.settings, stored.settings)


def _is_fitted_to_more(new: Mapping[str, Any], stored: Mapping[str, Any]) -> bool:
    """Whether it is as much of the same split, or more. More labels of other splits are other labels."""
    mine, its = (str(settings.get("train_split", "")) for settings in (new, stored))
    if mine and its and bases(mine) != bases(its):
        return False
    if is_part(mine) != is_part(its):
        return is_part(its)
    return int(new.get("train_size", 0)) >= int(stored.get("train_size", 0))


def _named(head: ProbeHead, counted: Sequence[Result]) -> str:
    """A head by its protocol, the number of its labels, and its accuracy where it is among the results."""
    about = {name: value for name, value in head.settings.items() if name not in ("protocol", "seed")}
    found = [
        f"{result.value:.1f} % on {result.split}"
        for result in counted
        if result.metric == "top1" and result.dataset == head.dataset and result.settings == about
    ]
    size = head.settings.get("train_size")
    labels = [] if size is None else [f"{size:,} labels"]
    labels += [] if head.value_range is None else [f"range {head.value_range}"]
    return ", ".join([protocol_of(str(head.settings.get("protocol")), head.settings), *labels, *found[:1]])
