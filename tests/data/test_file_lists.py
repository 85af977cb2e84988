"""File lists: the images that are named, whichever way they are named, and a word on those that are not there."""

import os
from pathlib import Path

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, Features, Image

from ssl_hub.data.file_lists import write_list
from ssl_hub.data.sources import open_source
from ssl_hub.errors import UsageError
from tests.data.encoded import png


def imagenet(root: Path) -> Path:
    """Two classes of four images each, as ImageNet's folders call them; and the validation split."""
    for wordnet_id, first in (("n01440764", 0), ("n01443537", 4)):
        (root / "train" / wordnet_id).mkdir(parents=True)
        (root / "val" / wordnet_id).mkdir(parents=True)
        for number in range(first, first + 4):
            (root / "train" / wordnet_id / f"{wordnet_id}_{number}.JPEG").write_bytes(png(number))
        (root / "val" / wordnet_id / f"ILSVRC2012_val_{first:08}.JPEG").write_bytes(png(first))
    return root


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "lines",
    [
        ("n01443537_5.JPEG", "n01440764_2.JPEG", "n01440764_0.JPEG"),
        ("# 1 % of the labels", "n01440764/n01440764_0.JPEG", "", "n01440764_2.JPEG  ", "n01443537/n01443537_5.JPEG"),
    ],
)
def test_images_are_those_named_in_the_order_of_the_data(tmp_path: Path, lines: tuple[str, ...]) -> None:
    file = write(tmp_path / "1percent.txt", *lines)
    source = open_source(str(imagenet(tmp_path / "imagenet")), f"train@{file}")
    assert source.split == "train@1percent.txt"  # where the list lies is nobody's business
    assert [source.image(i).getpixel((0, 0))[0] for i in range(3)] == [0, 2, 5]  # type: ignore[index]
    assert source.classes == ("n01440764", "n01443537")
    assert source.labels is not None and source.labels.tolist() == [0, 0, 1]


def test_validation_of_imagenet_folders_keeps_the_classes(tmp_path: Path) -> None:
    test = open_source(str(imagenet(tmp_path)), "validation")
    assert (test.name, test.split) == (tmp_path.name, "val")
    assert test.classes == ("n01440764", "n01443537") and test.labels is not None and test.labels.tolist() == [0, 1]


def test_a_list_restricts_a_slice_and_joins(tmp_path: Path) -> None:
    root, file = imagenet(tmp_path / "imagenet"), write(tmp_path / "few.txt", "n01440764_1.JPEG", "n01440764_3.JPEG")
    both = open_source(str(root), f"train@{file}+val")
    assert both.split == "train@few.txt+val" and len(both) == 4
    with pytest.raises(UsageError, match=r"names 2 images, 1 of which are not in split 'train\[:25%\]' of .*: n.*_3"):
        open_source(str(root), f"train[:25%]@{file}")


