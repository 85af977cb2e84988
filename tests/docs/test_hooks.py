"""What the documentation writes by itself says what the code says."""

import runpy

import pytest
from blocks import ROOT

from ssl_hub.zoo import list_recipes

HOOKS = runpy.run_path(str(ROOT / "docs" / "hooks.py"))
fill = HOOKS["on_page_markdown"]


def test_every_recipe_is_in_a_table():
    page = fill((ROOT / "docs" / "recipes.md").read_text())
    missing = [name for name in list_recipes() if f"| `{name}` |" not in page]
    assert missing == [], (
        "give docs/recipes.md a `<!-- generate: recipes PATTERN -->` for it, and run `python docs/hooks.py`"
    )
    assert "| 85.21 ± 0.23 |" in page


def test_every_predictor_target_and_loss_has_its_options():
    from ssl_hub.model.losses import LOSSES
    from ssl_hub.model.predictors import PREDICTORS
    from ssl_hub.model.targets import TARGETS

    page = fill((ROOT / "docs" / "predictors.md").read_text())
    for registry in (PREDICTORS, TARGETS, LOSSES):
        missing = [name for name in registry.names() if f"#### `{name}`" not in page]
        assert missing == [], (
            "name it in a `<!-- generate: options ... -->` of docs/predictors.md, and run `python docs/hooks.py`"
        )
    assert "| `rho` | `0.3` | weight of the past in the moving average; None averages all steps equally. |" in page


def test_settings_come_with_their_comments():
    assert "| `max_steps` | `None` |  |" in fill("<!-- generate: settings ssl_hub.config.Train train -->")
    assert "| `clip_norm` | `None` |" in fill("<!-- generate: settings ssl_hub.config.Optim optim -->")
    page = fill("<!-- generate: settings ssl_hub.config.Runtime -->")
    assert "| `keep_checkpoints` | `2` | the newest |" in page


def test_an_unknown_generator_is_an_error():
    with pytest.raises(KeyError, match="poems"):
        fill("<!-- generate: poems -->")


def test_a_script_becomes_a_page_with_what_it_prints():
    page = HOOKS["tour"]("# %% [markdown]\n# # Title\n# text\n\n# %%\nx = 2\n\n# %%\nprint(x + 1)\n")
    assert "# Title\ntext\n" in page
    assert "``` python\nprint(x + 1)\n```\n\n``` text\n3\n```" in page


def test_equations_become_mathml():
    page = HOOKS["on_page_content"](r'a <span class="arithmatex">\(x &lt; 1\)</span>.')
    assert page.startswith("a <math") and "<mi>x</mi><mo>&#x0003C;</mo><mn>1</mn>" in page and page.endswith("</math>.")


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.stem)
def test_pages_stand_in_the_repository_as_they_are_generated(page):
    assert HOOKS["filled"](page.read_text()) == page.read_text(), "run `python docs/hooks.py`"
