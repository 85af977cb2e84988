"""Python processes with the heavy imports behind them: each is forked from one that has made them.

A command in a process of its own takes five processor seconds, for torch, timm and accelerate, before it does anything.
:func:`started` and :func:`run` do for ``python WORDS`` what ``subprocess.Popen`` and ``subprocess.run`` do, without
that: a process with its own arguments, environment, folder, signals, output and exit code. It is not fresh, though:
what is about the imports themselves, about what is read while importing (``HF_HOME``), or about a launcher that starts
Python, takes a real one. So do all on systems other than Linux.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ssl_hub.stopping import end_with_parent

with suppress(ImportError):
    import fcntl

ROOT = Path(__file__).parents[1]
IMPORTED = (
    "torch._dynamo", "torch.distributed", "scipy.optimize", "ssl_hub.cli", "ssl_hub.train.loop",
    "ssl_hub.train.finetune", "ssl_hub.evaluate.model",
)  # fmt: skip
PATIENCE = 900.0  # seconds, of machines on which others compute too
GRACE = 60.0  # that the other ranks have when one has failed


def run(words: list[str], *, timeout: float = PATIENCE, **options: Any) -> subprocess.CompletedProcess[str]:
    """``python WORDS``, waited for; its output is kept."""
    process = started(words, **options)
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    finally:
        process.kill()
    return subprocess.CompletedProcess(words, process.returncode, stdout, stderr)


def started(
    words: list[str], *, env: dict[str, str], cwd: Path | None = None, start_new_session: bool = False
) -> Process | subprocess.Popen[str]:
    """``python WORDS``: a file, ``-m MODULE`` or ``-c CODE``, and its arguments."""
    if sys.platform == "linux":
        return Process(words, env, cwd, session=start_new_session)
    return subprocess.Popen(
        [sys.executable, *words], env=env, cwd=cwd, start_new_session=start_new_session, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def in_place_of_popen(
    command: list[str], *, stdout: Any, stderr: Any, env: dict[str, str], pass_fds: list[int]
) -> Process | subprocess.Popen[bytes]:
    """What the package starts by ``Popen``, warm; it inherits no other files."""
    if sys.platform != "linux":
        return subprocess.Popen(command, stdout=stdout, stderr=stderr, env=env, pass_fds=pass_fds)
    assert command[0] == sys.executable
    return Process(command[1:], env, stdout=stdout, stderr=stderr)


def first_line(process: Process | subprocess.Popen[str]) -> str:
    """Of its output, as soon as that is there; empty where it has ended without one."""
    if not isinstance(process, Process):
        assert process.stdout is not None
        return process.stdout.readline()
    while not (written := _text(process.stdout)).count("\n") and process.poll() is None:
        time.sleep(0.01)
    return (written or _text(process.stdout)).partition("\n")[0]


def ranks(
    words: list[str], world: int, *, env: dict[str, str], cwd: Path | None = None
) -> list[subprocess.CompletedProcess[str]]:
    """``python WORDS`` as ``torchrun --standalone --nproc_per_node WORLD`` starts it, without torchrun."""
    from torch.distributed import TCPStore

    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)  # on a port that is free, and stays ours
    env = env | {
        "MASTER_ADDR": "localhost", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0", "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world),
    }  # fmt: skip
    processes = [
        started(words, env=env | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, cwd=cwd) for rank in range(world)
    ]
    until, failed = time.monotonic() + PATIENCE, False
    while None in (codes := [process.poll() for process in processes]) and time.monotonic() < until:
        if any(codes) and not failed:
            failed, until = True, time.monotonic() + GRACE
        time.sleep(0.02)
    for process in processes:
        process.kill()
    said = [process.communicate() for process in processes]
    return [
        subprocess.CompletedProcess(words, process.returncode, *texts)
        for process, texts in zip(processes, said, strict=True)
    ]


class Process:
    """What is used of ``Popen``. Output is kept in files, so nobody need read it for the process to go on."""

    def __init__(
        self, words: list[str], env: dict[str, str], cwd: Path | None = None, *, session: bool = False,
        stdout: Any = None, stderr: Any = None,
    ) -> None:  # fmt: skip
        self.args: list[str] = words
        self.returncode: int | None = None
        self.stdout = stdout or tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        self.stderr = stderr or tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        self._answers, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            order = json.dumps({"words": words, "env": env, "cwd": str(cwd or Path.cwd()), "session": session}).encode()
            files = [theirs.fileno(), self.stdout.fileno(), self.stderr.fileno()]
            for file in files[1:]:
                fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)  # wherever this process reads it
            socket.send_fds(_server(), [order], files)
        self.pid = int(self._answers.recv(64))

    def poll(self) -> int | None:
        return self._ended(0)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._answers], [], [], timeout)[0]:
            self.returncode = int(self._answers.recv(64))
            self._answers.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0, stderr=self.said().encode())
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        self.wait(timeout)
        return _text(self.stdout), self.said()

    def said(self) -> str:
        """On stderr, so far."""
        return _text(self.stderr)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def _text(file: Any) -> str:
    file.seek(0)
    return str(file.read())


@functools.cache
def _server() -> socket.socket:
    """To the process that has imported everything, which ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.warm", str(theirs.fileno())], cwd=ROOT, env=environment,
            pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
        )  # fmt: skip

    @atexit.register
    def end() -> None:
        ours.close()
        process.wait()

    return ours


def _serve(orders: socket.socket) -> dict[str, Any]:
    """Fork a process for every order that comes; returns in that process, with the order.

    Between it and this one is a third, which waits for it and says how it ended.
    """
    for module in IMPORTED:
        importlib.import_module(module)
    assert threading.active_count() == len(os.listdir("/proc/self/task")) == 1, "a thread is lost where it is forked"
    gc.collect()
    gc.freeze()
    keepers = set()
    while True:
        order, files, _, _ = socket.recv_fds(orders, 1 << 20, 3)
        if not order:
            for keeper in keepers:  # of what a test that failed has left running
                os.kill(keeper, signal.SIGKILL)
                os.waitpid(keeper, 0)
            os._exit(0)
        keeper = os.fork()
        if keeper == 0:
            break
        for file in files:
            os.close(file)
        keepers = {pid for pid in keepers | {keeper} if os.waitpid(pid, os.WNOHANG) == (0, 0)}
    orders.close()
    answers, stdout, stderr = files
    child = os.fork()
    if child:
        os.write(answers, str(child).encode())
        os.write(answers, str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())
        os._exit(0)
    end_with_parent(signal.SIGKILL)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    for file in files:
        os.close(file)
    return dict(json.loads(order))


def _become(words: list[str], env: dict[str, str], cwd: str, session: bool) -> None:
    if session:
        os.setsid()
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = words
        sys.path.insert(0, str(Path(words[0]).parent))
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    _become(**_serve(socket.socket(fileno=int(sys.argv[1]))))
