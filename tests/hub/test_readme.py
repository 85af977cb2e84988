"""A card that meets a README that somebody has written into."""

from __future__ import annotations

import time

import pytest
import yaml

from ssl_hub.hub.publish import push
from ssl_hub.hub.readme import is_ours, merged
from tests.hub.releases import measured

NAME = "ann/digits"
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>' to upload:DeprecationWarning")


def card(number: float, licence: str = "unknown", **metadata: object) -> str:
    values = {"license": licence, "tags": ["ssl_hub"], "model-index": [number], **metadata}
    return f"---\n{yaml.safe_dump(values)}---\n# Name\n\n## Results\n\n{number}\n\n## Limits\n\nSome.\n"


def metadata_of(text: str) -> dict:
    return yaml.safe_load(text.split("---\n")[1])


OLD = merged(card(1), None)
EDITS = {
    "lines that end otherwise": (lambda text: text.replace(b"\n", b"\r\n"), ""),
    "a mark for the order of bytes": (lambda text: b"\xef\xbb\xbf" + text, ""),
    "one byte a letter": (lambda text: text.replace(b"Some.", b"F\xfcr alle."), "Für alle."),
    "text behind the comment": (lambda text: text + b"\n## Thanks\n\nTo all.\n", "## Thanks\n\nTo all."),
    "a section": (lambda text: text.replace(b"Some.", b"Not for cats."), "Not for cats."),
    "other separators of lines": (lambda text: text.replace(b"Some.", "a\u2028b\x0cc".encode()), "a\u2028b\x0cc"),
    "no metadata": (lambda text: text.split(b"---\n", 2)[2], ""),
}


@pytest.mark.parametrize("edit", EDITS)
def test_whatever_an_editor_does_the_words_stay_and_the_numbers_are_new(edit):
    change, words = EDITS[edit]
    there = change(OLD)
    assert merged(card(1), there) == there  # byte by byte: nothing is new
    new = merged(card(2), there)
    for text in (new, merged(card(3), new)):
        number = 2 if text is new else 3
        said = text.decode()
        assert words in said and f"## Results\n\n{number}" in said and "\r" not in said
        assert metadata_of(said)["model-index"] == [number]
        assert said.count("<!-- ssl_hub wrote") == 1 and said.startswith("---\n")
    assert merged(card(2), new) == new


def test_of_metadata_each_key_is_the_owners_or_ours():
    there = OLD.replace(b"tags:", b"language: en\ntags:\n- mine")
    found = metadata_of(merged(card(2, "cc-by-4.0", base_model="a/b"), there).decode())
    assert found == {
        "license": "cc-by-4.0", "language": "en", "tags": ["mine", "ssl_hub"], "model-index": [2], "base_model": "a/b",
    }  # fmt: skip
    there = OLD.replace(b"license: unknown", b"license: mit")
    found = metadata_of(merged(card(2, "other", license_name="x"), there).decode())
    assert found["license"] == "mit" and "license_name" not in found
    without = OLD.replace(b"license: unknown\n", b"")
    assert "license" not in metadata_of(merged(card(2), without).decode())


@pytest.mark.parametrize("there", [b"", b"---\nlicense: mit\n---\n", b"---\nlicense: mit\n---"])
def test_a_readme_of_a_new_repository_is_no_word_of_anybody(there):
    said = merged(card(1), there).decode()
    assert is_ours(there) and "## Results" in said
    assert metadata_of(said)["license"] == ("mit" if there else "unknown")


@pytest.mark.parametrize("there", [b"# mine\n", b"---\nlicense: mit\n---\n# mine", b"<!-- ssl_hub wrote {no} -->\n# m"])
def test_a_readme_of_somebodys_own_stays(there):
    assert not is_ours(there) and merged(card(1), there) == there


def test_nothing_in_a_readme_takes_long():
    bomb = "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefghi", "bcdefghij", strict=True))
    began = time.process_time()
    for edit in (b"\n" * 200_000, b"x" * 2_000_000, b"<!-- ssl_hub wrote {" * 20_000, b"## \n" * 100_000):
        merged(card(2), OLD + edit)
        merged(card(2), edit + OLD)
    merged(card(2), OLD.replace(b"tags:", f"a: &a [1]\n{bomb}tags:".encode()))
    merged(card(2), OLD.replace(b"tags:", b"date: 2024-13-45\ntags:"))
    assert time.process_time() - began < 5


def test_a_push_says_that_a_readme_is_not_ours_and_what_to_do(hub, run):
    hub.add(NAME, {"README.md": b"# mine\n"})
    with pytest.warns(UserWarning, match=r"README\.md at ann/digits is none that ssl_hub wrote.*delete it there"):
        push(run, NAME)
    assert hub.main(NAME)["README.md"] == b"# mine\n"
    measured(run)
    hub.repos[NAME].commit("main", {name: data for name, data in hub.main(NAME).items() if name != "README.md"})
    push(run, NAME)
    assert b"12.50" in hub.main(NAME)["README.md"]
