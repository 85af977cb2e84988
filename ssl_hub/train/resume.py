"""Going on with a run by its folder, which says all that is needed: recipe or model, data and settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ssl_hub.errors import UsageError
from ssl_hub.hub import store
from ssl_hub.model.release import read_facts
from ssl_hub.train.finetune import ASKED, finetune
from ssl_hub.train.loop import pretrain


def resume(
    folder: str | Path,
    *,
    allow_change: Sequence[str] = (),
    overrides: Mapping[str, Any] | None = None,
    show_progress: bool = False,
) -> Path:
    """Go on with a run of pre-training or fine-tuning from its newest checkpoint, exactly; nothing where it is
    finished.

    Args:
        folder: the run, or its name in the store.
        allow_change: as in :func:`~ssl_hub.train.loop.pretrain`.
        overrides: settings of pre-training that differ from the run's from here on: each named in ``allow_change``, but
            for those of ``runtime``.
        show_progress: of fine-tuning, which takes neither of the two.

    Returns:
        The run folder.

    Raises:
        UsageError: no run there, or as the command that started it.
        Interrupted: as the command that started it.
    """
    found = store.run_folder(folder)
    if "finetuned_from" not in (facts := read_facts(found)):
        return pretrain(None, output=found, resume="auto", allow_change=allow_change, overrides=dict(overrides or {}))
    if overrides or allow_change:
        raise UsageError(f"{found} is a fine-tuned model's: it goes on with the settings that it has, or not at all")
    if ASKED not in facts:
        raise UsageError(f"{found} was written by an older ssl_hub: give the command that started it --resume")
    return finetune(**facts[ASKED], output=found, resume="auto", show_progress=show_progress)[0]
