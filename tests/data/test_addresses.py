"""Streams at addresses: a local file's bytes whatever the connection does, and one line where they cannot be had."""

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ssl_hub.cli import main
from ssl_hub.data import addresses
from ssl_hub.data.addresses import braced, open_file, shown
from ssl_hub.data.shards import open_shards
from ssl_hub.data.sources import open_source
from ssl_hub.errors import UsageError
from tests.data.encoded import png, write_tar
from tests.data.file_server import TRIES, served
from tests.data.test_shards import parquet, values, web_shard


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("served")
    (folder / "noise.bin").write_bytes(np.random.default_rng(0).bytes(30_000))
    for shard in range(3):
        web_shard(folder / f"train-{shard:03}.tar", *range(10 * shard, 10 * shard + 4))
    write_tar(folder / "more.tar.gz", {"a.png": png(1), "b.png": png(2)}, "w:gz")
    parquet(folder / "rows-0.parquet", 1, 2, 3, rows_per_group=2)
    parquet(folder / "rows-1.parquet", 4)
    with served(folder) as address:
        yield address


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "WAITS", (0,) * (TRIES + 1))


def test_shards_over_http(server: str) -> None:
    shards = open_shards(f"{server}/plain/train-{{000..002}}.tar", "train")
    assert shards.names() == ["train-000.tar", "train-001.tar", "train-002.tar"]
    assert values(shards) == [[10 * shard + number for number in range(4)] for shard in range(3)]
    assert values(shards, 3) == [[3], [13], [23]]
    assert values(open_shards(f"{server}/plain/more.tar.gz?download=1", "train")) == [[1, 2]]
    rows = open_shards(f"{server}/plain/rows-{{0,1}}.parquet", "train")
    assert rows.images == 4 and values(rows) == [[1, 2, 3], [4]] and values(rows, 2) == [[3], []]


@pytest.mark.parametrize("fault", ["cut", "busy", "slow"])
def test_what_passes_changes_no_byte(server: str, fault: str, caplog: pytest.LogCaptureFixture) -> None:
    with open_file(f"{server}/plain/noise.bin") as whole, open_file(f"{server}/{fault}/noise.bin") as file:
        expected = whole.read()
        assert len(expected) == 30_000 and file.read(10_000) == expected[:10_000]
        file.seek(20_000)
        assert file.read(5) == expected[20_000:20_005]
        file.seek(-3, 2)
        assert file.read() == expected[-3:]
    assert values(open_shards(f"{server}/{fault}/train-001.tar", "train")) == [[10, 11, 12, 13]]
    assert (f"{server}/cut/" in caplog.text) == (fault == "cut")  # which fails more than once


def test_a_server_that_stalls_is_given_up(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "_STALLED", 0.3)
    monkeypatch.setattr(addresses, "WAITS", (0,))
    with pytest.raises(UsageError, match="000.tar cannot be read: Timeout on reading data.*, in 2 tries; check"):
        open_shards(f"{server}/stalled/train-000.tar", "train")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/denied/train-000.tar", "train-000.tar cannot be read: access is denied .HTTP 403.; give credentials by"),
        ("/plain/train-009.tar", "train-009.tar cannot be read: there is none such .HTTP 404.; check the address, or"),
        ("/whole/train-000.tar", "its server gives files as a whole alone, without HTTP ranges; copy them to storage"),
        ("/plain/", "plain/: what a folder holds cannot be asked over HTTP; give a file, or all with braces"),
        ("/plain/*.tar", r"or all with braces, as in http.*/plain/train-\{000000\.\.000146\}\.tar"),
        ("/plain/{a.tar,b.parquet}", "matches 'a.tar'; a stream is a folder or a pattern of .tar or of .parquet files"),
    ],
)  # fmt: skip
def test_what_cannot_be_had(server: str, path: str, text: str) -> None:
    with pytest.raises(UsageError, match=text) as error:
        open_shards(server + path, "train")
    assert "\n" not in str(error.value)


def test_a_shard_that_is_missing_is_named_when_its_turn_comes(server: str) -> None:
    shards = open_shards(f"{server}/plain/train-{{000..004}}.tar", "train")
    assert len(list(shards.read(2, 0))) == 4
    with pytest.raises(UsageError, match=r"plain/train-003\.tar cannot be read: there is none such"):
        list(shards.read(3, 0))


