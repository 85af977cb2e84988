"""recipe.json of a run or release: the recipe, and the facts of the run. Nothing here imports torch: lists of releases
must start fast."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ssl_hub.atomic import replace_file
from ssl_hub.codec import UnknownSetting, from_dict, to_dict
from ssl_hub.config import Recipe
from ssl_hub.errors import UsageError
from ssl_hub.model.files import RECIPE
from ssl_hub.model.reading import read_json


def write_recipe(folder: Path, recipe: Recipe | None, facts: Mapping[str, Any]) -> None:
    """Write recipe.json; ``recipe`` is None for weights that no recipe of ours trained."""
    whole = {"recipe": to_dict(recipe), "run": facts}
    replace_file(folder / RECIPE, (json.dumps(whole, indent=2, allow_nan=False) + "\n").encode())


def read_recipe(folder: Path) -> Recipe | None:
    """The recipe of a run or release, or None for a folder without one. UsageError where the file is damaged."""
    path = folder / RECIPE
    return _recipe_in(path) if path.exists() else None


def read_recipe_file(path: Path) -> Recipe:
    """The recipe in a recipe.json. UsageError where there is none."""
    if not path.is_file():
        raise UsageError(f"there is no recipe file {path}")
    if (recipe := _recipe_in(path)) is None:
        raise UsageError(f"{path} says of a model that no recipe trained it")
    return recipe


def read_run(folder: Path) -> tuple[Recipe | None, dict[str, Any]]:
    """The recipe and the facts of a run, from one reading of its recipe.json; None and nothing for a folder without."""
    path = folder / RECIPE
    if not path.exists():
        return None, {}
    content = read_json(path)
    return _recipe_of(path, content), _facts_of(path, content)  # in this order: the recipe's errors name the file


def _recipe_in(path: Path) -> Recipe | None:
    return _recipe_of(path, read_json(path))


def _recipe_of(path: Path, content: Any) -> Recipe | None:
    try:
        recipe = content["recipe"]
        return None if recipe is None else from_dict(recipe)
    except UnknownSetting as error:
        raise UnknownSetting(
            f"{path} was written by a newer ssl_hub; upgrade it to read the recipe ({error})"
        ) from None
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise UsageError(f"{path} holds no recipe ({error})") from None
    except UsageError as error:
        raise UsageError(f"{path} holds no recipe ({error})") from None


def read_facts(folder: Path) -> dict[str, Any]:
    """What recipe.json says of the run (seed, versions, batch, ...); nothing for a folder without one."""
    return read_run(folder)[1]


def facts_in(path: Path) -> dict[str, Any]:
    """What a recipe.json says of the run that it is of."""
    return _facts_of(path, read_json(path))


def _facts_of(path: Path, content: Any) -> dict[str, Any]:
    facts = content.get("run", {})
    if not isinstance(facts, dict):
        raise UsageError(f"{path}: 'run' is {facts!r}, expected an object")
    return facts
