"""A dataset's inventory as text for people: its splits, its images, what is wrong, and how to train on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ssl_hub.data.passed_over import ALIKE_BELOW, AROUND_CLASSES
from ssl_hub.zoo.advice import Finding, counted, findings
from ssl_hub.zoo.data_plan import Plan

_HARM = ("note", "look", "warning", "wrong")
_ENDINGS = 4  # named of a split
_SAID_BELOW = (AROUND_CLASSES, ALIKE_BELOW)  # nothing is passed over there


def page(survey: Mapping[str, Any], given: str, advised: Plan | None) -> str:
    """``given`` is what the user called the data, for the command of the plan that is advised."""
    lines = [*_head(survey), *_splits(survey), *_images(survey), *_found(findings(survey)), *_plan(advised, given)]
    return "\n".join(lines)


def _head(survey: Mapping[str, Any]) -> Iterator[str]:
    opened = [known for known in survey["splits"].values() if "error" not in known]
    count = len(survey["splits"])
    splits = f"{count} split{'s' * (count != 1)}"
    if survey["stream"]:
        yield f"{survey['data']}: a stream of {sum(known['shards'] for known in opened)} files, {splits}"
    else:
        yield f"{survey['data']}: {sum(known['images'] for known in opened):,} images, {splits}"


def _splits(survey: Mapping[str, Any]) -> Iterator[str]:
    width = max(map(len, survey["splits"]))
    for split, known in survey["splits"].items():
        yield f"  {split:<{width}}  {_split(known)}"
        passed = {why: some for why, some in known.get("passed_over", {}).items() if why not in _SAID_BELOW}
        if passed:
            shown = [f"{some['number']:,} {why} ({some['example']})" for why, some in passed.items()]
            yield f"  {'':<{width}}  passed over: {', '.join(shown)}"


def _split(known: Mapping[str, Any]) -> str:
    if "error" in known:
        return "cannot be opened"
    if "shards" in known:
        return f"{known['shards']} files"
    parts = [counted(known["images"]), _classes(known["classes"])]
    if known["endings"]:
        most = list(known["endings"].items())
        more = f", {len(most) - _ENDINGS} more endings" if len(most) > _ENDINGS else ""
        parts.append(", ".join(f"{number:,} {ending or 'unnamed'}" for ending, number in most[:_ENDINGS]) + more)
    return "; ".join(parts)


def _classes(classes: Mapping[str, int] | None) -> str:
    if classes is None:
        return "no labels"
    fewest, most = min(classes.values(), default=0), max(classes.values(), default=0)
    return f"{len(classes)} class{'es' * (len(classes) != 1)} of {fewest:,}" + (
        f" to {most:,}" if most > fewest else ""
    )


def _images(survey: Mapping[str, Any]) -> Iterator[str]:
    for split, known in survey["splits"].items():
        seen = known.get("looked_at")
        if not seen or "width" not in seen:
            continue
        yield f"images of {split} ({seen['images']:,} looked at)"
        yield f"  {_size(seen)}"
        bits = " and ".join("float" if bit == "float" else f"{bit} bits" for bit in seen["bits"])
        modes = ", ".join(f"{number:,} {mode}" for mode, number in seen["modes"].items())
        yield f"  {modes}; {bits} a channel"
        low, high = seen["values"]
        of = f"{seen['range'][0]:g} to {seen['range'][1]:g}"
        yield f"  values {low:g} to {high:g}, {_percent(seen['used'])} of {of}"


def _percent(share: float) -> str:
    return "all" if share == 1 else f"{100 * share:.1f} %"


def _size(seen: Mapping[str, Any]) -> str:
    (least, middle, most), (lowest, central, highest) = seen["width"], seen["height"]
    if seen["sizes"] == 1:
        return f"{middle} x {central} pixels"
    return f"{least} to {most} wide, {lowest} to {highest} high, {middle} x {central} in the middle"


def _found(found: list[Finding]) -> Iterator[str]:
    if not found:
        yield "nothing wrong was seen"
    for finding in found:
        yield f"{_HARM[finding.harm]}: {finding.text}"
        if finding.fix:
            yield f"  {finding.fix}"


def _plan(advised: Plan | None, given: str) -> Iterator[str]:
    if advised is None:
        return
    plans = [advised] if advised.continued is None else [advised, advised.continued]
    for place, one in enumerate(reversed(plans) if advised.continue_first else plans):
        yield "or" if place else "to train on it"
        yield f"  {one.command(given)}"
        yield from (f"  {reason}" for reason in one.reasons)
