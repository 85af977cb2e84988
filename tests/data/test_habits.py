"""Layouts and files as public data sets, archives, systems and tools leave them: each opened, or refused."""

import unicodedata
import warnings
from collections.abc import Mapping
from pathlib import Path

import pytest
from datasets import Dataset, Features
from datasets import Image as ImageFeature
from PIL import Image

from ssl_hub.data.passed_over import AROUND_CLASSES, BESIDE_SPLITS
from ssl_hub.data.sources import open_source
from ssl_hub.data.survey import survey
from ssl_hub.errors import UsageError
from ssl_hub.zoo.advice import findings
from tests.data.encoded import png

FLAT = None  # unlabelled

Opened = tuple[str, int, tuple[str, ...] | None]  # the split that is asked for, its images and classes

OPENED: Mapping[str, tuple[list[str], list[Opened]]] = {
    "a competition's flat train and test1": (
        ["train/cat.0.jpg", "train/dog.0.jpg", "test1/1.jpg", "sampleSubmission.csv"],
        [("train", 2, FLAT), ("test", 1, FLAT)],
    ),
    "an archive that holds itself": (
        [
            "chest/train/SICK/1.jpeg",
            "chest/test/SICK/1.jpeg",
            "train/SICK/1.jpeg",
            "test/SICK/1.jpeg",
            "val/SICK/1.jpeg",
        ],
        [("train", 1, ("SICK",)), ("test", 1, ("SICK",)), ("val", 1, ("SICK",))],
    ),
    "an archive packed on a Mac": (
        ["data/train/a/1.png", "data/test/a/1.png", "__MACOSX/data/train/a/._1.png", "data/.DS_Store"],
        [("train", 1, ("a",)), ("test", 1, ("a",))],
    ),
    "an annotation service's export": (
        ["train/a/1_jpg.rf.abc.jpg", "valid/a/2_jpg.rf.def.jpg", "README.roboflow.txt"],
        [("train", 1, ("a",)), ("test", 1, ("a",))],
    ),
    "COCO": (
        ["train2017/1.jpg", "val2017/2.jpg", "test2017/3.jpg", "unlabeled2017/4.jpg", "annotations/instances.json"],
        [("train", 1, FLAT), ("val", 1, FLAT), ("test", 1, FLAT), ("unlabeled", 1, FLAT)],
    ),
    "ImageNet with validation as downloaded": (
        ["train/n01/n01_1.JPEG", "train/n02/n02_1.JPEG", "val/ILSVRC2012_val_1.JPEG"],
        [("train", 2, ("n01", "n02")), ("validation", 1, FLAT)],
    ),
    "Tiny ImageNet": (
        ["train/n01/images/n01_0.JPEG", "train/n01/n01_boxes.txt", "train/n02/images/n02_0.JPEG", "wnids.txt"],
        [("train", 2, ("n01", "n02"))],
    ),
    "inspection data with ground truth beside its splits": (
        ["train/good/1.png", "test/good/1.png", "ground_truth/broken/1_mask.png"],
        [("train", 1, ("good",)), ("test", 1, ("good",))],
    ),
    "faces in a folder of a folder": (["img_align/img_align/1.jpg"], [("train", 1, ("img_align",))]),
    "frames of videos": (["run/v1/0001.jpg", "run/v1/0002.jpg", "walk/v2/0001.jpg"], [("train", 3, ("run", "walk"))]),
    "STL-10's splits": (
        ["train/a/1.png", "test/a/1.png", "unlabeled/1.png", "unlabeled/2.png"],
        [("unlabelled", 2, FLAT), ("train+unlabeled", 3, ("a",))],
    ),
    "images and their table": (["1.png", "2.png", "metadata.csv"], [("train", 2, FLAT)]),
    "what Windows leaves": (
        ["a/1.JPG", "a/Thumbs.db", "a/desktop.ini", "System Volume Information/x", "$RECYCLE.BIN/x.jpg"],
        [("train", 1, ("a",))],
    ),
    "what a disk station leaves": (
        ["a/1.jpg", "a/@eaDir/1.jpg", "lost+found/x", ".Trash-0/1.jpg"],
        [("train", 1, ("a",))],
    ),
    "what notebooks and version control leave": (
        ["a/1.jpg", "a/.ipynb_checkpoints/1-checkpoint.jpg", ".git/x", "__pycache__/x.pyc"],
        [("train", 1, ("a",))],
    ),
    "a satellite's images, in a folder that holds all classes": (
        ["2750/crop/1.jpg", "2750/forest/1.jpg"],
        [("train", 2, ("crop", "forest"))],
    ),
    "the same in folders of an archive": (
        ["archive/EuroSAT/2750/crop/1.jpg", "archive/EuroSAT/2750/forest/1.jpg"],
        [("train", 2, ("crop", "forest"))],
    ),
    "traffic signs": (
        ["Final_Training/Images/00000/1.ppm", "Final_Training/Images/00001/1.ppm", "Final_Test/Images/1.ppm"],
        [("train", 2, ("00000", "00001")), ("test", 1, FLAT)],
    ),
    "traffic signs in two folders": (
        ["train/GTSRB/Images/00000/1.ppm", "train/GTSRB/Images/00001/1.ppm", "test/GTSRB/Images/1.ppm"],
        [("train", 2, ("00000", "00001")), ("test", 1, FLAT)],
    ),
    "a folder around the classes of each split": (
        ["train/images/a/1.png", "train/images/b/1.png", "test/images/b/1.png"],
        [("train", 2, ("a", "b")), ("test", 1, ("a", "b"))],
    ),
    "the same in train alone": (
        ["train/images/a/1.png", "train/images/b/1.png", "test/a/1.png", "test/b/1.png"],
        [("train", 2, ("a", "b")), ("test", 2, ("a", "b"))],
    ),
    "the same in test alone": (
        ["train/a/1.png", "train/b/1.png", "test/images/a/1.png", "test/images/b/1.png"],
        [("test", 2, ("a", "b"))],
    ),
    "one class in train, where test has others": (
        ["train/good/cam1/1.png", "train/good/cam2/1.png", "test/bad/cam1/1.png", "test/good/cam1/1.png"],
        [("train", 2, ("good",))],
    ),
    "one class in test, where train has others": (
        ["train/cat/1.png", "train/dog/1.png", "test/cat/day 1/1.png", "test/cat/day 2/1.png"],
        [("test", 2, ("cat", "dog"))],
    ),
    "one folder of photographs, of which some are empty": (
        ["2021/jan/1.png", "2021/feb/notes.txt", "2021/mar/1.png"],
        [("train", 2, ("2021",))],
    ),
    "rock paper scissors": (
        ["rps/rock/1.png", "rps/paper/1.png", "rps-test-set/rock/1.png", "rps-test-set/paper/1.png"],
        [("train", 2, ("paper", "rock")), ("test", 2, ("paper", "rock"))],
    ),
    "the same with images to predict": (
        ["Rps/rock/1.png", "Rps/paper/1.png", "rps-test/paper/1.png", "rps-validation/1.png"],
        [
            ("train", 2, ("paper", "rock")),
            ("test", 1, ("paper", "rock")),
            ("validation", 1, FLAT),
            ("Rps", 2, ("paper", "rock")),
        ],
    ),
    "horses or humans": (
        ["horse-or-human/horses/1.png", "horse-or-human/humans/1.png", "validation-horse-or-human/humans/1.png"],
        [("train", 2, ("horses", "humans")), ("test", 1, ("horses", "humans"))],
    ),
    "classes beside images to predict": (
        ["toons/bart/1.png", "toons/lisa/1.png", "toons_testset/1.png"],
        [("train", 2, ("bart", "lisa")), ("test", 1, FLAT)],
    ),
    "classes that are called nearly so": (
        ["tube/near/1.png", "tube/far/1.png", "tube test/4/1.png"],
        [("train", 3, ("tube", "tube test"))],
    ),
    "classes of images alone that are called so": (
        ["tube/1.png", "tube test/1.png"],
        [("train", 2, ("tube", "tube test"))],
    ),
    "the same the other way round": (
        ["tube/near/1.png", "tube/far/1.png", "test tube/near/1.png", "test tube/far/1.png"],
        [("train", 4, ("test tube", "tube"))],
    ),
    "classes of one split's name below": (
        ["defect 1/test/1.png", "defect 2/test/1.png"],
        [("train", 2, ("defect 1", "defect 2"))],
    ),
    "numbers as classes": (["0/1.png", "1/1.png", "10/1.png", "2/1.png"], [("train", 4, ("0", "1", "10", "2"))]),
    "names in any script": (
        ["猫/一.png", "собака/1.png", "café au lait/1 (2).png"],
        [("train", 3, ("café au lait", "собака", "猫"))],
    ),
    "a line break in a name": (["a/one\ntwo.png"], [("train", 1, ("a",))]),
    "capitals": (["TRAIN/A/1.JPEG", "VAL/A/1.Png"], [("train", 1, ("A",)), ("test", 1, ("A",))]),
    "numbered splits": (
        ["01_train/a/1.png", "02_val/a/1.png", "03_test/a/1.png"],
        [("train", 1, ("a",)), ("test", 1, ("a",))],
    ),
    "splits of a name": (
        ["birds-training/a/1.png", "birds-testing/a/1.png"],
        [("train", 1, ("a",)), ("test", 1, ("a",))],
    ),
    "train and validation in one": (["trainval/a/1.png", "test/a/1.png"], [("train", 1, ("a",)), ("test", 1, ("a",))]),
    "short names of splits": (
        ["trn/a/1.png", "tst/a/1.png"],
        [("train", 1, ("a",)), ("test", 1, ("a",))],
    ),
    "what was held out": (
        ["training_images/a/1.png", "held-out/a/1.png"],
        [("train", 1, ("a",)), ("test", 1, ("a",))],
    ),
    "a split of nested classes under a longer name": (
        ["images_background/Greek/1/1.png", "images_evaluation/Tibetan/1/1.png"],
        [("test", 1, ("Tibetan",))],
    ),
    "a class of what is none of the others": (
        ["train/__none__/1.png", "train/a/1.png", "test/a/1.png"],
        [("train", 2, ("__none__", "a")), ("test", 1, ("__none__", "a"))],
    ),
    "folds": (
        ["fold1/a/1.png", "fold1/b/1.png", "fold2/a/1.png", "fold2/b/1.png"],
        [("fold1", 2, ("a", "b")), ("fold1+fold2", 4, ("a", "b"))],
    ),
    "folds that lack a class": (
        ["fold1/a/1.png", "fold2/b/1.png", "fold3/a/1.png"],
        [("fold1+fold2", 2, ("a", "b")), ("fold3", 1, ("a", "b"))],
    ),
    "one class called as a fold": (["fold_1/1.png", "flat/1.png"], [("train", 2, ("flat", "fold_1"))]),
    "rare endings": (["1.jfif", "2.jpe", "3.jp2", "4.tga", "5.avif", "6.webp", "7.ppm"], [("train", 7, FLAT)]),
}

