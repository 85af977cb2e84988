"""``ssl-hub table`` and ``compare``."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from ssl_hub.atomic import refuse_missing_folder
from ssl_hub.commands import Subparsers, add_json


def register(commands: Subparsers) -> None:
    table = commands.add_parser("table", help="a table of the paper beside what was measured here")
    table.add_argument("table", nargs="?", help="for example imagenet; without it, the tables are listed")
    table.add_argument("--runs", nargs="+", default=[], metavar="DIR", help="look for runs there too, and below")
    table.add_argument("--hub", metavar="OWNER", help="count the releases of that owner on the Hub too")
    table.add_argument(
        "--format", choices=["md", "csv", "json", "latex", "png"], help="default: by the ending of --out, else md"
    )
    table.add_argument("--out", help="the file to write (default: print; png needs a file)")
    table.set_defaults(run=_table)

    compare = commands.add_parser("compare", help="settings in which runs differ, and their results over seeds")
    compare.add_argument("runs", nargs="+", metavar="RUN", help="run folder, or its name in the store")
    add_json(compare)
    compare.set_defaults(run=_compare)


def _table(arguments: Namespace) -> None:
    if arguments.table is None:
        from ssl_hub.tables.paper import TABLES

        width = max(map(len, TABLES.names()))
        for name in TABLES.names():
            print(f"{name:{width}}  {TABLES[name].title}")
        return
    from ssl_hub.tables.rendering import kind_of, write
    from ssl_hub.tables.report import report

    out = None if arguments.out is None else Path(arguments.out)
    if out is not None:
        refuse_missing_folder(out)
    kind = arguments.format or kind_of(out)
    write(report(arguments.table, arguments.runs, owner=arguments.hub), kind, out)


def _compare(arguments: Namespace) -> None:
    from ssl_hub.tables.comparison import compare

    comparison = compare(arguments.runs)
    print(comparison.json() if arguments.json else comparison.text())
