"""Hostile and damaged releases: refused with the file named, or harmless; nothing in them is ever executed."""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from itertools import cycle

import pytest
import torch
from safetensors.torch import save

from ssl_hub.errors import UsageError
from ssl_hub.evaluate.model import knn, linear_probe
from ssl_hub.evaluate.subject import eval_transform
from ssl_hub.hub.card import release_card
from ssl_hub.hub.store import load, resolve
from ssl_hub.hub.verify import verify
from ssl_hub.model.files import CONFIG, HASHES, METHOD, MODEL, RECIPE, RESULTS_FILE, seal
from ssl_hub.model.release import read_recipe, read_tensors, write_tensors
from tests.hub.releases import flip, places, rewrite


def test_a_newer_recipe_is_said_to_be_one_and_the_weights_still_load(run):
    sealed(run, RECIPE, lambda written: written["recipe"]["optim"].update(lookahead=3))
    with pytest.raises(UsageError, match=r"recipe\.json was written by a newer ssl_hub; upgrade .*optim\.lookahead"):
        read_recipe(run)
    with pytest.warns(UserWarning, match="written by a newer ssl_hub"):
        assert load(run)(torch.rand(1, 3, 32, 32)).shape == (1, 128)


@pytest.mark.parametrize("measure", [knn, linear_probe])
@pytest.mark.parametrize(("name", "said"), [(MODEL, "is not the file"), (RESULTS_FILE, "must hold"), (HASHES, "no ")])
def test_nothing_is_measured_where_it_could_not_be_kept_nor_certified(run, monkeypatch, measure, name, said):
    monkeypatch.setattr("ssl_hub.evaluate.model.extract", None)
    if name == MODEL:
        flip(run / MODEL)
    else:
        (run / name).unlink()
        (run / name).mkdir()
    with pytest.raises(UsageError, match=said):
        measure(run)


class Payload:
    """What a hostile pickle would run."""

    ran = False

    def __reduce__(self):
        return setattr, (Payload, "ran", True)


def sealed(run, name, change):
    rewrite(run / name, change)
    seal(run)


def test_a_whole_release_lists_its_files(run):
    verified = verify(run)
    assert verified.hashed and verified.folder == run
    assert {MODEL, METHOD, CONFIG, RECIPE, "results.json", "heads/digits.json"} < verified.files.keys()
    (run / HASHES).unlink()
    assert not verify(run).hashed


@pytest.mark.parametrize("name", [MODEL, METHOD, CONFIG, RECIPE, "results.json", "heads/digits.safetensors"])
def test_one_changed_byte_anywhere_is_found(run, name):
    flip(run / name, -2)
    with pytest.raises(UsageError, match=name):
        verify(run)


@pytest.mark.parametrize("name", [MODEL, CONFIG, RECIPE, HASHES])
def test_one_flipped_bit_is_found_by_loading_and_skipped_on_request_alone(run, name):
    flip(run / name)
    with pytest.raises(UsageError, match=name):
        load(run)
    with suppress(UsageError):  # whatever is there
        load(run, check_hashes=False)


@pytest.mark.parametrize(
    ("name", "options"), [(METHOD, {"which": "target"}), ("heads/digits.json", {"head": "digits"})]
)
def test_loading_checks_what_it_reads_and_finds_what_is_missing(run, name, options):
    load(run)
    load(run, **options)
    flip(run / name, -8)
    load(run)  # does not read it
    with pytest.raises(UsageError, match=f"{name} is not the file that hashes.json lists"):
        load(run, **options)
    (run / RECIPE).unlink()
    with pytest.raises(UsageError, match=r"recipe\.json is missing, and hashes\.json lists it"):
        load(run)


def test_every_changed_file_is_named_in_one_line(run):
    for name in (MODEL, CONFIG):
        (run / name).write_bytes((run / name).read_bytes() + b" ")
    with pytest.raises(UsageError, match=r"is not the file that hashes\.json lists \(nor .*\)") as raised:
        load(run)
    assert MODEL in str(raised.value) and CONFIG in str(raised.value) and "\n" not in str(raised.value)


def test_numbers_of_another_type_are_no_weights(run):
    tensors = read_tensors(run / MODEL)
    tensors["conv1.weight"] = tensors["conv1.weight"].view(torch.int32)  # the same bytes
    write_tensors(run / MODEL, tensors)
    with pytest.raises(UsageError, match=r"1 of another type \(conv1\.weight: torch\.int32\)"):
        load(run, check_hashes=False)


def test_a_file_that_was_added_is_not_one_of_the_release(run):
    (run / "heads" / "extra.json").write_text("{}")
    with pytest.raises(UsageError, match=r"extra\.json is not the file that hashes\.json lists"):
        verify(run)


@pytest.mark.parametrize("suffix", [".bin", ".pt", ".pth", ".ckpt"])
def test_pickles_are_named_and_not_run(run, suffix):
    (run / MODEL).unlink()
    torch.save({"conv1.weight": Payload()}, run / f"model{suffix}")
    for action in (load, verify):
        with pytest.raises(UsageError, match=rf"model{suffix} beside it can run code|is missing, and hashes"):
            action(run)
    torch.save({"conv1.weight": Payload()}, run / MODEL)  # nor under another name
    with pytest.raises(UsageError, match="not a readable safetensors file"):
        load(run, check_hashes=False)
    assert not Payload.ran


