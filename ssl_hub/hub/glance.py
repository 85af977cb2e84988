"""What is wrong with a release, as far as it shows without reading its weights: for lists of many."""

from __future__ import annotations

import warnings
from pathlib import Path

from ssl_hub.errors import UsageError
from ssl_hub.model.files import CONFIG, MODEL, read_hashes, release_files


def problem_of(folder: Path) -> str:
    """One line that names the first file that is damaged or missing, or nothing."""
    from ssl_hub.model.reading import read_metadata
    from ssl_hub.model.release import read_config, read_facts
    from ssl_hub.model.results import read_results

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of newer versions, which is no damage
            if (folder / CONFIG).exists():
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
