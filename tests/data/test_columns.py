"""Tables: layouts of files, columns found by type, labels that agree over splits, images upright and named when bad."""

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Image, List, Value
from datasets.exceptions import DatasetNotFoundError
from PIL import Image as PILImage

from ssl_hub.data.columns import find_image_column
from ssl_hub.data.images import Source
from ssl_hub.data.reading import Reading
from ssl_hub.data.sources import open_source
from ssl_hub.data.tables import Table
from ssl_hub.errors import UsageError


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))


def png(red: int, exif: PILImage.Exif | None = None, size: tuple[int, int] = (6, 4)) -> bytes:
    stream = io.BytesIO()
    PILImage.new("RGB", size, (red, 0, 0)).save(stream, "PNG", **({"exif": exif} if exif else {}))
    return stream.getvalue()


def rows(labels: list[Any], names: list[str] | None = None, **renamed: str) -> Dataset:
    """Image ``i`` has red value ``i``."""
    label = ClassLabel(names=names) if names else Value("int64")
    features = Features(
        {renamed.get("image", "image"): Image(), renamed.get("label", "label"): label, "note": Value("string")}
    )
    images = [{"bytes": png(i), "path": f"{i}.png"} for i in range(len(labels))]
    return Dataset.from_dict(dict(zip(features, (images, labels, ["x"] * len(labels)), strict=True)), features=features)


def opened(train: Dataset, test: Dataset | None = None, split: str = "train", **columns: str | None) -> Source:
    splits = {"train": lambda: train} | ({"test": lambda: test} if test is not None else {})
    return Table("tiny", splits, Reading(columns.get("image_column"), columns.get("label_column"))).open(split)


@pytest.mark.parametrize(
    "layout", ["train-00000-of-00001", "data/train-00000-of-00001", "train/part-0", "data/train/0", "train"]
)
def test_parquet_layouts(tmp_path: Path, layout: str) -> None:
    for split, labels in (("train", [1, 0, 1]), ("test", [0])):
        path = tmp_path / f"{layout.replace('train', split)}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows(labels, ["ant", "bee"]).to_parquet(path)
    train, test = open_source(str(tmp_path), "train"), open_source(str(tmp_path), "validation")
    assert train.classes == test.classes == ("ant", "bee")
    assert train.labels is not None and train.labels.tolist() == [1, 0, 1]
    assert train.image(2).getpixel((0, 0)) == (2, 0, 0) and (test.split, len(test)) == ("test", 1)
    with pytest.raises(UsageError, match="has no split 'extra'; it has test, train"):
        open_source(str(tmp_path), "extra")


def test_parquet_shards_keep_their_order(tmp_path: Path) -> None:
    for shard, labels in enumerate(([0, 0], [1], [0])):
        rows(labels, ["ant", "bee"]).to_parquet(tmp_path / f"train-{shard:05}-of-00003.parquet")
    source = open_source(str(tmp_path), "train")
    assert source.labels is not None and source.labels.tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize("nested", [True, False])
def test_saved_datasets(tmp_path: Path, nested: bool) -> None:
    data = rows([0, 1], ["ant", "bee"]).select([1, 0])  # keeps an index mapping
    (DatasetDict(train=data) if nested else data).save_to_disk(tmp_path / "saved")
    source = open_source(str(tmp_path / "saved"), "train")
    assert source.labels is not None and source.labels.tolist() == [1, 0]
    assert source.image(0).getpixel((0, 0)) == (1, 0, 0)


def test_sources_are_picklable_and_follow_index_mappings() -> None:
    source = opened(rows([0, 1, 2], ["a", "b", "c"]).select([2, 0]))
    copied = pickle.loads(pickle.dumps(source))
    assert [copied.image(i).getpixel((0, 0))[0] for i in range(2)] == [2, 0]
    assert copied.labels.tolist() == [2, 0]


def test_columns_by_type_and_by_name() -> None:
    data = rows([3, 5], image="picture", label="fine_label")
    assert opened(data).classes == ("3", "5")
    assert opened(data, image_column="picture", label_column="note").classes == ("x",)
    assert opened(data.remove_columns("fine_label")).classes is None
    with pytest.raises(UsageError, match=r"no image column 'pictur'; did you mean 'picture'\?; columns: picture \("):
        opened(data, image_column="pictur")
    with pytest.raises(UsageError, match=r"no label column 'y'.*fine_label"):
        opened(data, label_column="y")
    with pytest.raises(UsageError, match="column 'fine_label' of split 'train' of tiny holds no images"):
        opened(data, image_column="fine_label")
    with pytest.raises(
        UsageError, match=r"has no image column; set data\.image_column to one of its columns: fine_label"
    ):
        opened(data.remove_columns("picture"))
    with pytest.raises(UsageError, match=r"has several image columns \(left, right\); set data.image_column"):
        cells = [{"bytes": png(0), "path": None}]
        opened(Dataset.from_dict({"left": cells, "right": cells}))


