"""What the launcher did, against what the user asked for: threads and processes."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import torch
from accelerate import Accelerator
from accelerate.utils import GradientAccumulationPlugin, InitProcessGroupKwargs
from torch.distributed import PrefixStore, Store, rendezvous  # type: ignore[attr-defined]
from torch.distributed.rendezvous import register_rendezvous_handler

from ssl_hub.config import Compile
from ssl_hub.errors import UsageError
from ssl_hub.model.devices import can_replay, can_synchronise_bn
from ssl_hub.model.siamese import REPLAYING
from ssl_hub.processes import share_of_cores, typed
from ssl_hub.stopping import end_with_parent
from ssl_hub.train.launch_check import check_accelerator, check_compilation, check_environment
from ssl_hub.train.together import together

# A program's name, or a module of the launchers' packages however Python was told to run it.
LAUNCHERS = re.compile(r"(^|/)((accelerate|accelerate-launch|torchrun)$|accelerate[./]commands|torch[./]distributed)")


class Launcher(NamedTuple):
    """The ``accelerate launch`` or ``torchrun`` process that started this one."""

    arguments: list[str]
    environment: dict[str, str]
    process: str = ""  # its number and when it was started, which no other process shares
    cores: int | None = None  # that it may run on, where that can be asked


def find_launcher() -> Launcher | None:
    """The launcher among this process's two nearest ancestors, or None when started without one."""
    try:
        for parent in psutil.Process().parents()[:2]:
            arguments = parent.cmdline()
            if any(LAUNCHERS.search(word) for word in arguments):
                cores = len(parent.cpu_affinity()) if hasattr(parent, "cpu_affinity") else None
                return Launcher(arguments, parent.environ(), f"{parent.pid}@{parent.create_time()}", cores)
    except (psutil.Error, OSError):  # another user's process, or a platform that hides it
        pass
    return None


def job_id(launcher: Launcher | None) -> str | None:
    """A short hash of what stays the same when torchrun or Slurm starts this process again; None without either."""
    name = os.environ.get("SLURM_JOB_ID") or (launcher.process if launcher is not None else "")
    return hashlib.sha256(name.encode()).hexdigest()[:12] if name else None


def is_restart() -> bool:
    """Whether torchrun or Slurm has started this job before."""
    counts = (os.environ.get(name, "") for name in ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"))
    return any(count.isdecimal() and int(count) > 0 for count in counts)


def open_accelerator(tracker: str | None = None, folder: Path | None = None) -> Accelerator:
    """accelerate's view of this process; several CPU processes under ``torchrun`` are joined too.

    Without ``cpu=True`` accelerate (1.15) would make each of them a run of its own, all writing to one folder. Raises
    UsageError for a launch that :mod:`~ssl_hub.train.launch_check` does not accept.
    """
    if tracker is not None and importlib.util.find_spec(tracker) is None:
        raise UsageError(f"tracker {tracker!r} is not installed; pip install {tracker}, or set runtime.tracker=none")
    started = check_environment()
    try:
        accelerator = Accelerator(
            cpu=not torch.accelerator.is_available(),
            log_with=tracker,
            project_dir=folder,
            gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=1),
            kwargs_handlers=[InitProcessGroupKwargs(init_method=f"{THIS_START}://")] if started > 1 else None,
        )
    except NotImplementedError as error:  # a RuntimeError too
        raise _unable(error) from error
    except RuntimeError as error:
        if started == 1:
            raise
        raise UsageError(f"the {started} processes did not find each other: {str(error).splitlines()[0]}") from error
    except (ValueError, ImportError) as error:
        raise _unable(error) from error
    check_accelerator(accelerator, started=started)
    return accelerator


def _unable(error: Exception) -> UsageError:
    return UsageError(f"accelerate cannot do what it is configured for: {str(error).splitlines()[0]}")


def _meet(url: str, **options: Any) -> Iterator[tuple[Store, int, int]]:
    """torch's rendezvous by the environment, at which a process finds those that were started with it.

    torchrun (torch 2.14) may keep its store when it starts processes again; under one name for all starts, one that is
    early finds the address of a process of the start before, and waits for it in vain.
    """
    start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    for store, rank, world in rendezvous(url.replace(THIS_START, "env", 1), **options):
        yield PrefixStore(f"start {start}", store), rank, world


THIS_START = "ssl-hub-start"
register_rendezvous_handler(THIS_START, _meet)


def end_with(launcher: Launcher | None) -> None:
    """Have the kernel send SIGTERM, on which a run saves and stops, should the launcher die before this process.

    ``accelerate launch`` (1.15) does not pass SIGTERM on: a scheduler that signals it alone would leave the training
    running without it. Linux only; elsewhere nothing happens.
    """
    if launcher is not None:
        end_with_parent(signal.SIGTERM)


