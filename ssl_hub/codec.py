"""Recipes to JSON and back, typed, dotted overrides (``predictor.eps=0.01``), and measured values as plain JSON."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union

from ssl_hub.config import Part, Recipe
from ssl_hub.errors import UsageError
from ssl_hub.limits import RECIPE, check
from ssl_hub.registry import suggest

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Settings = TypeVar("Settings", bound="DataclassInstance")
PartOptions = Callable[[str, str], Mapping[str, Any]]
"""``(section, kind) -> {option: type}``; raises :class:`UsageError` for an unknown kind."""

DESCRIPTION = ("name", "summary", "expected", "notes")  # fields that say what a recipe is, and are not overridden


class UnknownSetting(UsageError):
    """A stored recipe has a setting that this version does not know."""


def to_dict(value: Any) -> Any:
    """Plain dicts, lists and scalars of a recipe or any part of one."""
    if isinstance(value, Part):
        return {"kind": value.kind, **dict(value.options)}
    if dataclasses.is_dataclass(value):
        return {f.name: to_dict(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple):
        return [to_dict(item) for item in value]
    return value


def to_json(recipe: Recipe) -> str:
    """JSON text that :func:`from_json` turns back into an equal recipe."""
    return json.dumps(to_dict(recipe), indent=2, allow_nan=False)


NOT_LEARNT = ("runtime", *DESCRIPTION)
"""Parts of a recipe that change nothing of what is learnt."""


def changes(old: Recipe, new: Recipe) -> dict[str, tuple[Any, Any]]:
    """Settings of what is learnt that differ: ``{"train.epochs": (100, 5)}``, a missing one as None."""
    before, after = (
        {key: value for key, value in flat(to_dict(recipe)).items() if key.split(".")[0] not in NOT_LEARNT}
        for recipe in (old, new)
    )
    keys = sorted(before.keys() | after.keys())
    return {key: (before.get(key), after.get(key)) for key in keys if before.get(key, ...) != after.get(key, ...)}


def flat(plain: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings under dotted names."""
    items: dict[str, Any] = {}
    for key, value in plain.items():
        items |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return items


def from_json(text: str) -> Recipe:
    """Inverse of :func:`to_json`. Raises :class:`UsageError` naming the first key that does not fit."""
    try:
        plain = json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"a recipe file must hold JSON, got {error}") from None
    return from_dict(plain)


def from_dict(plain: Any) -> Recipe:
    """Inverse of :func:`to_dict` for a whole recipe."""
    recipe = decoded(Recipe, plain, "recipe")
    assert isinstance(recipe, Recipe)
    return recipe


def apply_overrides(recipe: Recipe, overrides: Mapping[str, Any], part_options: PartOptions) -> Recipe:
    """A copy of ``recipe`` with dotted keys replaced: ``{"predictor.eps": 0.01, "train.epochs": 5}``.

    Values may be typed or text, as from a command line. ``predictor.kind=linear`` switches the kind and keeps the
    options that the new kind has too; kinds are switched before options are set, whatever the order given.

    The whole of the result is checked, whoever made the recipe: an unknown key (naming the nearest valid one), a value
    of the wrong type and one out of its range (:mod:`ssl_hub.limits`) raise :class:`UsageError`.
    """
    for key, value in sorted(overrides.items(), key=lambda item: not item[0].endswith(".kind")):
        recipe = _override(recipe, key.split("."), value, key, part_options)
    kinds = typing.get_type_hints(Recipe)
    typed = Recipe(**{name: decoded(kind, to_dict(getattr(recipe, name)), name) for name, kind in kinds.items()})
    check(typed, RECIPE)
    return check_parts(typed, part_options)


def with_settings(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """A copy of any frozen dataclass of plain fields with some replaced: ``{"epochs": "5"}``, typed or text.

    An unknown field or a value of the wrong type raises :class:`UsageError` with the nearest valid name. All are
    replaced at once, as the checks of a dataclass may compare one with another.
    """
    kinds, names = typing.get_type_hints(type(settings)), [f.name for f in fields(settings)]
    for key in changes:
        if key not in names:
            raise UsageError(f"unknown setting {key!r}{suggest(key, names)}")
    return replace(settings, **{key: decoded(kinds[key], value, key) for key, value in changes.items()})


def parse_assignments(assignments: list[str]) -> dict[str, str]:
    """``["train.epochs=5"]`` to ``{"train.epochs": "5"}``; anything without ``=`` is an error."""
    pairs = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"got {assignment!r}, expected key=value, for example train.epochs=5")
        pairs[key.strip()] = value.strip()
    return pairs


def _override(node: Any, path: list[str], value: Any, key: str, part_options: PartOptions) -> Any:
    head, rest = path[0], path[1:]
    names = [f.name for f in fields(node) if not (isinstance(node, Recipe) and f.name in DESCRIPTION)]
    if head not in names:
        prefix = key[: len(key) - len(".".join(path))]
        raise UsageError(f"unknown setting {key!r}{suggest(prefix + head, [prefix + name for name in names])}")
    child = getattr(node, head)
    if isinstance(child, Part):
        return replace(node, **{head: _override_part(child, head, rest, value, key, part_options)})
    if rest:
        if not dataclasses.is_dataclass(child):
            raise UsageError(f"{'.'.join(key.split('.')[: -len(rest)])!r} is a single value; {key!r} goes too deep")
        return replace(node, **{head: _override(child, rest, value, key, part_options)})
    if dataclasses.is_dataclass(child) and not isinstance(value, Mapping):
        members = ", ".join(f"{key}.{f.name}" for f in fields(child))
        raise UsageError(f"{key!r} is a group of settings; set one of {members}")
    if isinstance(value, Mapping):
        for name, item in value.items():
            child = _override(child, [name], item, f"{key}.{name}", part_options)
        return replace(node, **{head: child})
    return replace(node, **{head: decoded(typing.get_type_hints(type(node))[head], value, key)})