@pytest.mark.parametrize("kind", ["binary", "struct"])
def test_images_without_the_feature_type(kind: str) -> None:
    if kind == "binary":
        data = Dataset.from_dict({"image": [png(9)]}, features=Features({"image": Value("binary")}))
    else:
        data = Dataset.from_dict({"image": [{"bytes": png(9), "path": None}]})
    assert opened(data, image_column="image").image(0).getpixel((0, 0)) == (9, 0, 0)


def test_missing_labels_are_minus_one() -> None:
    for names in (["ant", "bee"], None):
        source = opened(rows([1, None, -1, 0], names))
        assert source.labels is not None and source.labels.tolist() == [1, -1, -1, 0]
        assert len(source.classes or ()) == 2


def test_classes_are_those_of_train() -> None:
    reordered = opened(rows([0, 1, 2], ["a", "b", "c"]), rows([0, 1, -1], ["c", "a"]), "test")
    assert reordered.classes == ("a", "b", "c")
    assert reordered.labels is not None and reordered.labels.tolist() == [2, 0, -1]
    lacking = opened(rows([1, 2, 3]), rows([3, 1]), "test")
    assert lacking.classes == ("1", "2", "3")
    assert lacking.labels is not None and lacking.labels.tolist() == [2, 0]
    with pytest.raises(
        UsageError, match="split 'test' of tiny has class '7', which split 'train' lacks; 'train' has 3 cl"
    ):
        opened(rows([1, 2, 3]), rows([3, 7]), "test")


def test_exif_is_applied_as_from_a_folder(tmp_path: Path) -> None:
    exif = PILImage.Exif()
    exif[0x0112] = 6
    file = png(50, exif, size=(12, 5))
    (tmp_path / "a.png").write_bytes(file)
    data = Dataset.from_dict({"image": [{"bytes": file, "path": None}]}, features=Features({"image": Image()}))
    table, folder = opened(data).image(0), open_source(str(tmp_path), "train").image(0)
    assert table.size == folder.size == (5, 12)
    assert np.array_equal(np.asarray(table), np.asarray(folder))


def test_bad_rows_are_named() -> None:
    data = Dataset.from_dict(
        {"image": [{"bytes": b"no", "path": "dir/bad.png"}, {"bytes": None, "path": None}, None]},
    )
    source = opened(data)
    with pytest.raises(UsageError, match=r"^image 0 of split 'train' of tiny \(bad\.png\) is not an image"):
        source.image(0)
    for index in (1, 2):
        with pytest.raises(UsageError, match=rf"^image {index} of split 'train' of tiny is missing; remove the row"):
            source.image(index)


def test_hub_datasets(monkeypatch: pytest.MonkeyPatch) -> None:
    data = DatasetDict(train=rows([0, 1], ["ant", "bee"]), validation=rows([1], ["ant", "bee"]))
    monkeypatch.setattr("datasets.load_dataset", lambda path, name, revision: data)
    source = open_source("owner/tiny", "test")
    assert (source.name, source.split, len(source), source.classes) == ("owner/tiny", "validation", 1, ("ant", "bee"))
    both = open_source("owner/tiny", "train+validation")
    assert both.labels is not None and both.labels.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("owner/tiny", ("owner/tiny", None, None)),
        ("owner/tiny:large", ("owner/tiny", "large", None)),
        ("owner/tiny@refs/pr/1", ("owner/tiny", None, "refs/pr/1")),
        ("tiny:a-b@v1.0", ("tiny", "a-b", "v1.0")),
    ],
)
def test_configurations_and_revisions(
    monkeypatch: pytest.MonkeyPatch, address: str, expected: tuple[str, str | None, str | None]
) -> None:
    asked = []

    def load(path: str, name: str | None, revision: str | None) -> DatasetDict:
        asked.append((path, name, revision))
        return DatasetDict(train=rows([0, 1, 0, 1], ["ant", "bee"]))

    monkeypatch.setattr("datasets.load_dataset", load)
    source = open_source(address, "train[50%:]")
    assert asked == [expected]
    assert (source.name, source.split, len(source)) == (address, "train[50%:]", 2)


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        (FileNotFoundError("gone"), "gone"),
        (RuntimeError("Dataset scripts are no longer supported\nmore"), "Dataset scripts are no longer supported"),
        (
            ValueError("Config name is missing.\nPlease pick one among the available configs: ['a', 'b']\nExample"),
            "Config name is missing. Please pick one among the available configs: ['a', 'b']; name a configuration as "
            "in owner/name:config",
        ),
        (
            DatasetNotFoundError("Dataset 'owner/tiny' is a gated dataset on the Hub. You must be authenticated."),
            "You must be authenticated; accept its terms on its page and log in with `hf auth login`",
        ),
        (
            DatasetNotFoundError("Dataset 'owner/tiny' doesn't exist on the Hub or cannot be accessed."),
            "cannot be accessed; check the name; if it is private, log in with `hf auth login`",
        ),
        (
            ConnectionError("Couldn't reach 'owner/tiny' on the Hub (OfflineModeIsEnabled)"),
            "the cache lacks it and HF_HUB_OFFLINE is set: unset that, or give a local folder",
        ),
        (
            ConnectionError("Couldn't reach 'owner/tiny' on the Hub (LocalEntryNotFoundError)"),
            "the cache lacks it and the Hub cannot be reached: give a local folder",
        ),
    ],
)
def test_why_a_hub_dataset_does_not_load(monkeypatch: pytest.MonkeyPatch, cause: Exception, text: str) -> None:
    def fail(path: str, name: str | None, revision: str | None) -> None:
        raise cause

    monkeypatch.setattr("datasets.load_dataset", fail)
    with pytest.raises(UsageError) as error:
        open_source("owner/tiny", "train")
    assert "no path that exists, and no Hub dataset that loads: " in str(error.value)
    assert str(error.value).endswith(text) and "\n" not in str(error.value)