def set_threads(launcher: Launcher | None, *, beside: int = 0) -> int:
    """Use this process's share of the cores unless the user chose otherwise; returns torch's number of threads.

    ``torchrun`` (of several processes) and ``accelerate launch`` set OMP_NUM_THREADS=1 when the user set nothing, which
    would leave the other cores idle. What the user set reaches us through the launcher's own environment or arguments.
    ``beside`` cores are left to workers, which is for accelerators: on a CPU, workers sleep most of the time.
    """
    chosen = os.environ.get("OMP_NUM_THREADS")
    if chosen == "1" and launcher is not None:
        by_argument = any("num_cpu_threads_per_process" in word.replace("-", "_") for word in launcher.arguments)
        chosen = chosen if by_argument else launcher.environment.get("OMP_NUM_THREADS")
    if chosen is None:
        torch.set_num_threads(max(share_of_cores(None if launcher is None else launcher.cores) - beside, 1))
    return torch.get_num_threads()


@contextmanager
def joined() -> Iterator[Accelerator]:
    """accelerate's view of this process, for a command that leaves no run: every core at work, and what is amiss said.

    Processes part here, those that end normally and those that fail.
    """
    launcher, accelerator = find_launcher(), open_accelerator()
    end_with(launcher)
    set_threads(launcher)
    warning = missing_processes(launcher, accelerator.num_processes)
    if warning is not None and accelerator.is_main_process:
        print(f"warning: {warning}", file=sys.stderr)
    with together(accelerator):
        yield accelerator
        accelerator.end_training()


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
        f" torchrun --nproc_per_node {asked} {' '.join(typed(sys.argv[:1])).removeprefix('python ')} ..."
    )


def synchronises(accelerator: Accelerator, sync_bn: bool) -> bool:
    """Whether batch normalisation is synchronised over processes: asked for, with several, on a device that can."""
    return sync_bn and accelerator.num_processes > 1 and can_synchronise_bn(accelerator.device)


def processes_of_bn(accelerator: Accelerator, sync_bn: bool, group: int) -> int:
    """How many processes share the statistics of batch normalisation; ``group`` is ``train.sync_bn_group``.

    Raises UsageError for groups that the processes do not divide into.
    """
    processes = accelerator.num_processes
    if not synchronises(accelerator, sync_bn):
        return 1
    if group == 0 or group >= processes:
        return processes
    if processes % group:
        raise UsageError(
            f"train.sync_bn_group is {group}, and {processes} processes do not divide into such groups; expected 0 (all"
            " of them together) or a divisor"
        )
    return group


@contextmanager
def kernels(tf32: str, *, cudnn_benchmark: bool) -> Iterator[None]:
    """Context in which torch computes as ``runtime.tf32`` and ``runtime.cudnn_benchmark`` say."""
    cudnn, before = torch.backends.cudnn, torch.get_float32_matmul_precision()
    was = cudnn.allow_tf32, cudnn.benchmark
    torch.set_float32_matmul_precision("high" if tf32 == "all" else "highest")
    cudnn.allow_tf32, cudnn.benchmark = tf32 != "none", cudnn_benchmark
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        cudnn.allow_tf32, cudnn.benchmark = was


def check_micro_batch(images: int, accelerator: Accelerator, *, sync_bn: bool, group: int = 0) -> None:
    """Raise UsageError where BN would have one image at a time: on a process or, where it is synchronised, on all."""
    processes = accelerator.num_processes
    if images * processes_of_bn(accelerator, sync_bn, group) < 2:
        raise UsageError(
            f"train.batch_size leaves {images} image at a time to each of {processes} process(es), and batch"
            " normalisation needs 2; raise train.batch_size or lower train.accumulation"
        )


def check_replays(compiled: Compile, accelerator: Accelerator, *, accumulation: int) -> bool | None:
    """Whether CUDA graphs are replayed on this device; None where ``runtime.compile`` asks for none.

    Raises UsageError where torch has been told not to compile; where a step would read what a later replay has
    overwritten (the gradients of the micro-batches before the last), or where graphs would hold what processes send
    each other, which nobody has tried.
    """
    if compiled:
        check_compilation()
    if compiled not in REPLAYING:
        return None
    processes = accelerator.num_processes
    if accumulation > 1 or processes > 1:
        found = f"train.accumulation is {accumulation}" if accumulation > 1 else f"there are {processes} processes"
        raise UsageError(
            f"runtime.compile is {compiled!r}, which replays CUDA graphs, and {found}; expected one process without"
            " accumulation: set runtime.compile=true, or max-autotune-no-cudagraphs"
        )
    return can_replay(accelerator.device)
