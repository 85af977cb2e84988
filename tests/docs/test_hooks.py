"""What the documentation writes by itself says what the code says."""

import re
import runpy
from collections import Counter

import pytest
from blocks import ROOT

from ssl_hub.zoo import get_recipe, list_recipes

HOOKS = runpy.run_path(str(ROOT / "docs" / "hooks.py"))
fill = HOOKS["on_page_markdown"]


def test_every_recipe_is_in_a_table():
    page = fill((ROOT / "docs" / "recipes.md").read_text())
    missing = [name for name in list_recipes() if f"| `{name}` |" not in page]
    assert missing == [], (
        "give docs/recipes.md a `<!-- generate: recipes PATTERN -->` for it, and run `python docs/hooks.py`"
    )
    assert "| 85.21 ± 0.23 |" in page


def test_a_note_stands_once_on_the_page_of_recipes_and_its_number_with_each_recipe():
    page = (ROOT / "docs" / "recipes.md").read_text().replace("\\|", "|")
    number = {text: int(at) for at, text in re.findall(r"^\| (\d+) \| (.*) \|$", page, re.MULTILINE)}
    for name in list_recipes():
        notes = get_recipe(name).notes
        assert {note: page.count(note) for note in notes} == dict.fromkeys(notes, 1)
        table = page[: page.index(f"| `{name}` |")].rpartition("\nAll: ")[2]
        (row,) = re.findall(rf"^\| `{name}` \|.*\| (.*) \|$", page, re.MULTILINE)
        for note in notes:
            assert number[note] in numbers(re.search(r"notes? ([\d, -]+)\.", table)) | numbers(re.match(r"(.*)", row))


def numbers(listed):
    """{1, 2, 3, 7} of 1-3, 7."""
    ends = re.findall(r"(\d+)(?:-(\d+))?", listed[1] if listed else "")
    return {number for first, last in ends for number in range(int(first), int(last or first) + 1)}


def test_no_sentence_stands_twice_on_a_page():
    for page in (ROOT / "docs").glob("*.md"):
        prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        sentences = [" ".join(s.split()) for s in re.split(r"(?<=[.:;])\s|\|", prose)]
        assert [s for s, times in Counter(sentences).items() if times > 1 and len(s) > 70] == [], page.name


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
    assert "| `rho` | `0.3` | Weight of the past in the moving average, in [0, 1]; None" in page
    assert "| `scale` | `2.0` | Factor of the loss, above 0. |" in page, "of the class that it inherits from"


def test_settings_come_with_their_meanings_and_ranges():
    page = fill("<!-- generate: settings ssl_hub.config.Train train -->")
    assert (
        "| `accumulation` | `1` | Micro-batches that one optimiser step is made of. A whole number of at least 1. |"
        in page
    )
    page = fill("<!-- generate: settings ssl_hub.config.Views views -->")
    assert "of 1). Three numbers, each a number from 0 to 1. |" in page
    page = fill("<!-- generate: settings ssl_hub.config.Runtime runtime -->")
    assert "to metrics.jsonl alone. `tensorboard`, `wandb`, `trackio` or none. |" in page
    page = fill("<!-- generate: settings ssl_hub.train.classifier.Finetuning -->")
    assert '| `bn_statistics` | `"batch"` | What BN normalises by: each batch, or (frozen) the running' in page


def test_every_setting_and_option_has_a_meaning():
    found = 0
    for page in (ROOT / "docs").glob("*.md"):
        for table in re.findall(
            r"^\| (?:setting|option) \| default \| meaning \|\n.*\n((?:\|.*\n)+)", page.read_text(), re.M
        ):
            for row in table.splitlines():
                found += 1
                says = "Whether" if re.search(r"\| `(True|False)` \|", row) and "`compile`" not in row else "[A-Z`0-9]"
                assert re.search(rf" \| {says}.{{8,}}\. \|$", row), f"{page.name}: {row}"
    assert found > 100
    assert not [line for line in HOOKS["protocols"]().splitlines() if line.startswith("- ") and len(line) < 30]


def test_a_placeholder_leaves_the_text_up_to_the_next_one():
    page = "<!-- generate: tables -->\n\nkept\n\n<!-- generate: protocols -->\n\nold\n\n<!-- end -->\n"
    assert "\nkept\n" in (filled := HOOKS["filled"](page)) and "\nold\n" not in filled


def test_an_unknown_generator_is_an_error():
    with pytest.raises(KeyError, match="poems"):
        fill("<!-- generate: poems -->")


def test_a_script_becomes_a_page_with_what_it_prints():
    page = HOOKS["tour"]("# %% [markdown]\n# # Title\n# text\n\n# %%\nx = 2\n\n# %%\nprint(x + 1)\n")
    assert "# Title\ntext\n" in page
    assert "``` python\nprint(x + 1)\n```\n\n``` text\n3\n```" in page


def test_equations_become_mathml():
    page = HOOKS["on_page_content"](r'a <span class="arithmatex">\(x &lt; 1\)</span>.')
    block = HOOKS["on_page_content"](r'<div class="arithmatex">\[x\]</div>')
    assert block.startswith('<div class="arithmatex"><math') and block.endswith("</math></div>"), (
        "it scrolls in its box"
    )
    assert page.startswith("a <math") and "<mi>x</mi><mo>&#x0003C;</mo><mn>1</mn>" in page and page.endswith("</math>.")


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.stem)
def test_pages_stand_in_the_repository_as_they_are_generated(page):
    assert HOOKS["filled"](page.read_text()) == page.read_text(), "run `python docs/hooks.py`"
