"""``ssl-hub reproduce``."""

from __future__ import annotations

from argparse import Namespace

from ssl_hub.commands import Subparsers, add_data, options


def register(commands: Subparsers) -> None:
    parser = commands.add_parser("reproduce", help="train and probe a table of the paper, and judge its claims")
    parser.add_argument("table", help="for example imagenet; `ssl-hub table` lists all")
    add_data(parser, "what was begun in --out")
    parser.add_argument("--out", help="folder of the reproduction (default: in the store)")
    parser.add_argument("--scale", choices=["paper", "mini"], help="mini: a reduction that fits the budget")
    parser.add_argument("--cells", metavar="GLOB", help="pattern of cell names (default: all)")
    parser.add_argument("--seeds", type=int, help="how many (default: as many as the paper repeats)")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, one thread each (default 1)")
    parser.add_argument("--budget-minutes", type=float, metavar="M", help="of computing, which size mini (default 60)")
    parser.add_argument("--format", default="md", choices=["md", "csv", "json", "latex"])
    parser.set_defaults(run=_reproduce)


def _reproduce(arguments: Namespace) -> None:
    from ssl_hub.tables.rendering import write
    from ssl_hub.train.reproduction import reproduce

    names = ("data", "out", "scale", "cells", "seeds", "jobs", "budget_minutes")
    write(reproduce(arguments.table, **options(arguments, *names)), arguments.format)
