"""How the weights of a release came to be: a chain of steps, first to last, in config.json and in recipe.json.

A step is a JSON object. Its ``step`` says what was done; the other keys are facts, and one that is not known is left
out.

    imported     source, file, sha256, branch, licence; code_licence, method, classifier (its labels), top_layer (which
                 may be one); assumed: what the file does not say
    started      kind (random, timm, file, run, release, hub), name or seed, licence, sha256: what training began with
    pretrained   recipe: all of it; run: facts of the run; without labels
    finetuned    data, split, images, classes, command; with labels

Paths of somebody's disk are shortened to their last part: a release may be published.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ssl_hub.codec import from_dict, to_dict
from ssl_hub.config import Recipe
from ssl_hub.errors import UsageError

Chain = list[dict[str, Any]]

LINEAGE = "lineage"  # the key in "ssl_hub" of config.json and in "run" of recipe.json
INITIALISED_FROM = "initialised_from"  # in the facts of recipe.json: what the backbone started from
UNKNOWN = "unknown"  # the licence of what states none
PERMISSIVE = {"apache-2.0", "mit", "bsd", "bsd-2-clause", "bsd-3-clause", "cc-by-4.0", "cc0-1.0", "isc", "unlicense"}
# Of a run's facts, those that say how its weights came to be.
OF_A_RUN = (
    "seed", "steps", "images", "batch_size", "processes", "learning_rate", "precision", "device", "versions",
    "git_commit", "inventory",
)  # fmt: skip
INIT = "init:"  # before the name of a recipe or run, of whose start one speaks
DISK = ("/", "~", "./", "../")  # what a path begins with that can be nothing else
SPLIT = re.compile(r"[\w-]+(\[[^\]]*\])?")
OF_A_START = ("kind", "name", "licence", "sha256", "normalised_by")


def public_name(name: str) -> str:
    """What data or weights are called in public: of a path on this disk the last part alone, and what stands behind
    ``::`` there. So of what a run starts from, ``init:PATH``."""
    if name.startswith(INIT):
        return INIT + public_name(name.removeprefix(INIT))
    path = name.partition("::")[0]
    try:
        is_here = "/" in path and Path(path).exists()  # else it may be one of the Hub's
    except OSError:
        is_here = False
    return _shortened(f"./{name}" if is_here and not path.startswith(DISK) else name)


def _shortened(text: str) -> str:
    """The last part of what is written as a path; other text as it is."""
    path, colons, rest = text.partition("::")
    return f"{Path(path).name or path}{colons}{rest}" if path.startswith(DISK) else text


def public_split(split: str, name: Callable[[str], str] = public_name) -> str:
    """A split, whose lists of images (``train@FILE+test@FILE``) are on a disk; of what is no split, the ``name``."""
    parts = [part.partition("@") for part in split.split("+")]
    if not all(SPLIT.fullmatch(before) for before, _, _ in parts):
        return name(split)
    return "+".join(f"{before}{at}{name(file)}" for before, at, file in parts)


def public_words(command: Sequence[str], name: Callable[[str], str] = public_name) -> list[str]:
    """The words of a command with public names, also behind ``--option=`` and ``setting=``."""
    found = []
    for word in command:
        before, equals, value = word.partition("=")
        found.append(public_split(word, name) if "/" in before else f"{before}{equals}{public_split(value, name)}")
    return found


def published(recipe_json: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a recipe.json with public names. What a run needs of its owner's disk to go on is in the run
    alone."""
    recipe, run = recipe_json["recipe"], recipe_json["run"]
    if recipe is not None and (public := public_recipe(whole := from_dict(recipe))) != whole:
        recipe = to_dict(public)
    return {**recipe_json, "recipe": recipe, "run": {key: _public(key, value) for key, value in run.items()}}


def _public(key: str, value: Any) -> Any:
    """A fact of a run with public names in the place of paths."""
    if isinstance(value, dict):
        return {inner: _public(inner, item) for inner, item in value.items()}
    if isinstance(value, list):
        return [_public(key, item) for item in value]
    if not isinstance(value, str):
        return value
    if key != "command":
        return public_split(value, _shortened)
    try:
        return shlex.join(public_words(shlex.split(value), _shortened))
    except ValueError:  # no command line
        return ""


