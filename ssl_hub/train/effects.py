"""Settings that would do nothing beside the others of a recipe: who changes one is told of it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from ssl_hub.codec import flat, to_dict
from ssl_hub.config import Recipe
from ssl_hub.errors import UsageError


class Condition(NamedTuple):
    """When a setting has an effect, and what says so."""

    holds: Callable[[Recipe], bool]
    words: str


_MONITOR = Condition(lambda recipe: recipe.runtime.monitor_data is not None, "runtime.monitor_data is set")
CONDITIONS = {
    "optim.trust_coefficient": Condition(lambda recipe: recipe.optim.name == "lars", "optim.name is lars"),
    "data.shuffle_buffer": Condition(lambda recipe: recipe.data.stream, "data.stream is true"),
    "data.max_bad_images": Condition(lambda recipe: recipe.data.on_bad_image == "skip", "data.on_bad_image is skip"),
    "train.sync_bn_group": Condition(lambda recipe: recipe.train.sync_bn, "train.sync_bn is true"),
    "projector.output_bias": Condition(
        lambda recipe: recipe.projector.output_norm == "none", "projector.output_norm is none"
    ),
    "runtime.monitor_split": _MONITOR,
    "runtime.monitor_label_column": _MONITOR,
}


def check_effects(recipe: Recipe, registered: Recipe, settings: Collection[str]) -> None:
    """Raise UsageError for the first of ``settings``, by dotted name, that is not as ``registered`` has it and changes
    nothing of what ``recipe`` trains."""
    now, before = flat(to_dict(recipe)), flat(to_dict(registered))
    for name, condition in CONDITIONS.items():
        if name in settings and now[name] != before[name] and not condition.holds(recipe):
            raise UsageError(f"{name} is {now[name]!r}, which has an effect only where {condition.words}; leave it out")