@pytest.mark.parametrize("kept", [0, 100])
def test_a_parquet_file_that_is_cut_is_named(tmp_path: Path, kept: int) -> None:
    rows([0, 1]).to_parquet(str(tmp_path / "train-0.parquet"))
    rows([0, 1]).to_parquet(str(tmp_path / "train-1.parquet"))
    whole = (tmp_path / "train-1.parquet").read_bytes()
    (tmp_path / "train-1.parquet").write_bytes(whole[:kept])
    with pytest.raises(UsageError, match=r"train-1\.parquet is not a readable parquet file"):
        open_source(str(tmp_path), "train")


@pytest.mark.parametrize("name", ["my data [v2]", "a::b", "what?*"])
@pytest.mark.parametrize("file", ["train-00000-of-00001.parquet", "train.arrow", "x::[1].parquet"])
def test_names_are_no_patterns(tmp_path: Path, name: str, file: str) -> None:
    (tmp_path / name).mkdir()
    if file.endswith(".arrow"):
        rows([0, 1], ["ant", "bee"]).save_to_disk(tmp_path / "saved")
        next((tmp_path / "saved").glob("*.arrow")).rename(tmp_path / name / file)
    else:
        rows([0, 1], ["ant", "bee"]).to_parquet(str(tmp_path / "x.parquet"))
        (tmp_path / "x.parquet").rename(tmp_path / name / file)
    source = open_source(str(tmp_path / name), "train")
    assert source.classes == ("ant", "bee") and source.image(1).getpixel((0, 0)) == (1, 0, 0)


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    for labels in ([0], [0, 1, 1]):
        rows(labels, ["ant", "bee"]).to_parquet(tmp_path / "train.parquet")
        assert len(open_source(str(tmp_path), "train")) == len(labels)


def test_arrow_files_of_the_other_format(tmp_path: Path) -> None:
    import pyarrow

    table = rows([0, 1], ["ant", "bee"]).data.table
    with (
        pyarrow.OSFile(str(tmp_path / "data-train.arrow"), "wb") as file,
        pyarrow.ipc.new_file(file, table.schema) as out,
    ):
        out.write_table(table)
    assert open_source(str(tmp_path), "train").classes == ("ant", "bee")
    (tmp_path / "data-train.arrow").write_bytes(b"no table")
    with pytest.raises(UsageError, match=r"data-train\.arrow is not a readable arrow file"):
        open_source(str(tmp_path), "train")


@pytest.mark.parametrize(
    ("kind", "values", "shown"),
    [
        (Value("float32"), [0.5, 1.5], "float32"),
        (List(Value("int64")), [[1], [2, 3]], "list of int64"),
        (Value("timestamp[s]"), [1, 2], "timestamp"),
        (Value("binary"), [b"a", b"b"], "binary"),
        ({"a": Value("int8")}, [{"a": 1}, {"a": 2}], "dict"),
    ],
)
def test_labels_that_name_no_classes(kind: Any, values: list[Any], shown: str) -> None:
    features = Features({"image": Image(), "label": kind})
    data = Dataset.from_dict({"image": [{"bytes": png(i), "path": None} for i in range(2)], "label": values}, features)
    with pytest.raises(UsageError, match=rf"^label column 'label' of .* is {shown}.*, expected whole numbers, text"):
        opened(data, label_column="label")
    found = opened(data)
    assert found.classes is None and found.passed_over["column that names no classes"].number == 1


