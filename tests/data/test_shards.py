"""Shards: what is a stream, which files and images belong to it, and what is said where none do."""

import gc
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, Features, Image, Value

from ssl_hub.data.decoding import decode
from ssl_hub.data.file_splits import missing_files
from ssl_hub.data.shards import Shards, open_shards
from ssl_hub.data.sources import open_source
from ssl_hub.data.survey import survey
from ssl_hub.errors import UsageError
from ssl_hub.zoo.advice import findings, while_training
from tests.data.encoded import png, write_tar


def values(shards: Shards, start: int = 0) -> list[list[int]]:
    return [
        [decode(image.file, image.name).getpixel((0, 0))[0] for image in shards.read(shard, start)]  # type: ignore[index]
        for shard in range(len(shards))
    ]


def web_shard(path: Path, *numbers: int, mode: str = "w") -> None:
    """As WebDataset writes them: an image and its label under one key; and what other tools leave."""
    members: dict[str, bytes] = {}
    for number in numbers:
        members |= {f"{number:04}.png": png(number), f"{number:04}.cls": b"3", f"._{number:04}.png": b"resource fork"}
    write_tar(path, members, mode)


def parquet(path: Path, *numbers: int, column: str = "image", rows_per_group: int = 1000) -> None:
    features = Features({column: Image(), "label": ClassLabel(names=["a", "b"])})
    cells = [{"bytes": png(number), "path": f"{number}.png"} for number in numbers]
    path.parent.mkdir(parents=True, exist_ok=True)
    table = Dataset.from_dict({column: cells, "label": [0] * len(cells)}, features=features)
    table.to_parquet(path, batch_size=rows_per_group)


def test_tar_shards(tmp_path: Path) -> None:
    web_shard(tmp_path / "train-000.tar", 1, 2, 3)
    web_shard(tmp_path / "train-001.tar", 4, 5)
    web_shard(tmp_path / "val-000.tar", 9)
    shards = open_shards(str(tmp_path), "train")
    assert shards.images is None
    assert values(shards) == [[1, 2, 3], [4, 5]]
    assert values(shards, 2) == [[3], []]
    assert values(open_shards(str(tmp_path), "test")) == [[9]]
    assert values(open_shards(str(tmp_path / "*-000.tar"), "train")) == [[1, 2, 3], [9]]


def test_tar_files_of_any_name_are_train(tmp_path: Path) -> None:
    web_shard(tmp_path / "imagenet-01.tar", 2)
    web_shard(tmp_path / "imagenet-00.tar", 1)
    assert values(open_shards(str(tmp_path), "train")) == [[1], [2]]
    with pytest.raises(UsageError, match="stream '.*' has no split 'test'; it has train"):
        open_shards(str(tmp_path), "test")


def test_compressed_tar_files_and_folders_inside(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", {"train/cat/x.png": png(1), "train/cat/notes.txt": b"x", "y.PNG": png(2)}, "w:gz")
    (shard,) = [list(open_shards(str(tmp_path), "train").read(0, 0))]
    assert [image.name.removesuffix(str(tmp_path / "a.tar")) for image in shard] == ["train/cat/x.png in ", "y.PNG in "]


def test_a_broken_shard_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"no archive" * 100)
    with pytest.raises(UsageError, match=r"^shard .*/a\.tar cannot be read \(.*\); replace it or remove it"):
        list(open_shards(str(tmp_path), "train").read(0, 0))
    web_shard(tmp_path / "a.tar", 1, 2)
    (tmp_path / "a.tar").write_bytes((tmp_path / "a.tar").read_bytes()[:600])
    with pytest.raises(UsageError, match=r"^shard .*/a\.tar cannot be read \("):
        list(open_shards(str(tmp_path), "train").read(0, 0))


@pytest.mark.parametrize("rows_per_group", [1000, 2])
def test_parquet_shards_know_their_length(tmp_path: Path, rows_per_group: int) -> None:
    parquet(tmp_path / "data" / "train-0.parquet", 1, 2, 3, 4, 5, rows_per_group=rows_per_group)
    parquet(tmp_path / "data" / "train-1.parquet", 6)
    shards = open_shards(str(tmp_path), "train")
    assert shards.images == 6 and values(shards) == [[1, 2, 3, 4, 5], [6]]
    assert values(shards, 3) == [[4, 5], []]
    assert next(shards.read(0, 1)).name == f"image 1 of {tmp_path}/data/train-0.parquet (2.png)"


