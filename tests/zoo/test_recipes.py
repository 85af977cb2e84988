"""Every recipe: named as promised, built, stepped, saved and loaded; and its numbers are the paper's."""

import re
from dataclasses import replace

import pytest
import torch
from accelerate import Accelerator

from ssl_hub.config import Recipe
from ssl_hub.model.parts import part_options
from ssl_hub.model.release import load_backbone, save_release
from ssl_hub.model.siamese import build
from ssl_hub.train.step import Trainer
from ssl_hub.zoo import RECIPES, as_modified, departures, get_recipe, list_recipes, run_name

PROMISED = [
    *(f"{m}-r50-{e}ep" for m in ("byol", "byol-linear", "directpred") for e in (60, 300)),
    *(f"simsiam{v}-r50-100ep" for v in ("", "-linear", "-symmetric")),
    *(
        f"{m}-r18-{d}-{e}ep"
        for m in ("byol", "byol-linear", "byol-symmetric", "directpred", "directpred-freq5")
        for d in ("stl10", "cifar10")
        for e in (100, 300, 500)
    ),
    "directcopy-r18-cifar10-100ep",
    *(f"{m}-r50-300ep" for m in ("directcopy", "newton-schulz", "newton-schulz-2", "stiefel")),
    *(f"{m}-r18-cifar10-1000ep" for m in ("isoloss", "directcopy")),
    "rank-filter-r18-cifar10-400ep",
    "simsiam-r18-cifar10-800ep",
    *(f"{m}-own{family}" for m in ("directpred", "byol", "simsiam") for family in ("", "-convnext", "-vit")),
    *(f"{m}-cifar10" for m in ("directpred", "byol", "byol-linear", "simsiam")),
    *(f"{m}-digits" for m in ("directpred", "byol", "byol-linear", "simsiam")),
]


def test_the_promised_names_are_registered():
    assert set(list_recipes()) ^ set(PROMISED) == set(), "PROMISED names each recipe: one that is gone breaks its users"


def distinct(recipe: Recipe) -> tuple[object, ...]:
    """What decides whether two recipes build different code: not their epochs."""
    return (recipe.backbone, recipe.projector, recipe.predictor, recipe.target, recipe.loss, recipe.optim)


REPRESENTATIVES = list({distinct(RECIPES[name]): name for name in reversed(PROMISED)}.values())
SMALLER = {
    "resnet50": "test_resnet", "resnet18": "test_resnet", "resnet18_cifar": "test_resnet",
    "convnext_tiny": "test_convnext", "vit_small_patch16_224": "test_vit",
}  # fmt: skip
BACKBONES = {RECIPES[name].backbone.name: name for name in PROMISED}


def shrunk(recipe: Recipe) -> Recipe:
    """The same method at 16 to 32 px with narrow heads: what is left is the recipe's structure.

    One recipe of each backbone keeps it; the others have a small one for a large one.
    """
    narrow = replace(recipe.projector, hidden_width=16, output_width=8)
    backbone = recipe.backbone
    if recipe.name not in BACKBONES.values() and backbone.name in SMALLER:
        backbone = replace(backbone, name=SMALLER[backbone.name])
    views = replace(recipe.views, size=min(recipe.views.size, 32))
    return replace(recipe, backbone=backbone, projector=narrow, views=views)


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_recipe_builds_steps_saves_and_loads(name, tmp_path):
    recipe = shrunk(get_recipe(name))
    model = build(recipe)
    trainer = Trainer(model, recipe.optim, Accelerator(cpu=True), lr=recipe.optim.lr, total_steps=2)
    size = recipe.views.size
    for _ in range(2):
        report = trainer.advance([(torch.randn(6, 3, size, size), torch.randn(6, 3, size, size))])
        assert not report.skipped
    save_release(tmp_path, model, recipe)
    images = torch.randn(4, 3, size, size)
    with torch.no_grad():
        want = model.encoder.backbone.eval()(images)
        assert torch.equal(load_backbone(tmp_path)(images), want)
    assert want.ndim == 2


