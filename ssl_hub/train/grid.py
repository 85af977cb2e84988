"""Many runs as processes of their own, some at a time, one bar over the whole; what is finished is not run again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tqdm import tqdm

from ssl_hub.atomic import make_folder
from ssl_hub.data.sources import SOURCES
from ssl_hub.errors import UsageError
from ssl_hub.model.files import HASHES
from ssl_hub.model.metrics import read_metrics
from ssl_hub.model.results import Result, append_results
from ssl_hub.registry import MOST_SHOWN
from ssl_hub.stopping import REQUEUE, STOPPING, Interrupted, StopSignal
from ssl_hub.train.lock import handed_on

COMMAND = (sys.executable, "-m", "ssl_hub.cli")
POLL_SECONDS = 1.0
DONE = "done"
STOPPED = (REQUEUE, *(-number for number in STOPPING))  # exit codes of a process that a signal ended
MINUTES_BETWEEN_LINES = 5  # where the bar goes to a file
LAST_BYTES = 4096  # of a log, that its last line is looked for in


@dataclass(frozen=True, kw_only=True)
class Task:
    """One process: ``arguments`` of ``ssl-hub``, and what in ``folder`` says that it is done.

    ``steps`` weigh it in the bar, and the training log in the folder says how many are done. A task with
    ``prints_results`` writes results to standard output, which are put in the folder.
    """

    name: str
    arguments: tuple[str, ...]
    folder: Path
    done: Callable[[], bool]
    steps: int = 1
    prints_results: bool = False

    @property
    def log(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.log")

    @property
    def printed(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.json")

    def steps_done(self) -> int:
        if self.done():
            return self.steps
        records = read_metrics(self.folder) if self.steps > 1 else []
        return min(int(records[-1]["step"]), self.steps) if records else 0

    def last_words(self) -> str:
        """The last line of its log; empty where it was never started."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - LAST_BYTES))
                lines = log.read().decode(errors="replace").split("\n")
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


@dataclass(frozen=True, kw_only=True)
class Point:
    """A recipe with settings, trained in ``folder`` from several seeds: a run for each. ``steps`` are each one's."""

    name: str
    folder: Path
    recipe: str
    settings: Mapping[str, object]
    data: str | None = None  # None: the recipe's
    steps: int = 1

    def run(self, seed: int) -> Path:
        return self.folder / f"seed-{seed}"

    def training(self, seed: int) -> Task:
        """Begins the run of a seed, or goes on with it."""
        run, settings = self.run(seed), {**self.settings, "train.seed": seed}
        return Task(
            name=f"{self.name}, seed {seed}",
            arguments=(
                *("train", self.recipe, *(f"{key}={text(value)}" for key, value in settings.items())),
                *(() if self.data is None else ("--data", self.data)),
                *("--output", str(run), "--resume", "auto"),
            ),
            folder=run,
            done=partial(is_trained, run),
            steps=self.steps,
        )


def trainings(points: Sequence[Point], seeds: int) -> list[Task]:
    """All points with one seed before the next, so that a table fills evenly."""
    return [point.training(seed) for seed in range(seeds) for point in points]


def text(value: object) -> str:
    """A setting's value as a command line takes it."""
    return value if isinstance(value, str) else json.dumps(value)


def refuse_failed(tasks: Sequence[Task]) -> None:
    """Raise UsageError, which names their logs, where there are any."""
    if tasks:
        logs = ", ".join(str(task.log) for task in tasks[:MOST_SHOWN])
        more = f" and {len(tasks) - MOST_SHOWN} more" if len(tasks) > MOST_SHOWN else ""
        raise UsageError(f"{len(tasks)} runs did not end well, see {logs}{more}; the same command tries them again")


def is_trained(run: Path) -> bool:
    """Whether the run there has left its release and its measurements."""
    return (run / HASHES).is_file()  # written last


def findable(data: str) -> str:
    """What data is called in the arguments of tasks: a path as it is found from anywhere, and later."""
    return data if not data or data in SOURCES or not Path(data).exists() else str(Path(data).resolve())


def work_through(tasks: Sequence[Task], *, at_once: int, lock: int, show_progress: bool = True) -> list[Task]:
    """Run the unfinished tasks, ``at_once`` at a time, on one thread each unless OMP_NUM_THREADS says otherwise.

    A signal stops all of them, each saved where it stands; raises Interrupted then. Returns the tasks that failed, or
    were stopped by somebody else.
    """
    waiting = [task for task in tasks if not task.done()]
    running: dict[subprocess.Popen[bytes], Task] = {}
    failed: list[Task] = []
    taken = {task.name: task.steps_done() for task in tasks}
    with StopSignal() as stop, _bar(tasks, sum(taken.values()), show_progress) as bar:
        try:
            while (waiting or running) and not stop:
                while waiting and len(running) < at_once:
                    task = waiting.pop(0)
                    running[_started(task, lock)] = task
                time.sleep(POLL_SECONDS)
                ended = [(process, task) for process, task in running.items() if process.poll() is not None]
                said = {task.name: _ended(task, process.returncode) for process, task in ended}
                taken |= {task.name: task.steps_done() for task in running.values()}
                bar.update(sum(taken.values()) - bar.n)
                for process, task in ended:
                    del running[process]
                    failed += [] if said[task.name] == DONE else [task]
                    if show_progress and not stop:
                        left = len(waiting) + len(running)
                        tqdm.write(f"{task.name}: {said[task.name]}; {left} of {len(tasks)} left", file=sys.stderr)
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait()
        if stop:
            print("interrupted; what is done is kept, and the same command goes on from there", file=sys.stderr)
            raise Interrupted
    return failed


def _bar(tasks: Sequence[Task], done: int, show_progress: bool) -> tqdm[None]:
    interval = 0.5 if sys.stderr.isatty() else 60 * MINUTES_BETWEEN_LINES
    total = sum(task.steps for task in tasks)
    unit = "step" if total > len(tasks) else "run"
    return tqdm(
        total=total, initial=done, unit=unit, dynamic_ncols=True, mininterval=interval, disable=not show_progress
    )


def _started(task: Task, lock: int) -> subprocess.Popen[bytes]:
    command = [*COMMAND, *task.arguments]
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    try:
        task.folder.parent.mkdir(parents=True, exist_ok=True)
        with task.log.open("ab") as log, task.printed.open("wb") if task.prints_results else nullcontext(log) as out:
            return subprocess.Popen(command, stdout=out, stderr=log, env=environment, pass_fds=handed_on(lock))
    except OSError as error:
        raise UsageError(
            f"cannot start {task.name} with its log {task.log} ({error.strerror}); mend that, and go on"
        ) from error


def _ended(task: Task, code: int) -> str:
    """How the task has ended, in words; what it printed becomes its results where it has succeeded."""
    if code in STOPPED:
        return f"interrupted, see {task.log}"
    if task.prints_results and code == 0:
        make_folder(task.folder)  # it has had none: a run or a release makes its own
        append_results(
            task.folder, [Result(**record) for record in json.loads(task.printed.read_text(encoding="utf-8"))]
        )
        task.printed.unlink()
    return DONE if code == 0 and task.done() else f"failed ({task.last_words() or 'without a word'}), see {task.log}"
