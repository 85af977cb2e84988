"""What is judged on images that it was fitted to is refused, or marked and then counts nowhere."""

import json

import numpy as np
import pytest

import ssl_hub
from ssl_hub.cli import main
from ssl_hub.data.images import Source
from ssl_hub.data.stored import Pixels
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.overlap import is_published, refuse_overlap
from ssl_hub.hub.card import release_card
from ssl_hub.model.probe_head import ProbeHead
from ssl_hub.model.results import read_results
from ssl_hub.report.record import read_record

SLICED = ["--train-split", "train", "--test-split", "train[::5]", "--workers", "0"]
REFUSED = (
    r"260 of the 260 images of digits \(train\[::5\]\) are in digits \(train\) too, which is fitted to: 0; 5, \.\.\.; "
    r"choose splits that share none, take copies out \(`ssl-hub duplicates`\), or --holdout 0\.2\. --allow-overlap"
)


def test_every_evaluation_refuses(released, capsys):
    for command in (["knn"], ["probe"], ["probe", "--protocol", "authors-small"], ["finetune", "epochs=1"]):
        assert main([command[0], str(released), *command[1:], *SLICED]) == 2
        error = capsys.readouterr().err.strip().splitlines()[-1]
        assert "260 of the 260 images of digits (train[::5]) are in digits (train) too" in error
    assert read_results(released) == [] and not (released / "heads").exists()


def test_the_error_says_how_many_and_shows_two():
    with pytest.raises(UsageError, match=REFUSED):
        ssl_hub.knn("pixels", "digits", image_size=16, workers=0, train_split="train", test_split="train[::5]")


def test_what_is_allowed_is_marked_and_counts_nowhere(released, capsys):
    quick = ["strengths=[1.0,0.1]", "max_iter=20"]
    assert main(["probe", str(released), *SLICED, "--allow-overlap", "--replace-head", *quick]) == 0
    said = capsys.readouterr()
    assert "260 images overlap" in said.out and "head not stored: 260 of 260 images" in said.err
    (top1, _) = read_results(released)
    assert (top1.overlap, top1.published) == (260, False)
    assert not (released / "heads").exists()
    record = read_record(released, "run")
    assert record.result("linear") is None
    assert record.headline("linear").aside[0].reason.startswith("260 of 260 images of train[::5] are among those")
    card = release_card(released)
    assert "model-index" not in card and f"{top1.value:.2f}" not in card
    assert "260 of 260 images of train\\[::5\\] are among those that it was fitted to" in card
    # An honest number then stands alone, and its head is stored.
    assert main(["probe", str(released), "--workers", "0", *quick]) == 0
    honest = read_results(released)[2]
    assert honest.overlap == 0 and read_record(released, "run").result("linear") == honest
    assert ProbeHead.load(released, "digits").settings["train_split"] == "train"
    assert f"{honest.value:.2f} (" in release_card(released)
    # And what overlaps takes no head's place, whatever is asked for.
    assert main(["probe", str(released), *SLICED, "--allow-overlap", "--replace-head", *quick]) == 0
    assert read_record(released, "run").result("linear") == honest


def test_the_record_has_what_a_reviewer_asks(released):
    some = {"train_split": "train[::4]", "test_split": "test[::5]", "workers": 0}
    ssl_hub.knn(released, **some)
    record = json.loads((released / "results.json").read_text())[0]
    assert record["images"] == 100 and record["interval"][0] < record["value"] < record["interval"][1]
    assert record["ran_on"].keys() == {"device", "threads", "processes", "seconds"} and record["ran_on"]["device"]
    assert record["data"].keys() == {"fitted", "judged"} and len(record["backbone"]) == 16
    assert sum(images for _, images in record["per_class"].values()) == 100
    assert '"0": [' in (released / "results.json").read_text()  # a class is one line
    again = ssl_hub.knn(released, **some)[0]
    assert (again.data, again.backbone) == (record["data"], record["backbone"])


def test_whole_splits_of_a_benchmark_may_share_what_they_share():
    pixels = Pixels(np.zeros((4, 2, 2, 3), np.uint8))

    def published(train, test, name="owner/photos"):
        return is_published(Source(name, train, pixels), Source(name, test, pixels))

    assert published("train", "test") and published("train", "validation", "digits")
    assert not published("train", "train") and not published("train", "train[::5]")
    assert not published("train[:10]", "test") and not published("train", "test", "photos")
    assert published("train+validation", "test") and published("train", "test", "owner/photos:small@refs/pr/1")
    assert not published("train+test", "test") and not published("train", "validation+train", "digits")


def test_a_split_joined_to_the_one_that_is_fitted_to_is_refused():
    with pytest.raises(UsageError, match=r"500 of the 500 images of digits \(test\) are in digits \(train\+test\) too"):
        ssl_hub.knn("pixels", "digits", image_size=16, workers=0, train_split="train+test")


def test_a_published_split_that_is_all_of_another_is_refused():
    pixels = np.random.default_rng(0).integers(0, 256, (6, 2, 2, 3), np.uint8)
    train = Source("owner/photos", "train", Pixels(pixels[:5]))
    assert refuse_overlap(train, Source("owner/photos", "test", Pixels(pixels[2:]))).images == 3
    with pytest.raises(UsageError, match=r"3 of the 3 images of owner/photos \(validation\) are in owner/photos"):
        refuse_overlap(train, Source("owner/photos", "validation", Pixels(pixels[2:5])))
