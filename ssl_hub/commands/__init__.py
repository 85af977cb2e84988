"""The commands of ``ssl-hub``, a file for each subject: arguments in, one library call, text out.

A command is a function in a file of this folder that takes the parsed arguments; the file's ``register`` adds it.
"""

from __future__ import annotations

import importlib
import pkgutil
from argparse import ArgumentParser, Namespace
from typing import Any, Literal, Protocol


class Subparsers(Protocol):
    """What ``ArgumentParser.add_subparsers`` returns, as far as a command needs it."""

    def add_parser(self, name: str, *, help: str) -> ArgumentParser: ...


FIRST = ("recipes", "data", "train", "evaluate", "report", "hub")  # in the help; other files follow by name


def register_all(subparsers: Subparsers) -> None:
    """Let every file of this folder add its commands."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    for name in sorted(names, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST)):
        importlib.import_module(f"{__name__}.{name}").register(subparsers)


RESUME: dict[str, bool | Literal["auto"]] = {"no": False, "yes": True, "auto": "auto"}


def add_resume(parser: ArgumentParser) -> None:
    """``--resume``, and ``--resume auto`` for schedulers."""
    parser.add_argument(
        "--resume",
        nargs="?",
        choices=list(RESUME),
        const="yes",
        default="no",
        metavar="auto",
        help="continue the run in that folder; auto: start it, continue it, or say that it is finished",
    )


def add_data(parser: ArgumentParser, default: str) -> None:
    parser.add_argument("--data", help=f"registered name, path, or Hub dataset id (default: {default})")


def add_columns(parser: ArgumentParser) -> None:
    for name in ("image", "label"):
        parser.add_argument(f"--{name}-column", help="of a table, where its type does not tell")


def add_extraction(parser: ArgumentParser) -> None:
    """How images go through a backbone."""
    parser.add_argument("--batch-size", type=int, default=256, help="images in the backbone at a time (default 256)")
    parser.add_argument("--workers", type=int, default=4, help="decoding processes for large images")


def add_json(parser: ArgumentParser, what: str = "machine-readable output") -> None:
    parser.add_argument("--json", action="store_true", help=what)


def options(arguments: Namespace, *names: str) -> dict[str, Any]:
    """Those of the arguments by name, for a function that calls them the same."""
    return {name: getattr(arguments, name) for name in names}