@pytest.mark.parametrize("appended", [False, True])
def test_tables_with_file_names(tmp_path: Path, appended: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    features = Features({"image": Image(), "label": ClassLabel(names=["tench", "goldfish"])})
    end = "_n01440764.JPEG" if appended else ".JPEG"  # the Hub's ImageNet appends the WordNet id
    cells = [{"bytes": png(i), "path": f"n01440764_{i}{end}"} for i in range(5)]
    (tmp_path / "data").mkdir()
    Dataset.from_dict({"image": cells, "label": [0, 1, 0, 1, 0]}, features=features).to_parquet(
        tmp_path / "data" / "train.parquet"
    )
    file = write(tmp_path / "list.txt", "n01440764_4.JPEG", "n01440764_1.JPEG")
    source = open_source(str(tmp_path / "data"), f"train@{file}")
    assert source.labels is not None and source.labels.tolist() == [1, 0]
    assert [source.image(i).getpixel((0, 0))[0] for i in range(2)] == [1, 4]  # type: ignore[index]


def test_a_list_that_does_not_fit_says_how(tmp_path: Path) -> None:
    root = str(imagenet(tmp_path / "imagenet"))

    def complaint(*lines: str) -> str:
        with pytest.raises(UsageError) as error:
            open_source(root, f"train@{write(tmp_path / 'list.txt', *lines)}")
        return str(error.value)

    unknown = complaint("n01440764_1.JPEG", *(f"n09999999_{i}.JPEG" for i in range(7)))
    assert "names 8 images, 7 of which are not in split 'train' of " in unknown
    assert (
        "n09999999_0.JPEG, n09999999_1.JPEG, " in unknown
        and "_5.JPEG" not in unknown
        and "has 8 images: n0144" in unknown
    )
    assert "names 1 images more than once: n01440764_1.JPEG" in complaint(*["n01440764_1.JPEG"] * 2)
    assert "is empty; expected an image's name a line" in complaint("", "# none")
    with pytest.raises(
        UsageError, match=r"file list .*gone\.txt cannot be read \(No such file or directory\); give a text"
    ):
        open_source(root, f"train@{tmp_path}/gone.txt")
    (tmp_path / "binary.txt").write_bytes(b"\x89PNG\x00\x80")
    with pytest.raises(UsageError, match=r"binary\.txt cannot be read \(not a text file\)"):
        open_source(root, f"train@{tmp_path}/binary.txt")
    with pytest.raises(UsageError, match="split 'train' of digits has no file names, which the file list"):
        open_source("digits", f"train@{write(tmp_path / 'list.txt', 'x')}")


def test_names_of_several_images_need_their_folders(tmp_path: Path) -> None:
    for name in ("ant", "bee"):
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "1.png").write_bytes(png(1))
    with pytest.raises(
        UsageError, match=r"1 names in file list .* are those of several images .*: 1\.png; write them with"
    ):
        open_source(str(tmp_path / "data"), f"train@{write(tmp_path / 'list.txt', '1.png')}")
    source = open_source(str(tmp_path / "data"), f"train@{write(tmp_path / 'list.txt', 'bee/1.png')}")
    assert source.labels is not None and source.labels.tolist() == [1]


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbfn01440764_1.JPEG\nn01443537_5.JPEG\n",
        b"./n01440764/n01440764_1.JPEG\n./n01443537/n01443537_5.JPEG\n",
        b"train\\n01440764\\n01440764_1.JPEG\r\n.\\train\\n01443537\\n01443537_5.JPEG\r\n",
        "n01440764_1.JPEG\r\nn01443537_5.JPEG\r\n".encode("utf-16"),
        b"ROOT/train/n01440764/n01440764_1.JPEG\nROOT/train/n01443537/n01443537_5.JPEG\n",
    ],
    ids=["byte-order mark", "dot slash", "backslashes", "UTF-16", "whole paths"],
)
def test_lists_as_other_tools_write_them(tmp_path: Path, content: bytes) -> None:
    root = imagenet(tmp_path / "imagenet")
    (tmp_path / "list.txt").write_bytes(content.replace(b"ROOT", str(root).encode()))
    source = open_source(str(root), f"train@{tmp_path / 'list.txt'}")
    assert [source.image(i).getpixel((0, 0))[0] for i in range(len(source))] == [1, 5]  # type: ignore[index]


def test_a_path_of_another_split_names_nothing(tmp_path: Path) -> None:
    file = write(tmp_path / "list.txt", "test/n01440764/n01440764_1.JPEG")
    with pytest.raises(UsageError, match="names 1 images, 1 of which are not in split 'train'"):
        open_source(str(imagenet(tmp_path / "imagenet")), f"train@{file}")


def test_a_list_that_is_written_is_read_back_as_the_same_images(tmp_path: Path) -> None:
    root = tmp_path / "data"
    names = [
        "k/a.png",
        "x/k/a.png",
        "#/b.png",
        " c/ d.png",
        "x/e\u00e9.png",
        os.fsdecode(b"x/\xff.png"),
        "x/y_n01440764.png",
    ]
    for number, name in enumerate(names):
        (root / "train" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "train" / name).write_bytes(png(number))
    source = open_source(str(root), "train")
    rows = np.delete(np.arange(len(source)), [1])
    write_list(source, rows, tmp_path / "list.txt")
    again = open_source(str(root), f"train@{tmp_path / 'list.txt'}")
    assert list(again.names() or ()) == [(source.names() or ())[row] for row in rows]
    (root / "train/x/two\nlines.png").write_bytes(png(0))
    with pytest.raises(UsageError, match="not in|cannot stand in a file list"):
        write_list(open_source(str(root), "train"), np.arange(len(names) + 1), tmp_path / "other.txt")
    assert not (tmp_path / "other.txt").exists()
