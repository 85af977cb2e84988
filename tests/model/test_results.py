"""Records of measurements: plain numbers only, one record a measurement, and a file that is never half written."""

import json
import math
import os
import re
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from ssl_hub.errors import UsageError
from ssl_hub.evaluate.accuracy import accuracy_results
from ssl_hub.model.results import Result, append_results, read_results
from ssl_hub.model.standing import objection


def result(**changes):
    given = {"metric": "top1", "value": 90.0, "dataset": "digits", "split": "test", "protocol": "knn"}
    return Result(**{**given, "settings": {"k": 20}, **changes})


@pytest.mark.parametrize(
    "number",
    [np.float32(12.5), np.float64(12.5), np.array(12.5), torch.tensor(12.5), torch.tensor(12.5, dtype=torch.bfloat16)],
)
def test_numpy_and_tensor_scalars_become_plain_numbers(tmp_path, number):
    record = result(
        value=number, settings={"k": np.int64(7), "flag": np.bool_(True), "list": (number,), "in": {"x": number}}
    )
    append_results(tmp_path, [record])
    written = json.loads((tmp_path / "results.json").read_text())[0]
    assert type(record.value) is float and written["value"] == 12.5
    assert written["settings"] == {"k": 7, "flag": True, "list": [12.5], "in": {"x": 12.5}}
    assert type(record.settings["k"]) is int and type(record.settings["flag"]) is bool


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, np.float32("nan"), torch.tensor(math.inf)])
def test_numbers_that_are_not_finite_are_refused(bad):
    with pytest.raises(UsageError, match=r"top1 of knn on digits/test is -?(nan|inf), expected a finite number"):
        result(value=bad)
    with pytest.raises(UsageError, match=r"settings of top1 .*'t'.* expected a finite number"):
        result(settings={"t": [bad]})


@pytest.mark.parametrize("bad", [100.1, -0.1, True, "90", None])
def test_value_must_be_a_percentage(bad):
    with pytest.raises(UsageError, match=r"is .*, expected a percentage from 0 to 100"):
        result(value=bad)


def test_settings_that_json_cannot_hold_are_refused():
    with pytest.raises(UsageError, match=r"is a ndarray, expected a number, text, a list or a dict"):
        result(settings={"weights": np.zeros(3)})


def test_round_trip_keeps_every_field_and_the_order(tmp_path):
    records = [
        result(),
        result(metric="top5", value=99.0),
        result(protocol="linear", seed=3, settings={"strength": 0.1}),
    ]
    append_results(tmp_path, records)
    assert read_results(tmp_path) == records
    assert set(records[0].versions) == {"ssl_hub", "torch", "timm"} and records[0].date.endswith("+00:00")


def test_a_release_that_is_gone_is_not_made_anew(tmp_path):
    with pytest.raises(UsageError, match=r"cannot write .*gone/results.json: No such file or directory"):
        append_results(tmp_path / "gone", [result()])
    assert not list(tmp_path.iterdir())


def test_what_came_later_makes_the_round_trip_and_older_files_lack_it(tmp_path):
    about = {"images": 500, "interval": (86.0, 93.0), "overlap": 0, "data": {"judged": "a"}, "backbone": "b"}
    whole = result(**about, per_class={"cat": [9, 10], "dog": [0, 0]}, ran_on={"device": "cpu", "seconds": 1.5})
    append_results(tmp_path, [whole])
    assert read_results(tmp_path) == [whole]
    assert '"cat": [9, 10],' in (tmp_path / "results.json").read_text()
    older = {k: v for k, v in asdict(result()).items() if k not in {*about, "per_class", "ran_on", "published"}}
    (tmp_path / "results.json").write_text(json.dumps([older]))
    (read,) = read_results(tmp_path)
    assert (read.value, read.images, read.interval, read.per_class, read.overlap) == (90.0, None, None, {}, None)


def test_no_file_means_no_results(tmp_path):
    assert read_results(tmp_path) == []


def test_a_repeated_measurement_replaces_the_older_record_in_its_place(tmp_path):
    append_results(tmp_path, [result(value=1.0, settings={"k": 20, "t": 0.1}), result(value=2.0, split="train")])
    append_results(tmp_path, [result(value=3.0, settings={"t": 0.1, "k": np.int64(20)})])
    assert [(r.split, r.value) for r in read_results(tmp_path)] == [("test", 3.0), ("train", 2.0)]


@pytest.mark.parametrize(
    "change",
    [{"metric": "top5"}, {"dataset": "x"}, {"split": "x"}, {"protocol": "linear"}, {"settings": {"k": 5}}, {"seed": 1}],
)
def test_a_different_measurement_is_added(tmp_path, change):
    append_results(tmp_path, [result()])
    append_results(tmp_path, [result(**change)])
    assert len(read_results(tmp_path)) == 2


