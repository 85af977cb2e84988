"""Which split a file of many images is of, and where that would join different data."""

from pathlib import Path, PurePath

import pytest

from ssl_hub.data.file_splits import by_split, files_below
from ssl_hub.errors import UsageError

ONE = "-00000-of-00001.parquet"


def grouped(*names: str) -> dict[str, list[str]]:
    return by_split({PurePath(name): name for name in names}, "ROOT")


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (
            ("en/train.parquet", "de/train.parquet", "en/test.parquet"),
            r"^split 'train' lies in 2 places of ROOT that may hold different data \(de, en\); give the folder of one, "
            r"as ROOT/en, or, where they belong together, move its files, with their folders, into a folder train$",
        ),
        (("data/en/train/0.parquet", "data/de/train/0.parquet"), r"\(data/de, data/en\); .* as ROOT/data/en,"),
        (("en/train-00000-of-00001.parquet", "de/train-00000-of-00001.parquet"), r"\(de, en\)"),
        (("train.parquet", "old/train.parquet"), r"\(\., old\)"),
        (("32/train.tar", "64/train.tar"), r"\(32, 64\)"),
        (("fold1/train.tar", "fold1/test.tar", "fold2/train.tar"), r"\(fold1, fold2\); .* as ROOT/fold2,"),
        (("train_fold1.tar", "train_fold2.tar"), r"\(train_fold1\.tar, train_fold2\.tar\); move each to a folder"),
        (("2020/train.parquet", "2021/train.parquet"), r"\(2020, 2021\); .* as ROOT/2021,"),
        (("0/train.tar", "10/train.tar"), r"\(0, 10\)"),
        ((f"train_a/train{ONE}", f"train_b/train{ONE}"), r"\(train_a, train_b\)"),
    ],
)
def test_configurations_are_not_joined(names: tuple[str, ...], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        grouped(*names)


def test_configurations_that_belong_together_are_joined_as_it_says() -> None:
    for names in (
        ("en/train.parquet", "de/train.parquet"),
        ("en/train/0.parquet", "de/train/0.parquet"),
        (f"en/train{ONE}", f"de/train{ONE}"),
        ("train_fold1.tar", "train_fold2.tar"),
    ):
        with pytest.raises(UsageError, match="move its files, with their folders, into a folder train$"):
            grouped(*names)
        assert {split: len(files) for split, files in grouped(*(f"train/{name}" for name in names)).items()} == {
            "train": 2
        }


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (("part-0/train-0.tar", "part-1/train-1.tar"), {"train": 2}),
        (("000/train.tar", "001/train.tar"), {"train": 2}),
        (("000/train.tar", "099/train.tar", "100/train.tar"), {"train": 3}),
        (("2021/train.parquet", "2021/test.parquet"), {"train": 1, "test": 1}),
        (("year=2023/train.parquet", "year=2024/train.parquet"), {"train": 2}),
        (("a/train-00000-of-00002.tar", "b/train-00001-of-00002.tar"), {"train": 2}),
        (("train/en/0.tar", "train/de/0.tar", "test/en/0.tar"), {"train": 2, "test": 1}),
        (("data/train.parquet", "data/test.parquet"), {"train": 1, "test": 1}),
        (("en/0.tar", "de/0.tar"), {"train": 2}),  # no name speaks of a split
        (("split_000.tar", "split_001.tar"), {"train": 2}),
        (("train/data-00000-of-00001.arrow", "test/data-00000-of-00001.arrow"), {"train": 1, "test": 1}),
        (("train-00000-of-00001.tar", "extra-00000-of-00001.tar"), {"train": 1, "extra": 1}),
        (("fold1/0.tar", "fold1/1.tar", "fold2/0.tar"), {"fold1": 2, "fold2": 1}),
        (("val/0.tar", "val_hard/0.tar", "train/0.tar"), {"val": 1, "val_hard": 1, "train": 1}),
        (("kfold1.tar", "kfold2.tar"), {"kfold1": 1, "kfold2": 1}),
        (("fold1-000.tar", "fold2-000.tar", "test.tar"), {"fold1": 1, "fold2": 1, "test": 1}),
    ],
)
def test_splits_of_files(names: tuple[str, ...], splits: dict[str, int]) -> None:
    assert {split: len(files) for split, files in grouped(*names).items()} == splits


def test_a_picture_beside_tables_hides_none_of_them(tmp_path: Path) -> None:
    """Whichever of them the system lists first."""
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        for name in ("preview.png", "0.parquet", "a.jpg"):
            (tmp_path / split / name).touch()
    assert len(files_below(tmp_path, ".parquet")) == 2
