"""What is wrong with a release, as far as it shows without reading its weights: for lists of many."""

from __future__ import annotations

import warnings
from pathlib import Path

from ssl_hub.errors import UsageError
from ssl_hub.model.files import CONFIG, HASHES, HEADS_FOLDER, MODEL, read_hashes, release_files
from ssl_hub.model.reading import read_metadata
from ssl_hub.model.recipe_file import read_facts
from ssl_hub.model.release_config import read_config
from ssl_hub.model.results import read_results


def in_hub_cache(folder: Path) -> bool:
    """Whether this is a folder of the Hub's cache, whose files are links to their content."""
    return folder.parent.name == "snapshots" and (folder.parent.parent / "blobs").is_dir()


def link_in(folder: Path) -> str:
    """One line that names a file of the release that is a link to somewhere else, which may be anything; or nothing."""
    for name in () if in_hub_cache(folder) else (HEADS_FOLDER, HASHES, *release_files(folder)):
        if (folder / name).is_symlink():
            return f"{folder / name} is a symbolic link; a release holds its own files: copy it there"
    return ""


def problem_of(folder: Path) -> str:
    """One line that names the first file that is damaged or missing, or nothing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of newer versions, which is no damage
            if (folder / CONFIG).exists():
                if link := link_in(folder):
                    return link
                read_config(folder)
                noted = read_hashes(folder) or {}
                there = release_files(folder)
                if missing := sorted({*noted, MODEL} - {*there}):
                    return f"{folder / missing[0]} is missing"
                for name in there:
                    if name.endswith(".safetensors"):
                        read_metadata(folder / name)
            read_facts(folder)
            read_results(folder)
    except UsageError as error:
        return str(error)
    except OSError as error:
        return f"{error.filename or folder} cannot be read ({error.strerror})"
    return ""
