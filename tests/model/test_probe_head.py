"""Probe heads as files: what is saved is what is loaded, and a head never meets another backbone's features."""

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open

from ssl_hub.errors import UsageError
from ssl_hub.model.probe_head import ProbeHead, head_path

CLASSES = ("cat", "dog", "owl")


def head(width=512, dataset="digits", classes=CLASSES):
    generator = torch.Generator().manual_seed(width)
    weight = torch.randn(len(classes), width, generator=generator)
    return ProbeHead(weight, torch.randn(len(classes), generator=generator), classes, dataset, {"strength": 0.1})


def test_a_reloaded_head_gives_equal_logits_and_says_the_same_of_itself(tmp_path):
    saved, x = head(), torch.randn(5, 512)
    saved.save(tmp_path)
    loaded = ProbeHead.load(tmp_path, "digits", width=512)
    assert torch.equal(loaded.as_linear()(x), saved.as_linear()(x))
    torch.testing.assert_close(loaded.as_linear()(x), x @ saved.weight.T + saved.bias)
    assert (loaded.classes, loaded.dataset, loaded.settings) == (CLASSES, "digits", {"strength": 0.1})


def test_a_release_that_is_gone_is_not_made_anew(tmp_path):
    with pytest.raises(UsageError, match=r"cannot make the folder .*gone/heads \(No such file or directory\)"):
        head().save(tmp_path / "gone")
    assert not list(tmp_path.iterdir())


def test_width_of_another_backbone_is_an_error_with_both_widths(tmp_path):
    head(512).save(tmp_path)
    with pytest.raises(UsageError, match="head of width 512 on a backbone of width 2048"):
        ProbeHead.load(tmp_path, "digits", width=2048)


def test_files_hold_text_metadata_and_contiguous_tensors(tmp_path):
    transposed = ProbeHead(torch.randn(4, 3).T, torch.zeros(3), CLASSES, "digits", {"k": np.int64(3)})
    path = transposed.save(tmp_path)
    assert path == tmp_path / "heads" / "digits.safetensors"
    with safe_open(path, "pt") as file:
        assert file.metadata() == {"format": "pt"}
        assert torch.equal(file.get_tensor("weight"), transposed.weight)
    about = json.loads((tmp_path / "heads" / "digits.json").read_text())
    assert about == {"dataset": "digits", "width": 4, "classes": list(CLASSES), "settings": {"k": 3}}


@pytest.mark.parametrize("dataset", ["ILSVRC/imagenet-1k", "my photos.v2", "../outside", "/abs/path", "模型"])
def test_any_dataset_name_is_one_file_in_the_heads_folder(tmp_path, dataset):
    path = head(dataset=dataset).save(tmp_path)
    assert path.parent == tmp_path / "heads" and ProbeHead.load(tmp_path, dataset).dataset == dataset
    assert sorted(p.suffix for p in path.parent.iterdir()) == [".json", ".safetensors"]


def test_names_that_share_a_file_are_not_taken_for_each_other(tmp_path):
    head(dataset="a/b").save(tmp_path)
    with pytest.raises(UsageError, match="is a head for 'a/b', expected one for 'a--b'"):
        ProbeHead.load(tmp_path, "a--b")
    with pytest.raises(UsageError, match="a--b.json is of the head for 'a/b'; rename 'a b', so that"):
        head(dataset="a b").save(tmp_path)
    assert ProbeHead.load(tmp_path, "a/b").dataset == "a/b"
    for name in ("a-ü-b", "a-é-b"):
        head(dataset=name).save(tmp_path)
    assert ProbeHead.load(tmp_path, "a-ü-b").dataset == "a-ü-b"
    with pytest.raises(UsageError, match="gives no file name"):
        head_path(tmp_path, "..")


def test_a_head_never_fitted_cannot_be_loaded_and_those_there_are_named(tmp_path):
    with pytest.raises(UsageError, match=r"no head for 'digits' in .*; there: none"):
        ProbeHead.load(tmp_path, "digits")
    head(dataset="stl10").save(tmp_path)
    with pytest.raises(UsageError, match=r"no head for 'digits' .*; there: stl10; probe the backbone first$"):
        ProbeHead.load(tmp_path, "digits")
    with pytest.raises(UsageError, match=r"no head for 'data/stl10' .*; there: stl10; its name is 'stl10'$"):
        ProbeHead.load(tmp_path, "data/stl10")


@pytest.mark.parametrize("damage", ["cut", "json", "no json", "keys"])
def test_damaged_files_are_an_error_that_names_them(tmp_path, damage):
    path = head().save(tmp_path)
    about = path.with_suffix(".json")
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-10])
    elif damage == "json":
        about.write_text("{")
    elif damage == "no json":
        about.unlink()
    else:
        about.write_text("{}")
    with pytest.raises(UsageError, match=r"digits\.(safetensors|json)"):
        ProbeHead.load(tmp_path, "digits")


@pytest.mark.parametrize(
    ("weight", "bias", "text"),
    [
        (torch.zeros(2, 4), torch.zeros(3), r"weight \[2, 4\] and bias \[3\] for 3 classes"),
        (torch.zeros(3, 4), torch.zeros(2), r"weight \[3, 4\] and bias \[2\] for 3 classes"),
        (torch.zeros(0), torch.zeros(0), r"weight \[0\]"),
        (torch.full((3, 4), torch.nan), torch.zeros(3), "weights that are not finite"),
    ],
)
def test_parts_that_do_not_fit_make_no_head(weight, bias, text):
    with pytest.raises(UsageError, match=text):
        ProbeHead(weight, bias, CLASSES, "digits")


def test_making_a_module_draws_no_random_numbers():
    state = torch.get_rng_state()
    head().as_linear()
    assert torch.equal(torch.get_rng_state(), state)