def test_parquet_columns(tmp_path: Path) -> None:
    parquet(tmp_path / "train.parquet", 1, column="picture")
    assert values(open_shards(str(tmp_path), "train")) == [[1]]
    with pytest.raises(UsageError, match="column 'label' of stream .* holds no images; columns: picture"):
        open_shards(str(tmp_path), "train", image_column="label")
    plain = Dataset.from_dict({"image": [png(7), None]}, features=Features({"image": Value("binary")}))
    (tmp_path / "plain").mkdir()
    plain.to_parquet(tmp_path / "plain" / "train.parquet")
    shards = open_shards(str(tmp_path / "plain"), "train", image_column="image")
    assert [image.file == b"" for image in shards.read(0, 0)] == [False, True]


def test_hub_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    features = Features({"image": Image(), "label": Value("int64")})
    cells = [{"bytes": png(number), "path": None} for number in range(6)]
    rows = Dataset.from_dict({"image": cells, "label": [0] * 6}, features=features)

    def load(path: str, **options: Any) -> dict[str, Any]:
        asked.append((path, options))
        return {"train": rows.to_iterable_dataset(num_shards=2)}

    monkeypatch.setattr("datasets.load_dataset", load)
    shards = open_shards("owner/tiny:small", "train")
    assert asked == [("owner/tiny", {"name": "small", "revision": None, "streaming": True})]
    assert values(shards) == [[0, 1, 2], [3, 4, 5]] and values(shards, 2) == [[2], [5]]
    assert next(shards.read(1, 1)).name == "image 1 of shard 1 of split 'train' of owner/tiny:small"


@pytest.mark.parametrize(
    ("make", "data", "split", "text"),
    [
        (
            lambda d: (d / "x.jpg").write_bytes(b""),
            "",
            "train",
            r"no \.tar or \.parquet files to stream; set data.stream=f",
        ),
        (lambda d: (d / "x.jpg").write_bytes(b""), "/*.jpg", "train", r"matches 'x\.jpg'; a stream is a folder or a"),
        (lambda d: None, "/*.tar", "train", r"matches no file; a stream is a folder or a pattern of \.tar or"),
        (
            lambda d: web_shard(d / "a.tar", 1),
            "",
            "train+test",
            "a stream is one whole split, as in 'train'; parts need",
        ),
        (lambda d: web_shard(d / "a.tar", 1), "/*.tar", "test", "has no split 'test'; it has train"),
    ],
)
def test_what_is_no_stream(tmp_path: Path, make: Callable[[Path], object], data: str, split: str, text: str) -> None:
    make(tmp_path)
    with pytest.raises(UsageError, match=text):
        open_shards(f"{tmp_path}{data}", split)


def samples(path: Path, *kinds: str) -> None:
    write_tar(path, {f"{n:03}.{kind}": png(10 * n + i) for n in range(3) for i, kind in enumerate(kinds)})


def test_samples_of_several_images(tmp_path: Path) -> None:
    samples(tmp_path / "a.tar", "jpg", "seg.png")
    with pytest.raises(UsageError, match=r"sample '000' of shard .*a\.tar holds several images, jpg and seg\.png; set"):
        open_shards(str(tmp_path), "train")
    assert values(open_shards(str(tmp_path), "train", image_column="jpg")) == [[0, 10, 20]]
    assert values(open_shards(str(tmp_path), "train", image_column=".SEG.png"), 1) == [[11, 21]]
    with pytest.raises(UsageError, match=r"hold no 'png', which data\.image_column names; they hold jpg, seg\.png$"):
        open_shards(str(tmp_path), "train", image_column="png")


def test_no_sample_is_left_out_for_the_kind_of_its_image(tmp_path: Path) -> None:
    images = {"000.jpg": 0, "000.seg.png": 1, "001.seg.png": 2, "001.jpg": 3, "002.png": 4, "002.seg.png": 5}
    write_tar(tmp_path / "a.tar", {name: png(red) for name, red in images.items()})
    shards = open_shards(str(tmp_path), "train", image_column="jpg,png")
    assert [image.name.split(" in ")[0] for image in shards.read(0, 0)] == ["000.jpg", "001.jpg", "002.png"]
    with pytest.raises(
        UsageError, match=r"sample '002' of shard .*a\.tar holds seg\.png and no jpg; name all kinds that"
    ):
        open_shards(str(tmp_path), "train", image_column="jpg")


