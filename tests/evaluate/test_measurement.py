"""What tells measurements apart, and what does not."""

import pytest

from ssl_hub.evaluate.measurement import described, headline, listed, measurement_of, protocol_of, titles
from ssl_hub.model.results import Result

LABELS = {"train_split": "train", "train_size": 1297, "layer": "backbone"}


def result(protocol="linear-cached", value=50.0, **settings):
    return Result(metric="top1", value=value, dataset="digits", split="test", protocol=protocol, settings=settings)


def test_what_a_probe_chose_by_itself_makes_no_other_measurement():
    one, two = (result(**LABELS, strength=s, chosen_by="given", converged=True) for s in (0.1, 0.01))
    assert measurement_of(one) == measurement_of(two)


@pytest.mark.parametrize(
    ("protocol", "one", "other"),
    [
        ("knn", {"k": 20, "temperature": 0.07}, {"k": 200, "temperature": 0.07}),
        ("knn", {"k": 20, "temperature": 0.07}, {"k": 20, "temperature": 0.1}),
        ("knn", {"k": 20, "bank_size": 65}, {"k": 20, "bank_size": 325}),
        ("linear-cached", LABELS, LABELS | {"train_size": 65}),
        ("linear-cached", LABELS, LABELS | {"train_dataset": "other"}),
        ("linear-cached", LABELS, LABELS | {"holdout": 0.2}),
        ("linear-simsiam", LABELS | {"epochs": 90}, LABELS | {"epochs": 2}),
        ("finetune", LABELS | {"epochs": 50}, LABELS | {"epochs": 5}),
    ],
)
def test_settings_that_define_a_number_make_another_measurement(protocol, one, other):
    assert measurement_of(result(protocol, **one)) != measurement_of(result(protocol, **other))


def test_fine_tuned_runs_of_two_seeds_are_one_measurement():
    one, two = (result("finetune", **LABELS, finetuned_from=name, epochs=50) for name in ("seed-0", "seed-1"))
    assert measurement_of(one) == measurement_of(two)


def test_a_protocol_is_named_with_its_departures():
    assert protocol_of("linear-byol", {"epochs": 80, "lrs": [0.4, 0.3, 0.2, 0.1, 0.05]}) == "linear-byol"
    assert protocol_of("linear-byol", {"epochs": 2, "lrs": [0.4]}) == "linear-byol (lrs=[0.4], epochs=2)"
    assert protocol_of("knn", {"k": 3}) == "knn"


def test_titles_say_what_differs_and_no_more():
    same = {"temperature": 0.07, "bank_size": 65}
    kinds = [result("knn", k=20, **same), result("knn", k=200, **same), result(**LABELS)]
    assert list(titles(map(measurement_of, kinds)).values()) == [
        "knn top1, digits (test), k=20",
        "knn top1, digits (test), k=200",
        "linear-cached top1, digits (test)",
    ]


def test_lines_are_aligned_and_say_what_defines_the_number():
    knn = result("knn", 7.5, k=5, temperature=0.1, bank_size=1297, bank_split="train", layer="backbone")
    lines = listed([knn, result("linear-authors-small", 57.8, **LABELS, epochs=3)])
    assert lines == [
        "knn                              top1    7.50 %  digits (test)  "
        "k=5, temperature=0.1, 1,297 bank images (train)",
        "linear-authors-small (epochs=3)  top1   57.80 %  digits (test)  3 epochs, 1,297 labels (train)",
    ]
    assert listed([]) == []
    assert described(result("finetune", train_size=130, train_split="train@1percent.txt", epochs=30)) == (
        "30 epochs, 130 labels (train@1percent.txt)"
    )


def test_headline_is_the_default_and_other_numbers_only_where_it_is_missing():
    odd, fifth = result("linear-simsiam", 6.4, **LABELS, epochs=2), result(value=40.0, **LABELS | {"train_size": 65})
    whole = result(value=57.8, **LABELS)
    assert headline([odd, whole, fifth], "linear") == whole
    assert headline([odd, fifth], "linear") == fifth
    assert headline([odd], "linear") == odd
    assert headline([odd], "knn") is None
