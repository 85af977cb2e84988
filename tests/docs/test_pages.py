"""The documentation speaks of all there is: every command, every example, every page."""

import argparse
import re

import pytest
from blocks import OURS, ROOT, blocks_in

from ssl_hub.commands import register_all
from ssl_hub.zoo import list_recipes

PAGES = sorted((ROOT / "docs").rglob("*.md"))


def test_every_command_is_in_a_block():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers()
    register_all(commands)
    code = "\n".join(block.code for page in PAGES for block in blocks_in(page.read_text(), page.name))
    shown = set(re.findall(r"(?:ssl-hub |ssl_hub )([a-z]+)", code))
    assert set(commands.choices) - shown == set()


def test_pages_whose_commands_use_the_repository_say_so():
    for page in [ROOT / "README.md", *PAGES]:
        text = page.read_text()
        code = "\n".join(block.code for block in blocks_in(text, page.name) if block.language == "bash")
        assert "clone" in text or not re.search(rf"{OURS.pattern}|^make ", code, re.MULTILINE), page.name


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert [page.name for page in PAGES if f" {page.name}" not in navigation] == []


def test_every_example_is_on_a_page():
    text = "".join(page.read_text() for page in PAGES)
    assert [path.name for path in (ROOT / "examples").glob("*.py") if f"script examples/{path.name}" not in text] == []


PHONE, PADDING, OF_CODE, OF_TEXT = 390, 16, 6.6, 7.0  # pixels: the screen, of a cell, of a character


def unbreakable(cell):
    """Pixels of the longest piece of a cell that no line can end in; names of settings stay in one piece."""
    cell = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", cell)
    words = re.split(r"[\s-]+|<br>|(?<=[/?])", re.sub(r"``?[^`]+``?|\$[^$]+\$", " ", cell))
    codes = [6 + OF_CODE * len(code) for code in re.findall(r"``?([^`]+)``?", cell)]
    return max([OF_TEXT * len(word) for word in words] + codes)


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.stem)
def test_a_table_is_no_wider_than_two_phones(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for table in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        rows = [re.split(r"(?<!\\)\|", row)[1:-1] for row in table.splitlines() if not row.startswith(("|--", "| --"))]
        wide = sum(PADDING + max(map(unbreakable, column)) for column in zip(*rows, strict=True))
        assert wide <= 2 * PHONE, (
            f"{wide:.0f} pixels, so turn or split the table, or take text out of it: {table[:100]}"
        )


def test_the_readme_counts_the_recipes():
    (count,) = re.findall(r"^\| \[(\d+) recipes\]", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert int(count) == len(list_recipes()), "the table 'What is in it' of README.md says how many"


def test_every_link_of_the_readme_leads_somewhere():
    links = re.findall(r"\]\(((?!https?:)[^)#]+)", (ROOT / "README.md").read_text())
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