def test_samples_whose_images_are_not_read_are_said(tmp_path: Path) -> None:
    """A phone's ``.heic`` among ``.jpg``: of the start as what was passed over, later by a warning, once for a kind."""
    beside = {"3.jpg": png(3), "3.npy": b"x", "3.json": b"x", "README": b"x", ".2.heic": b"x", "4.json": b"x"}
    write_tar(tmp_path / "0.tar", {"1.jpg": png(1), "2.heic": b"x", "a/2.HEIC": b"x", **beside, "9.dng": b"x"})
    write_tar(tmp_path / "1.tar", {"5.jxl": b"x", "6.heic": b"x", "7.jpg": png(7), "8.jxl": b"x"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shards = open_shards(str(tmp_path), "train")
        assert shards.passed_over == {".heic": (2, "2.heic"), ".dng": (1, "9.dng")}
        assert len([*shards.read(0, 0)]) == 2
        known = survey(str(tmp_path))["splits"]["train"]
    said = while_training("train", known)
    assert any(text.startswith(".heic files of 'train' left out: 2 (2.heic); where they are images") for text in said)
    text = r"^sample 5\.jxl of shard .*/1\.tar has no image that is read, .*files \.jxl are; where"
    with pytest.warns(UserWarning, match=text) as told:
        assert values(shards) == [[1, 3], [7]]
    assert len(told) == 1


def test_what_lies_in_hidden_folders_of_a_tar_file_is_none_of_its_images(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", {"./a/1.png": png(0), "a/.ipynb_checkpoints/1.png": png(1), ".git/2.png": png(2)})
    assert [image.name.split(" in ")[0] for image in open_shards(str(tmp_path), "train").read(0, 0)] == ["./a/1.png"]


def test_a_second_image_of_a_later_sample_is_no_sample(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", {f"{n:03}.jpg": png(n) for n in range(20)} | {"019.seg.png": png(0)})
    with pytest.raises(UsageError, match="sample '019' of shard .* holds several images, jpg and seg.png"):
        values(open_shards(str(tmp_path), "train"))


def test_dots_in_names(tmp_path: Path) -> None:
    names = ("photo.000.jpg", "2024.01.02_a.jpg", "2024.01.02_b.JPG", "2024.01.03.a b.jpg", "x_0.25_y.jpg", "Mr. X.jpg")
    write_tar(tmp_path / "a.tar", {name: png(n) for n, name in enumerate(names)})
    for column in (None, "jpg"):
        assert values(open_shards(str(tmp_path), "train", image_column=column)) == [[0, 1, 2, 3, 4, 5]]


def test_dots_that_may_be_of_names_are_asked_for(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", {"john.doe.jpg": png(0), "john.smith.jpg": png(1)})
    with pytest.raises(UsageError, match=r"doe\.jpg and smith\.jpg; set .*; where these dots are of the files' names"):
        open_shards(str(tmp_path), "train")


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("d/train/a/1.png", "d/val/a/1.png"), r"a\.tar holds the splits train and val, and a tar file is of one"),
        (("VOC/JPEGImages/1.png", "VOC/SegmentationClass/1.png"), r"'JPEGImages' beside 'SegmentationClass': pict"),
    ],
)
def test_a_tar_file_is_of_one_split_and_of_pictures(tmp_path: Path, names: tuple[str, str], text: str) -> None:
    write_tar(tmp_path / "a.tar", {name: png(0) for name in names})
    with pytest.raises(UsageError, match=text):
        open_shards(str(tmp_path), "train")


def test_archives_beside_tables_are_asked_for(tmp_path: Path) -> None:
    web_shard(tmp_path / "original" / "images.tar", 1)
    parquet(tmp_path / "train-0.parquet", 1)
    with pytest.raises(UsageError, match=r"holds both \.tar and \.parquet files \(original/images\.tar, train-0"):
        open_shards(str(tmp_path), "train")
    assert values(open_shards(f"{tmp_path}/**/*.tar", "train")) == [[1]]


@pytest.mark.parametrize("name", ["00000.parquet", "metadata/0.parquet"])
def test_tables_about_archives_are_no_other_images(tmp_path: Path, name: str) -> None:
    """img2dataset writes addresses and captions beside each shard."""
    web_shard(tmp_path / "00000.tar", 1)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    Dataset.from_dict({"url": ["a"], "caption": ["b"]}).to_parquet(tmp_path / name)
    assert values(open_shards(str(tmp_path), "train")) == [[1]]
    assert survey(str(tmp_path))["stream"]
    if "/" not in name:
        with pytest.raises(UsageError, match=r"holds \.tar files, which pre-training alone reads"):
            open_source(str(tmp_path), "train")


def test_an_archive_of_masks_beside_that_of_pictures_is_refused(tmp_path: Path) -> None:
    """As Oxford's pets are published."""
    web_shard(tmp_path / "images.tar.gz", 1, mode="w:gz")
    web_shard(tmp_path / "annotations.tar.gz", 2, mode="w:gz")
    with pytest.raises(UsageError, match=r"holds images\.tar\.gz beside annotations\.tar\.gz: .*; give (.*)$") as told:
        open_shards(str(tmp_path), "train")
    assert values(open_shards(str(told.value).rpartition("; give ")[2], "train")) == [[1]]


def test_a_pattern_of_several_splits_is_said(tmp_path: Path) -> None:
    for number, split in enumerate(("train", "val")):
        web_shard(tmp_path / f"{split}-0.tar", number)
    with pytest.warns(UserWarning, match=r"\*\.tar names files of train and validation, all of which are read as 'tra"):
        assert values(open_shards(f"{tmp_path}/*.tar", "train")) == [[0], [1]]


@pytest.mark.filterwarnings("error")
def test_a_stream_says_what_it_leaves_of_its_split(tmp_path: Path) -> None:
    web_shard(tmp_path / "train" / "0.tar", 1)
    web_shard(tmp_path / "Train" / "0.tar", 2)
    with pytest.raises(UserWarning, match=r"'train' of stream .* is train alone: Train, by the name"):
        open_shards(str(tmp_path), "train")


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ("imagenet-train-000000.tar", "imagenet-val-000000.tar"), ("Training/0.tar", "Testing/0.tar"),
        ("x_train.tar", "x_test.tar"), ("[v2] train::0.tar", "[v2] test::0.tar"),
        ("data/train/a/0.tar", "data/dev/a/0.tar"),
    ],
)  # fmt: skip
def test_splits_of_shards_are_called_as_those_of_folders(tmp_path: Path, train: str, test: str) -> None:
    web_shard(tmp_path / train, 1)
    web_shard(tmp_path / test, 2)
    assert values(open_shards(str(tmp_path), "train")) == [[1]]
    assert values(open_shards(str(tmp_path), "test")) == [[2]]
    assert values(open_shards(str(tmp_path / train), "train")) == [[1]]


