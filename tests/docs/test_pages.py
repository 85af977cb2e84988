"""The documentation speaks of all there is: every command, every example, every page."""

import argparse
import re

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


def test_the_readme_counts_the_recipes():
    (count,) = re.findall(r"^\| \[(\d+) recipes\]", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert int(count) == len(list_recipes()), "the table 'What is in it' of README.md says how many"


def test_every_link_of_the_readme_leads_somewhere():
    links = re.findall(r"\]\(((?!https?:)[^)#]+)", (ROOT / "README.md").read_text())
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