@pytest.mark.parametrize(
    ("kind", "values", "classes"),
    [
        ("string", ["dog", "cat"], ("cat", "dog")),
        ("bool", [True, False], ("False", "True")),
        ("int8", [7, 3], ("3", "7")),
    ],
)
def test_labels_by_their_usual_name(kind: str, values: list[Any], classes: tuple[str, str]) -> None:
    features = Features({"image": Image(), "label": Value(kind)})
    data = Dataset.from_dict({"image": [{"bytes": png(i), "path": None} for i in range(2)], "label": values}, features)
    source = opened(data)
    assert source.classes == classes and source.labels is not None and source.labels.tolist() == [1, 0]


def beside(**columns: list[Any]) -> Dataset:
    """Three images, and columns of their own types."""
    images = [{"bytes": png(i), "path": None} for i in range(3)]
    return Dataset.from_dict({"image": images, **columns}).cast_column("image", Image())


def test_of_several_columns_called_as_labels_none_is_the_first() -> None:
    with pytest.raises(UsageError, match=r"has several label columns \(label, target\); set data.label_column to one"):
        opened(beside(label=[0, 1, 0], target=[0, 1, 2]))
    with pytest.raises(UsageError, match=r"has several label columns \(label, target\)"):  # 0.5 names no class
        opened(beside(label=[0.5, 1.0, 0.0], target=[0, 1, 2]))
    alike = opened(beside(label=[1, 0, 1], **{"class": ["b", "a", "b"]}))  # one says what the other does
    assert alike.classes == ("0", "1") and alike.labels is not None and alike.labels.tolist() == [1, 0, 1]
    assert opened(beside(label=[0, 1, 0], target=[0, 1, 2]), label_column="target").classes == ("0", "1", "2")


def test_a_y_beside_an_x_is_a_place_and_names_are_read_in_any_case() -> None:
    assert opened(beside(x=[5, 6, 7], y=[1, 2, 3])).classes is None
    assert opened(beside(y=[1, 2, 1])).classes == ("1", "2")
    assert opened(beside(Label=["a", "b", "a"])).classes == ("a", "b")


def test_a_column_that_says_which_split_a_row_is_of_is_said() -> None:
    found = opened(beside(label=[0, 1, 0], split=["train", "test", "val"]))
    assert found.passed_over["column that names splits"].example == "split: test, train, val"
    assert not opened(beside(label=[0, 1, 0], split=["train", "train", "train"])).passed_over


def test_a_cache_that_cannot_be_written_is_not_blamed_on_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows([0, 1]).to_parquet(tmp_path / "train.parquet")
    (tmp_path / "file").touch()
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "file" / "cache")
    with pytest.raises(
        UsageError, match=r"^`datasets` keeps tables that it reads in .*file/cache, and cannot: Not a dir"
    ):
        open_source(str(tmp_path), "train")


def test_a_table_about_images_that_lie_beside_it_is_none(tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / split / "ant").mkdir(parents=True)
        PILImage.new("RGB", (6, 6)).save(tmp_path / split / "ant" / "1.png")
    Dataset.from_dict({"file_name": ["train/ant/1.png"], "label": [7]}).to_parquet(tmp_path / "metadata.parquet")
    assert open_source(str(tmp_path), "train").classes == open_source(str(tmp_path), "test").classes == ("ant",)


def test_a_copy_of_a_hub_dataset_is_read_as_its_readme_says(tmp_path: Path) -> None:
    for name, labels in (("a", [1, 0, 1]), ("b", [0])):
        rows(labels, ["ant", "bee"]).to_parquet(tmp_path / f"{name}.parquet")
    (tmp_path / "README.md").write_text(
        "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path: a.parquet\n"
        "  - split: test\n    path: b.parquet\n---\n# Ants and bees\n"
    )
    assert (len(open_source(str(tmp_path), "train")), len(open_source(str(tmp_path), "validation"))) == (3, 1)


