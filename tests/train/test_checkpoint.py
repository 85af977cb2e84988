"""Checkpoints: whole or absent, newest by number, never code."""

import os
import pickle

import pytest
import torch
from accelerate import Accelerator

from ssl_hub.errors import UsageError
from ssl_hub.train import checkpoint
from ssl_hub.train.writing import writing


def state(step: int) -> dict[str, object]:
    return {"step": step, "online": {"w": torch.full((3,), float(step))}, "optimizer": {}}


@pytest.fixture
def accelerator() -> Accelerator:
    return Accelerator(cpu=True)


def save(*arguments: object, **options: object) -> None:
    """A checkpoint, waited for."""
    checkpoint.save(*arguments, **options)
    writing.wait()


def test_newest_is_chosen_by_number_and_old_ones_go(tmp_path, accelerator):
    for step in (8, 9, 10, 100, 1000):
        save(tmp_path, state(step), accelerator, keep=3)
    assert [p.name for p in checkpoint.existing(tmp_path)] == [
        "step-00000010.pt",
        "step-00000100.pt",
        "step-00001000.pt",
    ]
    assert checkpoint.load(checkpoint.existing(tmp_path)[-1])["step"] == 1000
    (tmp_path / "step-123456789.pt").touch()  # more digits than the padding
    assert checkpoint.existing(tmp_path)[-1].name == "step-123456789.pt"


def test_permanent_checkpoints_stay(tmp_path, accelerator):
    for step in range(1, 8):
        save(tmp_path, state(step), accelerator, keep=2, permanent=step % 3 == 0)
    assert [int(p.stem.split("-")[1]) for p in checkpoint.existing(tmp_path)] == [3, 6, 7]
    assert checkpoint.load(checkpoint.existing(tmp_path)[0])["step"] == 3


def test_failed_write_keeps_the_last_good_checkpoint(tmp_path, accelerator, monkeypatch):
    save(tmp_path, state(1), accelerator, keep=2)

    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match="cannot write .*step-00000002.pt: No space left on device; free some space"):
        save(tmp_path, state(2), accelerator, keep=2)
    assert os.listdir(tmp_path) == ["step-00000001.pt"]
    assert checkpoint.load(checkpoint.existing(tmp_path)[-1])["step"] == 1


def test_full_disk_as_torch_reports_it(tmp_path, accelerator, monkeypatch):
    save(tmp_path, state(1), accelerator, keep=2)

    def full(*_args: object) -> None:
        raise RuntimeError("[enforce fail at inline_container.cc:664] . unexpected pos 64 vs 0")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(UsageError, match="cannot write .*step-00000002.pt.*free some space"):
        save(tmp_path, state(2), accelerator, keep=2)
    assert os.listdir(tmp_path) == ["step-00000001.pt"]


def test_a_run_that_is_gone_is_not_made_anew(tmp_path, accelerator):
    with pytest.raises(UsageError, match="No such file or directory"):
        checkpoint.save(tmp_path / "run" / "checkpoints", {"step": 1}, accelerator, keep=2, last=True)
    assert not (tmp_path / "run").exists()


def test_half_written_file_is_not_a_checkpoint(tmp_path, accelerator):
    save(tmp_path, state(1), accelerator, keep=2)
    (tmp_path / ".step-00000002.pt.77.part").write_bytes(b"half")
    assert len(checkpoint.existing(tmp_path)) == 1


def test_pickled_code_is_refused_and_not_run(tmp_path):
    flag = tmp_path / "executed"

    class Payload:
        def __reduce__(self):
            return os.mkdir, (str(flag),)

    path = tmp_path / "step-00000001.pt"
    torch.save({"format": 1, "bomb": Payload()}, path)
    with pytest.raises(UsageError, match="cannot read the checkpoint"):
        checkpoint.load(path)
    path.write_bytes(pickle.dumps(Payload()))
    with pytest.raises(UsageError, match="cannot read the checkpoint"):
        checkpoint.load(path)
    assert not flag.exists()


class Trainer:
    """Takes the states of this file."""

    def load_state_dict(self, state):
        self.step, self.weight = state["step"], state["online"]["w"] + torch.zeros(3)


@pytest.mark.parametrize(
    "content",
    [b"", b"\x00" * 100, b"garbage", b"}" * 50, b"e.", b"K", b"\x80\x02", b'{"json": 1}', b"PK\x03\x04" + b"0" * 99],
    ids=repr,
)
def test_damaged_newest_checkpoint_is_named_with_the_one_before(tmp_path, accelerator, content):
    for step in (1, 2):
        save(tmp_path, state(step), accelerator, keep=2)
    path = checkpoint.existing(tmp_path)[-1]
    path.write_bytes(content)
    with pytest.raises(UsageError) as refused:
        checkpoint.restore(tmp_path, Trainer(), accelerator)
    text = str(refused.value)
    assert text.startswith(f"cannot read the checkpoint {path} (") and "\n" not in text
    assert text.endswith("; delete it to go on from step-00000001.pt")
    path.unlink()
    trainer = Trainer()
    checkpoint.restore(tmp_path, trainer, accelerator)
    assert trainer.step == 1


def test_truncated_and_foreign_files_are_named(tmp_path, accelerator):
    save(tmp_path, state(1), accelerator, keep=1)
    path = checkpoint.existing(tmp_path)[0]
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(UsageError, match="no other is there: --overwrite starts again"):
        checkpoint.load(path)
    for foreign in ({"format": 99}, [1, 2], torch.zeros(3)):
        torch.save(foreign, path)
        with pytest.raises(UsageError, match=f"{path} is not a checkpoint of this version"):
            checkpoint.load(path)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"online": {}}, "it has no 'w'"),
        ({"online": 3}, "not subscriptable"),
        ({"online": {"w": torch.zeros(7)}}, "must match the size"),
        ({"random": None}, "has no len"),
        ({"random": [{}]}, "it has no 'cpu'"),
    ],
)
def test_a_checkpoint_of_something_else_is_named(tmp_path, accelerator, changed, reason):
    path = tmp_path / "step-00000001.pt"
    torch.save({"format": 1, "random": [], **state(1), **changed}, path)
    with pytest.raises(UsageError, match=f"the checkpoint {path} is not of this run .*{reason}.*--overwrite"):
        checkpoint.restore(tmp_path, Trainer(), accelerator)


def test_nothing_to_restore_is_a_run_from_its_start(tmp_path, accelerator):
    assert checkpoint.restore(tmp_path, Trainer(), accelerator) is None


def test_random_state_round_trips(tmp_path, accelerator):
    torch.manual_seed(4)
    save(tmp_path, state(1), accelerator, keep=1)
    want = torch.rand(3)
    torch.rand(10)
    saved = checkpoint.load(checkpoint.existing(tmp_path)[0])
    checkpoint.set_random_state(saved["random"][0], accelerator.device)
    assert torch.equal(torch.rand(3), want)
