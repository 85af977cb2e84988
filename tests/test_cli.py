"""The command line: thin, machine-readable where asked, and one line for bad input."""

import errno
import json
import os
import runpy
import subprocess
import sys

import pytest

from ssl_hub.cli import guarded, main
from ssl_hub.codec import from_json
from ssl_hub.zoo import as_modified, get_recipe, list_recipes


def test_recipes_are_listed_and_filtered(capsys):
    assert main(["recipes", "directpred-*-cifar10-*"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list_recipes("directpred-*-cifar10-*")
    assert len(lines) == 6
    assert main(["recipes", "--json"]) == 0
    assert [r["name"] for r in json.loads(capsys.readouterr().out)] == list_recipes()


def test_the_package_is_the_command(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["-m", "recipes", "byol-digits"])
    with pytest.raises(SystemExit) as end:
        runpy.run_module("ssl_hub", run_name="__main__")
    assert end.value.code == 0 and capsys.readouterr().out.startswith("byol-digits ")


def test_no_command_is_one_line(capsys):
    with pytest.raises(SystemExit) as end:
        main([])
    assert end.value.code == 2
    assert capsys.readouterr().err.endswith("error: the following arguments are required: COMMAND\n")


def test_show_prints_a_recipe_that_reads_back(capsys):
    assert main(["show", "byol-digits", "train.epochs=3"]) == 0
    captured = capsys.readouterr()
    assert from_json(captured.out) == as_modified(get_recipe("byol-digits", **{"train.epochs": 3}))
    assert "accelerate launch -m ssl_hub train byol-digits train.epochs=3\n" in captured.err
    assert "Grill, Jean-Bastien and others: Bootstrap Your Own Latent" in captured.err
    assert main(["show", "byol-digits", "views.mean=[0.1, 0.2, 0.3]"]) == 0
    assert "byol-digits 'views.mean=[0.1, 0.2, 0.3]'\n" in capsys.readouterr().err


def test_a_name_that_holds_a_line_end_is_one_line(capsys, tmp_path):
    bad = tmp_path / "photos" / "train" / "a" / "cut\noff\x1b[2J.png"
    bad.parent.mkdir(parents=True)
    bad.touch()
    assert (
        main(
            [
                "embed",
                "pixels",
                "--data",
                str(tmp_path / "photos"),
                "--out",
                str(tmp_path / "f.parquet"),
                "--split",
                "train",
            ]
        )
        == 2
    )
    said = capsys.readouterr().err
    assert said.endswith("a/cut\\noff\\x1b[2J.png is empty; replace it or remove it\n") and said.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["recipes", "nothing-*"], "no recipe matches 'nothing-*'"),
        (["show", "nope"], "unknown recipe 'nope'; `ssl-hub recipes` lists all, such as: byol-cifar10, "),
        (["show", "byol-digit"], "unknown recipe 'byol-digit'; did you mean 'byol-digits'?"),
        (["knn", "nowhere-at-all"], "no release 'nowhere-at-all'"),
        (["probe", "timm:resnet18_cifr", "--data", "digits"], "unknown backbone 'resnet18_cifr'"),
        (["probe", "pixels"], "give data"),
        (["probe", "pixels", "--data", "./missing"], "data path './missing' does not exist"),
        (["knn", "pixels", "--data", "digits", "--k", "0"], "k is 0, expected a whole number of at least 1"),
        (["knn", "pixels", "--data", "digits", "--test-split", "extra"], "'extra'"),
        (["train", "byol-digits", "train.epoch=3"], "unknown setting 'train.epoch'; did you mean 'train.epochs'?"),
        (["train", "byol-digits", "train.epochs=1", "simsiam-digits"], "got 'simsiam-digits', expected key=value"),
    ],
)
def test_bad_input_is_one_line_and_code_2(capsys, arguments, message):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error and error.startswith("error: ") and error.count("\n") == 1