def test_a_pattern_below_a_folder_with_brackets(tmp_path: Path) -> None:
    for number in range(2):
        web_shard(tmp_path / "shards [v2]" / f"{number}.tar", number)
    assert values(open_shards(f"{tmp_path}/shards [v2]/*.tar", "train")) == [[0], [1]]
    assert values(open_shards(f"{tmp_path}/**/1.tar", "train")) == [[1]]


def _members(path: Path) -> list[int]:
    """Bytes at which each member starts, and at which the mark of the end does."""
    with tarfile.open(path) as archive:
        return [*(member.offset for member in archive.getmembers()), archive.offset]


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda tar, at: tar[: at[3]], r"cut off or damaged at byte \d+: empty header"),
        (lambda tar, at: tar[: at[3] + 100], r"cut off or damaged at byte \d+: truncated header"),
        (lambda tar, at: tar[: at[3]] + b"x" * 512 + tar[at[3] + 512 :], r"damaged at byte \d+: invalid header"),
        (lambda tar, at: tar[: at[3] + 520], r"unexpected end of data|empty header"),
        (lambda tar, at: tar[: at[-1]], r"cut off or damaged at byte \d+: empty header"),
        (lambda tar, at: tar + tar, "something follows the mark of its end, as where tar files were joined"),
    ],
    ids=["between members", "in a header", "a header", "in a member", "before the mark", "two in one"],
)
def test_a_damaged_tar_file_is_never_a_short_one(
    tmp_path: Path, damage: Callable[[bytes, list[int]], bytes], text: str
) -> None:
    """All that ``tarfile`` itself takes for the end of the archive, without a word."""
    path = tmp_path / "a.tar"
    write_tar(path, {f"{number}.png": png(number) for number in range(5)})
    assert values(open_shards(str(path), "train")) == [[0, 1, 2, 3, 4]]
    path.write_bytes(damage(path.read_bytes(), _members(path)))
    with pytest.raises(UsageError, match=rf"shard .*a\.tar cannot be read \(.*{text}") as error:
        values(open_shards(str(path), "train"))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("compression", ["gz", "bz2", "xz"])