def test_keys_of_a_newer_version_are_ignored_when_read_and_survive_an_append(tmp_path):
    newer = {**asdict(result()), "confidence": [89.0, 91.0]}
    (tmp_path / "results.json").write_text(json.dumps([newer]))
    assert read_results(tmp_path)[0].value == 90.0
    append_results(tmp_path, [result(split="train")])
    assert json.loads((tmp_path / "results.json").read_text())[0] == newer


@pytest.mark.parametrize("text", ["[{", '{"top1": 3}', '[{"metric": "top1"}]', "[3]"])
def test_a_damaged_file_is_an_error_and_stays_as_it_is(tmp_path, text):
    (tmp_path / "results.json").write_text(text)
    for use in (read_results, lambda folder: append_results(folder, [result()])):
        with pytest.raises(UsageError, match=r"results\.json must hold .*; repair or remove"):
            use(tmp_path)
    assert (tmp_path / "results.json").read_text() == text


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_no_debris(tmp_path, monkeypatch, step):
    append_results(tmp_path, [result()])
    before = (tmp_path / "results.json").read_bytes()

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, full_disk)
    with pytest.raises(UsageError, match="cannot write .*results.json: No space left"):
        append_results(tmp_path, [result(split="train")])
    assert (tmp_path / "results.json").read_bytes() == before
    assert os.listdir(tmp_path) == ["results.json"]


def measure(scores, labels, counted):
    about = {"dataset": "d", "split": "s", "protocol": "knn", "settings": {}}
    results = accuracy_results(torch.tensor(scores), torch.tensor([*labels]), torch.tensor(counted), **about)
    return {r.metric: r.value for r in results}


def test_accuracy_counts_only_counted_classes_and_has_top5_from_five_classes_on():
    one = [[6.0, 5, 4, 3, 2, 1]]
    everything = [[True] * 6]
    assert measure(one * 4, [0, 1, 4, 5], everything * 4) == {"top1": 25.0, "top5": 75.0}
    # Class 4 is among the five best only because nobody voted for it or for 5.
    assert measure([[6.0, 5, 4, 3, 0, 0]], [4], [[True] * 4 + [False] * 2]) == {"top1": 0.0, "top5": 0.0}
    assert measure([[0.0, 0, 0, 0, 0]], [0], [[False] * 5]) == {"top1": 0.0, "top5": 0.0}
    assert measure([[1.0, 2, 3, 4]], [3], [[True] * 4]) == {"top1": 100.0}


def test_of_equal_scores_the_first_class_is_guessed_first():
    """A collapsed model is right about the first class, and among five guesses about the first five."""
    assert measure([[0.0] * 10] * 10, range(10), [[True] * 10] * 10) == {"top1": 10.0, "top5": 50.0}
    assert measure([[2.0, 1, 3, 3, 1, 1, 1]] * 7, range(7), [[True] * 7] * 7)["top1"] == pytest.approx(100 / 7)
    assert measure([[2.0, 1, 3, 3, 1, 1, 1]] * 7, range(7), [[True] * 7] * 7)["top5"] == pytest.approx(500 / 7)


def test_records_are_immutable():
    with pytest.raises(AttributeError):
        result().value = 99.0
    assert replace(result(), value=95).value == 95.0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"settings": {"k": "20"}}, "has k '20' in its settings, expected a number above 0"),
        ({"settings": {"train_size": 0}}, "has train_size 0 in its settings"),
        ({"settings": {"bank_size": None}}, "has bank_size None in its settings"),
        ({"settings": {"temperature": "hot"}}, "has temperature 'hot' in its settings"),
        ({"images": 0}, "has no record: images and overlap are numbers of images"),
        ({"overlap": -1}, "has no record"),
        ({"per_class": {"cat": [None, 3]}}, "has no record"),
        ({"interval": [90.0, 80.0]}, "has no record"),
        ({"date": "yesterday"}, "is dated 'yesterday', expected a date such as 2026-01-31"),
        ({"date": 3}, "is dated 3"),
    ],
)
def test_what_no_reader_could_print_is_damage(tmp_path, change, said):
    damaged = asdict(result()) | change
    (tmp_path / "results.json").write_text(json.dumps([damaged]))
    with pytest.raises(UsageError, match=re.escape(said)) as caught:
        read_results(tmp_path)
    assert str(tmp_path / "results.json") in str(caught.value)


def test_other_images_under_the_same_names_are_another_measurement(tmp_path):
    here, there = (result(value=v, data={"judged": name}) for v, name in ((50.0, "a"), (60.0, "b")))
    append_results(tmp_path, [here, there])
    append_results(tmp_path, [replace(here, value=55.0)])
    assert [r.value for r in read_results(tmp_path)] == [55.0, 60.0]


def test_images_that_the_model_was_trained_on_say_nothing_whatever_the_classifier_was_fitted_to():
    on_train = result(split="train", settings={"k": 20, "bank_split": "validation"})
    assert objection(on_train, "train") == "measured on the training split (train)"
    assert objection(replace(on_train, split="test"), "train") is None
