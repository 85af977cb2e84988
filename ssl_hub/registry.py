"""Names to things: recipes, predictors, targets, losses and data sources all live in one of these."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from ssl_hub import plugins
from ssl_hub.errors import UsageError

T = TypeVar("T")
Registrable = TypeVar("Registrable")

MOST_SHOWN = 8  # names in one error line


def suggest(name: str, known: Iterable[str], *, listing: str = "known") -> str:
    """Return ``"; did you mean 'x'?"`` for the nearest known name, else what is known, after the word ``listing``."""
    known = sorted(known)
    # Names here differ in small tokens ("-300ep", "r50"), so a prefix is a better hint than a typo distance.
    nearest = [k for k in known if k.startswith(name)] or difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if nearest:
        return f"; did you mean {nearest[0]!r}?"
    shown = ", ".join(known[:MOST_SHOWN]) + (f", ... ({len(known)} in all)" if len(known) > MOST_SHOWN else "")
    return f"; {listing}: {shown}" if known else ""


def _defined(value: object) -> object:
    """Where a class or a function is defined; of anything else the value."""
    name = getattr(value, "__qualname__", None)
    return value if name is None else (getattr(value, "__module__", None), name)


class Registry(Generic[T]):
    """A table from names to objects of one kind.

    A second object under a taken name is a :class:`~ssl_hub.errors.UsageError`, so that two plug-ins cannot silently
    replace each other; what a script, a notebook or a module defines again takes the place of its own. An unknown name
    names the nearest known one. What plug-ins have is there when a name is looked up (:mod:`ssl_hub.plugins`).
    """

    def __init__(self, kind: str, *, listing: str = "known") -> None:
        """``listing`` introduces the known names in errors, and may say how to see them all."""
        self.kind = kind
        self.listing = listing
        self._entries: dict[str, T] = {}
        self._owners: dict[str, str] = {}

    def add(self, name: str, value: T) -> T:
        owner = plugins.owner_of_caller()
        if name in self._entries and not self._is_again(name, value, owner):
            raise UsageError(
                f"{self.kind} {name!r} of {owner} is registered already, by {self._owners.get(name, owner)}; choose"
                " another name"
            )
        self._entries[name], self._owners[name] = value, owner
        return value

    def _is_again(self, name: str, value: T, owner: str) -> bool:
        """Whether something is registered once more: by a notebook's cell, or a module whose import had failed."""
        there = self._entries[name]
        if owner == plugins.OURS or owner != self._owners.get(name):
            return False
        return owner == "__main__" or _defined(there) == _defined(value)

    def owner(self, name: str) -> str:
        """The package that registered a name."""
        self[name]
        return self._owners.get(name, plugins.OURS)

    def register(self, name: str) -> Callable[[Registrable], Registrable]:
        """Decorator form of :meth:`add`; the decorated class or function keeps its own type."""

        def decorate(value: Registrable) -> Registrable:
            self.add(name, value)  # type: ignore[arg-type]
            return value

        return decorate

    def __getitem__(self, name: str) -> T:
        plugins.import_all()
        try:
            return self._entries[name]
        except KeyError:
            raise UsageError(
                f"unknown {self.kind} {name!r}{suggest(name, self._entries, listing=self.listing)}"
            ) from None

    def __contains__(self, name: object) -> bool:
        plugins.import_all()
        return name in self._entries

    def names(self, pattern: str = "*") -> list[str]:
        """Names that match a shell-style pattern, in order of registration."""
        plugins.import_all()
        return [name for name in self._entries if fnmatch.fnmatchcase(name, pattern)]
