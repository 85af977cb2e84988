"""Recipes survive JSON exactly; overrides are typed, and wrong ones name the nearest valid key."""

import dataclasses
import json

import pytest

from ssl_hub.codec import changes, from_json, parse_assignments, to_json, with_settings
from ssl_hub.config import Part, Recipe
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.protocols import PROTOCOLS
from ssl_hub.train.classifier import Finetuning
from ssl_hub.zoo import get_recipe, list_recipes


@pytest.mark.parametrize("name", list_recipes())
def test_every_recipe_round_trips(name):
    recipe = get_recipe(name)
    assert from_json(to_json(recipe)) == recipe


def test_recipes_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        get_recipe("byol-digits").train.epochs = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("key", "value", "want"),
    [
        ("train.epochs", "5", 5),
        ("train.epochs", 5, 5),
        ("train.max_steps", "none", None),
        ("train.max_steps", "7", 7),
        ("optim.lr", "1e-3", 1e-3),
        ("optim.lr", "1", 1.0),
        ("optim.name", "lars", "lars"),
        ("optim.decay_norm_and_bias", "true", True),
        ("optim.decay_norm_and_bias", "False", False),
        ("views.view1.crop_scale", "[0.2, 1]", (0.2, 1.0)),
        ("data.name", "123", "123"),
        ("data.image_column", "image", "image"),
        ("backbone.name", "resnet18", "resnet18"),
        ("runtime.compile", "true", True),
        ("runtime.compile", False, False),
        ("runtime.compile", "reduce-overhead", "reduce-overhead"),
    ],
)
def test_overrides_are_typed(key, value, want):
    node = get_recipe("byol-digits", **{key: value})
    for step in key.split("."):
        node = getattr(node, step)
    assert node == want
    assert type(node) is type(want)


def test_part_options_are_typed_by_their_kind():
    recipe = get_recipe(
        "directpred-digits", **{"predictor.eps": "0.01", "predictor.rho": "none", "predictor.freq": "5"}
    )
    assert recipe.predictor == Part("direct", eps=0.01, freq=5, rho=None)
    with pytest.raises(UsageError, match="predictor.freq is 1.5, expected int"):
        get_recipe("directpred-digits", **{"predictor.freq": "1.5"})


def test_switching_the_kind_keeps_what_both_kinds_have_whatever_the_order():
    wanted = Part("symmetric", bias=True, layers=2)
    for overrides in (
        {"predictor.kind": "symmetric", "predictor.layers": 2, "predictor.bias": True},
        {"predictor.bias": True, "predictor.layers": 2, "predictor.kind": "symmetric"},
    ):
        assert get_recipe("directpred-digits", **overrides).predictor == wanted
    assert get_recipe("byol-linear-digits", **{"predictor.kind": "symmetric"}).predictor == Part(
        "symmetric", bias=False
    )
    assert get_recipe("byol-digits", **{"target.kind": "stopgrad"}).target == Part("stopgrad")


def test_groups_may_be_overridden_as_a_whole():
    assert get_recipe("byol-digits", train={"epochs": 2, "seed": 3}).train.seed == 3
    assert get_recipe("byol-digits", predictor=Part("linear", bias=True)).predictor == Part("linear", bias=True)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"optim.lrr": 1}, "unknown setting 'optim.lrr'; did you mean 'optim.lr'"),
        ({"trian.epochs": 1}, "unknown setting 'trian.epochs'; did you mean 'train'"),
        ({"predictor.epz": 1}, "predictor 'direct' has no option 'epz'; did you mean 'eps'"),
        ({"predictor.kind": "lineer"}, "unknown predictor 'lineer'; did you mean 'linear'"),
        ({"predictor.form": "papr"}, "predictor.form is 'papr', expected one of 'normalised'"),
        ({"train.epochs": "x"}, "train.epochs is 'x', expected int"),
        ({"train.epochs": True}, "train.epochs is True, expected int"),
        ({"optim.name": "adam"}, "optim.name is 'adam', expected one of 'sgd', 'lars', 'adamw'"),
        ({"runtime.compile": "fast"}, "runtime.compile is 'fast', expected one of False, True, 'reduce-overhead', "),
        ({"runtime.compile": 1}, "runtime.compile is 1, expected one of False, True"),
        ({"views.view1.crop_scale": "[1]"}, r"views.view1.crop_scale is \[1\], expected tuple"),
        ({"train": 5}, "'train' is a group of settings; set one of train.epochs"),
        ({"predictor": "linear"}, "'predictor' is a component; set predictor.kind"),
        ({"train.epochs.x": 5}, "'train.epochs' is a single value; 'train.epochs.x' goes too deep"),
        ({"predictor.eps.x": 5}, "'predictor.eps' is a single value"),
        ({"name": "mine"}, "unknown setting 'name'"),
        ({"optim.lr": "nan-ish"}, "optim.lr is 'nan-ish', expected float"),
    ],
)
def test_wrong_overrides_say_what_is_valid(overrides, message):
    with pytest.raises(UsageError, match=message):
        get_recipe("directpred-digits", **overrides)


def test_option_of_a_kind_without_options():
    with pytest.raises(UsageError, match="target 'stopgrad' has no options, got 'momentum'"):
        get_recipe("simsiam-digits", **{"target.momentum": 0.9})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda plain: plain["optim"].update(lr="fast"), "recipe.optim.lr is 'fast', expected float"),
        (lambda plain: plain["optim"].update(speed=1), "unknown setting 'recipe.optim.speed'"),
        (lambda plain: plain.pop("name"), "a recipe needs 'name', and it is missing"),
    ],
)
def test_damaged_recipe_files_are_named(change, message):
    plain = json.loads(to_json(get_recipe("byol-digits")))
    change(plain)
    with pytest.raises(UsageError, match=message):
        from_json(json.dumps(plain))
    with pytest.raises(UsageError, match="a recipe file must hold JSON"):
        from_json("{")


def test_assignments():
    assert parse_assignments(["a.b=1", "c=x=y"]) == {"a.b": "1", "c": "x=y"}
    for bad in ("epochs", "=5"):
        with pytest.raises(UsageError, match="expected key=value"):
            parse_assignments([bad])


def test_derived_recipes_are_new():
    base = get_recipe("byol-digits")
    derived = get_recipe("byol-digits", **{"train.epochs": base.train.epochs + 1})
    assert isinstance(derived, Recipe)
    assert derived.train.epochs == base.train.epochs + 1 == get_recipe("byol-digits").train.epochs + 1


def test_changes_are_those_of_what_is_learnt():
    old = get_recipe("byol-digits")
    new = get_recipe("byol-digits", **{"optim.lr": 0.5, "target.momentum": 0.9, "runtime.workers": 3})
    assert changes(old, new) == {"optim.lr": (0.03, 0.5), "target.momentum": (0.99, 0.9)}
    assert changes(old, old) == {}


@pytest.mark.parametrize(
    ("settings", "changes"),
    [
        (Finetuning(), {"patience": "3", "holdout": "0.2"}),
        (dataclasses.replace(PROTOCOLS["simsiam"], lrs=(0.1,), holdout=0.0), {"lrs": "[0.1, 0.2]", "holdout": "0.1"}),
    ],
)
def test_settings_that_belong_together_come_in_any_order(settings, changes):
    forwards = with_settings(settings, changes)
    assert forwards == with_settings(settings, dict(reversed(changes.items()))) != settings
