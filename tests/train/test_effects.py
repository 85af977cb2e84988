"""A setting that would do nothing is an error: no run records what it was told and did not do."""

import pytest

from ssl_hub.codec import flat, to_dict
from ssl_hub.errors import UsageError
from ssl_hub.train.effects import CONDITIONS, check_effects
from ssl_hub.train.loop import pretrain
from ssl_hub.zoo import get_recipe

IDLE = {
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
}
USELESS = {"train.sync_bn": False, "projector.output_norm": "bn"}


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_changed_setting_without_an_effect_is_refused(name: str) -> None:
    registered = get_recipe("directpred-digits", **USELESS)
    value, words = IDLE[name]
    with pytest.raises(
        UsageError, match=rf"^{name} is {value!r}, which has an effect only where {words}; leave it out"
    ):
        check_effects(get_recipe("directpred-digits", **USELESS, **{name: value}), registered, {name})
    check_effects(get_recipe("directpred-digits", **{name: value}, **EFFECTIVE), registered, {name})
    as_it_is = flat(to_dict(registered))[name]
    check_effects(get_recipe("directpred-digits", **USELESS, **{name: as_it_is}), registered, {name})


def test_nothing_is_trained_then(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(
        UsageError, match="^optim.trust_coefficient is 0.5, which has an effect only where optim.name is"
    ):
        pretrain("directpred-digits", output=tmp_path / "run", overrides={"optim.trust_coefficient": 0.5})
    assert not (tmp_path / "run").exists()
