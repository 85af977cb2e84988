"""Whether a release is whole: its own files, as they were written, that load and are finite."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ssl_hub.errors import UsageError
from ssl_hub.hub.store import resolve
from ssl_hub.model.files import (
    HASHES,
    HEADS_FOLDER,
    METHOD,
    RESULTS_FILE,
    TO_LOAD,
    check_unchanged,
    read_hashes,
    release_files,
)
from ssl_hub.model.probe_head import ProbeHead, head_path
from ssl_hub.model.reading import read_json, read_metadata
from ssl_hub.model.release import check_finite, load_backbone, read_config, read_tensors
from ssl_hub.model.results import read_results

EVERY = (*TO_LOAD, METHOD, RESULTS_FILE, f"{HEADS_FOLDER}/*")


@dataclass(frozen=True)
class Verified:
    """A release in which nothing is wrong: where it is, its files with their sizes in bytes, and whether those with
    hashes were compared with them."""

    folder: Path
    files: dict[str, int]
    hashed: bool


def verify(name: str | Path) -> Verified:
    """Check a release by its name, as :func:`ssl_hub.load` takes it; one of the Hub is fetched whole.

    Raises UsageError that names the first file that is missing, changed, damaged, a link, no safetensors file, not
    finite, or of another architecture.
    """
    return check(resolve(name, EVERY))


def check(folder: Path) -> Verified:
    """The same for a folder."""
    config = read_config(folder)
    noted = read_hashes(folder)
    names = release_files(folder)
    if missing := sorted(set(noted or ()) - set(names)):
        raise UsageError(f"{folder / missing[0]} is missing, and {HASHES} lists it; restore it, or fetch it again")
    check_unchanged(folder, names)
    for name in names:
        if name.endswith(".safetensors"):
            _check_tensors(folder / name)
    load_backbone(folder)
    for path in sorted(folder.glob(f"{HEADS_FOLDER}/*.json")):
        _check_head(folder, path, config.get("num_features"))
    read_results(folder)
    return Verified(folder, {name: (folder / name).stat().st_size for name in names}, noted is not None)


def _check_tensors(path: Path) -> None:
    """Raise UsageError unless this is a finite safetensors file of the kind that transformers takes."""
    check_finite(path, read_tensors(path))
    if read_metadata(path).get("format") != "pt":
        raise UsageError(f"{path} lacks the metadata 'format: pt', which transformers asks for; save it again")


def _check_head(folder: Path, path: Path, width: int | None) -> None:
    """Raise UsageError unless the head's files are named after its data, and it fits the backbone."""
    try:
        dataset = str(read_json(path)["dataset"])
    except (KeyError, TypeError, IndexError) as error:
        raise UsageError(f"{path} describes no head ({error})") from None
    if head_path(folder, dataset) != path.with_suffix(".safetensors"):
        raise UsageError(
            f"{path} says it is a head for {dataset!r}, whose file would be {head_path(folder, dataset).name}"
        )
    ProbeHead.load(folder, dataset, width=width)