@pytest.mark.parametrize("name", PROMISED)
def test_recipe_says_what_it_is(name):
    recipe = get_recipe(name)
    assert recipe.name == name
    assert recipe.command == f"accelerate launch -m ssl_hub train {name}"
    assert recipe.summary
    for expected in recipe.expected:
        assert 0 < expected.value < 100
        assert "20" in expected.source  # a year: where the number is printed
    for section in ("predictor", "target", "loss"):
        part = getattr(recipe, section)
        assert set(dict(part.options)) <= set(part_options(section, part.kind))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("byol-r50-60ep", 64.7),
        ("byol-linear-r50-300ep", 69.9),
        ("directpred-r50-300ep", 72.4),
        ("directpred-r50-60ep", 64.4),
        ("directpred-r18-stl10-100ep", 77.86),
        ("directpred-freq5-r18-stl10-500ep", 80.28),
        ("directpred-r18-cifar10-300ep", 88.88),
        ("byol-linear-r18-cifar10-100ep", 84.49),
        ("byol-r18-stl10-100ep", 78.85),
        ("byol-symmetric-r18-stl10-100ep", 75.09),
    ],
)
def test_expected_numbers_are_the_printed_ones(name, value):
    assert get_recipe(name).expected[0].value == value


def test_the_papers_small_image_hyperparameters():
    recipe = get_recipe("directpred-r18-stl10-100ep")
    assert (recipe.optim.lr, recipe.optim.momentum, recipe.optim.weight_decay) == (0.03, 0.9, 4e-4)
    assert dict(recipe.target.options) == {"momentum": 0.996, "schedule": "constant"}
    assert recipe.train.batch_size == 128
    assert dict(recipe.predictor.options) == {"rho": 0.3, "eps": 0.1, "freq": 1}


def test_everything_the_tables_vary_is_an_override():
    overrides = {
        "target.kind": "stopgrad",
        "predictor.kind": "symmetric",
        "predictor.bias": True,
        "optim.predictor_lr_ratio": 10,
        "optim.weight_decay": 0.0,
        "optim.predictor_weight_decay": 4e-4,
    }
    recipe = get_recipe("byol-linear-r18-stl10-100ep", **overrides)
    assert recipe.predictor.kind == "symmetric"
    plugin = {"predictor.kind": "optimal", "predictor.freq": 5, "predictor.reg": 0.1}
    assert get_recipe("byol-linear-r18-stl10-100ep", **plugin).predictor.kind == "optimal"
    direct = {"predictor.rho": 0.5, "predictor.eps": 0.0, "predictor.freq": 2, "predictor.c": -0.05}
    assert build(shrunk(get_recipe("directpred-r18-cifar10-100ep", **direct))).predictor.formula["c"] == -0.05
    assert build(shrunk(get_recipe("directpred-r18-cifar10-100ep", **{"predictor.partitions": 6})))
    assert build(
        shrunk(get_recipe("directpred-r18-cifar10-100ep", **{"loss.kind": "iso_mse"}))
    ).loss.needs_set_predictor


def test_a_modified_recipe_says_so_and_expects_no_published_number():
    recipe = get_recipe("byol-r50-300ep", **{"train.epochs": 5, "predictor.hidden_width": 64})
    assert departures(recipe) == {"predictor.hidden_width": (4096, 64), "train.epochs": (300, 5)}
    modified = as_modified(recipe)
    assert modified.summary.startswith("modified (predictor.hidden_width=64, train.epochs=5), otherwise: ")
    assert modified.expected == () and RECIPES["byol-r50-300ep"].expected
    assert as_modified(modified) == modified
    assert run_name(recipe) == "byol-r50-300ep-predictor.hidden_width-64-train.epochs-5"


def test_seed_data_and_how_the_work_is_done_make_no_other_recipe():
    same = get_recipe("byol-digits", **{"train.seed": 3, "data.name": "elsewhere", "runtime.workers": 2})
    assert as_modified(same) == same
    assert run_name(same) == "byol-digits"
    assert departures(replace(same, name="mine")) == {}


def test_names_of_modified_runs_are_folder_names():
    many = {f"views.view{v}.{k}": 0.25 for v in (1, 2) for k in ("blur", "solarise", "grey")} | {"views.size": 64}
    names = {run_name(get_recipe("byol-r50-300ep", **many)), run_name(get_recipe("byol-r50-300ep"))}
    names |= {run_name(get_recipe("byol-r50-300ep", **{"views.view1.crop_scale": (0.5, 1.0)}))}
    assert len(names) == 3
    assert all(re.fullmatch(r"[\w.-]{1,110}", name) for name in names)
