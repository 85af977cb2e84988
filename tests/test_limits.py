"""Absurd settings are refused by name before any work, and no setting can be forgotten."""

import dataclasses
import json
import math
import re
import typing
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from ssl_hub import UsageError, pretrain
from ssl_hub.cli import main
from ssl_hub.codec import from_dict, to_dict
from ssl_hub.config import Part, Recipe
from ssl_hub.evaluate.extraction import EXTRACTION, Extraction
from ssl_hub.evaluate.model import knn, linear_probe
from ssl_hub.evaluate.protocols import TRAINED, Trained, get_protocol
from ssl_hub.limits import FREE, RECIPE
from ssl_hub.train.classifier import LIMITS, Finetuning
from ssl_hub.train.launch import check_micro_batch
from ssl_hub.zoo import get_recipe, list_recipes

COUNT = "a whole number of at least 1"
WHOLE = "a whole number of at least 0"
SHARE = "a number from 0 to 1"
STRENGTH = "a number from 0 to 10"
POSITIVE = "a number above 0"
NOT_NEGATIVE = "a number of at least 0"
MOMENTUM = "a number of at least 0 and below 1"
CROP = "its low and its high end, each a number above 0 and at most 1"
SIGMA = "its low and its high end, each a number above 0"
MEAN = "three numbers, each a number from 0 to 1"
STD = "three numbers, each a number from 0.001 to 1"
PIXELS = "a whole number from 8 to 2048"
WIDTH = "a whole number from 1 to 16384"
SEED = "a whole number from 0 to 9223372036854775807"

OUTSIDE = [
    *(("optim.lr", value, POSITIVE) for value in (-1, 0)),
    *(("optim.momentum", value, MOMENTUM) for value in (2, 1, -1)),
    ("optim.weight_decay", -1, NOT_NEGATIVE),
    *(("optim.reference_batch", value, f"{COUNT}, or none") for value in (-5, 0)),
    *(("optim.clip_norm", value, f"{POSITIVE}, or none") for value in (-1, 0)),
    ("optim.warmup_epochs", -1, NOT_NEGATIVE),
    ("optim.predictor_lr_ratio", -3, NOT_NEGATIVE),
    ("optim.predictor_weight_decay", -1, f"{NOT_NEGATIVE}, or none"),
    *(("optim.trust_coefficient", value, POSITIVE) for value in (-1, 0)),
    *(("views.view1.crop_scale", value, CROP) for value in ([0, 0], [0, 1], [1, 0.1], [2, 3], [-1, 1])),
    *((f"views.view2.{name}", p, SHARE) for name in ("flip", "jitter", "grey", "blur", "solarise") for p in (7, -1)),
    *((f"views.view2.{name}", p, STRENGTH) for name in ("brightness", "contrast", "saturation") for p in (99, -1)),
    *(("views.view1.hue", value, "a number from 0 to 0.5") for value in (9, 0.6, -0.1)),
    *(("views.view1.blur_sigma", value, SIGMA) for value in ([-1, 2], [0, 0], [2, 1])),
    *(("views.std", value, STD) for value in ([-1, 1, 1], [0, 1, 1], [1e-45, 1, 1], [58, 57, 57])),
    *(("views.mean", value, MEAN) for value in ([-1, 0, 0], [124, 116, 104])),
    *(("views.size", value, PIXELS) for value in (-1, 0, 1, 100000)),
    *(("data.max_bad_images", value, WHOLE) for value in (-1,)),
    *(("data.shuffle_buffer", value, COUNT) for value in (-1, 0)),
    *(("backbone.drop_path_rate", value, MOMENTUM) for value in (-1, 1, 2)),
    *(("projector.layers", value, "a whole number from 1 to 16") for value in (0, -1, 10**6)),
    *((f"projector.{name}_width", value, WIDTH) for name in ("hidden", "output") for value in (0, -1, 10**9)),
    *(("train.epochs", value, COUNT) for value in (-1, 0)),
    *(("train.max_steps", value, f"{COUNT}, or none") for value in (-1, 0)),
    *(("train.batch_size", value, "a whole number of at least 2; batch normalisation needs") for value in (-8, 0, 1)),
    *(("train.accumulation", value, COUNT) for value in (-1, 0)),
    *(("train.seed", value, SEED) for value in (-1, 2**63)),
    *(("runtime.keep_checkpoints", value, f"{COUNT}; runtime.keep_every_epochs=1 keeps") for value in (-1, 0)),
    *((f"runtime.{name}_every_epochs", -1, WHOLE) for name in ("checkpoint", "keep", "knn")),
    ("runtime.checkpoint_minutes", -1, f"{NOT_NEGATIVE}, or none"),
    *(("runtime.log_every_steps", value, COUNT) for value in (-1, 0)),
    ("runtime.workers", -1, WHOLE),
    *(("runtime.knn_k", value, COUNT) for value in (-1, 0)),
    ("predictor.eps", -1, NOT_NEGATIVE),
    *(("predictor.alpha", value, POSITIVE) for value in (-1, 0)),
    ("predictor.freq", -1, f"{WHOLE}; 0 never overwrites"),
    *(("predictor.partitions", value, "a whole number from 0 to 1024") for value in (-1, 10**9)),
    ("predictor.rho", -1, "a number in [0, 1]"),
    *(("loss.scale", value, POSITIVE) for value in (-1, 0)),
    ("target.momentum", -1, "a number in [0, 1]"),
]
"""(setting, value, what is expected) of a recipe."""


