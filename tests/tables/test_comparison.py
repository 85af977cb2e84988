"""Runs side by side: seeds pooled, settings that differ, every measured number."""

import json

import pytest

from ssl_hub.cli import main
from ssl_hub.errors import UsageError
from ssl_hub.model.release import write_recipe
from ssl_hub.model.results import Result, append_results
from ssl_hub.tables.comparison import compare
from ssl_hub.zoo import get_recipe


def make_run(folder, top1, **overrides):
    recipe = get_recipe("directpred-digits", **overrides)
    folder.mkdir()
    write_recipe(folder, recipe, {"images": 1297})
    common = {"metric": "top1", "dataset": "digits", "split": "test", "seed": recipe.train.seed}
    append_results(folder, [Result(value=top1, protocol="linear-cached", **common)])
    return folder


@pytest.fixture
def runs(tmp_path):
    return [
        make_run(tmp_path / "a0", 90.0, **{"train.seed": 0}),
        make_run(tmp_path / "a1", 92.0, **{"train.seed": 1, "runtime.workers": 3}),
        make_run(tmp_path / "b", 80.0, **{"predictor.kind": "linear", "train.epochs": 5}),
    ]


def test_seeds_are_one_group_and_only_what_differs_is_shown(runs):
    comparison = compare(runs)
    assert [len(group) for group in comparison.groups.values()] == [2, 1]
    assert comparison.settings["predictor.kind"] == ["direct", "linear"]
    assert comparison.settings["predictor.rho"] == [0.3, None]
    assert comparison.settings["train.epochs"] == [60, 5]
    assert {key for key in comparison.settings if not key.startswith("predictor.")} == {"train.epochs"}
    (key,) = comparison.results
    assert key == "linear-cached top1, digits (test)"
    pooled, single = comparison.results[key]
    assert (pooled.mean, pooled.std, pooled.runs) == (91.0, pytest.approx(2**0.5), 2)
    assert (single.mean, single.std) == (80.0, None)


def test_command_prints_a_table_or_json(runs, capsys):
    assert main(["compare", *map(str, runs)]) == 0
    out = capsys.readouterr().out
    assert f"| {runs[0]} (2 runs) | {runs[2]} |" in out
    assert "| train.epochs | 60 | 5 |" in out
    assert "| linear-cached top1, digits (test) | 91.00 ± 1.41 | 80.00 |" in out
    assert main(["compare", "--json", *map(str, runs)]) == 0
    assert json.loads(capsys.readouterr().out)["settings"]["train.epochs"] == [60, 5]


def test_one_run_named_twice_is_one_run(runs):
    assert compare([runs[0], runs[0]]).groups == {str(runs[0]): [str(runs[0])]}


def test_what_is_no_run(tmp_path):
    with pytest.raises(UsageError, match="no run at 'nowhere'"):
        compare(["nowhere"])
