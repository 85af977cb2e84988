"""What stands beside a number so that others can judge it: which weights, which images, on what, and for how long."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ssl_hub.data.fingerprint import fingerprint
from ssl_hub.data.overlap import Overlap
from ssl_hub.data.sources import Source
from ssl_hub.evaluate.overlap import is_tolerated
from ssl_hub.evaluate.work import Work
from ssl_hub.hub.weights import sha256_of
from ssl_hub.model.results import Result

HASH = 16  # digits of the weights' hash that are recorded


class Recorder:
    """Made before an evaluation, it completes the results of it with what they rest on.

    ``model`` is the frozen backbone, None for one that was fitted itself; ``began`` is the monotonic time at which the
    work began, where that was earlier; ``dealt_by`` the seed that chose the images, which is recorded where the
    protocol draws nothing.
    """

    def __init__(
        self,
        model: nn.Module | None,
        fitted: Source,
        judged: Source,
        shared: Overlap,
        work: Work,
        *,
        began: float | None = None,
        dealt_by: int | None = None,
    ) -> None:
        self._began = time.monotonic() if began is None else began
        self._dealt_by = dealt_by
        self._device, self._processes = work.device, work.world
        self.facts: dict[str, Any] = {
            "overlap": shared.images,
            "published": is_tolerated(shared, fitted, judged),
            "data": {"fitted": fingerprint(fitted)[:HASH], "judged": fingerprint(judged)[:HASH]},
            "backbone": None if model is None else sha256_of(model.state_dict())[:HASH],
        }

    def complete(self, results: Sequence[Result]) -> list[Result]:
        ran_on = {
            "device": device_name(self._device),
            "threads": torch.get_num_threads(),
            "processes": self._processes,
            "seconds": round(time.monotonic() - self._began, 1),
        }
        return [
            replace(r, seed=self._dealt_by if r.seed is None else r.seed, ran_on=ran_on, **self.facts) for r in results
        ]


def device_name(device: torch.device) -> str:
    """The make of a GPU, or of the processor."""
    if device.type == "cpu":
        return _processor()
    module = torch.get_device_module(device)
    return module.get_device_name(device) if hasattr(module, "get_device_name") else f"{device.type} of {_processor()}"


@cache
def _processor() -> str:
    try:  # where Linux names it; platform.processor() is empty there
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