def test_nobody_there(unused_port: int, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(UsageError, match=r"0\.tar cannot be read: .*, in 5 tries; check the network and the server"):
        open_shards(f"http://127.0.0.1:{unused_port}/0.tar", "train")
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 3


@pytest.fixture
def unused_port() -> int:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def test_folders_and_patterns_of_a_file_system() -> None:
    """fsspec's own in memory: listed as object stores are."""
    import fsspec

    memory = fsspec.filesystem("memory")
    for name in ("data/train/0.parquet", "data/test/0.parquet"):
        memory.pipe(f"/tables/{name}", b"")
    for name, number in (("x-train-1", 1), ("x-train-0", 0), ("x-val-0", 9), (".x-train-2", 7)):
        with memory.open(f"/bucket/deep/{name}.tar", "wb") as file:
            file.write(_tar(number))
    assert values(open_shards("memory://bucket", "train")) == [[0], [1]]
    assert values(open_shards("memory://bucket/deep/", "test")) == [[9]]
    assert values(open_shards("memory://bucket/deep/*-[01].tar", "train")) == [[0], [1], [9]]
    assert values(open_shards("simplecache::memory://bucket/**/x-val-{0..0}.tar", "train")) == [[9]]
    with pytest.raises(UsageError, match="stream 'memory://bucket' has no split 'unlabeled'; it has train, val"):
        open_shards("memory://bucket", "unlabeled")
    with pytest.raises(UsageError, match="^memory://nowhere cannot be read: there is none such; check the address"):
        open_shards("memory://nowhere", "train")
    with pytest.raises(UsageError, match="^memory://bucket/deep/b.* matches no file; give a folder or"):
        open_shards("memory://bucket/deep/b*.tar", "train")


def _tar(number: int) -> bytes:
    import io
    import tarfile

    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        member = tarfile.TarInfo("0.png")
        member.size = len(png(number))
        archive.addfile(member, io.BytesIO(png(number)))
    return stream.getvalue()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("pipe:curl -s https://x.org/0.tar", "a stream runs no commands, as 'pipe:' would; give the address itself"),
        ("nonsense://x/0.tar", "nonsense://x/0.tar cannot be read: Protocol not known: nonsense"),
        ("gs://bucket/0.tar", "gs://bucket/0.tar cannot be read: gs:// needs `pip install gcsfs`"),
        ("https://ann:geheim@x.org/0.tar", "address https://x.org/0.tar holds credentials, .*give them by ~/.netrc"),
        ("s3://AKIA:geheim@bucket", "address s3://bucket holds credentials, .*by AWS_PROFILE, or AWS_ACCESS_KEY_ID"),
        ("https://x.org/0.tar?X-Amz-Signature=geheim&x=1", "address https://x.org/0.tar holds credentials, w"),
        ("https://x.org/train-{9..3}.tar", r"\{9\.\.3\} in https.* counts down; write the smaller number first"),
    ],
)  # fmt: skip
def test_addresses_that_are_refused(data: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "gcsfs", None)  # as where it is not installed
    with pytest.raises(UsageError, match=text) as error:
        open_shards(data, "train")
    assert "geheim" not in str(error.value) and "\n" not in str(error.value)


def test_an_address_is_a_stream_and_nothing_else(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="^s3://x is an address, which pre-training alone reads, .*set data.stream"):
        open_source("s3://x", "train")
    with pytest.raises(UsageError, match="holds credentials") as error:
        open_source("https://x.org/0.tar?token=geheim", "train")
    assert "geheim" not in str(error.value)
    assert main(["data", f"{server}/plain/train-{{000..002}}.tar"]) == 0
    told = capsys.readouterr().out
    assert "train-{000..002}.tar: a stream of 3 files, 1 split" in told and "data.stream=true" in told
    assert re.search(r"--data '?http", told)
    assert main(["data", f"{server}/plain/train-009.tar"]) == 2


def test_credentials_are_written_nowhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "directpred-digits", "data.stream=true", "train.max_steps=1", "--output", str(tmp_path / "run")]
    assert main([*words, "--data", "https://ann:geheim@x.org/0.tar"]) == 2
    told = capsys.readouterr()
    assert "holds credentials" in told.err and "geheim" not in told.out + told.err
    assert not (tmp_path / "run").exists()


def test_braces() -> None:
    assert braced("a-{08..10}.{tar,tgz}") == [f"a-{n}.{end}" for n in ("08", "09", "10") for end in ("tar", "tgz")]
    assert braced("plain [x].tar") == ["plain [x].tar"] and braced("{x}") == ["{x}"]


def test_local_braces(tmp_path: Path) -> None:
    for number in range(3):
        web_shard(tmp_path / f"train-{number:02}.tar", number)
    web_shard(tmp_path / "{0..1}.tar", 9)
    assert values(open_shards(f"{tmp_path}/train-{{00..02}}.tar", "train")) == [[0], [1], [2]]
    assert values(open_shards(f"{tmp_path}/{{0..1}}.tar", "train")) == [[9]]  # a name that exists
    with pytest.raises(UsageError, match=r"shard .*/train-03\.tar does not exist, which the braces name; put it"):
        open_shards(f"{tmp_path}/train-{{00..04}}.tar", "train")


def test_what_is_shown() -> None:
    text = "403, url='https://ann:pw@cdn.org/a?X-Amz-Signature=abc' and s3://k:s@b/x?y"
    assert shown(text) == "403, url='https://cdn.org/a' and s3://b/x"
