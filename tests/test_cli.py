"""The command line: thin, machine-readable where asked, and one line for bad input."""

import json

import pytest

from ssl_hub.cli import main, train_main
from ssl_hub.codec import from_json
from ssl_hub.zoo import get_recipe, list_recipes


def test_recipes_are_listed_and_filtered(capsys):
    assert main(["recipes", "directpred-*-cifar10-*"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list_recipes("directpred-*-cifar10-*")
    assert len(lines) == 6
    assert main(["recipes", "--json"]) == 0
    assert [r["name"] for r in json.loads(capsys.readouterr().out)] == list_recipes()


def test_show_prints_a_recipe_that_reads_back(capsys):
    assert main(["show", "byol-digits", "train.epochs=3"]) == 0
    captured = capsys.readouterr()
    assert from_json(captured.out) == get_recipe("byol-digits", **{"train.epochs": 3})
    assert "accelerate launch recipes/train.py byol-digits" in captured.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["recipes", "nothing-*"], "no recipe matches 'nothing-*'"),
        (["show", "byol-digit"], "unknown recipe 'byol-digit'; did you mean 'byol-digits'?"),
        (["knn", "nowhere-at-all"], "no release 'nowhere-at-all'"),
        (["probe", "timm:resnet18_cifr", "--data", "digits"], "unknown backbone 'resnet18_cifr'"),
        (["probe", "pixels"], "give data"),
        (["probe", "pixels", "--data", "./missing"], "data path './missing' does not exist"),
        (["knn", "pixels", "--data", "digits", "--k", "0"], "k is 0, expected at least 1"),
        (["knn", "pixels", "--data", "digits", "--test-split", "holdout"], "'holdout'"),
        (["train", "byol-digits", "train.epoch=3"], "unknown setting 'train.epoch'; did you mean 'train.epochs'?"),
        (["train", "byol-digits", "epochs"], "got 'epochs', expected key=value"),
    ],
)
def test_bad_input_is_one_line_and_code_2(capsys, arguments, message):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("error: ")
    assert error.count("\n") == 1


def test_probe_and_knn_of_pixels_and_of_a_random_backbone(capsys):
    for command, model in (("knn", "pixels"), ("probe", "timm:resnet10_tiny")):
        assert main([command, model, "--data", "digits", "--image-size", "16", "--json"]) == 0
        records = json.loads(capsys.readouterr().out)
        assert [r["metric"] for r in records] == ["top1", "top5"]
        for record in records:
            assert {"metric", "value", "dataset", "protocol", "split", "settings", "seed", "date"} <= record.keys()
            assert record["dataset"] == "digits"
            assert record["split"] == "test"
            assert 30 < record["value"] <= 100


def test_random_backbone_is_drawn_from_the_seed(capsys):
    values = []
    for seed in ("0", "0", "1"):
        assert (
            main(["knn", "timm:resnet10_tiny", "--data", "digits", "--image-size", "16", "--json", "--seed", seed]) == 0
        )
        values.append(json.loads(capsys.readouterr().out)[0]["value"])
    assert values[0] == values[1] != values[2]


def test_launcher_trains_the_demo_when_given_no_recipe(capsys, tmp_path):
    output = tmp_path / "run"
    arguments = ["train.max_steps=2", "runtime.knn_every_epochs=0", "--output", str(output)]
    assert train_main(arguments) == 0
    assert "no recipe given: training the built-in demo, directpred-digits" in capsys.readouterr().err
    assert (output / "model.safetensors").exists()