def complaint(call, *arguments, **named):
    with pytest.raises(UsageError) as caught:
        call(*arguments, **named)
    text = str(caught.value)
    assert "\n" not in text
    return text


def cases(table):
    return pytest.mark.parametrize(("name", "value", "expected"), table, ids=[f"{n}={v}" for n, v, _ in table])


@cases(OUTSIDE)
def test_values_out_of_range_are_named_with_what_is_expected(name, value, expected):
    for given in (value, json.dumps(value)):
        text = complaint(get_recipe, "directpred-digits", **{name: given})
        assert text.startswith(f"{name} is ") and f", expected {expected}" in text


NOT_FINITE = [
    "optim.lr",
    "optim.momentum",
    "views.view1.flip",
    "runtime.checkpoint_minutes",
    "predictor.eps",
    "predictor.c",
]


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize("name", NOT_FINITE)
def test_numbers_are_finite(name, text):
    assert complaint(get_recipe, "directpred-digits", **{name: text}) == (
        f"{name} is {float(text)}, expected a finite number"
    )


@pytest.mark.parametrize("value", ["[0.5, NaN, 0.5]", "[Infinity, 0, 0]", (0.5, math.nan, 0.5)])
def test_numbers_in_lists_are_finite(value):
    assert "views.mean is " in (text := complaint(get_recipe, "byol-digits", **{"views.mean": value}))
    assert text.endswith("expected a finite number")


@pytest.mark.parametrize("kind", ["mlp", "symmetric"])
def test_predictors_with_a_hidden_layer_limit_its_width(kind):
    text = complaint(get_recipe, "byol-digits", **{"predictor.kind": kind, "predictor.hidden_width": 0})
    assert text == f"predictor.hidden_width is 0, expected {WIDTH}"


@pytest.mark.parametrize("scale", [0, -1])
def test_every_loss_limits_its_scale(scale):
    for kind in ("cosine", "mse", "iso", "iso_mse"):
        text = complaint(get_recipe, "directpred-digits", **{"loss.kind": kind, "loss.scale": scale})
        assert text == f"loss.scale is {float(scale)}, expected {POSITIVE}"


def test_the_ends_of_ranges_belong_to_them():
    ends = {
        "optim.momentum": 0.0,
        "optim.warmup_epochs": 0.0,
        "optim.clip_norm": None,
        "views.view1.crop_scale": (1.0, 1.0),
        "views.view1.hue": 0.5,
        "views.size": 8,
        "projector.hidden_width": 1,
        "train.seed": 2**63 - 1,
        "train.batch_size": 2,
        "runtime.checkpoint_minutes": 0.0,
        "runtime.checkpoint_every_epochs": 0,
        "runtime.workers": 0,
        "predictor.eps": 0.0,
    }
    assert get_recipe("directpred-digits", **ends).train.seed == 2**63 - 1


