"""Measuring on a user's own labels while a run trains: what it says, what it refuses, and that it changes nothing."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import ssl_hub
from ssl_hub.data.sources import open_source
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.features import Features
from ssl_hub.evaluate.holdout import stratified_folds
from ssl_hub.model.metrics import read_metrics
from ssl_hub.model.release import read_facts
from ssl_hub.train.label_monitor import cross_validated

SHORT = {"train.max_steps": 4, "train.batch_size": 12, "train.epochs": 2, "runtime.knn_every_epochs": 1}


def labelled_folder(folder: Path, classes: int = 3, images: int = 8) -> Path:
    """Digits as files, a folder for each class; no split folders."""
    digits = open_source("digits", "train")
    for label in range(classes):
        (folder / str(label)).mkdir(parents=True)
        for row in np.flatnonzero(digits.labels == label)[:images]:
            digits.image(int(row)).save(folder / str(label) / f"{row}.png")
    return folder


def trained(output: Path, data: Path, **settings) -> Path:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return ssl_hub.pretrain("directpred-digits", data=str(data), output=output, overrides={**SHORT, **named})


def test_own_labels_are_measured_on_in_folds_and_training_is_the_same(tmp_path, capsys):
    own = labelled_folder(tmp_path / "own")
    measured = trained(tmp_path / "a", own, runtime__monitor_data=str(own))
    told = capsys.readouterr().err
    plain = trained(tmp_path / "b", own)
    assert (measured / "model.safetensors").read_bytes() == (plain / "model.safetensors").read_bytes()
    rows = [row for row in read_metrics(measured) if "probe_top1" in row]
    assert rows and rows[-1]["step"] == 4
    for name in ("knn", "probe"):
        assert 0 <= rows[-1][f"{name}_low"] <= rows[-1][f"{name}_top1"] <= rows[-1][f"{name}_high"] <= 100
        assert rows[-1][f"{name}_top1"] * 24 % 100 == pytest.approx(0, abs=1e-6), "24 images are judged, each once"
    assert read_facts(measured)["measured_on"] == "24 labelled images of own (train), 5 folds"
    assert "probe " in told and "24 labelled images of own (train), 5 folds" in told
    assert not any("probe_top1" in row for row in read_metrics(plain))
    assert "not probed" not in told and f"ssl-hub probe {measured} --data {own}\n" in told


@pytest.mark.parametrize(
    ("classes", "images", "said"),
    [
        (1, 8, "shows 1 classes in its 8 images, expected two or more"),
        (2, 4, "2 of 2 classes of .* have under 5 images, and measuring takes 5 folds"),
    ],
)
def test_labels_that_say_nothing_are_refused_before_anything_is_written(tmp_path, classes, images, said):
    own = labelled_folder(tmp_path / "own", classes, images)
    with pytest.raises(UsageError, match=said):
        trained(tmp_path / "run", labelled_folder(tmp_path / "all"), runtime__monitor_data=str(own))
    assert not (tmp_path / "run").exists()


def test_images_without_a_label_are_not_counted_and_classes_without_images_are_none(tmp_path):
    generator = np.random.default_rng(0)
    y = np.repeat([0, 3], 20)
    x = generator.normal(size=(40, 8)) + 6 * (y[:, None] - 1.5)
    fold_of = stratified_folds(y, 5, 0)
    found = cross_validated(Features(x=x, y=y, classes=tuple("abcd"), dataset="own", split="train"), fold_of, k=3)
    assert found["knn_top1"] == found["probe_top1"] == 100
    assert found["knn_high"] == 100 and 90 < found["knn_low"] < 92  # 40 of 40: Wilson gives 91.2
    shuffled = Features(x=generator.normal(size=(40, 8)), y=y, classes=tuple("abcd"), dataset="own", split="train")
    assert cross_validated(shuffled, fold_of, k=3)["probe_top1"] < 80


def test_an_unlabelled_folder_is_named(tmp_path):
    (tmp_path / "flat").mkdir()
    for place in range(12):
        Image.new("RGB", (8, 8), (place, 0, 0)).save(tmp_path / "flat" / f"{place}.png")
    with pytest.raises(UsageError, match=r"monitor_data flat \(train\) shows 0 classes in its 12 images"):
        trained(tmp_path / "run", labelled_folder(tmp_path / "all"), runtime__monitor_data=str(tmp_path / "flat"))
