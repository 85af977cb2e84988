"""What stands beside a number measured on a GPU, and the file that it is written to."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from ssl_hub.evaluate.record import device_name
from ssl_hub.model.devices import usual_device
from ssl_hub.model.results import installed_versions
from ssl_hub.train.run import git_commit

RESULTS = Path(__file__).parent / "results"
PRECISION = "ACCELERATE_MIXED_PRECISION"


def facts(*, seed: int, small: str | None) -> dict[str, Any]:
    """The machine, the versions and the command. ``small`` is why the numbers are a proof of the script alone."""
    return {
        **({} if small is None else {"small": f"{small}: this proves the script and measures nothing"}),
        "card": device_name(usual_device()),
        "driver": driver(),
        "cuda": torch.version.cuda if torch.cuda.is_available() else None,
        "cudnn": torch.backends.cudnn.version() if torch.cuda.is_available() else None,
        "versions": installed_versions(),
        "precision": os.environ.get(PRECISION, "no"),
        "threads": torch.get_num_threads(),
        "git_commit": git_commit(),
        "command": shlex.join(["python", *sys.argv]),
        "seed": seed,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def driver() -> str | None:
    """The version of NVIDIA's driver; None where there is none to ask."""
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(done.stdout.split()), None)


def default_file(kind: str) -> Path:
    """``results/gpu-cifar10-nvidia-h100-80gb-hbm3.json``."""
    card = re.sub(r"[^a-z0-9]+", "-", device_name(usual_device()).lower()).strip("-")
    return RESULTS / f"gpu-{kind}-{card}.json"


def write(found: dict[str, Any], file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(found, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    print(f"written: {file}", file=sys.stderr)
