"""What the launcher did, against what the user asked for: threads and processes."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
import torch
from accelerate import Accelerator

from ssl_hub.errors import UsageError

# A program's name, or a module of the launchers' packages however Python was told to run it.
LAUNCHERS = re.compile(r"(^|/)((accelerate|accelerate-launch|torchrun)$|accelerate[./]commands|torch[./]distributed)")

NUMBERS, ADDRESS = ("RANK", "LOCAL_RANK", "WORLD_SIZE"), ("MASTER_ADDR", "MASTER_PORT")  # variables of torch's launcher


class Launcher(NamedTuple):
    """The ``accelerate launch`` or ``torchrun`` process that started this one."""

    arguments: list[str]
    environment: dict[str, str]


def find_launcher() -> Launcher | None:
    """The launcher among this process's two nearest ancestors, or None when started without one."""
    try:
        for parent in psutil.Process().parents()[:2]:
            arguments = parent.cmdline()
            if any(LAUNCHERS.search(word) for word in arguments):
                return Launcher(arguments, parent.environ())
    except (psutil.Error, OSError):  # another user's process, or a platform that hides it
        pass
    return None


def open_accelerator(tracker: str | None = None, folder: Path | None = None) -> Accelerator:
    """accelerate's view of this process; several CPU processes under ``torchrun`` are joined too.

    Without ``cpu=True`` accelerate (1.15) would make each of them a run of its own, all writing to one folder.
    """
    if tracker is not None and importlib.util.find_spec(tracker) is None:
        raise UsageError(f"tracker {tracker!r} is not installed; pip install {tracker}, or set runtime.tracker=none")
    started = _started()
    accelerator = Accelerator(cpu=not torch.accelerator.is_available(), log_with=tracker, project_dir=folder)
    if started != accelerator.num_processes:
        raise UsageError(f"{started} processes were started and accelerate joined {accelerator.num_processes} of them")
    return accelerator


def _started() -> int:
    """How many processes the environment says there are. Raises UsageError for half of what a launcher sets."""
    given = {name: os.environ[name] for name in NUMBERS if name in os.environ}
    for name, value in given.items():
        if not value.isdecimal():
            raise UsageError(f"the environment has {name}={value!r}, expected a number; unset it, or use a launcher")
    started = int(given.get("WORLD_SIZE", 1))
    missing = [name for name in (*NUMBERS, *ADDRESS) if name not in os.environ]
    if missing and (started != 1 or "LOCAL_RANK" in given):
        found = ", ".join(f"{name}={value}" for name, value in given.items())
        raise UsageError(
            f"the environment has {found} and no {', '.join(missing)}: start with torchrun or accelerate launch, which"
            f" set all of them, or unset {', '.join(given)}"
        )
    return started


def end_with(launcher: Launcher | None) -> None:
    """Have the kernel send SIGTERM, on which a run saves and stops, should the launcher die before this process.

    ``accelerate launch`` (1.15) does not pass SIGTERM on: a scheduler that signals it alone would leave the training
    running without it. Linux only; elsewhere nothing happens.
    """
    if launcher is not None and sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)


def set_threads(launcher: Launcher | None, local_processes: int) -> int:
    """Use every core unless the user chose otherwise; returns torch's number of threads.

    ``accelerate launch`` and ``torchrun`` set OMP_NUM_THREADS=1 when the user set nothing, which would leave the other
    cores idle. What the user set reaches us through the launcher's own environment or arguments.
    """
    chosen = os.environ.get("OMP_NUM_THREADS")
    if chosen == "1" and launcher is not None:
        by_argument = any("num_cpu_threads_per_process" in word.replace("-", "_") for word in launcher.arguments)
        chosen = chosen if by_argument else launcher.environment.get("OMP_NUM_THREADS")
    if chosen is None:
        torch.set_num_threads(max(available_cores() // local_processes, 1))
    return torch.get_num_threads()


@contextmanager
def joined() -> Iterator[Accelerator]:
    """accelerate's view of this process, for a command that leaves no run: every core at work, and what is amiss said.

    Processes that end normally part here; one that fails leaves it to the launcher to end the others.
    """
    launcher, accelerator = find_launcher(), open_accelerator()
    end_with(launcher)
    set_threads(launcher, accelerator.num_processes if accelerator.device.type == "cpu" else 1)
    warning = missing_processes(launcher, accelerator.num_processes)
    if warning is not None and accelerator.is_main_process:
        print(f"warning: {warning}", file=sys.stderr)
    yield accelerator
    accelerator.end_training()


def available_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def missing_processes(launcher: Launcher | None, running: int) -> str | None:
    """What to say when the launcher was asked for more processes than run, else None.

    ``accelerate launch --cpu --num_processes 2`` (1.15) starts one process without a word.
    """
    if launcher is None:
        return None
    asked = None
    for flag, value in zip(launcher.arguments, [*launcher.arguments[1:], ""], strict=True):
        name, _, inline = flag.replace("-", "_").partition("=")
        if name in ("__num_processes", "__nproc_per_node") and (inline or value).isdigit():
            asked = int(inline or value)
    if asked is None or asked <= running:
        return None
    return (
        f"the launcher was asked for {asked} processes and {running} runs; for several CPU processes use"
        f" torchrun --nproc_per_node {asked} {sys.argv[0]} ..."
    )


def check_micro_batch(images: int, accelerator: Accelerator, *, sync_bn: bool) -> None:
    """Raise UsageError where BN would have one image at a time: on a process or, where it is synchronised, on all."""
    processes = accelerator.num_processes
    together = processes if sync_bn and accelerator.device.type == "cuda" else 1
    if images * together < 2:
        raise UsageError(
            f"train.batch_size leaves {images} image at a time to each of {processes} process(es), and batch"
            " normalisation needs 2; raise train.batch_size or lower train.accumulation"
        )
