"""A card that meets a README where it is published: what we wrote is written anew, and what the owner wrote stays.

A card that is published has a comment that notes a hash of each of its sections and of each key of its metadata. What
has that hash still is ours; any other is the owner's, and what is gone was taken out by the owner.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import yaml  # type: ignore[import-untyped]

FRONT = re.compile(r"\A---\n(.*?)\n---(?:\n|\Z)", re.DOTALL)
MARK = re.compile(r"<!-- ssl_hub wrote (\{[^{}]*\}) -->")
METADATA = "---"
MEASURED = ("model-index",)  # of the metadata, always ours: it says what was measured
LICENCE = ("license", "license_name", "license_link")  # one statement


def merged(card: str, there: bytes | None) -> bytes:
    """What is to be published: the card, with what the owner has written into the README that is ``there``.

    A README of which :func:`is_ours` is false is left as it is, byte by byte; and so is one of which we have nothing
    new to say.
    """
    ours = _sections(card)
    now = _noted(ours)
    if there is None:
        return _with_mark(card, now).encode()
    if not is_ours(there):
        return there
    text, before = _without_mark(_text(there))
    if before == now:
        return there
    theirs = _sections(text)
    kept = {name: part for name, part in theirs.items() if _hash(part) != before.get(name)}
    if METADATA in kept:
        kept[METADATA] = _metadata(ours.get(METADATA, ""), kept[METADATA], before)
    names = [name for name in theirs if name in kept or name in ours]
    new = [name for name in ours if name not in theirs and name not in before]
    if METADATA not in theirs:  # the Hub finds no release without it
        names.insert(0, METADATA)
    parts = [part for name in dict.fromkeys([*names, *new]) if (part := kept.get(name, ours.get(name, "")).strip("\n"))]
    # What is noted of a section is what we would have written: the owner's stays the owner's at the next push, too.
    return _with_mark("\n\n".join(parts), now).encode()


def is_ours(there: bytes) -> bool:
    """Whether a README is a card that we wrote, whatever was done to it since, or holds no more than metadata, as the
    Hub writes one for a new repository."""
    text = _text(there)
    _, noted = _without_mark(text)
    return bool(noted) or not FRONT.sub("", text, count=1).strip()


def _text(there: bytes) -> str:
    """Whatever an editor has made of it: a mark for the order of bytes, lines that end otherwise, one byte a letter."""
    try:
        text = there.decode("utf-8-sig")
    except UnicodeDecodeError:  # which the Hub would not take
        text = there.decode("cp1252", "replace")
    return text.replace("\r\n", "\n")


def _with_mark(text: str, noted: dict[str, str]) -> str:
    return f"{text.rstrip()}\n\n<!-- ssl_hub wrote {json.dumps(noted)} -->\n"


def _without_mark(text: str) -> tuple[str, dict[str, str]]:
    """The text around the comment, wherever it is by now, and what it notes; nothing where there is none to be read."""
    marks = [*MARK.finditer(text)]
    if not marks:
        return text, {}
    mark = marks[-1]
    try:
        noted = json.loads(mark[1])
    except ValueError:  # the owner has written into it
        return text, {}
    return f"{text[: mark.start()].rstrip()}\n\n{text[mark.end() :].lstrip()}".rstrip() + "\n", noted


def _noted(ours: dict[str, str]) -> dict[str, str]:
    metadata = {_key(key): _hash(yaml.safe_dump(value)) for key, value in (_yaml(ours.get(METADATA, "")) or {}).items()}
    return {name: _hash(text) for name, text in ours.items()} | metadata


def _sections(text: str) -> dict[str, str]:
    """Its metadata, what comes before the first heading, and each section by its heading."""
    front = FRONT.match(text)
    found = {METADATA: front[0]} if front else {}
    lines: dict[str, list[str]] = {}
    fenced, name = False, ""
    for line in (text[front.end() :] if front else text).split("\n"):
        fenced ^= line.startswith("```")
        if line.startswith("## ") and not fenced:
            name = line.removeprefix("## ")
        lines.setdefault(name, []).append(line)
    return found | {name: "\n".join(held) for name, held in lines.items()}


def _metadata(ours: str, theirs: str, noted: dict[str, str]) -> str:
    """Our metadata, but for the keys that the owner has changed, added or taken out."""
    own, there = _yaml(ours), _yaml(theirs)
    if own is None or there is None:
        return theirs
    changed = {key for key, value in there.items() if _hash(yaml.safe_dump(value)) != noted.get(_key(key))}
    changed |= {key for key in own if key not in there and _key(key) in noted}
    changed -= {*MEASURED}
    if "license" in changed:
        changed |= {*LICENCE}
    keys = [*there, *(key for key in own if key not in there)]
    sides = {key: there if key in changed else own for key in keys}
    together = {key: side[key] for key, side in sides.items() if key in side}
    return f"---\n{yaml.safe_dump(together, sort_keys=False, allow_unicode=True)}---\n"


def _yaml(text: str) -> dict[str, Any] | None:
    """The metadata of a front matter; None where it is none."""
    front = FRONT.match(text)
    try:
        value = yaml.safe_load(front[1]) if front else {}
    except (yaml.YAMLError, ValueError, RecursionError):  # ValueError: a date that is none
        return None
    return value if isinstance(value, dict) else None


def _key(key: Any) -> str:
    return f"{METADATA} {key}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.strip().encode()).hexdigest()[:16]
