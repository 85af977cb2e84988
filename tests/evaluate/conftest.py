"""A release to evaluate."""

import pytest

from ssl_hub.hub import store
from ssl_hub.model.release import save_release, write_recipe
from ssl_hub.model.siamese import build
from ssl_hub.zoo import get_recipe


@pytest.fixture
def released():
    """An untrained model of a recipe for digits, in the store."""
    recipe = get_recipe("byol-digits")
    folder = store.home() / recipe.name
    folder.mkdir(parents=True)
    write_recipe(folder, recipe, {"seed": 0, "images": 1297})
    save_release(folder, build(recipe), recipe)
    return folder
