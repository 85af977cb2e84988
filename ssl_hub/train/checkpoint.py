"""Resumable states: written whole beside training, pruned, put back into a trainer. What reads them is the model's."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object

from ssl_hub.atomic import replace_file
from ssl_hub.errors import UsageError
from ssl_hub.model.checkpoints import FORMAT, without
from ssl_hub.model.checkpoints import existing as existing
from ssl_hub.model.checkpoints import load as load
from ssl_hub.model.devices import generator_state, set_generator_state
from ssl_hub.stopping import is_noted
from ssl_hub.train.together import agreed, on_main
from ssl_hub.train.writing import copied, writing

ALMOST_NOTHING = 2**20  # bytes that are left of a disk where a write has failed because it is full


class Resumable(Protocol):
    """What a checkpoint is the state of."""

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def save(
    folder: Path,
    state: dict[str, Any],
    accelerator: Accelerator,
    *,
    keep: int,
    permanent: bool = False,
    last: bool = False,
    then: Callable[[], object] = lambda: None,
) -> bool:
    """Write the state of this step, with every process's random state. Collective.

    A copy is written while the caller goes on, once the write before has ended; what that one raised is raised here.
    The ``last`` is written before this returns. When the new one is whole, ``then`` is called, and of the others only
    the newest ``keep`` stay, and those that were saved as ``permanent``.

    Returns whether a signal to stop was noted on any process by then, as while the write before was waited for: then
    this one is whole, and the caller can stop where it stands instead of writing once more.
    """
    random_states = gather_object([random_state(accelerator.device)])
    path = folder / f"step-{state['step']:08d}{'-kept' if permanent else ''}.pt"

    def write(whole: dict[str, Any]) -> None:
        replace_file(path, lambda aside: _write(whole, aside))
        for old in existing(folder)[:-keep]:
            if not old.stem.endswith("-kept"):
                old.unlink(missing_ok=True)
        then()

    def act() -> None:
        writing.wait()
        whole = {"format": FORMAT, **state, "random": random_states}
        if last:
            write(whole)
        else:
            copy = copied(whole)
            writing.begin(lambda: write(copy))

    on_main(accelerator, act)
    noted = agreed(accelerator, [is_noted()])[0]
    if noted:
        on_main(accelerator, writing.wait)
    return noted


def _write(whole: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(exist_ok=True)  # not the run's own folder: where that is gone, the run is
    try:
        torch.save(whole, path)
    except RuntimeError as error:  # what torch makes of a full disk
        full = shutil.disk_usage(path.parent).free < ALMOST_NOTHING
        raise OSError(os.strerror(errno.ENOSPC) if full else str(error).splitlines()[0]) from error


def restore(folder: Path, trainer: Resumable, accelerator: Accelerator) -> dict[str, Any] | None:
    """Put a trainer, and this process's random state, where the newest checkpoint in ``folder`` left them.

    Returns the whole state, or None where there is no checkpoint yet: the run starts again. Raises UsageError where the
    file is damaged or of another run.
    """
    saved = existing(folder)
    if not saved:
        return None
    path = saved[-1]
    state = load(path)
    try:
        trainer.load_state_dict(state)
        # On another number of processes the streams are not those of before: they matter for dropout and drop-path.
        if len(state["random"]) == accelerator.num_processes:
            set_random_state(state["random"][accelerator.process_index], accelerator.device)
    except (RuntimeError, LookupError, ValueError, TypeError, AttributeError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error).splitlines()[0][:160]
        raise UsageError(f"the checkpoint {path} is not of this run ({reason}); {without(path)}") from None
    return state


def random_state(device: torch.device) -> dict[str, Any]:
    """This process's torch generators. (Data order and views are pure functions of the seed and need no state.)"""
    state: dict[str, Any] = {"cpu": torch.get_rng_state()}
    if (own := generator_state(device)) is not None:
        state[device.type] = own
    return state


def set_random_state(state: dict[str, Any], device: torch.device) -> None:
    torch.set_rng_state(state["cpu"])
    if device.type != "cpu" and device.type in state:
        set_generator_state(device, state[device.type])
