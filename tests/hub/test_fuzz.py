"""Every file of a release damaged in ways that know its structure: no outcome but the same numbers or one line."""

from __future__ import annotations

import copy
import json
import random
import resource
import shutil
import struct
import time
import warnings
from pathlib import Path

import pytest
import torch

from ssl_hub.errors import UsageError
from ssl_hub.hub.card import release_card
from ssl_hub.hub.glance import problem_of
from ssl_hub.hub.verify import verify
from ssl_hub.model.files import CONFIG, HASHES, METHOD, MODEL, RECIPE, RESULTS_FILE
from tests.hub.releases import features, places

JSON = (CONFIG, RECIPE, RESULTS_FILE, HASHES, "heads/digits.json")
TENSORS = (MODEL, METHOD, "heads/digits.safetensors")
VALUES = (None, True, -1, 0, 10**30, 1e308, float("nan"), "", "x" * 5000, "../../etc", [], {}, [[]], {"a": [1]})
MOST_SECONDS, MOST_KILOBYTES = 10, 400_000  # of a processor, for one variant; what all of them may add to the memory


def another_json(draw: random.Random, data: bytes) -> bytes:
    """A value replaced, removed or moved, keys added, nesting, or the text itself."""
    content = {"": json.loads(data)}
    *way, last = ("", *draw.choice(list(places(content[""]))))
    place = content
    for key in way:
        place = place[key]
    kind = draw.choice(["value", "value", "remove", "add", "deep", "copy", "bytes", "cut"])
    if kind == "value":
        place[last] = draw.choice(VALUES)
    elif kind == "remove" and last != "":
        del place[last]
    elif kind == "add" and isinstance(place, dict):
        place[draw.choice(["url", "file", "custom_load", "novel", "model_args", "num_classes"])] = draw.choice(VALUES)
    elif kind == "deep":
        for _ in range(draw.choice([10, 100, 900])):
            place[last] = [place[last]]
    elif kind == "copy":
        place[last] = copy.deepcopy(content[""])
    text = json.dumps(content[""]).encode()
    return damaged(draw, text) if kind in ("bytes", "cut") else text


def another_safetensors(draw: random.Random, data: bytes) -> bytes:
    """A header with another type, shape, offset, name or length, or other bytes."""
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    name = draw.choice([key for key in header if key != "__metadata__"])
    entry = header[name]
    kind = draw.choice(["type", "shape", "offsets", "rename", "swap", "remove", "length", "bytes", "metadata"])
    if kind == "type":
        entry["dtype"] = draw.choice(["F32", "I32", "U8", "BF16", "F64", "C64", "F8_E4M3", "BOOL", "X", 3])
    elif kind == "shape":
        entry["shape"] = draw.choice([[], [0], [-1], [2**62], [2**31, 2**31], [1, *entry["shape"]], "x", [1.5]])
    elif kind == "offsets":
        entry["data_offsets"] = draw.choice([[0, 0], [0, 2**63], [5, 1], [-4, 4], [0], None])
    elif kind == "rename":
        header[draw.choice(["x", "../x", "", "conv1.weight", "é" * 400])] = header.pop(name)
    elif kind == "swap":
        other = draw.choice([key for key in header if key != "__metadata__"])
        header[name], header[other] = header[other], header[name]
    elif kind == "remove":
        del header[name]
    elif kind == "metadata":
        header["__metadata__"] = draw.choice([None, {"format": 3}, {"format": "tf"}, [], {"x": "y" * 10**5}])
    elif kind == "bytes":
        return damaged(draw, data)
    text = json.dumps(header).encode()
    said = draw.choice([0, 1, len(text) + 9, 2**31, 2**63 + 1, 10**8]) if kind == "length" else len(text)
    return struct.pack("<Q", said) + text + body


def damaged(draw: random.Random, data: bytes) -> bytes:
    at = draw.randrange(len(data))
    kind = draw.choice(["bit", "bit", "cut", "twice", "zeros", "empty", "noise"])
    if kind == "bit":
        return data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1 :]
    made = {"cut": data[:at], "twice": data + data, "zeros": bytes(len(data)), "empty": b"", "noise": None}[kind]
    return draw.randbytes(min(at + 1, 4096)) if made is None else made


def numbers(folder: Path, **options: object) -> list[torch.Tensor]:
    return [features(folder, **options), features(folder, which="target", **options)]


def check_variants(whole: Path, folder: Path, count: int, seed: int) -> dict[str, int]:
    """Make that many variants of one file each; returns how many were refused and how many gave the same numbers."""
    expected, before = numbers(whole), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcomes = {"refused": 0, "the same": 0}
    for number in range(count):
        draw = random.Random(f"{seed} {number}")
        name = draw.choice(JSON + TENSORS)
        data = (whole / name).read_bytes()
        make = another_json if name in JSON else another_safetensors
        (folder / name).write_bytes(make(draw, data))
        started, variant = time.process_time(), f"seed {seed}, variant {number}, {name}"
        try:
            found = numbers(folder)
            outcomes["the same"] += 1
            assert all(map(torch.equal, found, expected)), f"{variant}: other numbers in silence"
        except UsageError as error:
            outcomes["refused"] += 1
            assert "\n" not in str(error) and len(str(error)) < 2000, variant
        for action in (verify, release_card, lambda where: numbers(where, check_hashes=False)):
            try:
                action(folder)
            except UsageError as error:
                assert "\n" not in str(error), variant
        assert "\n" not in problem_of(folder), variant
        assert time.process_time() - started < MOST_SECONDS, variant
        (folder / name).write_bytes(data)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < MOST_KILOBYTES, f"{grown} kB more than before"
    return outcomes


@pytest.fixture
def folder(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "variant"))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_no_damage_gives_other_numbers_a_traceback_a_hang_or_a_large_allocation(run, folder, seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = check_variants(run, folder, 3000 if seed else 24, seed)
    assert min(outcomes.values()) > 0