def test_configurations_of_a_copy_of_a_hub_dataset(tmp_path: Path) -> None:
    for name, labels in (("a", [1, 0, 1]), ("b", [0])):
        rows(labels, ["ant", "bee"]).to_parquet(tmp_path / f"{name}.parquet")
    configs = "".join(f"- config_name: {n}\n  data_files: {n}.parquet\n" for n in "ab")
    (tmp_path / "README.md").write_text(f"---\nconfigs:\n{configs}---\n")
    assert len(open_source(f"{tmp_path}:a", "train")) == 3 and len(open_source(f"{tmp_path}:b", "train")) == 1
    with pytest.raises(UsageError, match=r"Please pick one among the available configs: .*; name a configuration"):
        open_source(str(tmp_path), "train")
    with pytest.raises(UsageError, match="'c' not found"):
        open_source(f"{tmp_path}:c", "train")


def test_configurations_in_folders_are_not_joined(tmp_path: Path) -> None:
    for name, labels in (("en", [1, 0, 1]), ("de", [0])):
        (tmp_path / name).mkdir()
        rows(labels, ["ant", "bee"]).to_parquet(tmp_path / name / "train.parquet")
    with pytest.raises(UsageError, match=rf"\(de, en\); give the folder of one, as {tmp_path}/en,"):
        open_source(str(tmp_path), "train")
    assert len(open_source(f"{tmp_path}/en", "train")) == 3
    configs = "".join(f"- config_name: {n}\n  data_files: {n}/*.parquet\n" for n in ("en", "de"))
    (tmp_path / "README.md").write_text(f"---\nconfigs:\n{configs}---\n")
    german = open_source(f"{tmp_path}:de", "train")
    assert len(german) == 1 and german.name == f"{tmp_path.name}:de"


def test_labels_of_a_test_split_beside_a_train_split_that_has_none() -> None:
    train = rows([0, 0]).remove_columns("label")
    source = opened(train, rows([1, 0], ["ant", "bee"]), "test")
    assert source.classes == ("ant", "bee") and source.labels is not None and source.labels.tolist() == [1, 0]


def test_lists_of_images_are_no_column_of_images() -> None:
    both = {"image": Image(), "others": List(Image())}
    assert find_image_column(Features(both), None, "t") == "image"
    for features, named in ((both, "others"), ({"others": List(Image())}, None)):
        with pytest.raises(UsageError, match="column 'others' of t holds lists of images, expected one image in a row"):
            find_image_column(Features(features), named, "t")
    structs = Features({"shots": List({"bytes": Value("binary"), "path": Value("string")}), "n": Value("int64")})
    with pytest.raises(UsageError, match="column 'shots' of t holds lists of images"):
        find_image_column(structs, None, "t")


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda saved: (saved / "data-00000-of-00001.arrow").unlink(), r"No such file or directory: '.*\.arrow'"),
        (lambda saved: (saved / "state.json").write_text("{"), "Expecting property name"),
        (lambda saved: (saved / "state.json").write_text("{}"), "'_data_files'"),
        (lambda saved: (saved / "dataset_info.json").unlink(), r"No such file: '.*dataset_info\.json'"),
        (lambda saved: _cut(saved / "data-00000-of-00001.arrow"), "Expected to (be able to )?read"),
    ],
    ids=["no arrow", "state", "empty state", "no info", "cut"],
)
def test_a_damaged_saved_dataset_is_an_error_in_one_line(
    tmp_path: Path, damage: Callable[[Path], object], text: str
) -> None:
    DatasetDict(train=rows([0, 1], ["ant", "bee"])).save_to_disk(tmp_path / "saved")
    damage(tmp_path / "saved" / "train")
    with pytest.raises(UsageError, match=rf"saved, which `save_to_disk` wrote, cannot be read \(.*{text}") as error:
        open_source(str(tmp_path / "saved"), "train")
    assert "\n" not in str(error.value)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_a_readme_that_is_no_yaml(tmp_path: Path) -> None:
    rows([0, 1], ["ant", "bee"]).to_parquet(tmp_path / "train.parquet")
    (tmp_path / "README.md").write_text("---\nconfigs:\n - : [\n---\n")
    with pytest.raises(UsageError, match=r"^the head of its README is no YAML \(while parsing a block mapping\)$"):
        open_source(str(tmp_path), "train")


def test_files_of_other_columns_say_what_differs(tmp_path: Path) -> None:
    """And not that ``datasets`` met an error."""
    rows([0, 1], ["ant", "bee"]).to_parquet(tmp_path / "train-00000-of-00002.parquet")
    rows([0, 1], ["ant", "bee"]).rename_column("label", "kind").to_parquet(tmp_path / "train-00001-of-00002.parquet")
    with pytest.raises(UsageError, match=r"cannot read .* as one table: .*column names don't match$"):
        open_source(str(tmp_path), "train")
