"""The claims on CIFAR-10: every cell is a recipe, every claim is of cells, and what is kept is of one kind."""

import sys
from pathlib import Path

import pytest

from ssl_hub.zoo import get_recipe

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import cifar10_table


def test_cells_are_recipes_and_claims_are_of_cells():
    recipes = {label: get_recipe(name, **overrides) for label, (name, overrides) in cifar10_table.METHODS.items()}
    assert len({(r.predictor, r.target, r.optim, r.loss) for r in recipes.values()}) == len(recipes)
    for claim in cifar10_table.CLAIMS:
        assert {claim.cell, claim.than} <= recipes.keys()


def test_cells_are_kept_beside_those_of_another_process_and_judged(tmp_path):
    first, second = (cifar10_table.Kept(tmp_path / "table.json", {"epochs": 1}) for _ in range(2))
    for seed in range(3):
        first.add("DirectPred", seed, {"linear-cached": 60.0 + seed, "spread": 90.0, "health": "healthy"})
        second.add("BYOL, linear predictor", seed, {"linear-cached": 50.0 + seed, "spread": 20.0, "health": "narrow"})
    text = cifar10_table.table(first.read())
    assert "| DirectPred | 3 | 61.00 ± 1.00 |  | 90.00 ± 0.00 |  |" in text
    assert "| holds | 61.00 ± 1.00 against 51.00 ± 1.00 (+10.00) |" in text
    with pytest.raises(SystemExit, match="has cells of {'epochs': 1}, these are of {'epochs': 2}; give --results"):
        cifar10_table.Kept(tmp_path / "table.json", {"epochs": 2})
