"""Training on WebDataset shards: on two real processes, stopped and resumed, from the command line."""

import itertools
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import ssl_hub
from ssl_hub.cli import main
from ssl_hub.data.shards import Encoded, TarShards
from ssl_hub.errors import UsageError
from ssl_hub.model.metrics import read_metrics
from ssl_hub.stopping import REQUEUE
from tests.data.encoded import png, write_tar
from tests.data.file_server import served
from tests.end_to_end import stream_on_ranks
from tests.end_to_end.test_launchers import facts, on_ranks


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """23 images in 4 tar files."""
    folder = tmp_path_factory.mktemp("shards")
    for shard in range(4):
        members = {f"{i:03}.png": png(10 * i, (16, 16)) for i in range(6 * shard, min(6 * shard + 6, 23))}
        write_tar(folder / f"train-{shard:03}.tar", members)
    return folder


def same_model(one: Path, two: Path) -> bool:
    return all((one / f).read_bytes() == (two / f).read_bytes() for f in ("model.safetensors", "method.safetensors"))


def test_two_processes_read_each_image_once_and_resume_exactly(shards: Path, tmp_path: Path) -> None:
    """Over HTTP, with connections that are cut: the straight run on plain ones, the other on those."""
    with served(shards) as server:
        addresses = [f"{server}/{fault}/train-{{000..003}}.tar" for fault in ("plain", "cut")]
        done = on_ranks(2, stream_on_ranks.__file__, str(tmp_path), *addresses)
    assert done.returncode == 0, done.stderr
    assert f"{server}/cut/" in done.stderr  # asked again
    seen = [json.loads((tmp_path / f"seen-{rank}.json").read_text()) for rank in range(2)]
    assert [len(rank) for rank in seen] == [12, 12]  # 6 steps of 2 images on each
    first_lap = [index for rank in seen for index in rank if index >> 48 == 0]
    assert len(first_lap) == len(set(first_lap)) == 23
    assert facts(tmp_path / "straight")["processes"] == 2
    assert same_model(tmp_path / "straight", tmp_path / "stopped")
    with pytest.raises(UsageError, match="the stream was read by 2 processes and now by 1, .*; resume on 2"):
        stream_on_ranks.train(
            str(shards), tmp_path / "stopped", resume=True, allow_change=["images_at_once", "data.name"]
        )


@pytest.fixture(scope="module")
def straight(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on one process that nobody stopped."""
    run = tmp_path_factory.mktemp("runs") / "straight"
    stream_on_ranks.train(str(shards), run)
    return run


def test_a_stopped_run_resumes_exactly_with_any_number_of_workers(shards: Path, straight: Path, tmp_path: Path) -> None:
    stream_on_ranks.train(str(shards), tmp_path / "stopped", settings={"train.max_steps": stream_on_ranks.STOP})
    stream_on_ranks.train(
        str(shards),
        tmp_path / "stopped",
        settings={"runtime.workers": 0},
        resume=True,
        allow_change=["train.max_steps"],
    )
    assert same_model(straight, tmp_path / "stopped")
    assert [record["step"] for record in read_metrics(tmp_path / "stopped")] == list(range(1, 7))
    assert facts(straight)["images"] is None


@pytest.mark.parametrize("stop", [0, 3])
def test_a_run_that_is_stopped_while_it_waits_for_its_stream_goes_on_exactly(
    shards: Path, straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int
) -> None:
    again, images = threading.Event(), itertools.count()

    def hanging(self: TarShards, shard: int, start: int) -> Iterator[Encoded]:
        for image in read(self, shard, start):
            if threading.current_thread().name == "read ahead" and next(images) == 5 * stop:
                os.kill(os.getpid(), signal.SIGTERM)
                again.wait(60)
            yield image

    read = TarShards.read
    monkeypatch.setattr(TarShards, "read", hanging)
    with pytest.raises(SystemExit) as ended:
        stream_on_ranks.train(str(shards), tmp_path / "stopped")
    assert ended.value.code == REQUEUE and not again.is_set()
    again.set()
    monkeypatch.undo()
    (saved,) = (tmp_path / "stopped" / "checkpoints").iterdir()
    assert bool(int(saved.stem.rpartition("-")[2])) == bool(stop)
    stream_on_ranks.train(str(shards), tmp_path / "stopped", resume=True)
    assert same_model(straight, tmp_path / "stopped")


def test_a_stream_from_the_command_line(shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "train",
        "directpred-digits",
        "--data",
        str(shards),
        "--output",
        str(tmp_path / "run"),
        "train.batch_size=8",
    ]
    quick = ["runtime.workers=0", "train.epochs=2"]
    assert main([*words, *quick, "data.stream=true"]) == 2
    assert (
        "does not say how many images it has, so train.epochs has no meaning; set train.max" in capsys.readouterr().err
    )
    assert not (tmp_path / "run").exists()
    assert main([*words, *quick]) == 2
    assert (
        "holds .tar files, which pre-training alone reads, as a stream: set data.stream=true" in capsys.readouterr().err
    )
    assert main([*words, *quick, "data.stream=true", "train.max_steps=4"]) == 0
    told = capsys.readouterr().err
    assert "(train), a stream, decoded by 0 workers" in told and "epoch 2/2" in told
    assert "not probed: the data is a stream" in told and "--data DATA_WITH_LABELS" in told
    assert ssl_hub.load(tmp_path / "run")(torch.zeros(1, 3, 16, 16)).shape == (1, 128)
    assert (
        main(
            ["views", "directpred-digits", "--data", str(shards), "data.stream=true", "--out", str(tmp_path / "s.png")]
        )
        == 0
    )


def test_a_bad_image_is_stood_in_for_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for split, count in (("train", 12), ("test", 6)):
        for name in "ab":
            (tmp_path / "photos" / split / name).mkdir(parents=True)
            for i in range(count):
                value = 120 * (name == "b") + 8 * i + 4 * (split == "test")  # no image is in both splits
                (tmp_path / "photos" / split / name / f"{i}.png").write_bytes(png(value, (16, 16)))
    for broken in ("train/a/3.png", "test/b/2.png"):
        (tmp_path / "photos" / broken).write_bytes(f"broken {broken}".encode())
    words = [
        "train",
        "directpred-digits",
        "--data",
        str(tmp_path / "photos"),
        "train.max_steps=3",
        "train.batch_size=8",
    ]
    assert main([*words, "--output", str(tmp_path / "strict")]) == 2
    assert "train/a/3.png is not an image that can be read" in capsys.readouterr().err
    skip = ["data.on_bad_image=skip", "runtime.log_every_steps=1", "runtime.knn_k=3"]
    assert main([*words, *skip, "--output", str(tmp_path / "run")]) == 0
    told = capsys.readouterr().err
    assert "1 images could not be read and were stood in for: " in told and "train/a/3.png is not an image" in told
    logged = [record for record in read_metrics(tmp_path / "run") if record["step"]]  # but for that of the start
    assert [record["bad_images"] for record in logged] == [1, 1, 1]
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert {record["split"] for record in results} == {"test without 1 unreadable"}
    assert main([*words, *skip, "data.max_bad_images=0", "--output", str(tmp_path / "capped")]) == 2
    assert "1 images cannot be read, more than data.max_bad_images=0; the last: " in capsys.readouterr().err