REFUSED: Mapping[str, tuple[list[str], str]] = {
    "detection labels beside images": (
        ["train/images/1.jpg", "train/labels/1.txt"],
        r"holds 'images' beside 'labels': .*; give .*/train/images$",
    ),
    "splits below images": (["images/train/1.jpg", "labels/train/1.txt"], r"holds 'images' beside 'labels'"),
    "VOC": (
        ["JPEGImages/1.jpg", "Annotations/1.xml", "ImageSets/Main/train.txt"],
        r"holds 'JPEGImages' beside 'Annotations'",
    ),
    "pets": (["images/1.jpg", "annotations/trimaps/1.png"], r"holds 'images' beside 'annotations'"),
    "birds with attributes": (
        ["images/001.Albatross/1.jpg", "attributes/list.txt"],
        r"class folder .*attributes has no images \(1 \.txt \(",
    ),
    "categories that each have splits": (
        ["bottle/train/good/1.png", "bottle/test/broken/1.png", "cable/train/good/1.png"],
        r"class folder .*bottle holds folders called as splits \((test, train|train, test)\); lay them out",
    ),
    "years that each have a split": (
        ["2020/train/a/1.png", "2021/train/a/1.png"],
        r"data holds '2020', '2021', in which there are folders called as splits alone \(train\), .* as .*/2020, or",
    ),
    "years that are a split each": (
        ["2020/train/a/1.png", "2021/test/a/1.png"],
        r"data holds '2020', '2021', in which there are folders called as splits alone \(test, train\)",
    ),
    "pets in a folder of their own": (
        ["pets/images/1.jpg", "pets/annotations/trimaps/1.png"],
        r"/pets holds 'images' beside 'annotations'",
    ),
    "splits some folders down, beside others": (
        ["data/images/train/a/1.png", "data/images/val/a/1.png", "data/readme/about.txt"],
        r"class folder .*data holds folders called as splits \((train, val)\); .* give the folder that holds them",
    ),
    "folds that are asked for as a whole": (
        ["Fold_1/a/1.png", "Fold_2/a/1.png", "notes.txt"],
        r"has no split 'train'; it has Fold_1, Fold_2; several are joined by '\+', as Fold_1\+Fold_2$",
    ),
    "splits below a split": (
        ["train/train/a/1.png", "train/test/a/1.png"],
        r"/train, which is called as a split, holds folders called as splits \(test, train\) .*; give .*/train where",
    ),
    "pickled batches": (
        ["data_batch_1", "data_batch_2", "batches.meta"],
        r"no images in .*\(2 without an ending \(data_b",
    ),
    "idx files": (
        ["train-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"],
        r"no images in .*\(2 \.gz \(t10k-labels",
    ),
    "an archive that was not unpacked": (
        ["images.zip"],
        r"no images in .* \(1 \.zip \(images\.zip\)\); expected files",
    ),
    "a table of pixels": (["train.csv"], r"no images in .* \(1 \.csv \(train\.csv\)\)"),
    "drawings": (["1.svg", "2.pdf", "3.eps"], r"no images in .*1 \.svg \(1\.svg\)"),
    "medical series": (["patient/1.dcm", "patient/2.dcm"], r"patient has no images \(2 \.dcm \(1\.dcm\)\)"),
    "shards": (
        ["train-0000.tar"],
        r"holds \.tar files, .*: set data\.stream=true; to measure on them, unpack",
    ),
    "thumbnails beside images": (
        ["1.jpg", "2.jpg", "thumbs/1.jpg"],
        r"holds 2 images \(1\.jpg, \.\.\.\) beside the class",
    ),
    "an empty folder": ([], r"no images in .*; expected files ending in \.jpg"),
}