def test_a_damaged_compressed_tar_file_is_an_error_in_one_line(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "a.tar"
    noise = np.random.default_rng(0).integers(0, 256, 20_000, np.uint8).tobytes()
    write_tar(path, {f"{number}.png": png(number) + noise for number in range(5)}, f"w:{compression}")
    whole = path.read_bytes()
    for place in range(len(whole) // 8, len(whole), len(whole) // 8):
        path.write_bytes(whole[:place] + bytes(byte ^ 0xFF for byte in whole[place : place + 40]) + whole[place + 40 :])
        with pytest.raises(UsageError, match=r"shard .*a\.tar cannot be read \("):
            values(open_shards(str(path), "train"))


@pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.SYMTYPE])
def test_links_in_a_tar_file_are_not_left_out_in_silence(tmp_path: Path, kind: bytes) -> None:
    write_tar(tmp_path / "a.tar", {"a.png": png(1)})
    with tarfile.open(tmp_path / "a.tar", "a") as archive:
        link = tarfile.TarInfo("b.png")
        link.type, link.linkname = kind, "a.png"
        archive.addfile(link)
    with pytest.raises(UsageError, match=r"b\.png is a link in it, without an image; pack with tar --dereference"):
        open_shards(str(tmp_path), "train")


def test_a_parquet_file_whose_ending_is_in_capitals_is_one(tmp_path: Path) -> None:
    parquet(tmp_path / "train.PARQUET", 1, 2)
    assert values(open_shards(str(tmp_path), "train")) == [[1, 2]]


def test_a_tar_file_without_images_is_refused_with_what_it_holds(tmp_path: Path) -> None:
    write_tar(tmp_path / "train-0.tar", {"a/0001": png(1), "a/0002": png(2), "a/0001.json": b"{}"})
    text = r"train-0\.tar begins without images \(2 without an ending \(a/0001\), 1 \.json \(a/0001\.json\)\); expected"
    with pytest.raises(UsageError, match=text):
        open_shards(str(tmp_path), "train")


def test_a_parquet_file_without_the_column_is_named(tmp_path: Path) -> None:
    parquet(tmp_path / "train-0.parquet", 1)
    parquet(tmp_path / "train-1.parquet", 2, column="picture")
    text = r"train-1\.parquet has no column 'image', which the first has; it has picture, label$"
    with pytest.raises(UsageError, match=text):
        values(open_shards(str(tmp_path), "train"))


def test_parquet_files_without_rows(tmp_path: Path) -> None:
    parquet(tmp_path / "train.parquet")
    with pytest.raises(UsageError, match=r"^stream '.*' has no images: its 1 files have no rows$"):
        open_shards(str(tmp_path), "train")


def test_registered_data_is_no_stream() -> None:
    with pytest.raises(UsageError, match="^'digits' is registered data, which is no stream; set data.stream=false$"):
        open_shards("digits", "train")


def test_an_archive_of_archives(tmp_path: Path) -> None:
    """Its file system is made of an open file, which must not be closed while a shard is read."""
    web_shard(tmp_path / "train-0.tar", 1, 2)
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.write(tmp_path / "train-0.tar", "train-0.tar")
    shards = open_shards(f"zip://*.tar::file://{tmp_path}/all.zip", "train")
    gc.collect()
    assert values(shards) == [[1, 2]]


def test_files_that_are_missing_by_their_names(tmp_path: Path) -> None:
    web_shard(tmp_path / "shards" / "train-00001-of-00003.tar", 1)
    parquet(tmp_path / "table" / "train-00000-of-00002.parquet", *range(8))
    parquet(tmp_path / "whole" / "train-00000-of-00001.parquet", *range(8))
    streamed, table, whole = (survey(str(tmp_path / name)) for name in ("shards", "table", "whole"))
    assert streamed["splits"]["train"]["passed_over"] == {
        "missing": {"number": 2, "example": "train-00000-of-00003.tar"}
    }
    told = [finding.text for finding in findings(table) if "missing" in finding.text]
    assert told == ["by the names of the others, 1 files of 'train' are missing (train-00001-of-00002.parquet)"]
    assert whole["splits"]["train"]["passed_over"] == {}


def test_which_files_are_missing() -> None:
    there = ["a/x-00000-of-00002.tar", "b/x-00001-of-00002.tar", "y-00000-of-00001.tar", "z-3.tar"]
    assert missing_files(there) == ["x-00001-of-00002.tar", "x-00000-of-00002.tar"]
