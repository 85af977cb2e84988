"""What a run trains on is said when it starts, recorded without names, and read alike wherever the release goes."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image

import ssl_hub
from ssl_hub.data.sources import open_source
from ssl_hub.errors import UsageError
from ssl_hub.model.metrics import read_metrics
from tests.data.encoded import png, write_tar
from tests.data.microscopy import microscopy, tiff

SHORT = {"train.max_steps": 2, "train.batch_size": 8, "runtime.workers": 0, "runtime.knn_every_epochs": 0}


def trained(data: Path, output: Path, **settings: object) -> Path:
    return ssl_hub.pretrain("directpred-digits", data=str(data), output=output, overrides={**SHORT, **settings})


def microscope(root: Path) -> Path:
    """Without the broken file."""
    (microscopy(root) / "Training" / "treated" / "well 1" / "field_001.tif").unlink()
    return root


def test_a_run_says_and_records_what_it_trains_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = trained(microscope(tmp_path / "cells"), tmp_path / "run")
    said = capsys.readouterr().err
    assert "warning: images of 'train' have values from" in said and "nearly of one grey; set data.range=12" in said
    facts = json.loads((run / "recipe.json").read_text())["run"]["inventory"]
    assert facts["images"] == 23 and facts["classes"] == {"number": 2, "images": [11, 11, 12]}
    assert facts["looked_at"]["bits"] == {"16": 8} and facts["passed_over"][".czi"] == {"number": 1}
    assert "field_" not in json.dumps(facts) and "stack.czi" not in json.dumps(facts)


def test_nothing_is_measured_on_one_class(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where kNN would say 100 %."""
    for number in range(16):
        path = tmp_path / "data" / ("train" if number % 2 else "val") / "images" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(number, (16, 16)))
    run = trained(tmp_path / "data", tmp_path / "run", **{"runtime.knn_every_epochs": 1})
    said = capsys.readouterr().err
    assert "accuracy will not be measured: all 8 images of data/train are of class 'images', expected two or" in said
    assert "kNN" not in said and all("knn_top1" not in reading for reading in read_metrics(run))


def test_the_range_goes_with_the_release(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = trained(microscope(tmp_path / "cells"), tmp_path / "run", **{"data.range": "12"})
    assert "set data.range" not in capsys.readouterr().err
    assert json.loads((run / "config.json").read_text())["ssl_hub"]["range"] == "12"
    transform = ssl_hub.eval_transform(ssl_hub.load(run))
    file = tmp_path / "cells" / "Training" / "control" / "well 0" / "field_000.tif"
    source = open_source(str(tmp_path / "cells"), "train", value_range="12")
    assert torch.equal(transform(Image.open(file)), transform(source.image(0)))
    assert transform(Image.open(file)).max() > 0
    copy = "control/well 1/copy of 0.tif is control/well 0/field_000"
    with pytest.raises(
        UsageError, match=rf"1 of the 9 images of cells \(test\) are in cells \(train\) too, .*: {copy}"
    ):
        ssl_hub.knn(run, k=3)
    rows = ssl_hub.knn(run, k=3, allow_overlap=True)
    assert (rows[0].dataset, rows[0].overlap) == ("cells", 1)


def test_images_in_both_splits_are_said_before_training_and_measured_by_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = {"data.range": "12", "runtime.knn_every_epochs": 1}
    run = trained(microscope(tmp_path / "cells"), tmp_path / "run", **measured)
    said = capsys.readouterr()
    shared = "1 of the 9 images of cells (test) are in cells (train) too"
    assert f"warning: accuracy will not be measured: {shared}" in said.err
    assert f"not probed: {shared}" in said.out + said.err and "allow-overlap" not in said.out + said.err
    assert not (run / "results.json").exists() and not (run / "heads").exists()


def test_a_stream_is_read_in_the_range_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tar(tmp_path / "shards" / "0.tar", {f"{n}.tif": tiff(n, side=16) for n in range(16)})
    losses = []
    for number, values in enumerate(("auto", "12")):
        run = trained(tmp_path / "shards", tmp_path / str(number), **{"data.stream": True, "data.range": values})
        assert json.loads((run / "recipe.json").read_text())["run"]["inventory"] is None
        assert ("nearly of one grey; set data.range=" in capsys.readouterr().err) == (values == "auto")
        losses.append([json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()])
    assert losses[0] != losses[1]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"data.range": "12"}, "warning: data.range does nothing to 'train', whose images have 8 bits"),
        ({"data.label_column": "kind"}, "data.label_column is 'kind', and a stream's labels are not read"),
    ],
)
def test_settings_that_do_nothing_to_a_stream_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], setting: dict[str, str], said: str
) -> None:
    write_tar(tmp_path / "shards" / "0.tar", {f"{n}.png": png(n) for n in range(16)})
    refused = ""
    try:
        trained(tmp_path / "shards", tmp_path / "run", **{"data.stream": True, **setting})
    except UsageError as error:
        refused = str(error)
    assert said in capsys.readouterr().err + refused