@pytest.mark.parametrize("name", list_recipes())
def test_registered_recipes_are_within_them(name):
    recipe = get_recipe(name)
    assert get_recipe(name, **{"train.seed": recipe.train.seed}) == recipe


# Recipes given as objects, and what else the Python functions take


def changed(**sections):
    recipe = get_recipe("directpred-digits")
    return replace(
        recipe, **{k: v if isinstance(v, Part) else replace(getattr(recipe, k), **v) for k, v in sections.items()}
    )


@pytest.mark.parametrize(
    ("sections", "text"),
    [
        ({"optim": {"lr": -1.0}}, f"optim.lr is -1.0, expected {POSITIVE}"),
        ({"optim": {"lr": math.nan}}, "optim.lr is nan, expected a finite number"),
        ({"optim": {"lr": "fast"}}, "optim.lr is 'fast', expected float"),
        ({"optim": {"lr": None}}, "optim.lr is None, expected float"),
        ({"optim": {"name": "adam"}}, "optim.name is 'adam', expected one of 'sgd', 'lars', 'adamw'"),
        ({"train": {"epochs": 1.5}}, "train.epochs is 1.5, expected int"),
        ({"train": {"seed": -1}}, f"train.seed is -1, expected {SEED}"),
        ({"train": {"seed": True}}, "train.seed is True, expected int"),
        ({"views": {"mean": 0.5}}, "views.mean is 0.5, expected tuple[float, float, float]"),
        ({"views": {"view1": None}}, "views.view1 is None, expected View"),
        ({"data": {"name": 3}}, "data.name is 3, expected str"),
        ({"predictor": Part("direct", eps="much")}, "predictor.eps is 'much', expected float"),
        ({"predictor": Part("direct", eps=-1.0)}, f"predictor.eps is -1.0, expected {NOT_NEGATIVE}"),
        ({"target": Part("emma")}, "unknown target 'emma'; did you mean 'ema'?"),
    ],
)
def test_a_recipe_that_is_an_object_is_checked_before_anything_is_written(sections, text, tmp_path):
    assert complaint(pretrain, changed(**sections), output=tmp_path / "run") == text
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "byol-digits", "views.mean=[NaN,0,0]"],
        ["show", "directpred-digits", "predictor.eps=NaN"],
        ["train", "byol-digits", "--checkpoint-minutes", "-1"],
        ["train", "byol-digits", "--checkpoint-minutes", "nan"],
        ["train", "byol-digits", "train.seed=-1"],
        ["probe", "pixels", "--data", "digits", "--seed", "-1"],
        ["probe", "pixels", "--data", "digits", "--protocol", "byol", "momentum=5"],
        ["knn", "pixels", "--data", "digits", "--image-size", "0"],
        ["knn", "pixels", "--data", "digits", "--image-size", "100000"],
        ["knn", "pixels", "--data", "digits", "--temperature", "1e-320"],
        ["knn", "pixels", "--data", "digits", "--temperature", "nan"],
        ["finetune", "init:byol-digits", "lr=NaN"],
    ],
    ids=" ".join,
)
def test_the_command_line_says_it_in_one_line(arguments, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("SSL_HUB_HOME", str(tmp_path))
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.splitlines()) == 1 and ", expected a " in captured.err
    assert list(tmp_path.iterdir()) == []


def test_a_seed_is_checked_before_data_is_looked_for():
    for evaluate in (knn, linear_probe):
        assert complaint(evaluate, "pixels", "nowhere", seed=2**63) == f"seed is {2**63}, expected {SEED}"
    assert complaint(knn, "pixels", "nowhere", workers="two") == f"workers is 'two', expected {WHOLE}"
    assert complaint(knn, "pixels", "nowhere", batch_size=0) == f"batch_size is 0, expected {COUNT}"
    assert complaint(knn, "pixels", "nowhere", k=0) == f"k is 0, expected {COUNT}"


