"""``ssl-hub plugins``: which other packages register things here, and what."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Any

from ssl_hub.commands import Subparsers, add_json
from ssl_hub.registry import Registry


def register(commands: Subparsers) -> None:
    parser = commands.add_parser("plugins", help="packages that register recipes, predictors, data, ... of their own")
    add_json(parser, "as JSON")
    parser.set_defaults(run=_plugins)


def _plugins(arguments: Namespace) -> None:
    from ssl_hub import plugins
    from ssl_hub.data.registered import SOURCES as DATA
    from ssl_hub.evaluate.protocols import PROTOCOLS
    from ssl_hub.exporting.formats import FORMATS
    from ssl_hub.hub.importers.sources import SOURCES
    from ssl_hub.model.parts import PARTS
    from ssl_hub.tables.paper import TABLES
    from ssl_hub.zoo import RECIPES

    found = plugins.plugins()
    had: dict[str, list[str]] = {}
    registries: list[Registry[Any]] = [RECIPES, *PARTS.values(), DATA, PROTOCOLS, TABLES, SOURCES, FORMATS]
    for registry in registries:
        for name in registry.names():
            if (owner := registry.owner(name)) != plugins.OURS:
                had.setdefault(owner, []).append(f"{registry.kind} {name}")
    rows = [
        {"module": plugin.module, "offered_by": plugin.offered_by, "has": had.get(plugin.module.partition(".")[0], [])}
        for plugin in found
    ]
    if arguments.json:
        print(json.dumps(rows, indent=2))
    elif not rows:
        print("no plug-ins: no installed package has an entry point in the group 'ssl_hub', and no --import names one")
    for row in [] if arguments.json else rows:
        print(f"{row['module']}  ({row['offered_by']})  {', '.join(row['has']) or 'registers nothing'}")