def _override_part(part: Part, section: str, rest: list[str], value: Any, key: str, part_options: PartOptions) -> Part:
    if not rest:
        if isinstance(value, Part):
            return _decode_part(part_options, section, value.kind, dict(value.options))
        raise UsageError(f"{key!r} is a component; set {key}.kind or one of its options")
    if len(rest) > 1:
        raise UsageError(f"{'.'.join(key.split('.')[:2])!r} is a single value; {key!r} goes too deep")
    if rest[0] == "kind":
        kept = set(part_options(section, str(value)))
        return Part(str(value), **{k: v for k, v in part.options if k in kept})
    return _decode_part(part_options, section, part.kind, {**dict(part.options), rest[0]: value})


def _decode_part(part_options: PartOptions, section: str, kind: str, options: dict[str, Any]) -> Part:
    known = part_options(section, kind)
    for name in options:
        if name not in known:
            raise UsageError(
                f"{section} {kind!r} has no option {name!r}{suggest(name, known)}"
                if known
                else f"{section} {kind!r} has no options, got {name!r}"
            )
    return Part(kind, **{name: decoded(known[name], value, f"{section}.{name}") for name, value in options.items()})


def check_parts(recipe: Recipe, part_options: PartOptions) -> Recipe:
    """The same recipe, or :class:`UsageError` where a part's kind or options do not exist or have the wrong type."""
    for section in (f.name for f in fields(recipe)):
        part = getattr(recipe, section)
        if isinstance(part, Part):
            changed: dict[str, Any] = {section: _decode_part(part_options, section, part.kind, dict(part.options))}
            recipe = replace(recipe, **changed)
    return recipe


def decoded(kind: Any, value: Any, key: str) -> Any:
    """``value`` (JSON or text) as an instance of the annotated type ``kind``; ``key`` names it in errors.

    Raises :class:`UsageError` for a value of another type.
    """
    if isinstance(value, str) and kind is not str and not _admits_text(kind):
        try:
            value = json.loads(value)
        except ValueError:  # no JSON, or a number of thousands of digits
            value = {"True": True, "False": False, "None": None}.get(value, value)
    origin = typing.get_origin(kind)
    if kind is Part and isinstance(value, Mapping) and isinstance(value.get("kind"), str):
        return Part(value["kind"], **{k: v for k, v in value.items() if k != "kind"})
    if isinstance(kind, type) and dataclasses.is_dataclass(kind) and isinstance(value, Mapping):
        hints = typing.get_type_hints(kind)
        for name in value:
            if name not in hints:
                raise UnknownSetting(f"unknown setting {f'{key}.{name}'!r}{suggest(name, hints)}")
        missing = [f.name for f in fields(kind) if f.default is dataclasses.MISSING and f.name not in value]
        if missing:
            raise UsageError(f"a recipe needs {missing[0]!r}, and it is missing")
        return kind(**{name: decoded(hints[name], item, f"{key}.{name}") for name, item in value.items()})
    if origin in (Union, types.UnionType):
        if type(None) in typing.get_args(kind) and value in (None, "none", "None", "null"):
            return None
        inner = [arm for arm in typing.get_args(kind) if arm is not type(None)]
        return decoded(inner[0], value, key)
    if origin is Literal:
        choices = typing.get_args(kind)
        if any(value == choice and type(value) is type(choice) for choice in choices):  # 1 is not True
            return value
        raise UsageError(f"{key} is {value!r}, expected one of {', '.join(map(repr, choices))}")
    if origin is tuple and isinstance(value, (list, tuple)):
        arms = typing.get_args(kind)
        arms = arms[:1] * len(value) if arms[-1] is Ellipsis else arms
        if len(arms) == len(value):
            return tuple(decoded(arm, item, key) for arm, item in zip(arms, value, strict=True))
    if origin is list and isinstance(value, list):
        return [decoded(typing.get_args(kind)[0], item, key) for item in value]
    if origin is dict and isinstance(value, Mapping):
        return {name: decoded(typing.get_args(kind)[1], item, f"{key}.{name}") for name, item in value.items()}
    if kind is bool and isinstance(value, bool):
        return value
    if kind is int and not isinstance(value, bool) and isinstance(value, (int, float)) and value % 1 == 0:
        return int(value)
    if kind is float and not isinstance(value, bool) and isinstance(value, (int, float)):
        if not abs(value) <= sys.float_info.max:
            raise UsageError(f"{key} is {value}, expected a finite number")
        return float(value)
    if kind is str and isinstance(value, str):
        return value
    expected = getattr(kind, "__name__", str(kind)) if origin is None else str(kind)
    raise UsageError(f"{key} is {value!r}, expected {expected}")


def _admits_text(kind: Any) -> bool:
    if typing.get_origin(kind) is Literal:
        return all(isinstance(choice, str) for choice in typing.get_args(kind))
    return typing.get_origin(kind) in (Union, types.UnionType) and str in typing.get_args(kind)


def plain(value: Any, where: str) -> Any:
    """``value`` in JSON's own types: numpy scalars, 0-d arrays and 0-d tensors become Python numbers, tuples lists.

    ``where`` names the value in errors. Raises UsageError for NaN, infinity, and anything JSON cannot hold.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item, f"{where}, {key!r}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, where) for item in value]
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        if not math.isfinite(value):
            raise UsageError(f"{where} is {value}, expected a finite number; it was not measured, so leave it out")
        return float(value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    raise UsageError(f"{where} is a {type(value).__name__}, expected a number, text, a list or a dict")
