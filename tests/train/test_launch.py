"""Threads and processes: what the launcher did against what was asked."""

import pytest
import torch

from ssl_hub import processes
from ssl_hub.errors import UsageError
from ssl_hub.train import launch
from ssl_hub.train.launch import Launcher, missing_processes, set_threads


@pytest.mark.parametrize(
    ("arguments", "running", "said"),
    [
        (["python", "accelerate", "launch", "--cpu", "--num_processes", "2", "recipes/train.py"], 1, "asked for 2"),
        (["accelerate", "launch", "--num_processes=4", "x.py"], 1, "asked for 4"),
        (["torchrun", "--nproc-per-node", "3", "x.py"], 2, "asked for 3"),
        (["torchrun", "--nproc_per_node", "2", "x.py"], 2, None),
        (["accelerate", "launch", "x.py"], 1, None),
        (["accelerate", "launch", "--num_processes"], 1, None),
    ],
)
def test_fewer_processes_than_asked_are_noticed(arguments, running, said):
    got = missing_processes(Launcher(arguments, {}), running)
    assert (got is None) if said is None else (said in got and "torchrun --nproc_per_node" in got)
    assert missing_processes(None, 1) is None


@pytest.mark.parametrize(
    ("variable", "launcher", "want"),
    [
        (None, None, 8),
        ("3", None, "kept"),
        ("1", None, "kept"),  # nobody but the user can have set it
        ("1", Launcher(["accelerate", "launch", "x.py"], {}), 8),
        ("1", Launcher(["accelerate", "launch", "x.py"], {"OMP_NUM_THREADS": "1"}), "kept"),
        ("1", Launcher(["accelerate", "launch", "--num_cpu_threads_per_process", "1", "x.py"], {}), "kept"),
        ("4", Launcher(["accelerate", "launch", "x.py"], {}), "kept"),
    ],
)
def test_all_cores_are_used_unless_the_user_chose(monkeypatch, variable, launcher, want):
    monkeypatch.setattr(processes, "_allowed_cores", lambda: 8)
    monkeypatch.setattr(processes, "_quotas", lambda: ())
    for name in ("OMP_NUM_THREADS", "LOCAL_WORLD_SIZE", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    if variable is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    before = torch.get_num_threads()
    try:
        assert set_threads(launcher) == (before if want == "kept" else want)
        if want != "kept":
            for here, everywhere, beside, threads in (("2", "8", 0, 4), ("16", "16", 0, 1), ("2", "2", 3, 1)):
                monkeypatch.setenv("LOCAL_WORLD_SIZE", here)
                monkeypatch.setenv("WORLD_SIZE", everywhere)
                assert set_threads(launcher, beside=beside) == threads
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("word", "is_launcher"),
    [
        ("/usr/bin/accelerate", True),
        ("accelerate-launch", True),
        ("torchrun", True),
        ("accelerate.commands.launch", True),
        ("/lib/python3/site-packages/torch/distributed/run.py", True),
        ("torch.distributed.run", True),
        ("recipes/train.py", False),
        ("/home/me/accelerate/recipes/train.py", False),
        ("--output=accelerated", False),
    ],
)
def test_launchers_are_recognised(word, is_launcher):
    assert bool(launch.LAUNCHERS.search(word)) is is_launcher


def test_test_runner_is_no_launcher():
    assert launch.find_launcher() is None


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"LOCAL_RANK": "0"}, "LOCAL_RANK=0 and no RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT: start with torchrun"),
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE=2 and no RANK, LOCAL_RANK, MASTER_ADDR, MASTER_PORT: .* or unset WORLD_SIZE"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE=0 and no RANK"),
        ({"WORLD_SIZE": "x"}, "WORLD_SIZE='x', expected a number"),
        ({"WORLD_SIZE": ""}, "WORLD_SIZE='', expected a number"),
        ({"RANK": "-1"}, "RANK='-1', expected a number"),
        ({"RANK": "3", "WORLD_SIZE": "2"}, "RANK=3 and WORLD_SIZE=2; ranks count from 0"),
        ({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}, "and no MASTER_PORT"),
    ],
)
def test_half_a_launcher_is_refused(monkeypatch, variables, said):
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=said):
        launch.open_accelerator()


def test_one_process_needs_no_launcher(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("RANK", "0")
    assert launch.open_accelerator().num_processes == 1


def test_kernels_are_chosen_for_a_run_and_left_as_they_were():
    def chosen():
        return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark

    before = chosen()
    with launch.kernels("all", cudnn_benchmark=True):
        assert chosen() == ("high", True, True)
    with launch.kernels("none", cudnn_benchmark=False):
        assert chosen() == ("highest", False, False)
    assert chosen() == before == ("highest", True, False)  # torch's own, which "convolutions" names
