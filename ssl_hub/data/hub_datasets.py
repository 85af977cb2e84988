"""Datasets of the Hub by their address, ``owner/name[:config][@revision]``, and why one does not open."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ssl_hub.errors import UsageError

_ADDRESS = re.compile(r"(?P<path>[\w.-]+(/[\w.-]+)?)(:(?P<config>[^:@]+))?(@(?P<revision>[^:@]+))?")

# What the first line of an error of `datasets` says, and what to do about it.
_ADVICE = (
    (r"gated", "accept its terms on its page and log in with `hf auth login`"),
    (r"OfflineModeIsEnabled", "the cache lacks it and HF_HUB_OFFLINE is set: unset that, or give a local folder"),
    (r"Couldn't reach|LocalEntryNotFound", "the cache lacks it and the Hub cannot be reached: give a local folder"),
    (r"doesn't exist on the Hub or cannot", "check the name; if it is private, log in with `hf auth login`"),
    (r"[Cc]onfig", "name a configuration as in owner/name:config"),
    (r"[Rr]evision", "name a revision as in owner/name@revision"),
)


class Address(NamedTuple):
    """Which dataset, which of its configurations and which revision; None for the defaults."""

    path: str
    config: str | None = None
    revision: str | None = None


def hub_address(data: str) -> Address | None:
    """``owner/name:config@revision`` taken apart; None where ``data`` cannot be a dataset of the Hub."""
    match = _ADDRESS.fullmatch(data)
    return None if match is None or data.startswith(".") else Address(*match.group("path", "config", "revision"))


def owned_address(data: str) -> Address | None:
    """The same where the name says whose the dataset is, ``owner/name``, which no folder's own name does."""
    address = hub_address(data)
    return address if address is not None and "/" in address.path else None


def load_hub(address: Address, **options: Any) -> Any:
    """What ``datasets.load_dataset`` gives for the address, from the Hub or its cache.

    Raises :class:`UsageError` with the cause in one line and, where it is a known one, what to do.
    """
    from datasets import load_dataset
    from datasets.exceptions import DatasetGenerationError, DatasetsError
    from yaml import YAMLError  # type: ignore[import-untyped]

    try:
        return load_dataset(address.path, name=address.config, revision=address.revision, **options)
    except (DatasetsError, OSError, ValueError, RuntimeError, YAMLError) as error:
        told = error.__cause__ if isinstance(error, DatasetGenerationError) and error.__cause__ else error
        lines = str(told).strip().splitlines() or [type(told).__name__]
        if isinstance(error, YAMLError):
            lines = [f"the head of its README is no YAML ({lines[0]})"]
        # Of a missing configuration, the second line lists those that there are.
        cause = " ".join(lines[: 2 if "config" in lines[0].lower() else 1])[:300]
        advice = next((advice for pattern, advice in _ADVICE if re.search(pattern, cause)), None)
        raise UsageError(f"{cause.rstrip('.')}{f'; {advice}' if advice else ''}") from error
