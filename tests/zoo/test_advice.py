"""What is said of data: the most harmful first, and advice that can be carried out as it stands."""

import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from ssl_hub.cli import main
from ssl_hub.config import Data
from ssl_hub.data.inventory import inventory
from ssl_hub.data.sources import open_part, open_source
from ssl_hub.data.survey import survey
from ssl_hub.evaluate.extraction import warn_of_what_was_left_out
from ssl_hub.zoo import get_recipe
from ssl_hub.zoo.advice import findings, suggested_range, while_training
from ssl_hub.zoo.data_page import page
from ssl_hub.zoo.data_plan import Plan, plan
from tests.data.encoded import png, write_tar
from tests.data.microscopy import microscopy


def fill(folder: Path, count: int, side: int = 32, mode: str = "RGB") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        Image.effect_noise((side, side), 90).convert(mode).save(folder / f"{number}.png")


def test_of_a_laboratory_s_folder_in_order(tmp_path: Path) -> None:
    found = survey(str(microscopy(tmp_path / "cells")), thorough=True)
    said = findings(found)
    assert [finding.harm for finding in said] == sorted((finding.harm for finding in said), reverse=True)
    texts = [finding.text for finding in said if finding.harm]
    assert "1 image of 'test' in 'train' as well (control/well 1/copy of 0.tif is control/well 0/" in texts[0]
    assert "1 of 24 images of 'train' that were looked at cannot be read" in texts[1]
    assert "images of 'train' have values from" in texts[2] and "of the range from 0 to 65535" in texts[2]
    assert any(".czi files of 'train' left out: 1 (control/stack.czi)" in text for text in texts)
    assert not any(".xml" in text or ".db" in text for text in texts)
    assert {"'Training' is taken as split 'train'", "'Testing' is taken as split 'test'"} <= {f.text for f in said}
    advised = plan(found)
    assert advised is not None and advised.settings["data.range"] == "12"
    assert advised.settings["data.on_bad_image"] == "skip" and advised.settings["views.view1.hue"] == "0"


@pytest.mark.parametrize(
    ("values", "bits", "expected"),
    [([0, 4000], "16", "12"), ([3, 1000], "16", "10"), ([0, 200], "16", "8"), ([100, 16000], "16", "14"),
     ([0, 4095], "16", "12"), ([0, 4096], "16", "13"),
     ([-1000, 3000], "32", "-900,2900"), ([0, 0.2], "float", "-900,2900"), ([4000, 4095], "16", "-900,2900")],
)  # fmt: skip
def test_ranges(values: list[float], bits: str, expected: str) -> None:
    assert suggested_range({"values": values, "bits": {bits: 3}, "percentiles": [-900.0, 2900.0]}) == expected


