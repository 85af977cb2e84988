"""The components that recipes choose by name, and the options each kind takes: its constructor's keyword arguments."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from ssl_hub.codec import apply_overrides, check_parts
from ssl_hub.config import Part, Recipe
from ssl_hub.errors import UsageError
from ssl_hub.model.losses import LOSSES, Loss
from ssl_hub.model.predictors import PREDICTORS, Predictor
from ssl_hub.model.targets import TARGETS, Target
from ssl_hub.plugins import OURS
from ssl_hub.registry import Registry

PLUGINS = "plugins"  # in config.json and in the facts of recipe.json: what `from_plugins` says, where it is anything

PARTS: dict[str, Registry[Callable[..., Any]]] = {"predictor": PREDICTORS, "target": TARGETS, "loss": LOSSES}


def part_options(section: str, kind: str) -> Mapping[str, Any]:
    """Option names and types of one kind, for example ``part_options("predictor", "linear")`` is ``{"bias": bool}``.

    Raises UsageError for an argument with a default that a recipe cannot set: without a type, or not keyword-only.
    """
    made_by: Any = PARTS[section][kind]
    hints = typing.get_type_hints(made_by.__init__ if inspect.isclass(made_by) else made_by)
    options: dict[str, Any] = {}
    for p in inspect.signature(made_by).parameters.values():
        keyword = p.kind is inspect.Parameter.KEYWORD_ONLY
        if (keyword and p.name not in hints) or (p.kind is p.POSITIONAL_OR_KEYWORD and p.default is not p.empty):
            lacks = "no type" if keyword else "no * before it"
            raise UsageError(
                f"{p.name!r} of {section} {kind!r} is no option of a recipe: it has {lacks}; write"
                f" `*, {p.name}: float = ...` in its constructor, with the type that it has"
            )
        if keyword:
            options[p.name] = hints[p.name]
    return options


def with_overrides(recipe: Recipe, overrides: Mapping[str, Any]) -> Recipe:
    """A copy of ``recipe`` with dotted settings replaced, all of it checked: see :func:`ssl_hub.codec.apply_overrides`.

    Each part is made once, because the ranges of its options are its constructor's to check.
    """
    recipe = apply_overrides(recipe, overrides, part_options)
    with torch.random.fork_rng(devices=[]):
        build_parts(recipe)
    return recipe


def with_defaults(recipe: Recipe) -> Recipe:
    """The recipe with every option of its parts written out, so that equal recipes compare equal. A part of a plug-in
    that is not here stays as it is."""

    def complete(part: Part, section: str) -> Part:
        if part.kind not in PARTS[section]:
            return part
        parameters = inspect.signature(PARTS[section][part.kind]).parameters.values()
        defaults = {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
        return Part(part.kind, **{**defaults, **dict(part.options)})

    return replace(
        recipe,
        predictor=complete(recipe.predictor, "predictor"),
        target=complete(recipe.target, "target"),
        loss=complete(recipe.loss, "loss"),
    )


def of_plugin(section: str, name: str, registry: Registry[Any]) -> dict[str, str]:
    """Whose a registered name is, where that is another package: ``{"data mine": "my_package"}``."""
    owner = registry.owner(name) if name in registry else OURS
    return {} if owner == OURS else {f"{section} {name}": owner}


def from_plugins(recipe: Recipe) -> dict[str, str]:
    """The parts of a recipe that come from other packages: ``{"predictor mine": "my_package"}``."""
    kinds = {section: getattr(recipe, section).kind for section in PARTS}
    owners = {f"{section} {kind}": PARTS[section].owner(kind) for section, kind in kinds.items()}
    return {part: owner for part, owner in owners.items() if owner != OURS}


def check_plugins(recorded: Any, others: Mapping[str, Registry[Any]] | None = None) -> None:
    """Raise UsageError for a part, or what ``others`` hold, that a run or release was trained with, as
    :func:`from_plugins` has recorded it, and that is not here."""
    registries = {**PARTS, **(others or {})}
    for part, owner in recorded.items() if isinstance(recorded, dict) else ():
        section, _, kind = part.partition(" ")
        if section in registries and kind not in registries[section]:
            without = " (its backbone loads without)" if section in PARTS else ""
            raise UsageError(
                f"{section} {kind!r} is of the plug-in {owner}, which is not here: install it, or name its module with"
                f" --import{without}"
            )


def build_parts(recipe: Recipe) -> tuple[Predictor, Target, Loss]:
    """The predictor, target and loss of a recipe; UsageError where an option does not exist or has the wrong type."""
    recipe = check_parts(recipe, part_options)
    predictor, target, loss = recipe.predictor, recipe.target, recipe.loss
    return (
        PREDICTORS[predictor.kind](recipe.projector.output_width, **dict(predictor.options)),
        TARGETS[target.kind](**dict(target.options)),
        LOSSES[loss.kind](**dict(loss.options)),
    )