def test_probe_and_knn_of_pixels_and_of_a_random_backbone(capsys):
    for command, model in (("knn", "pixels"), ("probe", "timm:resnet10_tiny")):
        assert main([command, model, "--data", "digits", "--image-size", "16", "--json"]) == 0
        records = json.loads(capsys.readouterr().out)
        assert [r["metric"] for r in records] == ["top1", "top5"]
        for record in records:
            assert {"metric", "value", "dataset", "protocol", "split", "settings", "seed", "date"} <= record.keys()
            assert (record["dataset"], record["split"]) == ("digits", "test")
            assert 30 < record["value"] <= 100


def test_recipes_backbone_before_training_is_the_one_that_training_starts_from(capsys, tmp_path):
    import torch

    from ssl_hub.evaluate.subject import open_model
    from ssl_hub.model.siamese import build

    torch.manual_seed(3)
    start = build(get_recipe("byol-digits")).encoder.backbone.state_dict()
    subject = open_model("init:byol-digits", seed=3)
    assert all(torch.equal(tensor, start[name]) for name, tensor in subject.model.state_dict().items())
    assert main(["knn", "init:byol-digits", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["dataset"] == "digits"


def test_random_backbone_is_drawn_from_the_seed(capsys, monkeypatch):
    import torch

    from ssl_hub.evaluate import model

    drawn, real = [], model.open_model

    def noted(*arguments, **options):
        subject = real(*arguments, **options)
        drawn.append(subject.model.conv1.weight.detach().clone())
        return subject

    monkeypatch.setattr(model, "open_model", noted)
    for seed in ("0", "0", "1"):  # of the weights, because two backbones may well have one accuracy
        assert main(["knn", "timm:resnet10_tiny", "--data", "digits", "--image-size", "16", "--seed", seed]) == 0
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])


def test_launcher_trains_the_demo_when_given_no_recipe(capsys, tmp_path):
    output = tmp_path / "run"
    assert main(["train.max_steps=2", "runtime.knn_every_epochs=0", "--output", str(output)], launcher="train") == 0
    assert "no recipe given: training the built-in demo, directpred-digits" in capsys.readouterr().err
    assert (output / "model.safetensors").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["byol-digits", "--output", "OUT", "train.max_steps=1", "runtime.knn_every_epochs=0"],
        ["--output", "OUT", "byol-digits", "train.max_steps=1", "runtime.knn_every_epochs=0"],
        ["byol-digits", "train.max_steps=1", "--output", "OUT", "runtime.knn_every_epochs=0"],
        ["train.max_steps=1", "runtime.knn_every_epochs=0", "byol-digits", "--output", "OUT"],
    ],
)
def test_settings_may_stand_anywhere_among_the_options(arguments, tmp_path):
    run = tmp_path / "run"
    assert main([word.replace("OUT", str(run)) for word in arguments], launcher="train") == 0
    recipe = json.loads((run / "recipe.json").read_text())["recipe"]
    assert (recipe["name"], recipe["train"]["max_steps"]) == ("byol-digits", 1)


def test_unknown_options_are_errors(capsys):
    for call in (lambda: main(["byol-digits", "--epochs", "3"], launcher="train"), lambda: main(["recipes", "a", "b"])):
        with pytest.raises(SystemExit) as stopped:
            call()
        assert stopped.value.code == 2
        assert "unrecognized arguments" in capsys.readouterr().err


