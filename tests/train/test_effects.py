"""A setting that would do nothing is an error: no run records what it was told and did not do."""

import re

import pytest

from ssl_hub.codec import flat, to_dict
from ssl_hub.errors import UsageError
from ssl_hub.tables.paper import TABLES
from ssl_hub.train.effects import ALWAYS, CONDITIONS, check_effects
from ssl_hub.train.loop import pretrain
from ssl_hub.train.plan import Plan
from ssl_hub.zoo import get_recipe

JITTER = {f"views.view{n}.{name}": (0.3, f"views.view{n}.jitter is above 0")
          for n in (1, 2) for name in ("brightness", "contrast", "saturation", "hue")}  # fmt: skip
BLUR = {f"views.view{n}.blur_sigma": ((0.5, 1.0), f"views.view{n}.blur is above 0") for n in (1, 2)}
IDLE = {
    "backbone.zero_init_last": (True, "backbone.init is none"),
    "projector.hidden_width": (99, "projector.layers is above 1"),
    "projector.norm_affine": (False, "projector.layers is above 1"),
    **JITTER,
    **BLUR,
    "optim.decay_norm_and_bias": (True, r"optim.weight_decay or optim.predictor_weight_decay is above 0"),
    "optim.predictor_lr_ratio": (3.0, "the loss trains the predictor"),
    "optim.predictor_schedule": ("constant", "the loss trains the predictor by a learning rate that changes"),
    "optim.predictor_weight_decay": (0.1, "the loss trains the predictor"),
    "runtime.keep_every_epochs": (2, "runtime.checkpoint_every_epochs is above 0"),
    "optim.trust_coefficient": (0.5, "optim.name is lars"),
    "data.shuffle_buffer": (10, "data.stream is true"),
    "data.max_bad_images": (3, "data.on_bad_image is skip"),
    "train.sync_bn_group": (2, "train.sync_bn is true"),
    "projector.output_bias": (False, "projector.output_norm is none"),
    "runtime.monitor_split": ("test", "runtime.monitor_data is set"),
    "runtime.monitor_label_column": ("y", "runtime.monitor_data is set"),
}
EFFECTIVE = {
    "optim.name": "lars",
    "data.stream": True,
    "data.on_bad_image": "skip",
    "train.sync_bn": True,
    "projector.output_norm": "none",
    "runtime.monitor_data": "digits",
    "predictor.kind": "mlp",
    "optim.warmup_epochs": 1.0,
}
USELESS = {
    "train.sync_bn": False,
    "projector.output_norm": "bn",
    "projector.layers": 1,
    "backbone.init": "directpred-digits",
    "optim.weight_decay": 0.0,
    "runtime.checkpoint_every_epochs": 0,
    **{f"views.view{n}.{name}": 0.0 for n in (1, 2) for name in ("jitter", "blur")},
}
EFFECTIVE |= {f"views.view{n}.blur": 0.5 for n in (1, 2)}
PARTS = ("predictor", "target", "loss")  # their options are those of their kinds


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_changed_setting_without_an_effect_is_refused(name: str) -> None:
    registered = get_recipe("directpred-digits", **USELESS)
    value, words = IDLE[name]
    shown = re.escape(repr(list(value) if isinstance(value, tuple) else value))
    with pytest.raises(
        UsageError, match=rf"^{name} is {shown}, which has an effect only where {words}.*; leave it out$"
    ):
        check_effects(get_recipe("directpred-digits", **USELESS, **{name: value}), registered, {name})
    check_effects(get_recipe("directpred-digits", **{name: value}, **EFFECTIVE), registered, {name})
    as_it_is = flat(to_dict(registered))[name]
    check_effects(get_recipe("directpred-digits", **USELESS, **{name: as_it_is}), registered, {name})


def test_of_each_setting_it_is_known_when_it_has_an_effect() -> None:
    """A new one is entered in one of the two."""
    described = ("name", "summary", "expected", "notes")
    settings = {name for name in flat(to_dict(get_recipe("byol-digits"))) if name.partition(".")[0] not in PARTS}
    assert {*CONDITIONS, *ALWAYS} == settings.difference(described)
    assert not CONDITIONS.keys() & {*ALWAYS}


def test_what_is_turned_off_twice_is_no_error() -> None:
    settings = {"views.view1.jitter": 0.0, "views.view1.brightness": 0.0, "runtime.keep_every_epochs": 0}
    check_effects(get_recipe("directpred-digits", **settings), get_recipe("directpred-digits"), {*settings})


@pytest.mark.parametrize("table", TABLES.names())
def test_every_cell_of_a_table_changes_what_has_an_effect(table: str) -> None:
    mini = Plan(table=table, data="d", scale="mini", images=5_000, epochs_share=0.1)
    for plan in (Plan(table=table, data="d", scale="paper"), mini):
        for cell in TABLES[table].cells:
            check_effects(plan.settings(cell), get_recipe(cell.recipe), {*plan.overrides(cell)})


def test_nothing_is_trained_then(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(
        UsageError, match="^optim.trust_coefficient is 0.5, which has an effect only where optim.name is"
    ):
        pretrain("directpred-digits", output=tmp_path / "run", overrides={"optim.trust_coefficient": 0.5})
    assert not (tmp_path / "run").exists()
