"""What a data name means, and what is said where it means nothing."""

from pathlib import Path

import pytest
from PIL import Image

from ssl_hub.data.shard_files import shard_files
from ssl_hub.data.sources import SOURCES, open_source
from ssl_hub.data.splits import resolve_split
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.extraction import known_of
from ssl_hub.train.grid import findable
from ssl_hub.zoo import get_recipe


@pytest.mark.parametrize("data", ["./nowhere", "/no/where", "~/nowhere_at_all", "a/b/c", "nowhere/"])
def test_a_path_that_does_not_exist(data: str) -> None:
    with pytest.raises(
        UsageError, match=rf"data path '{data}' does not exist; give a folder that does, or one of .*digits"
    ):
        open_source(data, "train")


def test_no_name_at_all_is_not_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Image.new("L", (8, 8)).save("photo.png")
    name, *_ = known_of(get_recipe("byol-digits"), "")  # and not what the recipe names
    for use in (lambda: open_source(name, "train"), lambda: shard_files(name)):
        with pytest.raises(UsageError, match=r"^got '' for a path; write the path out"):
            use()
    assert findable("") == ""


def test_not_a_hub_dataset_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UsageError) as error:
        open_source("nobody/no-such-data", "train")
    text = str(error.value)
    assert text.startswith("data 'nobody/no-such-data' is no registered name ('digits'")
    assert "no path that exists, and no Hub dataset that loads: " in text
    assert "\n" not in text and len(text) < 400


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "images.zip").write_bytes(b"x")
    with pytest.raises(UsageError, match=r"images\.zip' is a file; give the folder"):
        open_source(str(tmp_path / "images.zip"), "train")


def test_registered_names_win_over_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "digits").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.warns(
        UserWarning, match=r"^'digits' is the registered data, not the folder: write \./digits for that$"
    ):
        assert open_source("digits", "train").name == "digits"
    with pytest.raises(UsageError, match="no images in digits"):
        open_source("./digits", "train")


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [("[:10%]", slice(0, 130)), ("[90%:]", slice(1167, None)), ("[25%:50%:100]", slice(324, 648, 100)),
     ("[-5:]", slice(-5, None)), ("[::500]", slice(None, None, 500))],
)  # fmt: skip
def test_parts_of_a_split(bounds: str, expected: slice) -> None:
    whole, part = open_source("digits", "train"), open_source("digits", f"train{bounds}")
    assert len(whole) == 1297 and part.split == f"train{bounds}"
    assert part.labels is not None and part.labels.tolist() == whole.labels[expected].tolist()  # type: ignore[index]


@pytest.mark.parametrize("split", ["train[10]", "train[:10", "train[a:]", "train[:5]x"])
def test_what_is_no_part(split: str) -> None:
    with pytest.raises(UsageError, match=r"is no slice, as in 'train\[:5000\]', 'train\[:10%\]' or"):
        open_source("digits", split)


@pytest.mark.parametrize(
    ("split", "twice"),
    [("test+test", 500), ("val+test", 500), ("test[:50]+test[40:60]", 10), ("train+test+test[::250]", 2)],
)
def test_no_image_is_taken_twice(split: str, twice: int) -> None:
    with pytest.raises(UsageError, match=f"of digits takes {twice} of the test images twice; name each image once"):
        open_source("digits", split)
    assert len(open_source("digits", "test[:50]+train+test[50:]")) == 1797


@pytest.mark.parametrize("split", ["", "train+", "+test", "train@", "@list.txt", "[:5]"])
def test_split_names_must_be_names(split: str) -> None:
    with pytest.raises(UsageError, match=r"is not a name or names joined by '\+'"):
        open_source("digits", split)


def test_columns_of_registered_data() -> None:
    with pytest.raises(UsageError, match=r"registered data 'digits' has no columns, but data\.image_column is 'img'"):
        open_source("digits", "train", image_column="img")


@pytest.mark.parametrize("name", SOURCES.names())
def test_every_registered_source_is_consistent(name: str) -> None:
    train, test = open_source(name, "train"), open_source(name, "test")
    assert train.classes == test.classes
    assert train.image(len(train) - 1).mode == "RGB"
    with pytest.raises(UsageError, match="has no split 'nonesuch'; it has "):
        SOURCES[name]("nonesuch")  # resolve_split says so


def test_registered_data_that_is_no_source_is_an_error(monkeypatch):
    monkeypatch.setitem(SOURCES._entries, "bare", lambda split: [1, 2])
    with pytest.raises(UsageError, match=r"registered data 'bare' gives list for split 'train', expected a Source: "):
        open_source("bare", "train")


def test_resolve_split_order() -> None:
    assert resolve_split("val", ["test", "validation"], "x") == "validation"
    assert resolve_split("test", ["train", "valid", "validation"], "x") == "validation"
    assert resolve_split("test", ["test", "validation"], "x") == "test"
    with pytest.raises(UsageError, match="x has no split 'train'; it has test"):
        resolve_split("train", ["test"], "x")
    with pytest.raises(UsageError, match="x has no split 'extra'; it has none"):
        resolve_split("extra", [], "x")