def public_recipe(recipe: Recipe) -> Recipe:
    """The recipe with what it names on somebody's disk called by its public name."""
    data, backbone, runtime, summary = recipe.data, recipe.backbone, recipe.runtime, recipe.summary
    for name in filter(None, (data.name, backbone.init)):
        summary = summary.replace(name, public_name(name)) if name != public_name(name) else summary
    return replace(
        recipe,
        summary=summary,
        data=replace(
            data,
            name=public_name(data.name),
            pretrain_split=public_split(data.pretrain_split),
            train_split=public_split(data.train_split),
            test_split=public_split(data.test_split),
        ),
        backbone=replace(backbone, init=backbone.init and public_name(backbone.init)),
        runtime=replace(runtime, monitor_data=runtime.monitor_data and public_name(runtime.monitor_data)),
    )


def pretrained(recipe: Recipe, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The step of a run of a recipe; ``facts`` are those of its recipe.json."""
    run = {key: facts[key] for key in OF_A_RUN if facts.get(key) is not None}
    return {"step": "pretrained", "recipe": to_dict(public_recipe(recipe)), "run": run}


def started(origin: Mapping[str, Any] | None, seed: int | None = None) -> Chain:
    """How what training began with came to be, and that it began with it; None: with random weights."""
    if origin is None:
        return [{"step": "started", "kind": "random", **({} if seed is None else {"seed": seed})}]
    link = {key: origin[key] for key in OF_A_START if origin.get(key) is not None}
    if "name" in link:
        link["name"] = public_name(str(link["name"]))
    return [*_before(origin), {"step": "started", **link}]


def _before(origin: Mapping[str, Any]) -> Chain:
    """The steps before a start, as they are recorded now or were by older versions."""
    if isinstance(chain := origin.get(LINEAGE), list):
        return chain
    if isinstance(imported := origin.get("imported_from"), Mapping):
        return [{"step": "imported", **imported}]
    if isinstance(older := origin.get("initialised_from"), Mapping):
        return started(older)
    return []


def lineage_of(config: Mapping[str, Any], recipe: Recipe | None, facts: Mapping[str, Any]) -> Chain:
    """The chain of a release by its config.json, recipe.json and the facts in that; of one that an older version wrote,
    as far as they tell.

    Raises UsageError for a chain that is none.
    """
    about = config.get("ssl_hub", {})
    if LINEAGE in about:
        chain = about[LINEAGE]
        if not isinstance(chain, list) or not all(isinstance(link, dict) and "step" in link for link in chain):
            raise UsageError(f"config.json: {LINEAGE!r} is {str(chain)[:80]}, expected a list of objects with a 'step'")
        return chain
    imported, tuned = isinstance(about.get("imported_from"), Mapping), "finetuned_on" in about
    links = _before({**about, "imported_from": about.get("imported_from")})
    if imported:
        links[0].setdefault("licence", about.get("licence", UNKNOWN))
    elif isinstance(about.get("initialised_from"), Mapping):
        links = started(about["initialised_from"])
    if recipe is not None and not imported:
        links = [*links, pretrained(recipe, {} if tuned else facts)]
    if tuned:
        counted = {"images": facts.get("train_size"), "split": facts.get("train_split")}
        known = {key: value for key, value in counted.items() if value is not None}
        links = [*links, {"step": "finetuned", "data": public_name(str(about["finetuned_on"])), **known}]
    return links


def inherited(licence: str) -> str:
    """The licence of what is made from weights under one, where nobody states another: the same where it binds what is
    made, as non-commercial ones do; unknown where it leaves that to whoever makes it."""
    return UNKNOWN if licence.lower() in PERMISSIVE else licence


def licences(chain: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """What the weights were made from, and its licence, where one is known."""
    for link in chain:
        name, licence = link.get("name") or link.get("source"), link.get("licence")
        if licence is not None and str(licence).lower() != UNKNOWN:
            yield "weights" if name is None else str(name), str(licence)