def test_theory_speaks_of_a_recipe_and_draws(capsys, tmp_path):
    assert main(["theory", "predict", "directpred-digits", "predictor.eps=1"]) == 0
    out = capsys.readouterr().out
    assert "One step advances time by 0.3" in out
    assert "agree by more than 0.5 of the best direction's" in out
    assert "\nAssumptions:\n- encoder and target are linear" in out
    assert main(["theory", "predict", "byol-digits"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Not described: predictor.kind=mlp; the theory has identity, linear, symmetric and direct.")
    assert "lags by 100 steps" in out and "Fate" not in out and "Assumptions" not in out
    assert main(["theory", "predict", "byol-digits", "--measured"]) == 2
    assert "byol-digits is not described by the theory: predictor.kind=mlp" in capsys.readouterr().err
    small = ["projector.output_width=4", "data.pretrain_split=train[:10%]", "train.epochs=2"]
    assert main(["theory", "predict", "directpred-digits", *small, "--measured"]) == 0
    assert "Forecast: a run of 4 steps ends " in capsys.readouterr().out
    assert main(["theory", "predict", "byol-r50-300ep"]) == 2
    assert "is trained by lars; the theory speaks of SGD" in capsys.readouterr().err
    assert main(["theory", "figure", "stationary", "--out", str(tmp_path / "f.png")]) == 0
    assert (tmp_path / "f.png").stat().st_size > 5000
    assert main(["theory", "figure", "stationery", "--out", "x.png"]) == 2
    assert "unknown figure 'stationery', did you mean 'stationary'" in capsys.readouterr().err
    assert main(["theory", "figure", "nope"]) == 2
    assert "unknown figure 'nope'; known: two-layer-setting, statespace, stationary" in capsys.readouterr().err
    assert main(["theory", "figure", "stationary"]) == 2
    assert "give --out FILE, for example --out stationary.png" in capsys.readouterr().err


def test_spectrum_of_a_run(capsys, tmp_path):
    run = tmp_path / "run"
    small = ["projector.output_width=8", "data.pretrain_split=train[:10%]", "train.epochs=2"]
    arguments = ["directpred-digits", *small, "runtime.knn_every_epochs=0", "--output", str(run)]
    assert main(arguments, launcher="train") == 0
    assert main(["spectrum", str(run), "--out", str(tmp_path / "s.svg")]) == 0
    assert (tmp_path / "s.svg").read_text().startswith("<?xml")
    assert main(["spectrum", str(run), "--out", str(tmp_path / "p.svg"), "--predicted"]) == 0
    assert (tmp_path / "p.svg").stat().st_size > 1.2 * (tmp_path / "s.svg").stat().st_size
    capsys.readouterr()
    assert main(["spectrum", "nowhere", "--out", "s.svg"]) == 2
    assert "no run at 'nowhere'" in capsys.readouterr().err


def run_alone(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}
    )


def test_a_rank_left_over_from_elsewhere_silences_nothing():
    done = run_alone("from ssl_hub.cli import main; raise SystemExit(main(['show', 'nope']))", RANK="1")
    assert done.returncode == 2
    assert done.stderr.startswith("error: unknown recipe 'nope'")


def test_ctrl_c_and_a_full_disk_are_one_line(capsys):
    def interrupted() -> None:
        raise KeyboardInterrupt

    assert guarded(interrupted) == 130
    assert capsys.readouterr().err == "interrupted\n"
    code = "import sys; from ssl_hub.cli import main; sys.stdout = open('/dev/full', 'w'); code = main(['recipes']);"
    done = run_alone(code + " sys.stdout = sys.__stdout__; sys.exit(code)")
    assert done.returncode == 2
    assert done.stderr.startswith("error: no space left for the output\n")


def test_a_place_that_cannot_be_written_or_read_is_one_line_and_a_missing_file_of_ours_a_traceback(capsys):
    def fails(error: OSError) -> int:
        def run() -> None:
            raise error

        return guarded(run)

    assert fails(PermissionError(errno.EACCES, "Permission denied", "/srv/photos")) == 2
    assert capsys.readouterr().err == "error: Permission denied: /srv/photos; choose another place\n"
    assert fails(OSError(errno.EROFS, "Read-only file system", "/srv/index")) == 2
    with pytest.raises(FileNotFoundError):
        fails(FileNotFoundError(errno.ENOENT, "No such file or directory", "assets/page.html"))


def test_a_terminal_of_ascii_gets_every_answer():
    done = run_alone("from ssl_hub.cli import main; main(['where', 'h\\xe9llo'])", PYTHONIOENCODING="ascii")
    assert "h\\xe9llo" in done.stdout
