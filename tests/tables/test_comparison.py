"""Runs side by side: seeds pooled, settings that differ, every measured number."""

import json
from dataclasses import replace

import pytest
from scipy import stats

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
    assert "| linear-cached top1, digits (test) | 91.00 ± 1.41 (78.29 to 100.00) | 80.00 |" in out
    assert main(["compare", "--json", *map(str, runs)]) == 0
    assert json.loads(capsys.readouterr().out)["settings"]["train.epochs"] == [60, 5]


def test_one_run_named_twice_is_one_run(runs):
    assert compare([runs[0], runs[0]]).groups == {str(runs[0]): [str(runs[0])]}


def test_what_is_no_run(tmp_path):
    with pytest.raises(UsageError, match="no run at 'nowhere'"):
        compare(["nowhere"])


def knn(k, value):
    settings = {"k": k, "temperature": 0.07, "bank_size": 1297, "bank_split": "train", "layer": "backbone"}
    return Result(metric="top1", value=value, dataset="digits", split="test", protocol="knn", settings=settings)


def probe(labels, value, protocol="linear-cached", **settings):
    told = {"train_split": "train", "train_size": labels, "layer": "backbone", **settings}
    return Result(metric="top1", value=value, dataset="digits", split="test", protocol=protocol, settings=told, seed=0)


def test_numbers_that_measure_different_things_have_rows_of_their_own(runs):
    append_results(runs[0], [knn(20, 80.0), knn(200, 60.0)])
    append_results(runs[2], [knn(20, 70.0)])
    found = compare(runs).results
    assert [s and s.mean for s in found["knn top1, digits (test), k=20"]] == [80.0, 70.0]
    assert [s and s.mean for s in found["knn top1, digits (test), k=200"]] == [60.0, None]


def test_probes_on_other_numbers_of_labels_are_not_averaged(tmp_path):
    folders = [make_run(tmp_path / name, 50.0, **{"train.seed": seed}) for seed, name in enumerate("ab")]
    for folder in folders:
        (folder / "results.json").unlink()
    fifth = probe(65, 40.0, train_split="train@fifth.txt", strength=1.0, chosen_by="held-out accuracy")
    append_results(folders[0], [probe(325, 60.0, strength=0.1), fifth, probe(325, 6.0, "linear-simsiam", epochs=2)])
    append_results(folders[1], [probe(325, 70.0, strength=0.01)])
    found = {title: [s and (s.mean, s.runs) for s in samples] for title, samples in compare(folders).results.items()}
    assert found == {
        "linear-cached top1, digits (test), train_size=325, train_split=train": [(65.0, 2)],
        "linear-cached top1, digits (test), train_size=65, train_split=train@fifth.txt": [(40.0, 1)],
        "linear-simsiam (epochs=2) top1, digits (test)": [(6.0, 1)],
    }


def test_a_fine_tuned_run_is_no_other_seed_of_its_parent(runs):
    parent = runs[0]
    tuned = make_run(parent.with_name("tuned"), 99.0, **{"train.seed": 1})
    about = {"data": "digits", "train_split": "train", "train_size": 1297, "settings": {"epochs": 7, "seed": 0}}
    write_recipe(tuned, get_recipe("directpred-digits"), {"finetuned_from": "a0", **about})
    comparison = compare([parent, tuned])
    assert list(comparison.groups) == [str(parent), str(tuned)]
    assert comparison.settings["finetuning.epochs"] == [None, 7]


def test_the_same_seed_trained_twice_is_not_two_seeds(tmp_path):
    folders = [make_run(tmp_path / name, top1) for name, top1 in (("a", 50.0), ("b", 60.0))]
    comparison = compare(folders)
    assert len(comparison.groups) == 2 and comparison.settings == {}


def test_groups_that_share_seeds_are_tested_in_pairs(tmp_path):
    values = {"a": (70.0, 72.0, 75.0), "b": (71.0, 73.5, 75.5)}
    kinds = {"a": {}, "b": {"predictor.eps": 0.0}}
    folders = [
        make_run(tmp_path / f"{name}{seed}", top1, **{"train.seed": seed, **kinds[name]})
        for name, tops in values.items()
        for seed, top1 in enumerate(tops)
    ]
    make_run(tmp_path / "a9", 10.0, **{"train.seed": 9})  # whose seed no other has
    comparison = compare([*folders, tmp_path / "a9"])
    ((none, test),) = comparison.tests.values()
    known = stats.ttest_rel(values["b"], values["a"])
    assert none is None and test.seeds == 3
    assert test.difference == pytest.approx(1.0)
    assert test.p == pytest.approx(known.pvalue)
    assert (test.low, test.high) == pytest.approx(known.confidence_interval())
    assert f"| against the first, seed by seed |  | {test} |" in comparison.text()


def test_what_does_not_count_is_named_with_the_reason(runs):
    about = {"metric": "top1", "dataset": "digits", "protocol": "linear-cached", "settings": {"train_split": "train"}}
    seen = Result(value=99.0, split="train[::5]", overlap=260, images=260, **about)
    append_results(runs[0], [seen, Result(value=97.0, split="test[:50]", **about)])
    comparison = compare(runs)
    assert list(comparison.results) == ["linear-cached top1, digits (test)"]
    assert [line.partition(": ")[2] for line in comparison.not_counted] == [
        "linear-cached top1 99.00: 260 of 260 images of train[::5] are among those that it was fitted to",
        "linear-cached top1 97.00: on a part of a split (test[:50]), where all of test was measured",
    ]
    assert all(line in comparison.text() for line in comparison.not_counted)


def test_a_number_that_was_measured_again_is_named(runs):
    again = probe(1297, 91.0)
    append_results(runs[2], [replace(again, seed=seed, date=f"2020-01-0{3 - seed}") for seed in (1, 2)])
    comparison = compare(runs[2:])
    assert sorted(s.mean for (s,) in comparison.results.values()) == [80.0, 91.0]
    assert comparison.not_counted == [f"{runs[2]}: linear-cached top1 91.00: measured again later"]
