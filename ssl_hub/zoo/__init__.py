"""The registered recipes, grouped by protocol. Importing this imports no torch; overriding a recipe does."""

from __future__ import annotations

from typing import Any

from ssl_hub.codec import apply_overrides
from ssl_hub.config import Recipe
from ssl_hub.registry import Registry
from ssl_hub.zoo import cifar10, digits, imagenet, stl10

RECIPES: Registry[Recipe] = Registry("recipe")

DEMO = "directpred-digits"
"""What the training launcher trains when it is given no recipe."""

for _group in (imagenet, stl10, cifar10, digits):
    for _recipe in _group.recipes():
        RECIPES.add(_recipe.name, _recipe)


def list_recipes(pattern: str = "*") -> list[str]:
    """Names of the registered recipes that match a shell-style pattern, for example ``"directpred-*"``."""
    return RECIPES.names(pattern)


def get_recipe(name: str, /, **overrides: Any) -> Recipe:
    """A registered recipe, with dotted, typed overrides: ``get_recipe("byol-digits", **{"train.epochs": 5})``.

    Raises:
        UsageError: unknown recipe or setting (naming the nearest), or a value of the wrong type.
    """
    recipe = RECIPES[name]
    if not overrides:
        return recipe
    from ssl_hub.model.parts import part_options

    return apply_overrides(recipe, overrides, part_options)
