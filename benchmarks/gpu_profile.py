"""Where the time of a training step goes: torch's profiler over some steps, and what its trace says in sum.

On a GPU: kernels and their launches, waits of the host, the share of a step in which the device has nothing to do, and
the kernels that take longest. On a CPU, operators by the time that is their own.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from ssl_hub.config import Recipe
from ssl_hub.train.job import Job
from ssl_hub.train.prepare import prepare

Events = list[dict[str, Any]]
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
OF_HOST = ("cuda_runtime", "cuda_driver")
CALLS = {
    "kernel_launches": re.compile(r"(cuda|cu|hip)Launch(Cooperative)?Kernel|hipModuleLaunchKernel|hipExtModule"),
    "graph_launches": re.compile(r"(cuda|cu|hip)GraphLaunch"),
    "waits_of_the_host": re.compile(r"(cuda|cu|hip)(Device|Stream|Event)Synchronize|(cuda|cu|hip)Memcpy(?!.*Async)"),
}
LONGEST = 10


def profiled(recipe: Recipe, *, steps: int, warm_up: int) -> dict[str, Any]:
    """Steps of a run that is thrown away: ``warm_up`` of them, then ``steps`` timed and ``steps`` in the profiler."""
    with (
        tempfile.TemporaryDirectory() as folder,
        prepare(recipe, Path(folder) / "run", resume=False, overwrite=False, allow_change=()) as job,
    ):
        batches = job.batches()
        begun = time.perf_counter()
        take(job, batches, warm_up)
        warm = time.perf_counter() - begun
        begun = time.perf_counter()
        take(job, batches, steps)
        seconds = (time.perf_counter() - begun) / steps
        on_gpu = job.accelerator.device.type == "cuda"
        with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]) as recorded:
            take(job, batches, steps)
        trace = Path(folder) / "trace.json"
        recorded.export_chrome_trace(str(trace))
        job.loader.close()
        events = json.loads(trace.read_text())["traceEvents"]
    return {
        "recipe": recipe.name,
        "steps": steps,
        "batch_size": recipe.train.batch_size,
        "compile": recipe.runtime.compile,
        "warm_up_steps": warm_up,
        "warm_up_seconds": warm,
        "step_ms": 1e3 * seconds,  # without the profiler
        "images_per_second": recipe.train.batch_size / seconds,
        "graphs_left_out": left_out(),
        **in_sum(events, steps=steps, step_seconds=seconds),
    }


def take(job: Job, batches: Iterable[Any], steps: int) -> None:
    """Steps as the training loop takes them, and a wait for the device at the end."""
    for micro_batches in islice(batches, steps):
        job.trainer.advance(micro_batches)
    job.trainer.settle()
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


def left_out() -> int:
    """CUDA graphs that torch was asked for and did not make."""
    from torch._dynamo.utils import counters

    return int(counters["inductor"]["cudagraph_skips"])


def in_sum(events: Events, *, steps: int, step_seconds: float) -> dict[str, Any]:
    """What a trace says of one step. ``step_seconds`` is that of a step outside the profiler, which slows the host."""
    spans = [event for event in events if event.get("ph") == "X"]
    on_device = [event for event in spans if event.get("cat") in ON_DEVICE]
    if not on_device:
        own = own_times([event for event in spans if event.get("cat") == "cpu_op"])
        return {
            "device": "cpu: no kernels, launches or idle share",
            "operators": sum(len(times) for times in own.values()) / steps,
            "longest": longest(own, steps),
        }
    calls = [event["name"] for event in spans if event.get("cat") in OF_HOST]
    by_name: dict[str, list[float]] = defaultdict(list)
    for event in on_device:
        by_name[event["name"]].append(float(event["dur"]))
    busy = union((float(event["ts"]), float(event["ts"]) + float(event["dur"])) for event in on_device)
    starts, ends = zip(*((float(e["ts"]), float(e["ts"]) + float(e["dur"])) for e in on_device), strict=True)
    return {
        "kernels": sum(event["cat"] == "kernel" for event in on_device) / steps,
        **{what: sum(map(bool, map(pattern.match, calls))) / steps for what, pattern in CALLS.items()},
        "busy_ms": busy / 1e3 / steps,
        "idle_share": max(0.0, 1 - busy / 1e6 / (steps * step_seconds)),
        "idle_share_in_the_profiler": 1 - busy / (max(ends) - min(starts)),
        "longest": longest(by_name, steps),
    }


def union(intervals: Iterable[tuple[float, float]]) -> float:
    """The length of what the intervals cover together: kernels of several streams overlap."""
    covered, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        covered += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return covered


def own_times(spans: Events) -> dict[str, list[float]]:
    """Of each operator's calls, the microseconds that are not those of another one within it."""
    found: dict[str, list[float]] = defaultdict(list)
    threads: dict[Any, Events] = defaultdict(list)
    for event in spans:
        threads[event["tid"]].append(event)
    for thread in threads.values():
        open_calls: list[list[Any]] = []  # [end, name, own microseconds]
        for event in sorted(thread, key=lambda e: (float(e["ts"]), -float(e["dur"]))):
            start, duration = float(event["ts"]), float(event["dur"])
            while open_calls and open_calls[-1][0] <= start:
                _, name, own = open_calls.pop()
                found[name].append(own)
            if open_calls:
                open_calls[-1][2] -= duration
            open_calls.append([start + duration, event["name"], duration])
        for _, name, own in open_calls:
            found[name].append(own)
    return found


def longest(by_name: dict[str, list[float]], steps: int) -> list[dict[str, Any]]:
    """The names that take most of a step, of microseconds by name."""
    whole = sum(map(sum, by_name.values()))
    ranked = sorted(by_name.items(), key=lambda item: -sum(item[1]))[:LONGEST]
    return [
        {"name": name, "ms": sum(t) / 1e3 / steps, "calls": len(t) / steps, "share": sum(t) / whole}
        for name, t in ranked
    ]
