"""Streams from an S3-compatible server, moto's, in a process of its own: `pip install 'moto[server]' s3fs`.

Left out where they are not installed: with what they need they are over 300 MB.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice

import pytest

from ssl_hub.data import addresses
from ssl_hub.data.shards import open_shards
from ssl_hub.data.streams import Cursor, StreamOrder
from ssl_hub.errors import UsageError
from tests.data.test_shards import parquet, values, web_shard

pytest.importorskip("moto", reason="the S3 server of the tests is not installed: pip install 'moto[server]' s3fs")
s3fs = pytest.importorskip("s3fs")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a bucket."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": "us-east-1",
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}  # fmt: skip
    before = dict(os.environ)
    os.environ.update(settings)
    process = subprocess.Popen([sys.executable, "-m", "moto.server", "-p", str(port)], stderr=subprocess.DEVNULL)
    folder = tmp_path_factory.mktemp("bucket")
    for number in range(4):
        web_shard(folder / f"train-{number:03}.tar", *range(10 * number, 10 * number + 6))
    web_shard(folder / "val" / "0.tar", 99)
    parquet(folder / "tables" / "train-0.parquet", 1, 2, 3, rows_per_group=2)
    try:
        _await(port)
        s3 = s3fs.S3FileSystem()
        s3.mkdir("pictures")
        s3.put(f"{folder}/", "pictures/all/", recursive=True)
        yield "s3://pictures/all"
    finally:
        process.kill()
        process.wait()
        os.environ.clear()
        os.environ.update(before)


def _await(port: int) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("the S3 server did not start")


def test_folders_patterns_and_braces(store: str) -> None:
    expected = [[10 * number + i for i in range(6)] for number in range(4)]
    assert values(open_shards(store, "train")) == expected
    assert values(open_shards(store, "test")) == [[99]]
    assert values(open_shards(f"{store}/train-*.tar", "train"), 4) == [row[4:] for row in expected]
    assert values(open_shards(f"{store}/train-{{001..003}}.tar", "train")) == expected[1:]
    rows = open_shards(f"{store}/tables", "train")
    assert rows.images == 3 and values(rows, 1) == [[2, 3]]


def test_a_place_within_a_shard_is_found_again(store: str) -> None:
    def stream() -> StreamOrder:
        return StreamOrder(open_shards(store, "train"), seed=0, rank=1, world=2, window=4)

    straight = list(islice(stream().after(Cursor()), 20))
    rest = list(islice(stream().after(straight[6][1]), 13))
    assert rest == straight[7:]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("s3://nowhere/train", "s3://nowhere/train cannot be read: there is none such"),
        ("s3://pictures/all/train-009.tar", r"train-009\.tar cannot be read: there is none such"),
        ("s3://pictures/none/*.tar", "matches no file; give a folder or a pattern"),
    ],
)
def test_what_is_not_there(store: str, data: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "WAITS", ())
    with pytest.raises(UsageError, match=text) as error:
        open_shards(data, "train")
    assert "\n" not in str(error.value)
