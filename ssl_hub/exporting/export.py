"""``ssl_hub.export``: a model as one file that needs none of this package, and what it is beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import nn

from ssl_hub.atomic import expanded, make_folder, refuse_missing_folder, replace_file
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.subject import Subject
from ssl_hub.exporting import parity
from ssl_hub.exporting.about import about
from ssl_hub.exporting.formats import FORMATS, TRACED, quiet, write
from ssl_hub.exporting.program import Features, Input, make_program
from ssl_hub.limits import number
from ssl_hub.model.files import sha256
from ssl_hub.model.lineage import public_name

BESIDE = "preprocessing.json"


@dataclass(frozen=True)
class Exported:
    """The files that were written, and what the second of them says."""

    path: Path
    beside: Path
    about: dict[str, Any]

    def text(self) -> str:
        """A few lines for people."""
        taken, checked = self.about["input"], self.about["parity"]
        given = ", ".join(f"{o['name']} {_shape(o['shape'])}" for o in self.about["outputs"])
        batches = ", ".join(map(str, checked["batches"]))
        return (
            f"{self.path}: {taken['type']} {_shape(taken['shape'])} -> {given}\n"
            f"checked in {checked['runtime']} on batches of {batches}: greatest difference from the model "
            f"{checked['absolute']:.2g}, {checked['relative']:.2g} of the greatest value\n"
            f"{self.beside}: how images come in, what comes out, licence and lineage"
        )


def export(
    model: str | Path | nn.Module,
    to: str | Path,
    *,
    format: str = "onnx",
    head: str | None = None,
    features: Features = "pooled",
    input: Input = "uint8",
    image_size: int | None = None,
    tolerance: float = parity.TOLERANCE,
) -> Exported:
    """Write a model as one file for onnxruntime or for torch alone, checked before it is there.

    The file takes batches of any number. It is run again on pictures in batches of 1, 3 and 5 and compared with the
    model; where any output differs by more than ``tolerance`` of its greatest value, nothing is left. Beside it lies
    JSON that says how an image becomes its input, what comes out, the classes, where the weights are from and under
    which licence, the greatest difference, and the file's sha256. The file holds the same but for the last two. An
    earlier export of the same name is replaced, and nothing else is.

    Args:
        model: a run folder, release name, ``timm:NAME``, ``timm:NAME@TAG``, Hub address or a timm model.
        to: a file that ends as the format does (``.onnx``, ``.pt2``, ``.pt``), with ``NAME.json`` beside it; or a
            folder, made where it is missing, for ``model.onnx`` and ``preprocessing.json``.
        format: ``onnx``, ``torch-export`` or ``torchscript``.
        head: the data of a probe head, or what the model was fine-tuned on: the output is then ``logits`` [B, K].
        features: ``pooled``, [B, C]; or ``map``, ``stages`` or ``tokens``, as in :func:`ssl_hub.feature_maps`.
        input: ``uint8``, images after resizing and cropping, with the normalisation inside; or ``float``, normalised.
        image_size: pixels of a side, where it is not the model's own.
        tolerance: see above.

    Raises:
        UsageError: ONNX without its packages, an architecture that the format cannot have, a file that differs, or
            what finding the model raises.
    """
    chosen = FORMATS[format]
    number(0, 1).check("tolerance", tolerance)
    path, beside = _places(to, chosen.ending)
    _refuse_others(path, beside)
    made = make_program(model, head=head, features=features, kind=input, image_size=image_size)
    chosen.check(made.program)
    says = about(_name_of(model, made.subject), made)
    traced = made.program.given(parity.pictures(TRACED, made.program.size))

    def write_checked(aside: Path) -> None:
        write(format, made.program, traced, aside, json.dumps(says, allow_nan=False))
        with quiet():
            found = parity.compare(made.program, chosen.open(aside), tolerance)
        checked = {"runtime": chosen.runtime(), "batches": list(parity.BATCHES), "tolerance": tolerance}
        says.update(parity={**checked, **asdict(found)}, file={"format": format, "sha256": sha256(aside)})

    with _made(path.parent):
        replace_file(path, write_checked)
    replace_file(beside, (json.dumps(says, indent=2, allow_nan=False) + "\n").encode())
    return Exported(path, beside, says)


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """The folder is there inside, and afterwards only where something is in it that was not an error."""
    missing = not folder.exists()
    make_folder(folder, parents=False)
    try:
        yield
    except BaseException:
        if missing:
            folder.rmdir()
        raise


def _places(to: str | Path, ending: str) -> tuple[Path, Path]:
    """The file, and what lies beside it."""
    place = expanded(to)
    endings = {FORMATS[name].ending for name in FORMATS.names()}
    if place.is_dir() or place.suffix not in endings:
        refuse_missing_folder(place)
        if place.is_file():
            raise UsageError(f"{place} is a file that does not end in {ending}; choose a folder, or NAME{ending}")
        return place / f"model{ending}", place / BESIDE
    if place.suffix != ending:
        raise UsageError(f"{place.name} is no name for this format; name it {place.stem}{ending}")
    refuse_missing_folder(place)
    return place, place.with_suffix(".json")


def _refuse_others(path: Path, beside: Path) -> None:
    """Raise UsageError where a file would be replaced that no export wrote: photographs.json may be annotations, and
    best.pt a checkpoint."""
    there = [place for place in (path, beside) if place.exists()]
    if there and not _is_ours(beside):
        raise UsageError(
            f"{' and '.join(map(str, there))}: there already, and no earlier export; choose another name, or take it"
            " away"
        )


def _is_ours(beside: Path) -> bool:
    try:
        says = json.loads(beside.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(says, dict) and {"format", "preprocessing", "parity", "file"} <= says.keys()


def _name_of(model: str | Path | nn.Module, subject: Subject) -> str:
    """What to call it: of a path the last part, which is no word of where it was."""
    if isinstance(model, nn.Module):
        return type(model).__name__
    if subject.step is not None and subject.origin is not None:
        return str(subject.origin["name"])
    return expanded(model).resolve().name if expanded(model).is_dir() else public_name(str(model))


def _shape(shape: list[Any]) -> str:
    return f"[{', '.join(map(str, shape))}]"
