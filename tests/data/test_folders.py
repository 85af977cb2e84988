"""Image folders: layouts, classes that agree over splits, and every way in which a folder is not what it should be."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ssl_hub.data.sources import open_source
from ssl_hub.errors import UsageError


def fill(folder: Path, *names: str, colour: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        # The sizes are an icon's alone: Pillow 11 writes an .ico without an image where that is smaller than 16 pixels.
        Image.new("RGB", (6, 6), (colour, 0, 0)).save(folder / name, sizes=[(6, 6)])


def test_class_folders_without_splits(tmp_path: Path) -> None:
    fill(tmp_path / "dog", "b.png", "a.JPG", colour=200)
    fill(tmp_path / "cat", "x.png")
    source = open_source(str(tmp_path), "train")
    assert source.classes == ("cat", "dog")
    assert source.labels is not None and source.labels.tolist() == [0, 1, 1]
    assert source.labels.dtype == np.int64
    assert source.image(0).getpixel((0, 0)) == (0, 0, 0)
    assert source.image(2).getpixel((0, 0)) == (200, 0, 0)
    text = r"no split folders.*no split 'test'; lay it out as .*/train/<class>/ and .*, or ask for 'train' to get all"
    with pytest.raises(UsageError, match=text):
        open_source(str(tmp_path), "test")


def test_links_that_lead_nowhere_else_and_folders_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "cat", "x.png")
    (tmp_path / "cat" / "again").symlink_to(tmp_path / "cat", target_is_directory=True)
    with pytest.raises(UsageError, match=r"cat/again is a link to a folder that it lies in; remove it"):
        open_source(str(tmp_path), "train")
    (tmp_path / "cat" / "again").unlink()
    (tmp_path / "dog").symlink_to(tmp_path / "dog")
    with pytest.raises(UsageError, match=r"cannot follow .*/dog: Too many levels of symbolic links"):
        open_source(str(tmp_path), "train")
    (tmp_path / "dog").unlink()

    def denied(folder: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(folder))

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(UsageError, match=f"cannot read the folder {tmp_path}: Permission denied"):
        open_source(str(tmp_path), "train")


@pytest.mark.parametrize("held_out", ["test", "val", "valid", "validation"])
@pytest.mark.parametrize("asked", ["test", "val", "valid", "validation"])
def test_split_synonyms(tmp_path: Path, held_out: str, asked: str) -> None:
    fill(tmp_path / "train" / "cat", "x.png", "y.png")
    fill(tmp_path / held_out / "cat", "z.png")
    source = open_source(str(tmp_path), asked)
    assert (source.split, len(source)) == (held_out, 1)


def test_train_is_never_a_stand_in(tmp_path: Path) -> None:
    fill(tmp_path / "train" / "cat", "x.png")
    with pytest.raises(UsageError, match=r"has no split 'test'; it has train$"):
        open_source(str(tmp_path), "test")
    fill(tmp_path / "test" / "cat", "x.png")
    (tmp_path / "train" / "cat" / "x.png").unlink()
    (tmp_path / "train" / "cat").rmdir()
    (tmp_path / "train").rmdir()
    with pytest.raises(UsageError, match=r"has no split 'train'; it has test$"):
        open_source(str(tmp_path), "train")


def test_a_split_that_lacks_a_class_keeps_the_training_indices(tmp_path: Path) -> None:
    for name in ("ant", "bee", "cow"):
        fill(tmp_path / "train" / name, "1.png")
    fill(tmp_path / "val" / "cow", "1.png")
    fill(tmp_path / "val" / "ant", "1.png")
    source = open_source(str(tmp_path), "val")
    assert source.classes == ("ant", "bee", "cow")
    assert source.labels is not None and source.labels.tolist() == [0, 2]


def test_a_class_that_train_lacks_is_named(tmp_path: Path) -> None:
    fill(tmp_path / "train" / "ant", "1.png")
    fill(tmp_path / "test" / "zebra", "1.png")
    with pytest.raises(UsageError, match=r"split 'test' of .* has class 'zebra', which split 'train' lacks.*: ant$"):
        open_source(str(tmp_path), "test")


def test_empty_class_folder_is_named(tmp_path: Path) -> None:
    fill(tmp_path / "ant", "1.png")
    fill(tmp_path / "bee")
    (tmp_path / "bee" / "notes.txt").write_text("soon")
    with pytest.raises(
        UsageError,
        match=r"class folder .*/bee has no images \(1 \.txt \(notes\.txt\)\); add files ending in \.jpg.*or remove",
    ):
        open_source(str(tmp_path), "train")


def test_flat_folder_is_unlabelled(tmp_path: Path) -> None:
    fill(tmp_path, "b.png", "a.png", "c.tiff")
    source = open_source(str(tmp_path), "train")
    assert len(source) == 3 and source.classes is None and source.labels is None
    with pytest.raises(
        UsageError,
        match=r"is a flat folder of 3 unlabelled images, all of it split 'train': there is no split 'validation'$",
    ):
        open_source(str(tmp_path), "validation")


def test_hidden_and_other_files_are_ignored(tmp_path: Path) -> None:
    fill(tmp_path / "ant", "1.png", ".2.png")
    fill(tmp_path / "ant" / ".ipynb_checkpoints", "1.png")
    fill(tmp_path / ".ipynb_checkpoints", "1.png")
    fill(tmp_path / "ant" / "more", "3.png")  # nested folders count to their class
    (tmp_path / "ant" / "Thumbs.db").write_bytes(b"x")
    (tmp_path / "README.md").write_text("x")
    source = open_source(str(tmp_path), "train")
    assert source.classes == ("ant",) and len(source) == 2


def test_images_beside_class_folders_are_refused(tmp_path: Path) -> None:
    fill(tmp_path / "ant", "1.png")
    fill(tmp_path, "stray.png")
    with pytest.raises(UsageError, match=r"holds 1 images \(stray\.png, \.\.\.\) beside the class folder 'ant'"):
        open_source(str(tmp_path), "train")


def test_no_images(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    text = r"no images in .* \(1 \.txt \(notes\.txt\)\); expected files ending in \.jpg, "
    with pytest.raises(UsageError, match=text):
        open_source(str(tmp_path), "train")


def test_a_class_called_train_is_a_class(tmp_path: Path) -> None:
    for name in ("bus", "train"):
        fill(tmp_path / name, "1.png")
    assert open_source(str(tmp_path), "train").classes == ("bus", "train")


def test_labelled_and_unlabelled_splits_join(tmp_path: Path) -> None:
    fill(tmp_path / "train" / "ant", "1.png")
    fill(tmp_path / "train" / "bee", "1.png", colour=50)
    fill(tmp_path / "unlabeled", "1.png", "2.png", colour=100)
    source = open_source(str(tmp_path), "train+unlabeled")
    assert source.split == "train+unlabeled" and source.classes == ("ant", "bee")
    assert source.labels is not None and source.labels.tolist() == [0, 1, -1, -1]
    assert [source.image(i).getpixel((0, 0))[0] for i in range(4)] == [0, 50, 100, 100]


def test_bad_image_is_named_when_it_is_read(tmp_path: Path) -> None:
    fill(tmp_path / "ant", "1.png")
    (tmp_path / "ant" / "2.jpg").write_text("hello")
    source = open_source(str(tmp_path), "train")
    assert source.image(0).size == (6, 6)
    with pytest.raises(UsageError, match=r"ant/2\.jpg is not an image"):
        source.image(1)


def test_columns_are_refused(tmp_path: Path) -> None:
    fill(tmp_path / "ant", "1.png")
    with pytest.raises(
        UsageError, match=r"has no columns, but data\.label_column is 'y'; set data\.label_column to none"
    ):
        open_source(str(tmp_path), "train", label_column="y")


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ("Train", "Test"), ("TRAIN", "TEST"), ("Training", "Testing"), ("train_images", "test_images"),
        ("train", "testing"), ("train", "dev"), ("training_set", "test_set"), ("train2017", "val2017"),
        ("trainset", "testset"), ("Train", "Valid"), ("mnist_train", "mnist_eval"), ("TrainImages", "TestImages"),
        ("1-train", "2-test"), ("train data", "test data"),
    ],
)  # fmt: skip
def test_split_folders_under_other_names_are_splits(tmp_path: Path, train: str, test: str) -> None:
    for split in (train, test):
        fill(tmp_path / split / "ant", "1.png")
        fill(tmp_path / split / "bee", "1.png")
    opened = open_source(str(tmp_path), "train"), open_source(str(tmp_path), "test")
    assert [source.classes for source in opened] == [("ant", "bee")] * 2
    assert [len(source) for source in opened] == [2, 2]
    assert opened[0].split == "train" and opened[1].split in ("test", "validation", "valid")


def test_several_folders_of_one_split_are_asked_for_by_their_own_names(tmp_path: Path) -> None:
    for domain in ("trainA", "trainB", "testA", "testB"):
        fill(tmp_path / domain, "1.png")
    with pytest.raises(
        UsageError, match="has no split 'train'; it has testA, testB, trainA, trainB; several .* as trainA.trainB$"
    ):
        open_source(str(tmp_path), "train")
    assert open_source(str(tmp_path), "trainA+trainB").split == "trainA+trainB"


@pytest.mark.parametrize("classes", [("test_tube", "beaker"), ("test_tube", "train_station"), ("bus", "Train")])
def test_classes_whose_names_begin_as_splits_do(tmp_path: Path, classes: tuple[str, str]) -> None:
    for name in classes:
        fill(tmp_path / name / "close", "1.png")
    if "Train" in classes:
        (tmp_path / "Train" / "close" / "1.png").rename(tmp_path / "Train" / "1.png")
        (tmp_path / "Train" / "close").rmdir()
    assert open_source(str(tmp_path), "train").classes == tuple(sorted(classes))


def test_folders_around_the_splits_are_seen_through(tmp_path: Path) -> None:
    for split in ("seg_train", "seg_test"):
        fill(tmp_path / "archive" / "data" / split / split / "sea", "1.png")
    fill(tmp_path / "archive" / "data" / "seg_pred", "1.png")
    fill(tmp_path / "__MACOSX" / "data", "1.png")
    source = open_source(str(tmp_path), "test")
    assert (source.split, source.classes, len(source)) == ("test", ("sea",), 1)
    assert source.passed_over == {"beside the split folders": (1, "seg_pred")}
    fill(tmp_path / "archive" / "data" / "about")
    assert open_source(str(tmp_path), "test").passed_over["folder without images"] == (1, "about")


def test_splits_below_classes_are_refused(tmp_path: Path) -> None:
    for split in ("train", "val"):
        fill(tmp_path / "cat" / split, "1.png")
        fill(tmp_path / "dog" / split, "1.png")
    with pytest.raises(UsageError, match=r"class folder .*cat holds folders called as splits \(train, val\); lay them"):
        open_source(str(tmp_path), "train")


@pytest.mark.parametrize(("one", "other"), [("images", "masks"), ("JPEGImages", "Annotations"), ("Images", "labels")])
def test_pictures_beside_what_is_drawn_on_them_are_no_classes(tmp_path: Path, one: str, other: str) -> None:
    fill(tmp_path / "train" / one, "1.png")
    fill(tmp_path / "train" / other, "1.png")
    with pytest.raises(UsageError, match=f"holds '{one}' beside '{other}': pictures and .*; give .*/train/{one}$"):
        open_source(str(tmp_path), "train")
    assert len(open_source(str(tmp_path / "train" / one), "train")) == 1


@pytest.mark.parametrize("ending", [".jfif", ".jpe", ".jp2", ".avif", ".tga", ".JFIF", ".apng", ".pnm", ".j2k", ".ico"])
def test_endings_that_pillow_reads(tmp_path: Path, ending: str) -> None:
    fill(tmp_path / "ant", "1.png", f"2{ending}")
    source = open_source(str(tmp_path), "train")
    assert len(source) == 2 and source.image(1).size == (6, 6)


def test_what_is_passed_over_is_counted_with_an_example(tmp_path: Path) -> None:
    fill(tmp_path / "ant", "1.png", ".2.png")
    fill(tmp_path / "bee" / "deep", "1.png")
    for name in ("a.txt", "b.txt", "c.heic", "noending"):
        (tmp_path / "bee" / "deep" / name).write_bytes(b"x")
    passed = open_source(str(tmp_path), "train").passed_over
    assert {reason: some.number for reason, some in passed.items()} == {
        ".txt": 2, ".heic": 1, "without an ending": 1, "hidden": 1
    }  # fmt: skip
    assert passed[".heic"].example == "bee/c.heic" and passed.words(1) == "2 .txt (bee/a.txt)"


def test_a_link_to_nothing_is_named(tmp_path: Path) -> None:
    fill(tmp_path / "ant", "1.png")
    (tmp_path / "ant" / "2.png").symlink_to("/mnt/gone/2.png")
    with pytest.raises(UsageError, match=r"ant/2\.png is a link to /mnt/gone/2\.png, which does not exist; restore"):
        open_source(str(tmp_path), "train")


def test_names_that_are_not_utf_8(tmp_path: Path) -> None:
    fill(tmp_path / "ant", os.fsdecode(b"caf\xe9.png"), "tea.png")
    source = open_source(str(tmp_path), "train")
    assert [source.id(i) for i in range(2)] == ["ant/caf\\xe9.png", "ant/tea.png"]
    assert source.image(0).size == (6, 6)
    listing = tmp_path / "list.txt"
    listing.write_bytes(b"caf\xe9.png\n")
    assert len(open_source(str(tmp_path), f"train@{listing}")) == 1


def test_brackets_in_a_path(tmp_path: Path) -> None:
    fill(tmp_path / "my data [v2]" / "a::b", "1 [copy].png")
    assert open_source(str(tmp_path / "my data [v2]"), "train").image(0).size == (6, 6)
