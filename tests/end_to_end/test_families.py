"""One model of every family of timm is synchronised, trained, saved, loaded, fine-tuned: see benchmarks/families.py."""

import sys
from contextlib import nullcontext

import pytest
import torch
from timm.layers import BatchNormAct2d, SyncBatchNormAct
from torch import nn

from ssl_hub.errors import UsageError
from ssl_hub.hub.weights import initial
from ssl_hub.model import backbones
from ssl_hub.model.normalisation import synchronised
from ssl_hub.model.stages import depths, with_classifier
from ssl_hub.train.classifier import Finetuning, parameter_groups
from ssl_hub.zoo import get_recipe
from tests.end_to_end.test_launchers import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
try:
    import families
finally:
    sys.path.pop(0)

NOTED = families.table()["families"]
QUICK_SECONDS = 3.0  # of all checks; the others are slow tests


def quick(family, seconds=QUICK_SECONDS):
    """Whether its checks were found to take little; a family that timm has added since is tried."""
    noted = NOTED.get(family)
    return noted is None or noted.get("seconds", seconds + 1) <= seconds


def test_the_table_has_every_family():
    assert set(families.families()) <= set(NOTED), "run `python benchmarks/families.py` and `python docs/hooks.py`"


@pytest.mark.parametrize("family", families.families())
def test_layers_and_groups_without_the_memory_for_weights(family):
    """What the outputs of conversion, and what stays frozen, follow from."""
    with torch.device("meta"), families.nothing_drawn():
        model = backbones.create(families.model_of(family))
        whole, classifier = with_classifier(model, 3)
    names, kinds = list(model.state_dict()), [type(module) for module in model.modules()]
    converted = synchronised(model)
    assert list(converted.state_dict()) == names
    now = [type(module) for module in converted.modules()]
    assert now.count(SyncBatchNormAct) == kinds.count(BatchNormAct2d)
    plain = [kinds.count(kind) for kind in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)]
    assert now.count(nn.SyncBatchNorm) == sum(plain)

    parameters = {name for name, _ in whole.named_parameters()}
    assert classifier and parameters - classifier <= set(names)
    groups = parameter_groups(whole, classifier, Finetuning(freeze=depths(whole, classifier)[1], head_lr_ratio=3.0))
    assert {name for group in groups for name in group["names"]} == parameters & classifier
    assert {group["lr_ratio"] for group in groups} == {3.0}


@pytest.mark.parametrize(
    "family", [pytest.param(f, marks=[] if quick(f, 2.0) else [pytest.mark.slow]) for f in families.families()]
)
@pytest.mark.filterwarnings("ignore")
def test_it_starts_from_a_file_of_its_weights(family, tmp_path):
    """Whatever a family calls its layers, a file of them is read back whole."""
    name = families.shortened(families.model_of(family))
    noted = NOTED.get(family, {})
    if "refused" in noted:
        pytest.skip(noted["refused"])
    trial = families.Trial(name, noted.get("size") or families.size_of(name), tmp_path)
    with families.nothing_drawn():
        model = trial.lived_in()
        torch.save(model.state_dict(), tmp_path / "weights.pt")
        recipe = get_recipe(
            "byol-digits",
            **{"backbone.name": name, "views.size": trial.size, "backbone.init": str(tmp_path / "weights.pt")},
        )
        if noted.get("loaded", True) is not True:
            with pytest.raises(UsageError):  # as its release
                initial(recipe)
            return
        found = initial(recipe).tensors
    assert found.keys() == model.state_dict().keys()
    assert all(torch.equal(found[key], tensor) for key, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    "family", [pytest.param(f, marks=[] if quick(f) else [pytest.mark.slow]) for f in families.families()]
)
@pytest.mark.filterwarnings("ignore")
def test_family(family, tmp_path):
    name = families.shortened(families.model_of(family))
    trial = families.Trial(name, NOTED.get(family, {}).get("size") or families.size_of(name), tmp_path)
    with families.nothing_drawn():
        for check in families.CHECKS:
            reason = NOTED.get(family, {}).get(check, True)
            expected = nullcontext() if reason is True else pytest.raises(UsageError)
            with expected:  # what cannot be is listed with its reason, and no longer when it can
                getattr(trial, check)()
