"""Which of several processes this is, by what launchers say, and its share of the cores; nothing here imports torch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

LEFT_READING = "left reading"  # name of a thread whose read did not end in time


def typed(words: Sequence[str]) -> list[str]:
    """The words of a command as one types them: Python puts the path of a module's file in the place of ``-m``."""
    ours = Path(words[0]).parts[-2:] == ("ssl_hub", "__main__.py")
    return ["python", "-m", "ssl_hub", *words[1:]] if ours else [*words]


def speaks() -> bool:
    """Whether this process prints and publishes: the only one, or the first of several (a ``RANK`` left over says
    nothing alone)."""
    rank, world = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    if not rank.isdecimal() or not world.isdecimal() or int(rank) >= int(world):
        return True  # nobody else would say what is wrong with these
    return int(rank) == 0


def complains() -> bool:
    """Whether this process says what is wrong: the one that speaks, and each of those that cannot meet it, for the
    environment has half of what a launcher sets."""
    return speaks() or not {"LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()


def local_processes() -> int:
    """How many processes of this run share the machine; all of them where the launcher does not say."""
    said = os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("WORLD_SIZE", "1")
    return max(int(said), 1) if said.isdecimal() else 1


def share_of_cores(launched_on: int | None = None) -> int:
    """Cores for this process, at least one: those of the machine, or of the quota that its processes share, divided by
    them, and none that it may not run on. ``launched_on`` is how many the launcher may run on, which may have bound
    each process to some of them."""
    mine = _allowed_cores()
    together = min([max(mine, launched_on or 0), *_quotas()])
    return max(min(mine, int(together / local_processes())), 1)


def _allowed_cores() -> int:
    if hasattr(os, "process_cpu_count"):  # from Python 3.13 on; heeds PYTHON_CPU_COUNT
        return os.process_cpu_count() or 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _quotas(groups: Path = Path("/proc/self/cgroup"), mounted: Path = Path("/sys/fs/cgroup")) -> Iterator[float]:
    """Limits of processor time to the time that passes, of each control group that this process is in (Linux).

    Both versions of cgroups, and groups above its own. In a container the path may be that of the host, of which the
    container sees the last part alone, mounted at the top.
    """
    try:
        lines = _read(groups).splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = mounted / "cpu" if controllers else mounted
        below = Path(path.strip("/"))
        for folder in (top / below, *(top / part for part in below.parents)):
            try:
                if controllers:
                    quota, period = (_read(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
                else:
                    quota, period = _read(folder / "cpu.max").split()
            except (OSError, ValueError):
                continue
            if quota.isdecimal() and period.isdecimal() and int(period) > 0:  # else "max", or -1
                yield int(quota) / int(period)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")
