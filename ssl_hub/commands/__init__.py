"""The commands of ``ssl-hub``, a file for each subject: arguments in, one library call, text out.

A command is a function in a file of this folder that takes the parsed arguments; the file's ``register`` adds it.
"""

from __future__ import annotations

import importlib
import pkgutil
from argparse import ArgumentParser
from typing import Protocol


class Subparsers(Protocol):
    """What ``ArgumentParser.add_subparsers`` returns, as far as a command needs it."""

    def add_parser(self, name: str, *, help: str) -> ArgumentParser: ...


def register_all(subparsers: Subparsers) -> None:
    """Let every file of this folder add its commands."""
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda found: found.name):
        importlib.import_module(f"{__name__}.{module.name}").register(subparsers)
