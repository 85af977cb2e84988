"""What a checkpoint file holds, whatever it is called. Nothing in it is executed."""

from __future__ import annotations

import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

import torch

from ssl_hub.errors import UsageError
from ssl_hub.hub.importers.unsafe import way_out
from ssl_hub.model.release import read_tensors

INDEX = re.compile(r".+\.(safetensors|bin)\.index\.json")
SHARD = re.compile(r".+-\d+-of-0*(\d+)\.(safetensors|bin)")
OTHERS = {  # files of an archive that torch.save does not write -> what it is
    r"(.*/)?code/.*\.py|(.*/)?constants\.pkl": "a program (TorchScript), no weights by the names of a model's layers",
    r"(.*/)?archive_format": "a program (torch.export), no weights by the names of a model's layers",
    r".*\.npy": "arrays of numpy",
}


def read_content(path: Path) -> Any:
    """What is in a file that ``torch.save`` wrote, or the tensors of a safetensors file: which it is, it says itself.

    Raises:
        UsageError: no such file; damaged, or of another kind, which is named where it is known; one of several files
            that hold a model together; or Python objects in it.
    """
    if INDEX.fullmatch(path.name) or ((shard := SHARD.fullmatch(path.name)) and int(shard[1]) > 1):
        raise UsageError(
            f"{path} is of a model that lies in several files, and one is read here: save all of its tensors in one"
            " file, and give that"
        )
    if is_safetensors(path):
        return read_tensors(path)
    if zipfile.is_zipfile(path):
        _refuse_others(path)
    return _load_without_code(path)


def is_safetensors(path: Path) -> bool:
    """Whether a file is one by how it begins, or by its name where that says nothing."""
    try:
        with path.open("rb") as file:
            begin = file.read(9)
    except OSError:
        return path.suffix == ".safetensors"
    if begin[:2] == b"PK" or begin[:1] == b"\x80":  # an archive, a pickle
        return False
    return begin[8:] == b"{" or path.suffix == ".safetensors"


def _refuse_others(path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError):
        return  # for torch to say what is wrong with it
    for pattern, kind in OTHERS.items():
        if any(re.fullmatch(pattern, name) for name in names):
            raise UsageError(f"{path} holds {kind}; expected what torch.save or safetensors wrote of a state_dict()")


def _load_without_code(path: Path) -> Any:
    try:
        with path.open("rb") as file:  # by its name, torch would take one for another
            return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL (\S+)", str(error))
        if named is None:
            raise UsageError(
                f"{path} is damaged, or not written by torch.save (no tensors can be read from it)"
            ) from None
        raise UsageError(
            f"{path} holds a Python object ({named[1]}), which only running what the file says would bring back, and"
            f" that is never done here. If you trust its author: {way_out(path)}; then import that"
        ) from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    except (RuntimeError, EOFError, ValueError, KeyError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:160]
        raise UsageError(f"{path} is damaged, or not written by torch.save ({reason})") from None