def lay_out(root: Path, names: list[str]) -> Path:
    root.mkdir()
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        kind = Image.registered_extensions().get(path.suffix.lower())
        if kind in Image.SAVE and path.suffix.lower() not in (".pdf", ".eps"):
            Image.new("RGB", (8, 8)).save(path, kind)
        else:
            path.write_bytes(b"something else")
    return root


@pytest.mark.parametrize("habit", OPENED)
def test_opened(tmp_path: Path, habit: str) -> None:
    names, expected = OPENED[habit]
    root = lay_out(tmp_path / "data", names)
    for split, images, classes in expected:
        source = open_source(str(root), split)
        assert (len(source), source.classes) == (images, classes)
        assert all(source.image(i).size == (8, 8) for i in range(images))


@pytest.mark.parametrize("habit", REFUSED)
def test_refused(tmp_path: Path, habit: str) -> None:
    names, text = REFUSED[habit]
    with pytest.raises(UsageError, match=text) as error:
        open_source(str(lay_out(tmp_path / "data", names)), "train")
    assert "\n" not in str(error.value)


def test_a_folder_around_the_classes_is_said(tmp_path: Path) -> None:
    root = str(lay_out(tmp_path / "data", ["all/2750/a/1.png", "all/2750/b/1.png", "all/README"]))
    assert open_source(root, "train").passed_over == {AROUND_CLASSES: (1, "all/2750"), "text": (1, "README")}
    said = [finding.text for finding in findings(survey(root))]
    assert "all of split 'train' lies in the folder 'all/2750', which is no class itself" in said


