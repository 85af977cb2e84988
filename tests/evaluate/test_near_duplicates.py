"""Images that are there twice or nearly: found, told from those of the same content, and left out."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from ssl_hub.cli import main
from ssl_hub.data.sources import open_source
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.features import Features
from ssl_hub.evaluate.mild_changes import calibrate, changed
from ssl_hub.evaluate.near_duplicates import near_duplicates
from ssl_hub.exporting.parity import pictures


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Thirty images that differ, and planted: the same file twice, a JPEG copy, both again across splits."""
    root = tmp_path_factory.mktemp("photos")
    for split in ("train", "test"):
        (root / split).mkdir()
    for place, picture in enumerate(pictures(40, 64)):
        split = "train" if place < 30 else "test"
        Image.fromarray(picture.permute(1, 2, 0).numpy()).save(root / split / f"{place:02}.png")
    shutil.copy(root / "train/03.png", root / "train/copy of 03.png")
    changed(Image.open(root / "train/05.png"))[0].save(root / "train/05 small.jpg", quality=90)
    shutil.copy(root / "train/07.png", root / "test/seven.png")
    changed(Image.open(root / "train/11.png"))[0].save(root / "test/eleven.png")
    return root


def test_planted_duplicates_are_found_and_no_others(photos):
    found = near_duplicates("directpred-digits", str(photos), against="test", workers=0)
    pairs = {(pair.first, pair.second): pair.same for pair in found.pairs()}
    assert pairs == {
        ("train/03.png", "train/copy of 03.png"): True,
        ("train/05 small.jpg", "train/05.png"): False,
        ("train/07.png", "test/seven.png"): True,
        ("train/11.png", "test/eleven.png"): False,
    }
    dropped = ["05.png", "07.png", "11.png", "copy of 03.png"]
    assert [found.source.id(row) for row in found.dropped()] == dropped
    assert sorted([*found.kept(), *found.dropped()]) == list(range(32))
    assert found.calibration.copies > 0.9 and not found.calibration.doubtful


def test_of_a_chain_what_is_near_nothing_that_stays_stays(photos):
    found = near_duplicates("pixels", str(photos), threshold=0.999999, workers=0)
    rows = np.array([[0, 1], [1, 2], [3, 4]])
    chained = type(found.inside)(rows[:, 0], rows[:, 1], np.ones(3, np.float32))
    object.__setattr__(found, "inside", chained)
    assert found.dropped().tolist() == [1, 4]  # 2 is near 1 alone, which is gone


def test_a_model_that_tells_nothing_apart_is_doubtful(photos):
    source = open_source(str(photos), "train")
    draw = np.random.default_rng(0)

    def noise(images):
        return Features(1 + draw.normal(size=(len(images), 8)), np.full(len(images), -1), None, "photos", "train")

    calibration = calibrate(source, noise(source), noise)
    assert calibration.doubtful and "hardly tells them apart here: look at --sheet" in calibration.text()


@pytest.mark.parametrize("value", [0.0, 1.5])
def test_a_model_that_has_collapsed_has_no_threshold(photos, value):
    source = open_source(str(photos), "train")

    def constant(of):
        rows = np.full((len(of), 4), value, np.float32)
        return Features(rows, np.full(len(of), -1), None, "photos", "train")

    with pytest.raises(UsageError, match="gives most images of .* the same features, so it tells no duplicates"):
        calibrate(source, constant(source), constant)


def test_data_full_of_duplicates_does_not_hide_them(tmp_path):
    (tmp_path / "train").mkdir()
    for place, picture in enumerate(pictures(26, 64)):
        image = Image.fromarray(picture.permute(1, 2, 0).numpy())
        image.save(tmp_path / f"train/{place}.png")
        if place < 8:  # sixteen of 34 images have one
            changed(image)[0].save(tmp_path / f"train/{place} again.jpg", quality=95)
    found = near_duplicates("directpred-digits", str(tmp_path), workers=0)
    pairs = {(pair.first, pair.second) for pair in found.pairs()}
    planted = {(f"train/{place} again.jpg", f"train/{place}.png") for place in range(8)}
    assert len(pairs & planted) >= 7 and len(pairs - planted) <= 1


def test_mild_changes_are_mild():
    image = Image.fromarray(pictures(1, 100)[0].permute(1, 2, 0).numpy())
    assert [copy.size for copy in changed(image)] == [(75, 75), (92, 92)]
    assert [copy.size for copy in changed(image.resize((1, 1)))] == [(1, 1), (1, 1)]


def test_the_command_writes_lists_that_open_and_a_sheet(photos, tmp_path, capsys):
    options = ["--model", "directpred-digits", "--against", "test", "--workers", "0"]
    options += ["--index", str(tmp_path / "index")]
    keep, drop = tmp_path / "keep.txt", tmp_path / "drop.txt"
    outputs = ["--list-keep", str(keep), "--list-drop", str(drop), "--sheet", str(tmp_path / "pairs.png")]
    assert main(["duplicates", str(photos), *options, *outputs]) == 0
    said = capsys.readouterr()
    assert "2 pairs of the same content, 2 nearly (cosine at least 0.9" in said.out
    assert "1.0000  same  train/03.png  train/copy of 03.png\n" in said.out
    assert "without duplicates: 28 of 32 images; 4 left out, 2 of them for images of " in said.out
    assert said.err.endswith("/test: made\n")
    assert len(open_source(str(photos), f"train@{keep}")) == 28
    assert list(open_source(str(photos), f"train@{drop}").names())[-1] == "copy of 03.png"
    assert Image.open(tmp_path / "pairs.png").size == (496, 154)
    assert main(["duplicates", str(photos), *options, "--json"]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert (found["images"], len(found["pairs"]), len(found["dropped"])) == (32, 4, 4)
    assert said.err.count("reused") == 2
    keep.unlink()
    again = ["--split", f"train@{drop}", "--list-keep", str(keep), "--threshold", "0.98"]
    assert main(["duplicates", str(photos), "--model", "pixels", *again]) == 0
    assert keep.read_bytes() == drop.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--threshold", "1.5"], "threshold is 1.5, expected a number from -1 to 1; left out, it is chosen"),
        (["--list-keep", "gone/list.txt"], "the folder gone does not exist"),
        (["--sheet", "sheet.txt"], "sheet.txt does not end as a picture does"),
        (["--against", "extra"], "has no split 'extra'"),
        (["--split", "test", "--against", "validation"], "/test itself; pairs within a split"),
        (["--split", "test", "--against", "test[:2]"], "/test[:2] too, and each would be its own duplicate"),
    ],
)
def test_bad_input_says_what_to_do(photos, arguments, message, capsys):
    assert main(["duplicates", str(photos), "--model", "pixels", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_data_without_file_names_has_no_list(tmp_path):
    found = near_duplicates("pixels", "digits", split="test", threshold=0.999)
    from ssl_hub.data.file_lists import write_list

    with pytest.raises(UsageError, match="split 'test' of digits has no file names, so no list can name its images"):
        write_list(found.source, found.kept(), tmp_path / "list.txt")
