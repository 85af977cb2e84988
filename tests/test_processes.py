"""A process's share of the machine: affinity, quotas of control groups, and the processes beside it."""

from pathlib import Path

import pytest

from ssl_hub import processes
from ssl_hub.data.workers import useful_workers


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """The number of cores that this process may run on, and the quotas above it, as a test sets them."""

    def given(allowed: int, *quotas: float, **environment: str) -> None:
        monkeypatch.setattr(processes, "_allowed_cores", lambda: allowed)
        monkeypatch.setattr(processes, "_quotas", lambda: quotas)
        for name in ("LOCAL_WORLD_SIZE", "WORLD_SIZE"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)

    return given


@pytest.mark.parametrize(
    ("allowed", "quotas", "environment", "launched_on", "share"),
    [
        (16, (), {}, None, 16),
        (16, (), {"LOCAL_WORLD_SIZE": "4", "WORLD_SIZE": "32"}, None, 4),  # eight machines
        (16, (), {"WORLD_SIZE": "4"}, None, 4),
        (16, (6.5,), {}, None, 6),
        (16, (12, 6.5), {"LOCAL_WORLD_SIZE": "2"}, 16, 3),  # all processes share the quota
        (2, (0.5,), {}, None, 1),
        (2, (), {"LOCAL_WORLD_SIZE": "8"}, None, 1),
        (12, (), {"LOCAL_WORLD_SIZE": "8"}, 96, 12),  # each process bound to its cores
        (48, (), {"LOCAL_WORLD_SIZE": "8"}, 96, 12),  # to those of half the machine, with three others
        (48, (16,), {"LOCAL_WORLD_SIZE": "8"}, 96, 2),
        (4, (), {"LOCAL_WORLD_SIZE": "x"}, None, 4),
    ],
)
def test_share(cores, allowed, quotas, environment, launched_on, share):  # type: ignore[no-untyped-def]
    cores(allowed, *quotas, **environment)
    assert processes.share_of_cores(launched_on) == share
    if launched_on is None:
        assert useful_workers(100, 1000) == share and useful_workers(100, 1) == 1 and useful_workers(0, 9) == 0


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_quotas_of_both_versions_and_of_groups_above(tmp_path: Path) -> None:
    groups, mounted = tmp_path / "cgroup", tmp_path / "sys"
    groups.write_text("3:memory:/job/memory\n2:cpu,cpuacct:/job/step\n0::/user/session\n")
    assert list(processes._quotas(groups, mounted)) == []
    write(mounted / "cpu/job/step/cpu.cfs_quota_us", "-1\n")
    write(mounted / "cpu/job/step/cpu.cfs_period_us", "100000\n")
    write(mounted / "cpu/job/cpu.cfs_quota_us", "250000\n")
    write(mounted / "cpu/job/cpu.cfs_period_us", "100000\n")
    write(mounted / "user/session/cpu.max", "max 100000\n")
    write(mounted / "cpu.max", "150000 50000\n")  # a container's own, under a path of the host's
    assert list(processes._quotas(groups, mounted)) == [2.5, 3.0]
    write(mounted / "cpu.max", "nonsense")
    assert list(processes._quotas(groups, mounted)) == [2.5]
    assert list(processes._quotas(tmp_path / "none", mounted)) == []


def test_this_machine_has_cores() -> None:
    assert processes.share_of_cores() >= 1


def test_half_of_what_a_launcher_sets_silences_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    assert processes.complains() and not processes.speaks()  # no other process would say what is wrong
    for name, value in {"LOCAL_RANK": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    assert not processes.complains()


def test_a_command_is_as_one_types_it() -> None:
    path = str(Path(processes.__file__).with_name("__main__.py"))
    assert processes.typed([path, "train", "--x=a b"]) == ["python", "-m", "ssl_hub", "train", "--x=a b"]
    for words in (["/bin/ssl-hub", "train"], ["recipes/train.py"], ["other/__main__.py", "a"], ["-c"], [""]):
        assert processes.typed(words) == words
