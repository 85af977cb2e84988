"""Sections made of words and tables: how good the runs are, and exactly what they are."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from ssl_hub.codec import flat, to_dict
from ssl_hub.config import Expected
from ssl_hub.data.inventory import in_words
from ssl_hub.evaluate.measurement import LINEAR, described
from ssl_hub.evaluate.protocols import PROTOCOLS
from ssl_hub.model.results import Result, interval_text
from ssl_hub.model.standing import fitted_split, is_part
from ssl_hub.report.html import ABSENT, Child, Markup, Missing, element, number, table, together
from ssl_hub.report.measured import KINDS, measurements, protocol_name, side_by_side
from ssl_hub.report.record import Record, finite, spread_of
from ssl_hub.report.story import Story, missing_note, swatch
from ssl_hub.tables.comparison import differing
from ssl_hub.tables.paper import TABLES
from ssl_hub.zoo import RECIPES, departures

TONES = {"collapsed": "bad", "not finite": "bad", "narrow": "warn", "healthy": None}  # the class of a word on the page


def results(story: Story) -> Markup:
    """Measured numbers beside the published ones, and the state of each run."""
    parts = [compared(story)] if story.several else [_tiles(story.records[0])]
    parts += [measurements(record, several=story.several) for record in story.records if record.results]
    return together(*parts, *(_published(record, story) for record in story.records))


def recipe(story: Story) -> Markup:
    """The exact recipe, the command and what it ran on; for several runs, the settings that differ."""
    settings = _differing_settings(story) if story.several else None
    return together(settings, story.each(_recipe_of, kind="recipe"))


def published(record: Record) -> list[tuple[Expected, Result | None]]:
    """Published numbers of the recipe, each with the measurement of the same kind where there is one.

    Raises Missing, with the reason, where no published number belongs to this run.
    """
    if record.recipe is None:
        raise Missing("The recipe of this run cannot be read, so no published number belongs to it")
    name = record.recipe.name
    if name not in RECIPES:
        raise Missing(f"{name} is no registered recipe, so no published number belongs to it")
    registered = RECIPES[name]
    if changed := modifications(record):
        raise Missing(f"Modified: {changed}. No published number belongs to this run")
    if not registered.expected:
        raise Missing(f"No number is published for {name}")
    return [(expected, _measured(record, expected)) for expected in registered.expected]


def modifications(record: Record) -> str:
    """How a run departs from the registered recipe of its name, in words; empty where it does not."""
    if record.recipe is None or record.recipe.name not in RECIPES:
        return ""
    changed = dict(departures(record.recipe))
    data, registered = record.recipe.data.name, RECIPES[record.recipe.name].data.name
    if Path(data).name != Path(registered).name:
        changed["data.name"] = (registered, data)
    return ", ".join(f"{key} {_plain(old)} → {_plain(new)}" for key, (old, new) in sorted(changed.items()))


def _measured(record: Record, expected: Expected) -> Result | None:
    words = expected.metric.lower()
    top = "top5" if "top-5" in words else "top1"
    for kind, names in KINDS.items():
        if any(name in words for name in names):
            return record.headline(kind, top, elsewhere=False).result
    return None


def _tiles(record: Record) -> Markup:
    tiles = []
    for kind, title in (("linear", "Linear probe, top-1"), ("knn", "kNN, top-1")):
        found = record.result(kind)
        if found is None:
            tiles.append(_tile(title, ABSENT, "", "not measured"))
        else:
            below = f"{found.dataset}, {found.split} split, {protocol_name(found)}: {described(found)}"
            sure = "" if found.interval is None else f"; 95 % interval {interval_text(found.interval, 1)}"
            tiles.append(_tile(title, f"{found.value:.1f}", "%", below + sure))
    rank, health = finite(record.last.get("effective_rank")), record.health
    of = "F, last reading" if record.recipe is None else f"{record.recipe.projector.output_width} directions"
    tiles.append(_tile("Effective rank", number(rank, 3), "", f"of {of}"))
    if health is None:
        tiles.append(_tile("Features", ABSENT, "", "no reading"))
    else:
        tiles.append(_tile("Features", health.state, "", health.numbers, tone=TONES[health.state]))
    return element("div", *tiles, class_="tiles")


def _tile(title: str, value: str, unit: str, below: str, *, tone: str | None = None) -> Markup:
    figure = element("strong", value, element("small", f" {unit}") if unit else None, class_=tone)
    return element("div", element("span", title), figure, element("em", below), class_="tile")


def _with_interval(result: Result) -> str:
    return f"{result.value:.1f}" + ("" if result.interval is None else f" ({interval_text(result.interval, 1)})")


def compared(story: Story) -> Markup:
    """A line for each run: its state, its accuracies, and how healthy it is."""
    if not story.records:
        raise Missing("no run has begun")
    head = ["Run", "Method", "State", "Linear %", "kNN %", "Last kNN %", "Eff. rank", "Spread %", "Images/s"]
    rows: list[list[Child]] = []
    (linears, unlike), (nearests, unlike_too) = (side_by_side(story.records, kind) for kind in ("linear", "knn"))
    for place, record in enumerate(story.records):
        last, monitored, spread = record.last, record.logged("knn_top1"), spread_of(record.last)
        linear, nearest, health = linears[place], nearests[place], record.health
        state = record.state if health is None or health.state == "healthy" else f"{health.state}; {record.state}"
        rows.append(
            [
                together(swatch(place), record.name),
                None if record.recipe is None else record.recipe.name,
                element("span", state, class_=None if health is None else TONES[health.state]),
                None if linear is None else _with_interval(linear),
                None if nearest is None else _with_interval(nearest),
                f"{monitored[-1]:.1f}" if monitored else None,
                number(finite(last.get("effective_rank")), 3),
                None if spread is None else f"{spread:.0f}",
                number(finite(last.get("images_per_second")), 3),
            ]
        )
    notes = [element("p", "Left out: ", line, ".", class_="note") for line in unlike + unlike_too]
    return together(table([*head], rows, numeric=6, class_="compared"), *notes)


def _published(record: Record, story: Story) -> Markup:
    prefix = f"{record.name}: " if story.several else ""
    try:
        pairs = published(record)
    except Missing as missing:
        return element("p", prefix, str(missing), ".", class_="note")
    rows: list[list[Child]] = []
    for expected, measured in pairs:
        std = "" if expected.std is None else f" ± {expected.std:g}"
        ours, difference = "not measured", None
        if measured is not None:
            ours = f"{measured.value:.1f} % ({protocol_name(measured)})"
            partly = [split for split in (measured.split, fitted_split(measured)) if split and is_part(split)]
            comparable = not partly and protocol_name(measured) in _protocols_of(record)
            difference = f"{measured.value - expected.value:+.1f}" if comparable else None
            ours += f", on {' and '.join(partly)}" if partly else ""
        rows.append([expected.metric, expected.source, f"{expected.value:g}{std}", ours, difference])
    titled = element("h3", prefix, "Against the published numbers")
    return together(titled, table(["Metric", "Source", "Published", "This run", "Difference"], rows, numeric=3))


def _protocols_of(record: Record) -> set[str]:
    """By which the published numbers of a run's recipe came about, and another forms no difference from them; of
    recipes in no table of the paper any that is not changed."""
    name = None if record.recipe is None else record.recipe.name
    of_cells = {cell.protocol for table in TABLES.names() for cell in TABLES[table].cells if cell.recipe == name}
    return of_cells or {LINEAR + protocol for protocol in PROTOCOLS.names()}


def _differing_settings(story: Story) -> Markup | None:
    known = [(r.name, r.recipe) for r in story.records if r.recipe is not None]
    settings = [flat(to_dict(replace(recipe, summary="", notes=(), expected=()))) for _, recipe in known]
    keys = differing(settings)
    if not keys:
        return element("p", "The recipes of these runs have the same settings.", class_="note")
    rows: list[list[Child]] = [
        [element("code", key), *(_plain(one[key]) if key in one else None for one in settings)] for key in keys
    ]
    return together(element("h3", "Settings that differ"), table(["Setting", *(name for name, _ in known)], rows))


def _recipe_of(record: Record) -> Markup:
    if record.recipe is None and not record.facts:
        raise Missing("recipe.json cannot be read")
    shown = {
        "Learning rate": record.told("learning_rate", "factors"),
        "Batch": _batch(record),
        "Device": record.told("device"),
        "Precision": record.told("precision"),
        "Images": in_words(record.told("inventory")) or record.told("images"),
        "Seed": record.told("seed"),
        "Started": record.told("started"),
        "Git commit": record.told("git_commit"),
        "Versions": _versions(record.told("versions")),
    }
    rows: list[list[Child]] = [[name, _plain(value)] for name, value in shown.items() if value is not None]
    command, changed = _command(record.facts), modifications(record)
    return together(
        element("pre", element("code", command)) if command else missing_note("the command"),
        element("p", "Modified: ", changed, class_="note") if changed else None,
        table(["What it ran with", ""], rows, class_="facts") if rows else None,
        _recipe_text(record),
    )


def _command(facts: dict[str, Any]) -> str:
    """The command as one would type it: a launcher under accelerate, an installed script by its name. With the
    precision that the run had, which a machine's configuration of accelerate may have said."""
    program, _, arguments = str(facts.get("command") or "").partition(" ")
    path = Path(program)
    precision = facts.get("precision") or "no"
    launch = f"accelerate launch --num_processes {facts.get('processes', 1)}"
    launch += "" if precision == "no" else f" --mixed_precision {precision}"
    if path.parent.name == "recipes":
        program = f"{launch} recipes/{path.name}"
    elif program == "python" and arguments.startswith("-m "):
        program = launch
    elif path.name == "ssl-hub":
        program = path.name if precision == "no" else f"ACCELERATE_MIXED_PRECISION={precision} {path.name}"
    return f"{program} {arguments}".strip()


def _recipe_text(record: Record) -> Markup:
    if record.recipe is None:
        return missing_note("the recipe cannot be read")
    text = json.dumps(to_dict(record.recipe), indent=2, ensure_ascii=False)
    notes = element("ul", *(element("li", note) for note in record.recipe.notes)) if record.recipe.notes else None
    whole = element("details", element("summary", "The whole recipe"), element("pre", element("code", text)))
    return together(element("p", record.recipe.summary), notes, whole)


def _versions(versions: Any) -> str | None:
    return ", ".join(f"{name} {number}" for name, number in versions.items()) if isinstance(versions, dict) else None


def _batch(record: Record) -> str | None:
    total, each, accumulation = (record.told("batch_size", key) for key in ("total", "per_process", "accumulation"))
    if total is None:
        return None
    times = " \N{MULTIPLICATION SIGN} "
    return f"{total} = {each}{times}{record.told('processes')} process(es){times}{accumulation} accumulation"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
