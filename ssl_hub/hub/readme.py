"""A card that meets a README where it is published: what we wrote is written anew, and what the owner wrote stays.

A card that is published ends with a comment that notes a hash of each of its sections. A section whose hash is still
that is ours; any other is the owner's, and one that is gone was taken out by the owner.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import yaml  # type: ignore[import-untyped]

FRONT = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)
MARK = re.compile(r"\n*<!-- ssl_hub wrote (\{[^{}]*\}) -->\s*\Z")
METADATA = "---"
MEASURED = ("model-index",)  # of the metadata, always ours: it says what was measured


def marked(card: str) -> str:
    """The card with the hashes of its sections."""
    noted = {name: _hash(text) for name, text in _sections(card).items()}
    return f"{card.rstrip()}\n\n<!-- ssl_hub wrote {json.dumps(noted)} -->\n"


def merged(card: str, there: str | None) -> str:
    """What is to be published: the card, with what the owner has written into the README that is ``there``.

    A README that we did not write is left as it is.
    """
    if there is None:
        return marked(card)
    mark = MARK.search(there)
    if mark is None:
        return there
    try:
        noted: dict[str, str] = json.loads(mark[1])
    except ValueError:  # the owner has written into it
        return there
    ours, theirs = _sections(card), _sections(there[: mark.start()])
    if {name: _hash(text) for name, text in ours.items()} == noted:  # we have nothing new to say
        return there
    kept = {name: text for name, text in theirs.items() if _hash(text) != noted.get(name)}
    if METADATA in kept:
        kept[METADATA] = _metadata(ours.get(METADATA, ""), kept[METADATA])
    gone = noted.keys() - theirs.keys()
    names = [name for name in theirs if name in kept or name in ours]
    new = [name for name in ours if name not in theirs and name not in gone]
    text = "\n\n".join(part for name in [*names, *new] if (part := kept.get(name, ours.get(name, "")).strip("\n")))
    # What is noted of a section is what we would have written: the owner's stays the owner's at the next push, too.
    written = {name: _hash(text) for name, text in ours.items()}
    return f"{text.rstrip()}\n\n<!-- ssl_hub wrote {json.dumps(written)} -->\n"


def _sections(text: str) -> dict[str, str]:
    """Its metadata, what comes before the first heading, and each section by its heading."""
    front = FRONT.match(text)
    found = {METADATA: front[0]} if front else {}
    rest = text[front.end() :] if front else text
    fenced, name = False, ""
    for line in rest.splitlines():
        fenced ^= line.startswith("```")
        if line.startswith("## ") and not fenced:
            name = line.removeprefix("## ")
        found[name] = f"{found[name]}\n{line}" if name in found else line
    return found


def _metadata(ours: str, theirs: str) -> str:
    """The owner's metadata, and in it what was measured."""
    try:
        own, changed = (_yaml(text) for text in (ours, theirs))
    except yaml.YAMLError:
        return theirs
    together = {**own, **changed, **{key: own[key] for key in MEASURED if key in own}}
    return f"---\n{yaml.safe_dump(together, sort_keys=False, allow_unicode=True)}---\n"


def _yaml(text: str) -> dict[str, Any]:
    front = FRONT.match(text)
    value = yaml.safe_load(front[1]) if front else {}
    return value if isinstance(value, dict) else {}


def _hash(text: str) -> str:
    return hashlib.sha256(text.strip().encode()).hexdigest()[:16]
