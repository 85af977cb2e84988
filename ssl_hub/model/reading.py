"""The one reader of JSON and the one of safetensors for the files of a release, which may come from anywhere.

Whatever is in a file, reading it takes no more memory than its size is worth, ends, runs nothing of it, and gives what
it should be or a :class:`UsageError` of one line that names it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from ssl_hub.errors import UsageError
from ssl_hub.model.files import PICKLES

if TYPE_CHECKING:
    from torch import Tensor

MOST_BYTES = 32 * 2**20  # of a JSON file, and of the header of a safetensors file
MOST_HELD, MOST_NESTED = 500_000, 64  # lists and objects of a JSON file, which take far more memory than bytes there


def read_json(path: Path) -> Any:
    """What a JSON file says. Raises UsageError where it is missing, no file, too large, too deep or no JSON."""
    try:
        if not path.is_file():  # a pipe would be waited for
            raise UsageError(f"{path} is {'no file' if path.exists() else 'missing'}")
        if (size := path.stat().st_size) > MOST_BYTES:
            raise UsageError(f"{path} has {size} bytes, expected at most {MOST_BYTES}")
        data = path.read_bytes()
        if (held := data.count(b"[") + data.count(b"{")) > MOST_HELD:
            raise UsageError(f"{path} has {held} lists and objects, expected at most {MOST_HELD}")
        value = json.loads(data)
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{path} is not JSON ({_one_line(error)})") from None
    if _is_deeper(value, MOST_NESTED):
        raise UsageError(f"{path} is nested more than {MOST_NESTED} deep")
    return value


def _is_deeper(value: Any, most: int) -> bool:
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(most):
        level = [
            item
            for holder in level
            for item in (holder.values() if isinstance(holder, dict) else holder)
            if isinstance(item, (dict, list))
        ]
        if not level:
            return False
    return True


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Tensors of a safetensors file; :class:`UsageError` where it is missing or damaged. Nothing in it is executed."""
    from safetensors.torch import load_file  # here, as whoever reads JSON alone needs no torch

    _check_header(path)
    try:
        tensors = load_file(path)
    except Exception as error:  # what the library raises for a damaged file is of many kinds
        raise UsageError(f"{path} is not a readable safetensors file ({_one_line(error)})") from None
    for name, tensor in tensors.items():
        if tensor.is_complex() or str(tensor.dtype).startswith("torch.float4"):
            raise UsageError(f"{path}: {name!r} holds {str(tensor.dtype).removeprefix('torch.')}, as no backbone does")
    return tensors


def read_metadata(path: Path) -> Mapping[str, str]:
    """The metadata of a safetensors file, whose tensors are not read."""
    from safetensors import safe_open

    _check_header(path)
    try:
        with safe_open(path, framework="numpy") as file:  # "pt" would import torch
            return file.metadata() or {}
    except Exception as error:
        raise UsageError(f"{path} is not a readable safetensors file ({_one_line(error)})") from None


def _check_header(path: Path) -> None:
    """Raise UsageError where there is no file, or a header longer than it or than one may be."""
    try:
        if not path.is_file():
            raise FileNotFoundError
        with path.open("rb") as file:
            length, size = int.from_bytes(file.read(8), "little"), path.stat().st_size
    except FileNotFoundError:
        pickles = sorted(other.name for other in path.parent.glob("*") if other.suffix in PICKLES)
        if pickles:
            raise UsageError(
                f"{path} is missing, and {', '.join(pickles)} beside it can run code when it is read, so it is not;"
                " turn it into a release with `ssl-hub import`"
            ) from None
        raise UsageError(f"{path} is missing; the release is incomplete") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    if not 2 <= length <= min(MOST_BYTES, size - 8):
        raise UsageError(f"{path} is not a readable safetensors file (a header of {length} bytes in {size})")


def _one_line(error: Exception) -> str:
    said = " ".join(str(error).split())[:160] if isinstance(error, (ValueError, OSError, SafetensorError)) else ""
    return said or type(error).__name__
