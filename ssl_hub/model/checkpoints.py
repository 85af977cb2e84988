"""The checkpoints of a run: found by number, and read without executing anything. What writes them is in ``train``."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import torch

from ssl_hub.errors import UsageError

CHECKPOINTS = "checkpoints"  # the folder, in a run's
FORMAT = 1
_NAME = re.compile(r"step-(\d+)(-kept)?\.pt")


def existing(folder: Path) -> list[Path]:
    """Complete checkpoints in ``folder``, oldest first by number."""
    found = [(step, path) for path in folder.glob("step-*.pt") if (step := step_of(path)) is not None]
    return [path for _, path in sorted(found)]


def step_of(path: Path) -> int | None:
    """The optimiser steps that a checkpoint was saved after, by its name; None for another file."""
    match = _NAME.fullmatch(path.name)
    return None if match is None else int(match[1])


def load(path: Path) -> dict[str, Any]:
    """A whole state, on the CPU. No pickled code is ever run: tensors and plain values only.

    Raises UsageError where the file is damaged or something else.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    # What torch makes of a file that is cut off, empty or of another kind is any of these.
    except (RuntimeError, OSError, EOFError, LookupError, ValueError, TypeError, pickle.UnpicklingError) as error:
        reason = (str(error).splitlines() or [""])[0][:160] or type(error).__name__
        raise UsageError(f"cannot read the checkpoint {path} ({reason}); {without(path)}") from None
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise UsageError(f"{path} is not a checkpoint of this version (format {FORMAT}); {without(path)}")
    return state


def without(path: Path) -> str:
    """What can be done without this checkpoint, in words."""
    others = [other for other in existing(path.parent) if other != path]
    return f"delete it to go on from {others[-1].name}" if others else "no other is there: --overwrite starts again"
