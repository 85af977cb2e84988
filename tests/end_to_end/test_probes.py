"""A folder laid out as ImageNet is goes through the protocols as ImageNet would, on one process and on several.

1,000 classes under WordNet ids, two training images and one validation image of each: a colour for each class.
"""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import ssl_hub
from ssl_hub.cli import main
from ssl_hub.data.sources import open_source
from ssl_hub.evaluate.features import extract
from ssl_hub.evaluate.subject import open_model
from ssl_hub.model.probe_head import ProbeHead
from ssl_hub.model.release import save_release, write_recipe
from ssl_hub.model.results import read_results
from ssl_hub.model.siamese import build
from ssl_hub.zoo import get_recipe
from tests.end_to_end.test_launchers import ACCELERATE, ROOT, environment, on_ranks

PROBE, FINETUNE = (str(ROOT / "recipes" / name) for name in ("probe.py", "finetune.py"))
SHORT = {  # rates for an untrained backbone, whose features are all alike
    "byol": ["epochs=3", "batch_size=128", "lrs=[3000, 1]"],  # the second learns nothing: no rounding chooses it
    "simsiam": ["epochs=3", "batch_size=128", "lrs=[3000]"],
}


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory):
    root = tmp_path_factory.mktemp("data") / "imagenet"
    rng = np.random.default_rng(0)
    levels = np.linspace(20, 235, 10)
    for split, count in (("train", 2), ("val", 1)):
        for label in range(1000):
            folder = root / split / f"n{label + 1440764:08d}"
            folder.mkdir(parents=True)
            colour = levels[[label // 100, label // 10 % 10, label % 10]]
            for i in range(count):
                pixels = (colour + rng.normal(0, 6, (24, 20, 3))).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{folder.name}_{i}.JPEG")
    return root


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    """One untrained backbone, released into a folder for each number of processes."""
    folders = {}
    for name in ("one", "two"):
        folders[name] = tmp_path_factory.mktemp("runs") / name
        folders[name].mkdir()
        torch.manual_seed(0)
        recipe = get_recipe("byol-digits")
        save_release(folders[name], build(recipe), recipe)
    return folders


def values(folder: Path, protocol: str) -> dict[str, float]:
    return {r.metric: r.value for r in read_results(folder) if r.protocol == protocol}


@pytest.fixture(scope="module")
def probed(imagenet, releases):
    """What is printed by BYOL's protocol on two processes and by SimSiam's under accelerate launch.

    BYOL's runs on one process too, here.
    """
    state = {name: t.clone() for name, t in ssl_hub.load(releases["one"]).state_dict().items()}
    arguments = ["--data", str(imagenet), "--workers", "0", "--protocol"]
    assert main(["probe", str(releases["one"]), *arguments, "byol", *SHORT["byol"]]) == 0
    byol = on_ranks(2, PROBE, str(releases["two"]), *arguments, "byol", *SHORT["byol"])
    simsiam = subprocess.run(
        [*ACCELERATE, PROBE, str(releases["one"]), *arguments, "simsiam", *SHORT["simsiam"]],
        capture_output=True, text=True, timeout=900, env=environment(OMP_NUM_THREADS="1"),
    )  # fmt: skip
    assert (byol.returncode, simsiam.returncode) == (0, 0), byol.stderr + simsiam.stderr
    after = ssl_hub.load(releases["one"]).state_dict()
    assert all(torch.equal(tensor, after[name]) for name, tensor in state.items())
    return {"byol": byol.stdout, "simsiam": simsiam.stdout}


@pytest.mark.parametrize("protocol", SHORT)
def test_the_protocol_measures_top1_and_top5_of_1000_classes(protocol, releases, probed):
    results = [r for r in read_results(releases["one"]) if r.protocol == f"linear-{protocol}"]
    where = [(r.metric, r.dataset, r.split) for r in results]
    assert where == [("top1", "imagenet", "val"), ("top5", "imagenet", "val")]
    top1, top5 = (r.value for r in results)
    assert 0.4 < top1 < top5 and top5 > 1.5  # chance is 0.1 and 0.5 %
    settings = results[0].settings
    assert settings["train_size"] == 2000 and settings["train_split"] == "train"
    held_out = {"byol": 1000, "simsiam": 0}[protocol]  # one of each class is the least
    assert settings["holdout_size"] == held_out
    assert ("holdout_top1" in settings) == (protocol == "byol")
    assert probed[protocol].count(f"linear-{protocol}") == 2  # one process speaks


def test_two_processes_agree_with_one(imagenet, releases, probed):
    """In scores, and in accuracy but for images as near a border between classes as the two differ."""
    one, two = (values(releases[name], "linear-byol") for name in ("one", "two"))
    assert one.keys() == two.keys() == {"top1", "top5"}
    heads = [ProbeHead.load(folder, "imagenet") for folder in releases.values()]
    assert heads[0].classes[0] == "n01440764" and len(heads[0].classes) == 1000
    assert heads[0].settings["lr"] == heads[1].settings["lr"] == 3000
    subject = open_model(releases["one"])
    images = extract(subject.model, open_source(str(imagenet), "val"), subject.transform, workers=0)
    ours, theirs = (torch.from_numpy(images.x) @ head.weight.T + head.bias for head in heads)
    moved = (ours - theirs).abs().amax(dim=1)
    assert moved.max() < 1e-4 * ours.abs().max()  # 24 steps on float32 features, each rounded at 6e-8
    ranked = ours.sort(dim=1, descending=True).values
    for metric, top in (("top1", 1), ("top5", 5)):
        at_a_border = int((ranked[:, top - 1] - ranked[:, top] <= 2 * moved).sum())
        assert abs(one[metric] - two[metric]) <= 100 * at_a_border / 1000 + 1e-9


def test_the_imagenet_table_shows_the_runs_and_counts_none_that_is_smaller(
    imagenet, releases, probed, tmp_path, capsys
):
    run = tmp_path / "small"
    shutil.copytree(releases["one"], run)
    small = {"backbone.name": "resnet10_tiny", "views.size": 16, "data.name": str(imagenet)}
    write_recipe(run, get_recipe("byol-r50-60ep", **small), {"images": 2000})
    assert main(["table", "imagenet", "--runs", str(tmp_path)]) == 0
    counted, _, not_counted = capsys.readouterr().out.partition("Not counted")
    assert "| two-layer | 60 epochs | top1 | 64.70 | not trained |" in counted
    assert "linear-byol" in not_counted and "linear-simsiam" in not_counted
    assert f"{values(run, 'linear-byol')['top1']:.2f}" in not_counted


def test_two_processes_finetune_one_model(tmp_path):
    done = on_ranks(
        2, FINETUNE, "timm:resnet10_tiny", "--data", "digits", "--image-size", "16",
        "epochs=1", "batch_size=256", "--output", str(tmp_path / "run"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("released in") == 1 and done.stdout.count("finetune") == 2
    assert json.loads((tmp_path / "run" / "recipe.json").read_text())["run"]["processes"] == 2
    assert ssl_hub.load(tmp_path / "run", head="digits")(torch.zeros(1, 3, 16, 16)).shape == (1, 10)


def test_neighbours_beyond_the_bank_are_said(capsys):
    assert main(["knn", "pixels", "--data", "digits", "--image-size", "8", "--json", "--k", "2000"]) == 0
    captured = capsys.readouterr()
    assert "note: k is 1297, all images of the train split, not 2000" in captured.err
    assert json.loads(captured.out)[0]["settings"]["k"] == 1297


def test_bad_input_is_one_line(imagenet, capsys):
    for arguments, message in (
        (["probe", "pixels", "--data", "digits", "--protocol", "bylo"], "unknown protocol 'bylo'; did you mean 'byol'"),
        (["probe", "pixels", "--data", "digits", "epochs=3"], "unknown setting 'epochs'"),
        (["probe", "pixels", "--data", "digits", "--protocol", "byol", "epochs"], "got 'epochs', expected key=value"),
        (["finetune", "pixels", "--data", "digits"], "pixels takes no classifier"),
        (["finetune", "timm:resnet10_tiny", "--data", str(imagenet), "--fraction", "2"], "fraction is 2.0"),
    ):
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1, error