@cases(
    [
        ("momentum", 5, MOMENTUM),
        ("momentum", -1, MOMENTUM),
        ("weight_decay", -1, NOT_NEGATIVE),
        ("epochs", 0, COUNT),
        ("batch_size", -1, COUNT),
        ("reference_batch", 0, COUNT),
    ]
)
def test_settings_of_protocols(name, value, expected):
    assert re.fullmatch(rf"{name} is -?\d[\d.]*, expected {expected}", complaint(get_protocol, "byol", {name: value}))


@cases(
    [
        ("lr", 0.0, POSITIVE),
        ("reference_batch", 0, COUNT),
        ("layer_decay", 0.0, "a number above 0 and at most 1"),
        ("layer_decay", 2.0, "a number above 0 and at most 1"),
        ("head_lr_ratio", -1.0, POSITIVE),
        ("freeze", -1, WHOLE),
        ("epochs", 0, COUNT),
        ("warmup_epochs", -1.0, NOT_NEGATIVE),
        ("batch_size", 0, COUNT),
        ("accumulation", 0, COUNT),
        ("momentum", 1.0, MOMENTUM),
        ("weight_decay", -0.1, NOT_NEGATIVE),
        ("weight_decay", math.nan, NOT_NEGATIVE),
        ("seed", -1, SEED),
        ("epochs", "many", COUNT),
        ("epochs", True, COUNT),
    ]
)
def test_settings_of_fine_tuning(name, value, expected):
    assert complaint(Finetuning, **{name: value}) == f"{name} is {value!r}, expected {expected}"


def test_batch_normalisation_needs_two_images_at_a_time(tmp_path):
    overrides = {"train.batch_size": 4, "train.accumulation": 4}
    assert complaint(pretrain, "byol-digits", output=tmp_path / "run", overrides=overrides) == (
        "train.batch_size leaves 1 image at a time to each of 1 process(es), and batch normalisation needs 2; raise"
        " train.batch_size or lower train.accumulation"
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("images", "processes", "device", "sync_bn", "enough"),
    [
        (1, 1, "cuda", True, False),
        (1, 4, "cuda", True, True),
        (1, 4, "cuda", False, False),
        (1, 4, "cpu", True, False),
        (2, 1, "cpu", True, True),
    ],
)
def test_synchronised_normalisation_needs_them_over_all_processes(images, processes, device, sync_bn, enough):
    accelerator = SimpleNamespace(num_processes=processes, device=torch.device(device))
    with nullcontext() if enough else pytest.raises(UsageError, match=f"leaves 1 image .* each of {processes} process"):
        check_micro_batch(images, accelerator, sync_bn=sync_bn)


# Nothing is forgotten, and what is old can be read


def numbers_and_text(settings: type, prefix: str = "") -> set[str]:
    """Dotted names of the settings whose type does not say which values they take, as bool and Literal do."""
    names = set()
    for name, kind in typing.get_type_hints(settings).items():
        arms = [arm for arm in typing.get_args(kind) if arm is not type(None)]
        inner = arms[0] if type(None) in typing.get_args(kind) else kind
        if dataclasses.is_dataclass(inner):
            names |= numbers_and_text(inner, f"{prefix}{name}.") if inner is not Part else set()
        elif inner is not bool and typing.get_origin(inner) is not typing.Literal:
            names.add(prefix + name)
    return names


def test_every_setting_has_a_range_or_is_free_on_purpose():
    described = {"name", "summary", "expected", "notes"}
    assert numbers_and_text(Recipe) - described == RECIPE.keys() | set(FREE)
    assert not RECIPE.keys() & set(FREE)
    assert numbers_and_text(Finetuning) == LIMITS.keys()
    assert numbers_and_text(Trained) - {"lrs", "holdout"} == TRAINED.keys()  # checked together
    free = {f"{split}_split" for split in ("train", "test")} | {f"{column}_column" for column in ("image", "label")}
    assert numbers_and_text(Extraction) - free == EXTRACTION.keys()


def test_a_recipe_of_an_old_release_is_read_as_it_is():
    plain = to_dict(get_recipe("directpred-digits"))
    plain["runtime"]["keep_checkpoints"] = 0
    plain["train"]["seed"] = -1
    plain["predictor"]["eps"] = -1.0
    assert from_dict(plain).train.seed == -1
