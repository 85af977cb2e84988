"""What Windows and macOS lack: every module is imported, and a run trained, in a process without it."""

import ast
import os
import subprocess
import sys
import types
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

import ssl_hub
from ssl_hub.errors import UsageError

POOR = """
import importlib, os, pkgutil, signal, sys, types, warnings
import accelerate, datasets, matplotlib, sklearn, timm, torch, torchvision  # theirs is to be theirs

for module, names in {
    os: "fork register_at_fork sched_getaffinity getuid geteuid O_DIRECTORY setsid killpg statvfs sysconf",
    signal: "SIGUSR1 SIGUSR2 SIGKILL SIGHUP SIGCHLD SIGALRM pthread_sigmask alarm setitimer",
}.items():
    for name in names.split():
        delattr(module, name)
sys.platform = "win32"  # from here on: the others have asked already
sys.modules["msvcrt"] = types.SimpleNamespace(locking=lambda *_: None, LK_NBLCK=2)
for name in ("fcntl", "pwd", "grp", "resource", "termios", "tty", "pty"):
    sys.modules[name] = None
warnings.filterwarnings("error", category=EncodingWarning, module="ssl_hub")

import ssl_hub
for found in pkgutil.walk_packages(ssl_hub.__path__, "ssl_hub."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
settings = {"train.max_steps": 2, "train.batch_size": 8, "data.pretrain_split": "train[:16]", "runtime.workers": 0}
run = ssl_hub.pretrain("byol-digits", output=sys.argv[1], overrides=settings)
ssl_hub.pretrain(None, output=run, resume=True, allow_change=["train.max_steps"], overrides={"train.max_steps": 3})
print(ssl_hub.knn(run, "digits", k=5)[0].metric)
"""


def test_without_what_windows_lacks_a_run_is_trained_resumed_and_judged(tmp_path):
    command = [sys.executable, "-X", "warn_default_encoding", "-c", POOR, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "top1"
    assert not (tmp_path / "run" / ".lock").exists()


def test_text_is_read_and_written_as_utf_8():
    for path in Path(ssl_hub.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                texts = node.func.attr in ("read_text", "write_text")
                assert not texts or "encoding" in {word.arg for word in node.keywords}, f"{path}:{node.lineno}"


@pytest.fixture
def lock_of_windows(monkeypatch):
    """The module as Windows imports it; msvcrt locks one byte of one file, as it does there."""
    held: dict[tuple[int, int], int] = {}

    def locking(descriptor: int, mode: int, count: int) -> None:
        where = os.fstat(descriptor).st_ino, os.lseek(descriptor, 0, os.SEEK_CUR)
        assert (mode, count, where[1]) == (2, 1, 2**30)
        if any(place == where and _is_open(other) for other, place in held.items() if other != descriptor):
            raise PermissionError(13, "Permission denied")
        held[descriptor] = where

    def _is_open(descriptor: int) -> bool:
        try:
            return os.fstat(descriptor).st_ino == held[descriptor][0]
        except OSError:
            return False

    monkeypatch.setitem(sys.modules, "msvcrt", types.SimpleNamespace(locking=locking, LK_NBLCK=2))
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.delattr(os, "register_at_fork")
    spec = spec_from_file_location("lock_of_windows", Path(ssl_hub.__file__).parent / "train" / "lock.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_lock_of_windows(lock_of_windows, tmp_path):
    locked = lock_of_windows.locked
    for _ in range(2):
        with locked(tmp_path / "run") as descriptor:
            assert lock_of_windows.handed_on(descriptor) == []
            with pytest.raises(UsageError, match=rf"another process \({os.getpid()}\), .* is training in"):  # noqa: SIM117
                with locked(tmp_path / "run"):
                    pass
    assert not (tmp_path / "run" / ".lock").exists()
