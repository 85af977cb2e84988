"""The commands of ``ssl-hub``, a file for each subject: arguments in, one library call, text out.

A command is a function in a file of this folder that takes the parsed arguments; the file's ``register`` adds it.
"""

from __future__ import annotations

import importlib
import pkgutil
from argparse import ArgumentParser
from typing import Literal, Protocol


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
