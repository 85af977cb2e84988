"""The commands of ``ssl-hub``, a file for each subject: arguments in, one library call, text out.

A command is a function in a file of this folder that takes the parsed arguments; the file's ``register`` adds it.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from argparse import ArgumentParser
from typing import Protocol


class Subparsers(Protocol):
    """What ``ArgumentParser.add_subparsers`` returns, as far as a command needs it."""

    def add_parser(self, name: str, *, help: str) -> ArgumentParser: ...


FIRST = ("recipes", "train", "evaluate", "report", "hub")  # in the help; other files follow by name


def register_all(subparsers: Subparsers) -> None:
    """Let every file of this folder add its commands."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    for name in sorted(names, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST)):
        importlib.import_module(f"{__name__}.{name}").register(subparsers)


def speaks() -> bool:
    """Whether this process prints: the only one, or the first of several (a ``RANK`` left over says nothing alone)."""
    return os.environ.get("WORLD_SIZE", "1") in ("", "1") or os.environ.get("RANK", "0") == "0"
