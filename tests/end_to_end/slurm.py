"""Stands in for ``srun`` and ``scontrol`` of Slurm, as far as recipes/slurm uses them; see test_slurm.

``srun [OPTIONS] bash ...`` starts SLURM_NTASKS tasks on this machine and exits with the highest of their codes, after
SIGTERM to the others where one fails and ``--kill-on-bad-exit=1`` was given. ``scontrol show hostnames`` names this
machine, and ``scontrol requeue`` writes to the file $REQUEUED.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def srun(arguments: list[str]) -> int:
    options = arguments[: arguments.index("bash")]
    tasks = [
        subprocess.Popen(
            arguments[len(options) :], env={**os.environ, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)}
        )
        for rank in range(int(os.environ["SLURM_NTASKS"]))
    ]
    running, ending = list(tasks), "--kill-on-bad-exit=1" not in options
    while running:
        time.sleep(0.02)
        running = [task for task in running if task.poll() is None]
        if not ending and any(task.poll() for task in tasks):
            ending = True
            for task in running:
                task.send_signal(signal.SIGTERM)
    return max(128 - task.returncode if task.returncode < 0 else task.returncode for task in tasks)


def scontrol(arguments: list[str]) -> int:
    match arguments:
        case ["show", "hostnames", _]:
            print("localhost")
        case ["requeue", job]:
            with Path(os.environ["REQUEUED"]).open("a", encoding="utf-8") as file:
                file.write(f"{job}\n")
        case _:
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit({"srun": srun, "scontrol": scontrol}[sys.argv[1]](sys.argv[2:]))
