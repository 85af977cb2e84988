"""``ssl-hub recipes`` and ``show``."""

from __future__ import annotations

import json
import shlex
import sys
from argparse import Namespace

from ssl_hub.codec import parse_assignments, to_dict, to_json
from ssl_hub.commands import Subparsers, add_json
from ssl_hub.errors import UsageError
from ssl_hub.zoo import as_modified, get_recipe, list_recipes


def register(commands: Subparsers) -> None:
    listing = commands.add_parser("recipes", help="list the recipes")
    listing.add_argument("pattern", nargs="?", default="*", help="shell-style pattern, for example 'directpred-*'")
    add_json(listing)
    listing.set_defaults(run=_recipes)

    show = commands.add_parser("show", help="show everything about a recipe")
    show.add_argument("recipe")
    show.add_argument("overrides", nargs="*", metavar="key=value")
    show.set_defaults(run=_show)


def _recipes(arguments: Namespace) -> None:
    names = list_recipes(arguments.pattern)
    if not names:
        raise UsageError(f"no recipe matches {arguments.pattern!r}; `ssl-hub recipes` lists all")
    if arguments.json:
        print(json.dumps([to_dict(get_recipe(name)) for name in names], indent=2))
        return
    width = max(map(len, names))
    for name in names:
        print(f"{name:{width}}  {get_recipe(name).summary}")


def _show(arguments: Namespace) -> None:
    from ssl_hub.hub.citations import citations, in_words

    recipe = as_modified(get_recipe(arguments.recipe, **parse_assignments(arguments.overrides)))
    print(to_json(recipe))
    command = " ".join([recipe.command, *map(shlex.quote, arguments.overrides)])
    print(f"\ntrain it with: {command}\npapers:", file=sys.stderr)
    for entry in citations(recipe):
        print(f"  {in_words(entry)}", file=sys.stderr)
