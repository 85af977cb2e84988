"""A stored head gives way only to one that is as well founded, or where somebody says so."""

import pytest
import torch

from ssl_hub.cli import main
from ssl_hub.evaluate.keeping import keep_head, keep_results, stored_head
from ssl_hub.model.probe_head import ProbeHead
from ssl_hub.model.release import load_backbone
from ssl_hub.model.results import Result, read_results

CLASSES = tuple("0123456789")


def head(protocol="linear-cached", size=1297, fill=0.0, **settings):
    told = {"protocol": protocol, "train_size": size, **settings}
    return ProbeHead(torch.full((10, 128), fill), torch.zeros(10), CLASSES, "digits", told)


@pytest.mark.parametrize(
    ("stored", "new", "replaced"),
    [
        (head(), head(), True),
        (head(), head(size=65), False),
        (head(size=65), head(), True),
        (head(), head("linear-simsiam", epochs=2), False),
        (head(), head("linear-byol"), False),
        (head("linear-simsiam", epochs=2), head(), True),
        (head("linear-simsiam"), head("linear-simsiam", epochs=2), False),
        (head("linear-simsiam", epochs=2), head("linear-simsiam", epochs=2), True),
        (head("linear-byol"), head(size=65), False),
        (head("finetune"), head(), False),
        (head(train_split="train"), head(size=1797, train_split="train+test"), False),
        (head(train_split="train"), head(size=1797, train_split="test"), False),
        (head(size=300, train_split="train[:300]"), head(size=200, train_split="train"), True),
        (head(size=1297, train_split="train"), head(size=1500, train_split="train[:1500]"), False),
        (head(), head(range="12"), False),
        (head(range="12"), head(range="12"), True),
        (head(range="12"), head(range="13"), False),
        (head(range="12"), head(), True),
    ],
)
def test_the_rule(tmp_path, stored, new, replaced):
    stored.save(tmp_path)
    said = keep_head(tmp_path, new, classifier=False)
    assert said.startswith("head stored" if replaced else "head kept")
    assert stored_head(tmp_path, "digits").settings == (new if replaced else stored).settings
    keep_head(tmp_path, new, classifier=False, replace=True)
    assert stored_head(tmp_path, "digits").settings == new.settings


def test_a_head_whose_number_does_not_count_is_never_stored(tmp_path):
    about = {"metric": "top1", "value": 95.0, "dataset": "digits", "split": "train[::5]", "protocol": "linear-cached"}
    seen = Result(**about, settings={"train_split": "train"}, overlap=260, images=260)
    said = keep_head(tmp_path, head(), [seen], classifier=True, replace=True)
    assert said == "head not stored: 260 of 260 images of train[::5] are among those that it was fitted to"
    assert stored_head(tmp_path, "digits") is None


def test_a_damaged_head_gives_way(tmp_path):
    head().save(tmp_path).write_bytes(b"damaged")
    keep_head(tmp_path, head("linear-simsiam", epochs=2), classifier=False)
    assert stored_head(tmp_path, "digits").settings["epochs"] == 2


def test_the_classifier_is_the_heads(released):
    keep_head(released, head(fill=1.0), classifier=True)
    keep_head(released, head(fill=2.0, size=65), classifier=True)
    assert (load_backbone(released, num_classes=None).get_classifier().weight == 1.0).all()


def test_what_became_of_the_head_is_said_with_its_accuracy(tmp_path):
    settings = {"train_size": 1297, "strength": 0.1}
    common = {"metric": "top1", "dataset": "digits", "split": "test"}
    part = common | {"split": "test[:50]"}
    keep_results(tmp_path, [Result(value=90.0, protocol="linear-cached", settings=settings, **part)])
    said = keep_results(tmp_path, [Result(value=57.8, protocol="linear-cached", settings=settings, **common)])
    assert said == f"recorded in {tmp_path / 'results.json'}"
    assert keep_head(tmp_path, head(strength=0.1), classifier=False) == (
        "head stored: linear-cached, 1,297 labels, 57.8 % on test"
    )
    assert keep_head(tmp_path, head("linear-simsiam", epochs=2), classifier=False) == (
        "head kept: linear-cached, 1,297 labels, 57.8 % on test; --replace-head puts this one in its place"
    )


def test_command_keeps_the_head_and_says_so(released, capsys):
    head(size=1297).save(released)
    quick = ["probe", str(released), "--data", "digits", "--protocol", "authors-small", "epochs=1", "--workers", "0"]
    assert main(quick) == 0
    out, err = capsys.readouterr()
    assert "linear-authors-small (epochs=1)" in out and "1 epochs, 1,297 labels (train)" in out
    assert f"recorded in {released / 'results.json'}" in err and "head kept: linear-cached, 1,297 labels" in err
    assert stored_head(released, "digits").settings["protocol"] == "linear-cached"
    assert {r.protocol for r in read_results(released)} == {"linear-authors-small"}
    assert main([*quick, "--replace-head"]) == 0
    assert "head stored: linear-authors-small (epochs=1)" in capsys.readouterr().err
    assert stored_head(released, "digits").settings["epochs"] == 1
