"""What was begun in a folder of many runs, kept in a JSON file: a dataclass of plain values."""

from __future__ import annotations

import json
import typing
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any, TypeVar

from ssl_hub.atomic import make_folder, replace_file
from ssl_hub.codec import decoded
from ssl_hub.errors import UsageError

Begun = TypeVar("Begun")


def read(kind: type[Begun], path: Path, *, what: str) -> Begun | None:
    """What the file says was begun, None where there is no file. Raises UsageError for a file that is not ``what``."""
    fix = "choose another --out or repair it"
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read ({error}); {fix}") from None
    hints = typing.get_type_hints(kind)
    known: tuple[Any, ...] = fields(kind)  # type: ignore[arg-type]
    needed = {field.name for field in known if field.default is MISSING and field.default_factory is MISSING}
    if not isinstance(plain, dict) or not needed <= plain.keys():
        raise UsageError(f"{path} is no {what}; {fix}")
    given = {}
    for name in [name for name in hints if name in plain]:  # others are a newer version's
        try:
            given[name] = decoded(hints[name], plain[name], name)
        except UsageError:
            raise UsageError(f"{path} is no {what}: {name} is {plain[name]!r}; {fix}") from None
    return kind(**given)


def refuse_other(there: object, wanted: Mapping[str, object], folder: Path, *, what: str) -> None:
    """Raise UsageError where something else is wanted than what is there."""
    for name, value in wanted.items():
        if (found := getattr(there, name)) != value:
            raise UsageError(f"{folder} holds a {what} with {name} {found}, not {value}; choose another --out")


def write(path: Path, begun: Any) -> None:
    """Raises UsageError where the file cannot be written."""
    make_folder(path.parent)
    replace_file(path, (json.dumps(asdict(begun), indent=2) + "\n").encode())
