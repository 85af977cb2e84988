"""The inventory: counts, samples, duplicates and what is passed over, of every layout."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ssl_hub.data.images import Source
from ssl_hub.data.inventory import inventory, sample_of, summary
from ssl_hub.data.look import Look, look_at
from ssl_hub.data.sources import open_source
from ssl_hub.data.stored import Pixels
from ssl_hub.data.survey import survey
from ssl_hub.data.value_range import AUTO, ValueRange
from ssl_hub.errors import UsageError
from tests.data.encoded import png, png16, write_tar
from tests.data.microscopy import microscopy


def test_of_a_laboratory_s_folder(tmp_path: Path) -> None:
    found = survey(str(microscopy(tmp_path / "cells")), thorough=True)
    json.dumps(found, allow_nan=False)
    train, test = found["splits"]["train"], found["splits"]["test"]
    assert (train["called"], test["called"]) == ("Training", "Testing")
    assert train["classes"] == {"control": 12, "treated": 12} and train["unlabelled"] == 0
    assert train["endings"] == {".tif": 24} and test["images"] == 9
    assert train["passed_over"] == {
        ".czi": {"number": 1, "example": "control/stack.czi"}, ".db": {"number": 1, "example": "Thumbs.db"},
        ".xml": {"number": 1, "example": "control/settings.xml"},
    }  # fmt: skip
    seen = train["looked_at"]
    assert seen["unreadable"]["number"] == 1 and "treated/well 1/field_001.tif" in seen["unreadable"]["examples"][0]
    assert (seen["width"], seen["sizes"], seen["bits"]) == ([64, 64, 64], 1, {"16": 23})
    assert seen["values"][1] <= 4000 and seen["range"] == [0, 65535] and seen["used"] < 0.07
    (across,) = found["duplicates"]["across"]
    assert across["splits"] == ["train", "test"] and across["images"] == 1
    assert across["examples"] == [["control/well 0/field_000.tif", "control/well 1/copy of 0.tif"]]
    assert found["duplicates"]["within"] == {}


def test_under_the_right_range_most_of_it_is_used(tmp_path: Path) -> None:
    found = survey(str(microscopy(tmp_path)), value_range="12", thorough=True)
    assert found["splits"]["train"]["looked_at"]["range"] == [0, 4095]
    assert found["splits"]["train"]["looked_at"]["used"] > 0.8


@pytest.mark.parametrize(("count", "looked_at"), [(0, 0), (3, 3), (100, 8), (2_000, 10), (1_000_000, 64)])
def test_the_cheap_form_looks_at_few(count: int, looked_at: int) -> None:
    places = sample_of(count)
    assert len(places) == looked_at and places == sorted(set(places))
    assert not places or (places[0], places[-1]) == (0, count - 1)


def test_the_thorough_form_looks_at_all() -> None:
    source = Source("x", "train", Pixels(np.zeros((600, 4, 6, 3), np.uint8)))
    assert inventory(source)["looked_at"]["images"] == 8
    whole = inventory(source, thorough=True)
    assert whole["looked_at"]["images"] == 600 and whole["looked_at"]["width"] == [6, 6, 6]
    assert (whole["classes"], whole["unlabelled"], whole["endings"]) == (None, None, {})


def test_copies_inside_a_split(tmp_path: Path) -> None:
    for number, value in enumerate((1, 2, 1, 1)):
        (tmp_path / f"{number}.png").write_bytes(png(value))
    assert survey(str(tmp_path))["duplicates"]["within"] == {
        "train": {"images": 2, "examples": [["0.png", "2.png"], ["0.png", "3.png"]]}
    }


def test_contents_of_large_data_are_compared_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        (tmp_path / f"{number}.png").write_bytes(png(0))
    monkeypatch.setattr("ssl_hub.data.survey.CHEAP_BYTES", 10)
    assert survey(str(tmp_path))["duplicates"] is None
    assert survey(str(tmp_path), thorough=True)["duplicates"]["within"]["train"]["images"] == 2


def test_modes_bits_and_values_are_those_of_the_files(tmp_path: Path) -> None:
    ramp = np.arange(64, dtype=np.uint16).reshape(8, 8, 1) * 64
    (tmp_path / "a.png").write_bytes(png16(np.repeat(ramp, 3, axis=2)))
    Image.fromarray(ramp[..., 0].astype(np.float32)).save(tmp_path / "b.tif")
    Image.new("1", (9, 5)).save(tmp_path / "c.png")
    Image.new("CMYK", (8, 8)).save(tmp_path / "d.jpg")
    known = inventory(open_source(str(tmp_path), "train", value_range="12"), values=ValueRange(0, 4095))
    seen = known["looked_at"]
    assert seen["modes"] == {"RGB": 1, "F": 1, "1": 1, "CMYK": 1}
    assert seen["bits"] == {"16": 1, "float": 1, "1": 1, "8": 1}
    assert (seen["values"], seen["sizes"], seen["used"]) == ([0, 4032], 2, round(4032 / 4095, 4))


def test_images_of_no_number() -> None:
    nothing = summary([Look(4, 4, "F", 0, np.inf, -np.inf)])
    assert nothing["values"] == nothing["percentiles"] == [0, 1]
    assert summary([])["images"] == 0


def test_what_cannot_be_read_is_no_end_to_it(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"")
    assert look_at((str(tmp_path / "a.png"), "a.png"), AUTO).error == "a.png is empty; replace it or remove it"
    seen = survey(str(tmp_path), thorough=True)["splits"]["train"]["looked_at"]
    assert seen == {"images": 1, "unreadable": {"number": 1, "examples": [f"{tmp_path}/a.png is empty; replace it or "
                    "remove it"]}}  # fmt: skip


def test_masks_beside_images_are_seen(tmp_path: Path) -> None:
    for name in ("a.png", "a_mask.png", "b.png", "b-seg.png", "unmask.png", "mask.png"):
        (tmp_path / name).write_bytes(png(1))
    known = survey(str(tmp_path))["splits"]["train"]
    assert known["companions"] == {"number": 2, "example": "a_mask.png"}


def test_of_tables_and_registered_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digits = survey("digits")
    assert [*digits["splits"]] == ["train", "test"] and digits["duplicates"] == {"within": {}, "across": []}
    assert digits["splits"]["train"]["images"] == 1297 and len(digits["splits"]["train"]["classes"]) == 10
    from datasets import ClassLabel, Dataset, Features
    from datasets import Image as ImageFeature

    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    features = Features({"image": ImageFeature(), "label": ClassLabel(names=["a", "b"])})
    for split, values in (("train", (1, 2, 3)), ("test", (3,))):
        cells = [{"bytes": png(value), "path": f"{value}.png"} for value in values]
        table = Dataset.from_dict({"image": cells, "label": [0] * len(cells)}, features)
        table.to_parquet(tmp_path / "data" / f"{split}.parquet")
    found = survey(str(tmp_path / "data"))
    assert found["splits"]["train"]["classes"] == {"a": 3, "b": 0}
    assert found["splits"]["train"]["endings"] == {".png": 3}
    assert found["duplicates"]["across"] == [{"splits": ["train", "test"], "images": 1, "examples": [["2", "0"]]}]


def test_of_streams(tmp_path: Path) -> None:
    write_tar(tmp_path / "x-train-0.tar", {f"{n}.png": png(n) for n in range(100)})
    write_tar(tmp_path / "x-val-0.tar", {"1.png": png(1)})
    found = survey(str(tmp_path))
    assert found["stream"] and found["duplicates"] is None and [*found["splits"]] == ["train", "val"]
    assert found["splits"]["train"]["looked_at"]["images"] == 64 and found["splits"]["train"]["shards"] == 1


def test_a_split_that_cannot_be_opened_is_named_and_the_others_are_not_lost(tmp_path: Path) -> None:
    for folder in ("train/ant", "test/zebra"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "1.png").write_bytes(png(1))
    found = survey(str(tmp_path))
    assert found["splits"]["train"]["images"] == 1
    assert "has class 'zebra', which split 'train' lacks" in found["splits"]["test"]["error"]
    (tmp_path / "train" / "ant" / "1.png").unlink()
    with pytest.raises(UsageError, match=r"class folder .*ant has no images"):
        survey(str(tmp_path / "train"))
