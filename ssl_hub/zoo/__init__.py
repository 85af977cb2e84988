"""The registered recipes, grouped by protocol. Importing this imports no torch; overriding a recipe does."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import Any

from ssl_hub.codec import changes
from ssl_hub.config import Recipe
from ssl_hub.registry import Registry
from ssl_hub.zoo import cifar10, cpu, digits, imagenet, own_images, relatives, stl10

RECIPES: Registry[Recipe] = Registry("recipe", listing="`ssl-hub recipes` lists all, such as")

DEMO = "directpred-digits"
"""What the training launcher trains when it is given no recipe."""

for _group in (imagenet, stl10, cifar10, cpu, relatives, own_images, digits):
    for _recipe in _group.recipes():
        RECIPES.add(_recipe.name, _recipe)


def list_recipes(pattern: str = "*") -> list[str]:
    """Names of the registered recipes that match a shell-style pattern, for example ``"directpred-*"``."""
    return RECIPES.names(pattern)


def get_recipe(name: str, /, **overrides: Any) -> Recipe:
    """A registered recipe, with dotted, typed overrides: ``get_recipe("byol-digits", **{"train.epochs": 5})``.

    Raises:
        UsageError: unknown recipe or setting (naming the nearest), or a value of the wrong type or out of its range.
    """
    recipe = RECIPES[name]
    if not overrides:
        return recipe
    from ssl_hub.model.parts import with_overrides

    return with_overrides(recipe, overrides)


def departures(recipe: Recipe) -> dict[str, tuple[Any, Any]]:
    """Settings in which a recipe differs from the registered one of its name, ``{"train.epochs": (60, 5)}``.

    The seed and where the data lies make it no other recipe. A name that is not registered departs from nothing.
    """
    if recipe.name not in RECIPES:
        return {}
    differing = changes(RECIPES[recipe.name], recipe)
    return {key: pair for key, pair in differing.items() if key != "train.seed" and not key.startswith("data.")}


def as_modified(recipe: Recipe) -> Recipe:
    """The recipe, its summary naming each departure; then no published number is expected of it either."""
    if not (departed := departures(recipe)):
        return recipe
    named = ", ".join(f"{key}={new}" for key, (_, new) in departed.items())
    return replace(recipe, summary=f"modified ({named}), otherwise: {RECIPES[recipe.name].summary}", expected=())


def run_name(recipe: Recipe) -> str:
    """What a run is called where nobody names it: as its recipe, with its departures where it has any."""
    departed = "".join(f"-{key}-{new}" for key, (_, new) in departures(recipe).items())
    suffix = re.sub(r"[^\w.]+", "-", departed)
    return recipe.name + (suffix if len(suffix) <= 80 else f"-{hashlib.sha256(departed.encode()).hexdigest()[:8]}")
