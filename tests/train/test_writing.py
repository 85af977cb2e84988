"""Checkpoints are written beside training: of the moment of the save, whole or absent, and waited for at every end."""

import os
import signal
import threading

import pytest
import torch
from accelerate import Accelerator

import ssl_hub
from ssl_hub.atomic import is_leftover, replace_file
from ssl_hub.errors import UsageError
from ssl_hub.stopping import Interrupted
from ssl_hub.train import checkpoint, loop, run, writing
from ssl_hub.train.lock import LOCK
from ssl_hub.train.run import CHECKPOINTS
from ssl_hub.train.step import Trainer

SECONDS = 30.0  # after which a test gives up
EVERY_STEP = {
    "train.max_steps": 4, "train.batch_size": 16, "data.pretrain_split": "train[:64]", "runtime.knn_every_epochs": 0,
    "runtime.checkpoint_minutes": 0.0, "runtime.keep_checkpoints": 10,
}  # fmt: skip


class Slow:
    """Writes of checkpoints that last until something else has happened: :meth:`let_go`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self._go, self.ended = threading.Event(), threading.Event(), 0
        monkeypatch.setattr(checkpoint, "replace_file", self._replace)

    def _replace(self, path, content):
        self.begun.set()
        if threading.current_thread() is not threading.main_thread():
            assert self._go.wait(SECONDS), "nothing happened while the file was written"
            self._go.clear()
        replace_file(path, content)
        self.ended += 1

    def let_go(self) -> None:
        self._go.set()

    def before_each_step(self, monkeypatch: pytest.MonkeyPatch, act) -> None:
        """``act(step)`` when a write is under way and a step begins."""
        real = Trainer.advance

        def advance(trainer, micro_batches):
            if trainer.step:
                assert self.begun.wait(SECONDS)
                self.begun.clear()
                act(trainer.step)
            return real(trainer, micro_batches)

        monkeypatch.setattr(Trainer, "advance", advance)


@pytest.fixture
def slow(monkeypatch):
    return Slow(monkeypatch)


@pytest.fixture(autouse=True)
def _unmeasured(monkeypatch):
    monkeypatch.setattr(loop, "_finish", lambda *_, **__: ([], "left out"))


@pytest.fixture
def accelerator():
    return Accelerator(cpu=True)


def pretrain(output, **overrides):
    return ssl_hub.pretrain("byol-digits", output=output, overrides={**EVERY_STEP, **overrides})


def contents(folder):
    return {path.name: path.read_bytes() for path in checkpoint.existing(folder / CHECKPOINTS)}


def test_steps_are_taken_during_a_write_and_do_not_show_in_it(tmp_path, slow, monkeypatch):
    real = Trainer.advance

    def advance(trainer, micro_batches):
        report = real(trainer, micro_batches)
        if trainer.step > 1:  # the write of the step before has not ended yet
            assert slow.ended == trainer.step - 2
            slow.let_go()
        return report

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "advance", advance)
        beside = contents(pretrain(tmp_path / "beside"))
    slow.ended = 0
    save = checkpoint.save
    monkeypatch.setattr(checkpoint, "save", lambda *given, **options: save(*given, **{**options, "last": True}))
    assert beside == contents(pretrain(tmp_path / "waited"))  # byte for byte
    assert len(beside) == 4


def test_what_is_copied_is_everything_that_can_change(tmp_path, slow, accelerator):
    weight = torch.arange(6.0).reshape(1, 2, 3, 1).contiguous(memory_format=torch.channels_last)
    state = {"step": 1, "online": {"w": weight}, "data": [[3, 4]], "bad_images": [{7: "cut off"}], "best": (1, "a")}
    checkpoint.save(tmp_path, state, accelerator, keep=1)
    weight.zero_()
    state["data"][0][0], state["bad_images"][0][8] = 9, "empty"
    slow.let_go()
    writing.writing.wait()
    saved = checkpoint.load(checkpoint.existing(tmp_path)[0])
    assert saved["online"]["w"].flatten().tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert saved["online"]["w"].stride() == weight.stride()
    assert (saved["data"], saved["bad_images"], saved["best"]) == ([[3, 4]], [{7: "cut off"}], (1, "a"))


def test_the_host_waits_for_an_accelerator_once_when_all_copies_are_queued(monkeypatch):
    queued, waited = [], []
    monkeypatch.setattr(writing, "can_pin", lambda device: bool(queued.append(device)))
    monkeypatch.setattr(writing, "is_queued", lambda device: True)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda device: waited.append((device, len(queued))))
    writing.copied({"online": {"w": torch.ones(2), "b": torch.ones(1)}, "random": [torch.zeros(1)]})
    assert waited == [(torch.device("cpu"), 3)]


def full(*_):
    raise OSError(28, "No space left on device")


def test_what_a_write_failed_of_is_raised_by_the_next_save_and_the_one_before_stays(tmp_path, monkeypatch):
    fsync, steps = os.fsync, []
    advance = Trainer.advance

    def stepping(trainer, micro_batches):
        steps.append(trainer.step)
        monkeypatch.setattr(os, "fsync", full if trainer.step == 1 else fsync)  # when the second is written
        return advance(trainer, micro_batches)

    monkeypatch.setattr(Trainer, "advance", stepping)
    monkeypatch.setattr(writing.Beside, "begin", _waiting(writing.Beside.begin))
    message = r"^cannot write .*step-00000002.pt: No space left on device; free some space or choose a writable folder$"
    with pytest.raises(UsageError, match=message):
        pretrain(tmp_path / "r")
    assert steps == [0, 1, 2] and list(contents(tmp_path / "r")) == ["step-00000001.pt"]
    assert not list((tmp_path / "r" / CHECKPOINTS).glob(".*"))


def _waiting(begin):
    def begun(beside, act):
        begin(beside, act)
        beside.join()

    return begun


def test_the_last_save_raises_what_the_write_before_it_failed_of(tmp_path, slow, accelerator, monkeypatch):
    monkeypatch.setattr(os, "fsync", full)
    checkpoint.save(tmp_path, {"step": 1}, accelerator, keep=1)
    slow.let_go()
    writing.writing.join()
    monkeypatch.undo()
    with pytest.raises(UsageError, match="cannot write .*step-00000001.pt: No space left"):
        checkpoint.save(tmp_path, {"step": 2}, accelerator, keep=1, last=True)
    checkpoint.save(tmp_path, {"step": 2}, accelerator, keep=1, last=True)  # raised once


def test_a_folder_that_is_gone_is_one_line(tmp_path, slow, accelerator):
    checkpoint.save(tmp_path / "gone" / CHECKPOINTS, {"step": 1}, accelerator, keep=1)
    (tmp_path / "gone").touch()
    slow.let_go()
    with pytest.raises(UsageError, match=r"^cannot write .*gone/checkpoints/step-00000001.pt: Not a directory; free"):
        writing.writing.wait()


def test_an_error_ends_a_run_when_its_write_is_whole(tmp_path, slow, monkeypatch):
    def fail(step):
        threading.Timer(0.2, slow.let_go).start()
        assert (tmp_path / "r" / LOCK).exists() and not contents(tmp_path / "r")
        raise KeyError("width")

    slow.before_each_step(monkeypatch, fail)
    with pytest.raises(KeyError, match="width"):
        pretrain(tmp_path / "r")
    assert list(contents(tmp_path / "r")) == ["step-00000001.pt"]
    assert checkpoint.load(checkpoint.existing(tmp_path / "r" / CHECKPOINTS)[0])["step"] == 1


def test_a_write_that_fails_beside_an_error_is_said(tmp_path, slow, monkeypatch, capsys):
    def fail(step):
        monkeypatch.setattr(os, "fsync", full)
        slow.let_go()
        raise KeyError("width")

    slow.before_each_step(monkeypatch, fail)
    with pytest.raises(KeyError, match="width"):
        pretrain(tmp_path / "r")
    assert "warning: cannot write " in capsys.readouterr().err
    assert not contents(tmp_path / "r")


def test_a_signal_stops_a_run_when_its_write_is_whole(tmp_path, slow, monkeypatch, capsys):
    def stop(step):
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Timer(0.2, slow.let_go).start()

    slow.before_each_step(monkeypatch, stop)
    with pytest.raises(Interrupted):
        pretrain(tmp_path / "r")
    assert slow.ended == 2 and list(contents(tmp_path / "r")) == ["step-00000001.pt", "step-00000002.pt"]
    assert "stopped by a signal at step 2, saved; continue with --resume" in capsys.readouterr().err


def test_a_signal_while_a_save_waits_for_the_write_before_stops_after_that_save(tmp_path, slow, monkeypatch, capsys):
    wait = writing.Beside.wait

    def signalled(beside):
        if beside._thread is not None:
            os.kill(os.getpid(), signal.SIGTERM)
            slow.let_go()
        wait(beside)

    monkeypatch.setattr(writing.Beside, "wait", signalled)
    with pytest.raises(Interrupted):
        pretrain(tmp_path / "r")
    assert slow.ended == 2 and list(contents(tmp_path / "r")) == ["step-00000001.pt", "step-00000002.pt"]
    assert "stopped by a signal at step 2, saved; continue with --resume" in capsys.readouterr().err


def test_the_run_that_is_replaced_stays_until_the_first_checkpoint_is_whole(tmp_path, slow, accelerator):
    folder = tmp_path / "r"
    folder.mkdir()
    run.write_recipe(folder, ssl_hub.get_recipe("byol-digits"), {})
    with run.held(folder, accelerator, resume=False, overwrite=True):
        run.save(folder, {"step": 1}, accelerator, keep=1)
        assert slow.begun.wait(SECONDS) and run.replaced_by(folder).exists()
        slow.let_go()
    assert not run.replaced_by(folder).exists() and list(contents(folder)) == ["step-00000001.pt"]


def test_a_kill_in_the_middle_of_a_write_leaves_the_checkpoint_before(tmp_path, accelerator):
    folder = tmp_path / CHECKPOINTS
    checkpoint.save(folder, {"step": 1, "w": torch.ones(3)}, accelerator, keep=1, last=True)
    child = os.fork()
    if not child:
        try:
            real = torch.save

            def half(whole, path):
                real(whole, path)
                os.truncate(path, path.stat().st_size // 2)
                os.kill(os.getpid(), signal.SIGKILL)

            torch.save = half
            checkpoint.save(folder, {"step": 2, "w": torch.zeros(3)}, accelerator, keep=1)
            writing.writing.join()  # as in a step
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert [is_leftover(path) for path in sorted(folder.iterdir())] == [True, False]
    (kept,) = checkpoint.existing(folder)
    assert checkpoint.load(kept)["step"] == 1


def test_processes_are_forked_when_no_write_is_under_way(tmp_path, slow, accelerator):
    checkpoint.save(tmp_path, {"step": 1}, accelerator, keep=1)
    threading.Timer(0.2, slow.let_go).start()
    child = os.fork()
    if not child:
        os._exit(len(checkpoint.existing(tmp_path)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    writing.writing.wait()
