"""The command that a model card gives: run as it stands, it trains the card's recipe. That is tried beforehand."""

from __future__ import annotations

import json
import shlex
from dataclasses import fields, replace
from typing import Any

from ssl_hub.codec import changes, parse_assignments, to_dict
from ssl_hub.config import Part, Recipe
from ssl_hub.errors import UsageError
from ssl_hub.hub.markdown import code
from ssl_hub.model.lineage import public_recipe
from ssl_hub.model.parts import with_defaults
from ssl_hub.zoo import RECIPES, as_modified, get_recipe

LAUNCH = "accelerate launch"


def command(recipe: Recipe, *, precision: str | None = None) -> str | None:
    """The command that trains exactly what this recipe learns, on data called by its public name; None where no command
    does: no recipe of that name comes with ssl_hub.

    Every setting that differs from the registered recipe's is in it, those of the data and the seed too, but none of
    ``runtime``, which changes nothing that is learnt.
    """
    if recipe.name not in RECIPES:
        return None
    registered, recipe = RECIPES[recipe.name], public_recipe(recipe)
    settings = _settings(registered, recipe)
    data = settings.pop("data.name", None)
    pairs = [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in settings.items()]
    if not _gives(recipe, [*pairs, *([] if data is None else [f"data.name={data}"])]):
        return None
    launch = LAUNCH if precision in (None, "no", "None") else f"{LAUNCH} --mixed_precision {precision}"
    words = [recipe.command.replace(LAUNCH, launch, 1), *([] if data is None else ["--data", shlex.quote(str(data))])]
    return code(" ".join([*words, *map(shlex.quote, pairs)]))


def _settings(registered: Recipe, recipe: Recipe) -> dict[str, Any]:
    """Dotted settings by which one recipe becomes the other. Of a part of another kind, all its options."""
    found: dict[str, Any] = {}
    switched = []
    for section in (f.name for f in fields(recipe)):
        before, after = getattr(registered, section), getattr(recipe, section)
        if isinstance(after, Part) and isinstance(before, Part) and before.kind != after.kind:
            switched.append(section)
            options = getattr(with_defaults(recipe), section).options
            found |= {f"{section}.kind": after.kind, **{f"{section}.{key}": value for key, value in options}}
    differing = changes(registered, recipe)
    return found | {key: new for key, (_, new) in differing.items() if key.split(".")[0] not in switched}


def _gives(recipe: Recipe, pairs: list[str]) -> bool:
    """Whether the registered recipe of that name, with these settings as words of a command, is this one."""
    try:
        given = as_modified(get_recipe(recipe.name, **parse_assignments(pairs)))
    except UsageError:
        return False
    same = replace(recipe, summary=given.summary, expected=given.expected, notes=given.notes, runtime=given.runtime)
    return bool(to_dict(with_defaults(given)) == to_dict(with_defaults(same)))
