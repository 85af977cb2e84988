"""What a shell may complete, where argcomplete is installed: commands and options, recipes, tables, settings.

pip install argcomplete
eval "$(register-python-argcomplete ssl-hub)"    # in ~/.bashrc or ~/.zshrc
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace, _SubParsersAction
from collections.abc import Callable, Iterable

from ssl_hub.codec import flat, to_dict
from ssl_hub.zoo import RECIPES


def answer(parser: ArgumentParser, commands: _SubParsersAction[ArgumentParser]) -> None:
    """Print what could follow and end the process, where it was a shell that asked; else nothing."""
    if "_ARGCOMPLETE" not in os.environ:
        return
    import argcomplete

    for command in commands.choices.values():
        for action in command._actions:
            if action.dest in COMPLETERS:
                action.completer = COMPLETERS[action.dest]  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser)


def _recipes(**_: object) -> Iterable[str]:
    return RECIPES.names()


def _tables(**_: object) -> Iterable[str]:
    from ssl_hub.tables.paper import TABLES

    return TABLES.names()


def _settings(parsed_args: Namespace, **_: object) -> Iterable[str]:
    """Those of the recipe that was named, each with the ``=`` that its value follows."""
    name = getattr(parsed_args, "recipe", None) or ""
    return [f"{key}=" for key in flat(to_dict(RECIPES[name]))] if name in RECIPES else []


COMPLETERS: dict[str, Callable[..., Iterable[str]]] = {
    "recipe": _recipes,
    "table": _tables,
    "overrides": _settings,
}