@pytest.mark.parametrize(
    ("side", "count", "recipe", "size"),
    [(16, 40, "directpred-digits", 16), (32, 40, "directpred-r18-cifar10-100ep", 32),
     (64, 20, "directpred-r18-stl10-100ep", 64), (100, 20, "directpred-r18-stl10-100ep", 96),
     (300, 20, "directpred-r18-stl10-100ep", 128)],
)  # fmt: skip
def test_the_advice_is_a_recipe_that_fits(tmp_path: Path, side: int, count: int, recipe: str, size: int) -> None:
    fill(tmp_path / "my data" / "ant", count, side)
    advised = plan(survey(str(tmp_path / "my data")))
    assert advised is not None and advised.recipe == recipe
    words = shlex.split(advised.command(str(tmp_path / "my data")))
    assert words[:5] == ["ssl-hub", "train", recipe, "--data", str(tmp_path / "my data")]
    assert words[-2:] == ["--output", "runs/my-data"]
    made = get_recipe(recipe, **dict(word.split("=", 1) for word in words[5:-2]), **{"data.name": words[4]})
    assert made.views.size == size
    source = open_part(made.data, made.data.pretrain_split)
    assert 4 <= len(source) // made.train.batch_size <= len(source) // 2
    assert made.train.epochs * (len(source) // made.train.batch_size) >= 4000


def said_of(folder: Path, harm: int = 2) -> list[str]:
    return [finding.text for finding in findings(survey(str(folder))) if finding.harm >= harm]


def test_images_beside_the_split_folders_are_said_where_a_run_begins(tmp_path: Path) -> None:
    """Where a class is called as a split is, and its folders become the classes."""
    for folder in ("train/steam", "train/diesel", "bus/city", "about"):
        fill(tmp_path / folder, 4 if folder != "about" else 0)
    text = "folders of images beside the split folders left out: 1 (bus)"
    assert said_of(tmp_path) == [text]
    known = inventory(open_source(str(tmp_path), "train"))
    assert while_training("train", known) == [
        f"{text}; where these are classes, move them; where one is a split, ask for it by its name"
    ]


@pytest.mark.parametrize("kind", ["tif", "gif", "png", "webp"])
def test_frames_that_are_left_out_are_said(tmp_path: Path, kind: str) -> None:
    """A stack of a microscope, an animation: one image is made of it."""
    fill(tmp_path / "frames", 3)
    pages = [Image.open(path).copy() for path in sorted((tmp_path / "frames").iterdir())]
    fill(tmp_path / "data", 8)
    assert said_of(tmp_path / "data") == []
    pages[0].save(tmp_path / "data" / f"stack.{kind}", save_all=True, append_images=pages[1:])
    assert said_of(tmp_path / "data") == [
        "images of 'train' hold several frames or pages, up to 3, of which the first is used"
    ]


def test_images_of_one_value_are_said(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"{number}.png").write_bytes(png(7))
    assert said_of(tmp_path)[0] == "all 9 images of 'train' that were looked at hold 7 alone"


def test_classes_of_one_image_each_are_said(tmp_path: Path) -> None:
    for number in range(9):
        fill(tmp_path / f"case {number}", 1)
    assert said_of(tmp_path) == ["each image of 'train' is a class of its own, 'case 0' for one"]


@pytest.mark.parametrize(
    "outer", [("entrenamiento", "prueba"), ("tr", "va", "te"), ("训练", "测试"), ("photo", "sketch")]
)
def test_splits_under_unknown_names_are_not_taken_for_classes_in_silence(
    tmp_path: Path, outer: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    for split in outer:
        for name in ("cat", "dog"):
            fill(tmp_path / "data" / split / name, 3)
    (said,) = said_of(tmp_path / "data")
    assert said == f"the classes {', '.join(map(repr, sorted(outer)))} hold folders of the same names: 'cat', 'dog'"
    source = open_source(str(tmp_path / "data"), "train")
    told = f"{said}; where those are the classes, and these splits, call them train and test"
    assert while_training("train", inventory(source)) == [told]
    warn_of_what_was_left_out([source])  # where it is measured on
    assert capsys.readouterr().err == f"warning: {told}\n"


def test_folders_below_classes_that_differ_or_have_images_beside_them_are_none_of_these(tmp_path: Path) -> None:
    for name in ("ant/one", "ant/two", "bee/one"):
        fill(tmp_path / "differ" / name, 4)
    for name in ("ant", "ant/one", "ant/two", "bee/one", "bee/two"):
        fill(tmp_path / "beside" / name, 4)
    for split in ("train", "test"):
        for name in ("ant/one", "ant/two", "bee/one", "bee/two"):
            fill(tmp_path / "splits" / split / name, 4)
    assert [said_of(tmp_path / name) for name in ("differ", "beside", "splits")] == [[], [], []]


@pytest.mark.parametrize(
    ("side", "count", "expected"), [(16, 40, None), (32, 40, "8"), (64, 20, "4"), (300, 400, None)]
)
def test_few_photographs_may_start_from_weights(tmp_path: Path, side: int, count: int, expected: str | None) -> None:
    fill(tmp_path / "photos" / "ant", 1, side)
    for number in range(1, count):  # nothing looks for copies here
        shutil.copy(tmp_path / "photos" / "ant" / "0.png", tmp_path / "photos" / "ant" / f"{number}.png")
    advised = plan(survey(str(tmp_path / "photos")))
    assert advised is not None
    if side < 24:
        assert advised.continued is None
        return
    words = shlex.split(advised.continued.command(str(tmp_path / "photos")))  # type: ignore[union-attr]
    assert words[-2:] == ["--output", "runs/photos-from-weights"]  # the other is in runs/photos
    settings = dict(word.split("=", 1) for word in words[5:-2])
    made = get_recipe("directpred-own", **settings)
    assert made.backbone.init == "resnet50.a1_in1k" and made.views.size == (128 if side == 300 else 64)
    assert settings.get("train.batch_size") == expected and made.train.batch_size <= count // 4
    said = page(survey(str(tmp_path / "photos")), "photos", advised)
    assert said.index("ssl-hub train directpred-own") < said.index("\nor\n")
    many = replace(advised, continue_first=False)
    assert page(survey(str(tmp_path / "photos")), "photos", many).index("directpred-own") > said.index("\nor\n")


@pytest.mark.parametrize("labelled", [False, True])
def test_what_can_be_measured_on_one_split_is_said(tmp_path: Path, labelled: bool) -> None:
    """On images without labels nothing: no held-out split of them would help."""
    for name in ("ant", "bee"):
        fill(tmp_path / name, 4)
        if not labelled:
            (tmp_path / name / "0.png").rename(tmp_path / f"{name}.png")
            shutil.rmtree(tmp_path / name)
    texts = [finding.text for finding in findings(survey(str(tmp_path)))]
    assert ("there is no held-out split" in texts) == labelled
    assert any(text.startswith("no image has a label: ") for text in texts) != labelled


def test_a_plan_trains_on_no_images_that_are_judged(tmp_path: Path) -> None:
    for split in ("train", "unlabeled", "test"):
        fill(tmp_path / "cells" / split, 20)
    advised = plan(survey(str(tmp_path / "cells")))
    assert advised is not None and advised.continued is not None
    assert [one.settings["data.pretrain_split"] for one in (advised, advised.continued)] == ["train+unlabeled"] * 2


def test_data_of_a_recipe_is_given_that_recipe() -> None:
    advised = plan(survey("digits"))
    assert advised is not None
    assert advised.command("digits") == "ssl-hub train directpred-digits --data digits --output runs/digits"


@pytest.mark.parametrize(
    ("data", "folder"),
    [("owner/name:config@v1", "name-config-v1"), ("s3://bucket/shards/", "shards"), ("/disk/my photos", "my-photos"),
     ("shards/train-{0..2}.tar", "train--0..2-.tar"), (".", "mine"), ("../-x", "x")],
)  # fmt: skip
def test_the_run_that_is_advised_is_named_after_the_data(data: str, folder: str) -> None:
    assert Plan("directpred-digits", {}, ()).command(data).endswith(f" --output runs/{folder}")


def test_values_that_are_refused_are_given_a_range(tmp_path: Path) -> None:
    import numpy as np

    rng = np.random.default_rng(0)
    for number in range(8):
        Image.fromarray(rng.normal(0, 100, (32, 32)).astype(np.float32)).save(tmp_path / f"{number}.tif")
    found = survey(str(tmp_path))
    said = findings(found)[0]
    assert said.harm == 3 and "beyond the range from 0 to 1" in said.text and said.fix.startswith("set data.range=-")
    assert found["splits"]["train"]["looked_at"]["unreadable"]["number"] == 0
    advised = plan(found)
    assert advised is not None and "data.on_bad_image" not in advised.settings
    again = survey(str(tmp_path), value_range=advised.settings["data.range"])
    assert not [finding for finding in findings(again) if finding.harm > 1]


def test_a_range_that_does_nothing_is_said(tmp_path: Path) -> None:
    fill(tmp_path, 4)
    texts = [finding.text for finding in findings(survey(str(tmp_path), value_range="12"))]
    assert "data.range does nothing to 'train', whose images have 8 bits" in texts


def test_small_faults_are_said(tmp_path: Path) -> None:
    fill(tmp_path / "train" / "many", 40, 9)
    fill(tmp_path / "train" / "one", 1, 9)
    Image.new("RGB", (90, 4)).save(tmp_path / "train" / "many" / "0.png")
    (tmp_path / "train" / "many" / "x.heic").write_bytes(b"x")
    texts = "\n".join(finding.text for finding in findings(survey(str(tmp_path), thorough=True)))
    assert "class 'one' of 'train' has 1 image, 'many' 40" in texts
    assert "some images of 'train' are 4 pixels high or wide" in texts and "22.5 times as long as wide" in texts
    assert ".heic files of 'train' left out: 1 (many/x.heic)" in texts and "there is no held-out split" in texts


def test_the_command_speaks_to_people_and_to_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = str(microscopy(tmp_path / "cells"))
    assert main(["data", root, "--thorough"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("cells: 33 images, 2 splits\n") and "16 bits a channel" in text
    assert "wrong: 1 image of 'test' in 'train' as well" in text and "data.range=12" in text
    assert main(["data", root, "--json", "--range", "12"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["range"] == "12" and said["plan"]["settings"]["data.range"] == "12"
    assert said["findings"][0]["harm"] == 3 and said["splits"]["train"]["images"] == 24


def test_a_sheet_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = str(microscopy(tmp_path / "cells"))
    assert main(["data", root, "--sheet", str(tmp_path / "sheet.png")]) == 0
    assert Image.open(tmp_path / "sheet.png").height > 8 * 64
    assert main(["data", root, "--sheet", str(tmp_path / "sheet.xyz")]) == 2
    assert "does not end as a picture does" in capsys.readouterr().err


def test_a_sheet_of_a_stream(tmp_path: Path) -> None:
    write_tar(tmp_path / "shards" / "0.tar", {f"{n}.png": png(n, (40, 40)) for n in range(10)})
    assert main(["data", str(tmp_path / "shards"), "--sheet", str(tmp_path / "sheet.png")]) == 0
    assert (tmp_path / "sheet.png").stat().st_size > 1000


def test_what_cannot_be_used_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("x")
    assert main(["data", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith(f"error: no images in {tmp_path} (1 .txt (a.txt)); expected")
    assert captured.err.count("\n") == 1


def test_columns_that_were_named_are_in_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tar(tmp_path / "train-0.tar", {f"{i}.{end}": png(i) for i in range(16) for end in ("jpg", "seg.png")})
    assert main(["data", str(tmp_path), "--image-column", "jpg"]) == 0
    assert "data.image_column=jpg" in capsys.readouterr().out


def test_another_split_is_never_advised_in_the_place_of_train(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path / "test" / "a", 9)
    (tmp_path / "train" / "a").mkdir(parents=True)
    (tmp_path / "train" / "a" / "0.png").symlink_to(tmp_path / "nowhere.png")
    assert main(["data", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert "ssl-hub train" not in captured.out and "cannot be opened" in captured.out
    assert captured.err.count("\n") == 1 and "cannot be trained on as it is" in captured.err


def test_two_splits_of_one_meaning_are_said(tmp_path: Path) -> None:
    for split in ("train", "Training", "test"):
        fill(tmp_path / "d" / split / "a", 8)
    said = [finding for finding in findings(survey(str(tmp_path / "d"))) if "speak of" in finding.text]
    assert [finding.text for finding in said] == [
        "'Training', 'train' all speak of 'train', and each is a split of its own"
    ]
    joined = said[0].fix.partition("data.pretrain_split=")[2]
    assert len(open_part(Data(name=str(tmp_path / "d")), joined)) == 16


def test_a_folder_that_is_called_as_the_data_of_a_recipe_is_not_that_data(tmp_path: Path) -> None:
    fill(tmp_path / "digits" / "train" / "a", 8)
    advised = plan(survey(str(tmp_path / "digits")))
    assert advised is not None and advised.recipe != "directpred-digits"
    of_recipe = plan(survey("digits"))
    assert of_recipe is not None and of_recipe.reasons == ("a recipe for this very data",)


def test_an_archive_beside_its_images_makes_no_stream(tmp_path: Path) -> None:
    fill(tmp_path / "d" / "train" / "a", 8)
    write_tar(tmp_path / "d" / "images.tar", {"1.png": png(1)})
    found = survey(str(tmp_path / "d"))
    assert not found["stream"] and found["splits"]["train"]["images"] == 8


def test_too_few_images_are_said(tmp_path: Path) -> None:
    fill(tmp_path / "train" / "a", 7)
    found = survey(str(tmp_path))
    assert plan(found) is None and findings(found)[0][:2] == (3, "split 'train' has 7 images")