def test_splits_below_folds_are_no_classes(tmp_path: Path) -> None:
    names = [f"fold{n}/{split}/a/1.png" for n in (1, 2) for split in ("train", "test")]
    root = lay_out(tmp_path / "data", names)
    with pytest.raises(
        UsageError, match=r"/fold1, .* holds folders called as splits \(test, train\) .*; give .*/fold1 "
    ):
        open_source(str(root), "fold1")
    assert len(open_source(str(root / "fold1"), "test")) == 1


def test_another_folder_of_the_same_split_is_said(tmp_path: Path) -> None:
    root = str(lay_out(tmp_path / "data", ["train/a/1.png", "Train/a/2.png", "test/a/1.png"]))
    with pytest.warns(UserWarning, match=r"^split 'train' of .* is train alone: Train, by .* is left out"):
        assert len(open_source(root, "train")) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(open_source(root, "train+Train")) == 2
        assert len(open_source(root, "test")) == 1


def test_a_special_split_is_no_other_part_of_one(tmp_path: Path) -> None:
    names = [f"{split}-00000-of-00001.parquet" for split in ("train", "train_mini", "val", "val_hard")]
    for name in names:
        Dataset.from_dict({"image": [png(1)]}, features=Features({"image": ImageFeature()})).to_parquet(tmp_path / name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for asked, split in (
            ("train", "train"),
            ("train_mini", "train_mini"),
            ("test", "val"),
            ("val_hard", "val_hard"),
        ):
            assert open_source(str(tmp_path), asked).split == split


def test_what_holds_a_split_is_no_other_part_of_it(tmp_path: Path) -> None:
    root = str(lay_out(tmp_path / "data", [f"{split}/a/1.png" for split in ("train", "val", "trainval", "test")]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [open_source(root, split).split for split in ("train", "trainval")] == ["train", "trainval"]
    assert not [finding.text for finding in findings(survey(root)) if "all speak of" in finding.text]


def test_a_folder_beside_the_splits_is_had_by_its_own_name(tmp_path: Path) -> None:
    """And no split stands for it, as ``train`` would for ``train_mini``."""
    names = ["train/a/1.png", "train/b/1.png", "train_mini/b/2.png", "extra/a/3.png", "extra/a/4.png", "val/a/5.png"]
    root = str(lay_out(tmp_path / "data", names))
    mini = open_source(root, "train_mini")
    assert (mini.split, len(mini), mini.classes) == ("train_mini", 1, ("a", "b"))
    assert mini.passed_over == {BESIDE_SPLITS: (1, "extra")}
    both = open_source(root, "train+extra")
    assert (both.split, len(both), both.passed_over) == ("train+extra", 4, {BESIDE_SPLITS: (1, "train_mini")})
    with pytest.raises(UsageError, match="has no split 'more'; it has train, val"):
        open_source(root, "more")


@pytest.mark.parametrize("asked", ["train_mini", "test_hard", "val_unseen"])
def test_no_split_stands_for_a_special_one(tmp_path: Path, asked: str) -> None:
    root = str(lay_out(tmp_path / "data", ["mnist_train/a/1.png", "mnist_test/a/1.png"]))
    with pytest.raises(UsageError, match=f"has no split '{asked}'; it has test, train$"):
        open_source(root, asked)
    assert [open_source(root, name).split for name in ("mnist_test", "Test2017", "val")] == ["test"] * 3


def test_classes_called_as_splits_are_no_splits(tmp_path: Path) -> None:
    """Where the folder is none that splits lie in, and holds others."""
    root = lay_out(tmp_path / "data", ["train/1.png", "unlabeled/2.png", "bus/3.png"])
    assert open_source(str(root), "train").classes == ("bus", "train", "unlabeled")


def test_texts_beside_images_are_no_images_of_another_kind(tmp_path: Path) -> None:
    root = lay_out(tmp_path / "data", ["a/1.png", "b/1.png"])
    for name in ("README", "a/LICENSE", "a/IM_0001"):
        (root / name).touch()
    assert open_source(str(root), "train").passed_over == {"text": (2, "README"), "without an ending": (1, "a/IM_0001")}


def test_a_split_does_not_stand_for_several_of_another_meaning(tmp_path: Path) -> None:
    root = lay_out(tmp_path / "data", ["train/1.png", "val/1.png", "testA/1.png", "testB/1.png"])
    with pytest.raises(UsageError, match=r"has no split 'test'; it has testA, testB, train, val"):
        open_source(str(root), "test")


def test_a_folder_that_is_linked(tmp_path: Path) -> None:
    lay_out(tmp_path / "elsewhere", ["a/1.png", "b/1.png"])
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data" / "test").symlink_to(tmp_path / "elsewhere")
    assert open_source(str(tmp_path / "data"), "test").classes == ("a", "b")


def test_names_of_two_systems(tmp_path: Path) -> None:
    """A Mac takes é apart into e and its accent; a list written elsewhere need not."""
    root = lay_out(tmp_path / "data", [f"{unicodedata.normalize('NFD', 'café')}/1.png"])
    assert open_source(str(root), "train").classes == (unicodedata.normalize("NFD", "café"),)


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF", "BMP", "GIF"])
def test_another_format_under_the_name_of_jpeg(tmp_path: Path, kind: str) -> None:
    Image.new("RGB", (8, 8), (9, 9, 9)).save(tmp_path / "1.jpg", kind)
    source = open_source(str(tmp_path), "train")
    assert source.image(0).size == (8, 8) and source.array(0)[0, 0].tolist() == [9, 9, 9]


def test_pages_of_a_tiff_file(tmp_path: Path) -> None:
    pages = [Image.new("L", (8, 8), value) for value in (7, 200)]
    pages[0].save(tmp_path / "stack.tif", save_all=True, append_images=pages[1:])
    source = open_source(str(tmp_path), "train")
    assert len(source) == 1 and source.array(0)[0, 0].tolist() == [7, 7, 7]
