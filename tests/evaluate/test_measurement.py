"""What tells measurements apart, and what does not."""

from dataclasses import replace
from itertools import permutations

import pytest

from ssl_hub.evaluate.measurement import (
    alike,
    described,
    differences,
    headline,
    listed,
    measurement_of,
    protocol_of,
    titles,
    why_apart,
)
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
        ("linear-cached", LABELS, LABELS | {"range": "12"}),
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


def stands(*results, **options):
    return headline(results, "linear", **options).result


def test_headline_is_the_default_and_other_numbers_only_where_it_is_missing():
    odd, fifth = result("linear-simsiam", 6.4, **LABELS, epochs=2), result(value=40.0, **LABELS | {"train_size": 65})
    whole = result(value=57.8, **LABELS)
    assert stands(odd, whole, fifth) == whole
    assert stands(odd, fifth) == fifth
    assert stands(odd) == odd
    assert headline([odd], "knn").result is None


def test_of_several_protocols_neither_the_name_nor_the_date_decides():
    byol = replace(result("linear-byol", 60.0, **LABELS), date="2020-01-01T00:00:00+00:00")
    simsiam, quick = result("linear-simsiam", 70.0, **LABELS), result("linear-byol", 80.0, **LABELS, epochs=1)
    for order in permutations((byol, simsiam, quick)):
        assert stands(*order) == byol  # registered first, and unchanged


def test_a_part_of_a_split_gives_way_to_the_whole_and_the_reason_is_given():
    whole, part = (
        replace(result(value=v, **LABELS), split=s) for v, s in ((64.0, "validation"), (90.0, "validation[:100]"))
    )
    for order in permutations((whole, part)):
        found = headline(order, "linear")
        assert found.result == whole
        assert found.aside == [(part, "on a part of a split (validation[:100]), where all of validation was measured")]
    assert stands(part) == part


def test_the_training_split_and_what_overlaps_it_stand_for_nothing():
    on_train = replace(result(value=99.0, **LABELS), split="train")
    sliced = replace(result(value=95.0, **LABELS), split="train[::5]")
    allowed = replace(result(value=95.0, **LABELS), split="other", overlap=260, images=300)
    other_way = replace(result(value=95.0, **LABELS | {"train_split": "test"}), split="train", overlap=0)
    found = headline([on_train, sliced, allowed, other_way], "linear")
    assert found.result is None
    assert [reason for _, reason in found.aside] == [
        "measured on the training split (train)",
        "measured on a part of the training split (train[::5]), and not known to be of other images",
        "260 of 300 images of other are among those that it was fitted to",
        "measured on the training split (train)",
    ]
    held_out = replace(sliced, split="train, 20 % held out", overlap=0)
    assert stands(held_out, on_train) == held_out
    published = replace(allowed, published=True)
    assert stands(published) == published


def test_what_was_measured_on_older_weights_is_set_aside():
    old, new = (
        replace(result(value=v, **LABELS), backbone=v_hash, date=f"202{v_hash}-01-01", seed=int(v_hash))
        for v, v_hash in ((90.0, "1"), (60.0, "2"))
    )
    found = headline([old, new], "linear")
    assert found.result == new and found.aside == [(old, "measured on other weights than these")]


def test_differences_are_named_and_unknown_images_are_taken_for_the_same():
    one = result("linear-simsiam", **LABELS, epochs=90)
    quick = replace(result("linear-simsiam", **LABELS | {"train_size": 65}, epochs=2), split="val")
    assert differences(measurement_of(one), measurement_of(one)) == []
    assert differences(measurement_of(one), measurement_of(quick)) == [
        "protocol linear-simsiam and linear-simsiam (epochs=2)",
        "split test and val",
        "train_size 1297 and 65",
    ]
    here, there = (replace(one, data={"judged": name}) for name in ("a", "b"))
    old, first, second = map(measurement_of, (one, here, there))
    assert differences(old, first) == differences(second, old) == []
    assert differences(first, second) == ["other images under the same names"]
    assert why_apart(first, second) == "other images under the same names"
    assert why_apart(first, old) == "its images are not told, and may be others"
    assert alike([old, first]) == {old: first, first: first}
    assert alike([old, first, second])[old] == old
    assert len(set(titles([first, second]).values())) == 2


def test_the_runs_own_test_split_stands_before_another_that_is_newer():
    own, other = (
        replace(result(value=v, **LABELS), split=split, date=date)
        for v, split, date in ((64.0, "test", "2020-01-01"), (90.0, "validation", "2024-01-01"))
    )
    for order in permutations((own, other)):
        assert stands(*order) == own
        assert stands(*order, test_split="validation") == other


def test_the_usual_temperature_stands_before_another_that_is_newer():
    bank = {"k": 20, "bank_size": 65, "bank_split": "train"}
    usual, odd = (
        replace(result("knn", value, **bank, temperature=t), date=date)
        for value, t, date in ((50.0, 0.07, "2020-01-01"), (60.0, 1.0, "2024-01-01"))
    )
    for order in permutations((usual, odd)):
        assert headline(order, "knn").result == usual


def test_the_newest_is_told_by_the_time_and_not_by_how_it_is_written():
    later = replace(result(value=60.0, **LABELS), date="2024-01-01T01:00:00-08:00")
    earlier = replace(result(value=50.0, **LABELS), date="2024-01-01T08:00:00+00:00", seed=1)
    for order in permutations((later, earlier)):
        assert stands(*order) == later
