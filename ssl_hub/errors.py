"""The one exception that means "the person at the keyboard can fix this"."""

from __future__ import annotations


class UsageError(ValueError):
    """Wrong input from a user: says what was got, what was expected, and how to fix it.

    The command line prints it as one line and exits with code 2; a bug keeps its traceback.
    """
