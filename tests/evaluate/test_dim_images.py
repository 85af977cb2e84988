"""Numbers of images that are nearly of one grey, or a part of what was meant, are not given without a word."""

import shutil

import numpy as np
import pytest
from PIL import Image

import ssl_hub
from ssl_hub.cli import main
from ssl_hub.evaluate.extraction import Extraction, sources_of
from ssl_hub.exporting.about import about
from ssl_hub.exporting.program import make_program
from ssl_hub.hub.store import BUNDLED
from ssl_hub.model import files
from ssl_hub.model.release import MODEL, read_config

WARNED = "warning: images of 'train' have values from 0 to 4095, 6.2 % of the range from 0 to 65535: they are nearly"


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """12 bits in files of 16, as a microscope's."""
    root = tmp_path_factory.mktemp("cells")
    for number in range(16):
        path = root / ("train" if number < 8 else "test") / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        ramp = (np.arange(256).reshape(16, 16) * 16 + number * 256) % 4096
        ramp[0, :2] = 0, 4095
        Image.fromarray(ramp.astype(np.uint16)).save(path)
    return root


@pytest.mark.parametrize(
    ("command", "warned"),
    [
        (["knn", "directpred-digits"], True),
        (["knn", "directpred-digits", "--range", "12"], False),
        (["embed", "directpred-digits", "--split", "train", "--out", "features.parquet"], True),
        (["duplicates", "--model", "directpred-digits"], True),
    ],
    ids=["knn", "in their range", "embed", "duplicates"],
)
def test_evaluation_warns_of_dim_images(cells, command, warned, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    data = [str(cells)] if command[0] == "duplicates" else ["--data", str(cells)]
    assert main([*command, *data]) == 0
    said = capsys.readouterr().err
    assert (WARNED in said) == warned and ("their range is 12 (--range, data.range)" in said) == warned


def test_evaluation_says_what_lies_beside_its_splits(tmp_path, capsys):
    for name in ("train/a/1.png", "train/b/1.png", "test/a/1.png", "Train/a/2.png", "more/1.png"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((8, 8), 90).save(path)
    with pytest.warns(UserWarning, match="is train alone: Train, by the name of the same split, is left out"):
        sources_of(None, "auto", str(tmp_path), Extraction())
    warned = "warning: folders of images beside the split folders left out: 1 (more); where these are classes"
    assert capsys.readouterr().err.count(warned) == 1


def test_a_head_of_images_in_another_range_says_so_wherever_it_is_used(cells, tmp_path):
    run = shutil.copytree(BUNDLED / "directpred-digits", tmp_path / "run")
    ssl_hub.linear_probe(run, str(cells), range="12", overrides={"strengths": (1.0,), "max_iter": 5})
    model = ssl_hub.load(run, head=cells.name)
    assert model.value_range == "12" and "0 to 4095 as black to white" in repr(ssl_hub.eval_transform(model))
    assert ssl_hub.load(run).value_range == "auto"
    made = make_program(run, head=cells.name, features="pooled", kind="uint8", image_size=None)
    assert about("run", made)["preprocessing"]["value_range"] == [0, 4095]


def test_a_head_of_images_in_another_range_is_not_the_models_own(cells, tmp_path):
    """Whose config.json has one range for all."""
    asked = {"data.name": str(cells), "train.max_steps": 1, "train.epochs": 1, "train.batch_size": 4}
    run = ssl_hub.pretrain("directpred-digits", output=tmp_path / "run", overrides={**asked, "data.range": "12"})
    before = files.sha256(run / MODEL)  # with the classifier of the probe at the end
    ssl_hub.linear_probe(run, range="13", overrides={"strengths": (1.0,), "max_iter": 5}, replace_head=True)
    assert files.sha256(run / MODEL) == before and read_config(run)["ssl_hub"]["range"] == "12"
    assert ssl_hub.load(run, head=cells.name).value_range == "13"