@pytest.mark.parametrize("dataset", ["../../outside", "/etc/passwd", "..\\..\\outside", "heads/../../x"])
def test_names_of_heads_lead_nowhere_else(run, dataset):
    with pytest.raises(UsageError, match=f"no head for {dataset!r}".replace("\\", "\\\\").replace(".", r"\.")):
        load(run, head=dataset)
    sealed(run, "heads/digits.json", lambda head: head.update(dataset=dataset))
    with pytest.raises(UsageError, match=r"digits\.json says it is a head for"):
        verify(run)


@pytest.mark.parametrize("name", [MODEL, CONFIG, "heads/digits.json", "heads"])
def test_links_are_refused_by_name(run, tmp_path, name):
    outside = tmp_path / "outside"
    (run / name).rename(outside)
    (run / name).symlink_to(outside)
    with pytest.raises(UsageError, match=f"{name}.* is a symbolic link"):
        load(run)


def test_a_folder_reached_by_a_link_is_fine(run, tmp_path):
    (tmp_path / "link").symlink_to(run)
    assert resolve(tmp_path / "link") == tmp_path / "link"
    load(tmp_path / "link")


@pytest.mark.parametrize("length", [2**63, 10**9, 120_000_000, 0])
def test_headers_of_impossible_length_are_refused(run, length):
    data = (run / MODEL).read_bytes()
    (run / MODEL).write_bytes(struct.pack("<Q", length) + data[8:])
    with pytest.raises(UsageError, match=r"model\.safetensors is not a readable safetensors file"):
        load(run, check_hashes=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda c: c.update(architecture="resnet18"),
            r"config\.json names the architecture 'resnet18', but recipe\.json",
        ),
        (lambda c: c.update(architecture="os.system"), r"config\.json names the architecture 'os', but recipe\.json"),
        (lambda c: c.pop("architecture"), r"config\.json names no 'architecture'"),
        (lambda c: c.update(ssl_hub=[1]), r"config\.json: 'ssl_hub' is \[1\]"),
        (lambda c: c.update(pretrained_cfg="x"), r"config\.json: 'pretrained_cfg' is 'x'"),
        (lambda c: c["pretrained_cfg"].update(input_size=[3, 10**6, 10**6]), r"'input_size' is \[3, 1000000"),
        (lambda c: c["pretrained_cfg"].update(std=[0, 1, 1]), r"'std' is \[0, 1, 1\], expected three finite numbers"),
        (lambda c: c["pretrained_cfg"].update(mean=[1e999, 0, 0]), r"'mean' is \[inf"),
    ],
)
def test_a_config_that_cannot_be_true_is_refused(run, change, message):
    sealed(run, CONFIG, change)
    with pytest.raises(UsageError, match=message):
        load(run)


def test_another_architecture_is_found_without_a_recipe_too(run):
    (run / RECIPE).unlink()
    sealed(run, CONFIG, lambda config: config.update(architecture="resnet18"))
    with pytest.raises(UsageError, match=r"model\.safetensors: \d+ of \d+ tensors fit ResNet"):
        load(run)


def test_a_config_does_not_say_where_else_weights_are(run):
    sources = {"url": "http://evil", "file": "/etc/passwd", "hf_hub_id": "evil/model", "custom_load": True, "novel": 1}
    sealed(run, CONFIG, lambda config: config["pretrained_cfg"].update(sources))
    loaded = load(run).pretrained_cfg
    assert not any(loaded.get(key) for key in sources)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", [MODEL, METHOD, "heads/digits.safetensors"])
def test_tensors_that_are_not_finite_are_refused_by_name(run, name, value):
    tensors = read_tensors(run / name)
    first = next(key for key, tensor in tensors.items() if tensor.is_floating_point() and tensor.numel() > 1)
    tensors[first].view(-1)[0] = value
    write_tensors(run / name, tensors)
    seal(run)
    with pytest.raises(UsageError, match="not finite|NaN or infinity"):
        verify(run)
    if name == MODEL:
        with pytest.raises(UsageError, match=rf"model\.safetensors: 1 tensors hold NaN or infinity \({first}\)"):
            load(run)


def test_large_finite_tensors_are_finite(run):
    tensors = read_tensors(run / METHOD)
    tensors["target.backbone.conv1.weight"].fill_(3e38)  # their sum is infinite
    write_tensors(run / METHOD, tensors)
    seal(run)
    load(run, which="target")


def test_files_without_the_metadata_that_transformers_asks_for_are_found(run):
    (run / MODEL).write_bytes(save(read_tensors(run / MODEL)))
    seal(run)
    with pytest.raises(UsageError, match=r"model\.safetensors lacks the metadata 'format: pt'"):
        verify(run)


WRONG = (None, "x", {"a": [{}]})


@pytest.mark.parametrize("name", [CONFIG, RECIPE, "results.json", "heads/digits.json", HASHES])
def test_any_value_may_be_wrong_and_no_error_is_other_than_ours(run, name):
    whole = json.loads((run / name).read_text())
    paths = [path for path in places(whole) if path[:1] != ("recipe",) or len(path) < 3]
    for path, wrong in zip(paths, cycle(WRONG), strict=False):
        content = json.loads(json.dumps({"": whole}))
        *way, last = ("", *path)
        place = content
        for key in way:
            place = place[key]
        place[last] = wrong
        (run / name).write_text(json.dumps(content[""]))
        for action in (lambda folder: eval_transform(load(folder, check_hashes=False)), load, verify, release_card):
            with suppress(UsageError):
                action(run)
