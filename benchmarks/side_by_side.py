"""Times of several ways to do one thing, taken in turn, so that a busy machine slows all of them alike."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any

import torch


def one_thread() -> None:
    """Keep to one core in every library: what follows is compared per core, in this process's own time."""
    torch.set_num_threads(1)
    try:
        import cv2

        cv2.setNumThreads(1)
    except ImportError:
        pass


def least_seconds(ways: dict[str, Callable[[], Any]], *, repeats: int, wall: bool = False) -> dict[str, float]:
    """The least time of each way over ``repeats`` rounds in turn: of this process, or of the ``wall`` clock."""
    clock = time.perf_counter if wall else time.process_time
    found = dict.fromkeys(ways, float("inf"))
    for _ in range(repeats):
        for name, way in ways.items():
            began = clock()
            way()
            found[name] = min(found[name], clock() - began)
    return found


def machine(*packages: str) -> str:
    """The machine, the threads and the versions that a table was measured with."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", *packages))
    return f"{platform.machine()}, {cores} cores, {torch.get_num_threads()} thread(s), {versions}"


def version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def print_table(header: list[str], rows: list[list[Any]]) -> None:
    """A markdown table; floats in three figures or whole."""

    def text(cell: Any) -> str:
        if not isinstance(cell, float):
            return str(cell)
        return f"{cell:,.0f}" if abs(cell) >= 100 else f"{cell:.3g}"

    print("| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(map(text, row)) + " |")
    print(flush=True)
