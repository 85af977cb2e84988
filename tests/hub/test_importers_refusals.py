"""Checkpoints that are refused: with counts, names and shapes, and with nothing in them run."""

import argparse
import os
import pickle
import sys
from collections import OrderedDict
from types import ModuleType

import pytest
import torch
from torchvision.models import resnet18, resnet34, resnet50

from ssl_hub.errors import UsageError
from ssl_hub.hub import store
from ssl_hub.hub.importers.checkpoint import read_checkpoint
from ssl_hub.hub.importers.importing import import_checkpoint
from ssl_hub.hub.importers.sources import detect
from ssl_hub.model import backbones
from tests.hub import checkpoints_of_others as others

RESNET18 = "byol-r18-stl10-100ep"


def test_nothing_that_fits_is_an_error_with_counts_and_names(refused):
    names = r"names like 'blocks.0.attn.weight', 'head.weight', .* end in 'conv1.weight'"
    other = {"state_dict": {"blocks.0.attn.weight": torch.zeros(2), "head.weight": torch.zeros(2)}}
    refused(f"0 of 78 tensors match resnet10_thin; .*{names}", other)
    alike = backbones.create("test_efficientnet")  # in the names of a few layers
    refused("of 78 tensors match resnet10_thin; .* is it another architecture", alike)
    assert not store.home().exists()


def test_part_of_a_backbone_more_than_it_and_other_shapes_are_errors(refused):
    state = resnet18().state_dict()
    part = {name: tensor for name, tensor in state.items() if "layer4.1" not in name}
    refused(r"110 of 120 tensors fit .* 10 missing \(layer4.1.bn1.bias, .*, \.\.\.\)", part, RESNET18)
    refused(r"120 of 120 tensors fit .* 96 unexpected \(layer1.2.bn1.bias, ", resnet34(), RESNET18)
    narrow = state | {"layer1.0.conv1.weight": torch.zeros(64, 64, 1, 1)}
    refused(r"layer1.0.conv1.weight: \(64, 64, 1, 1\), not \(64, 64, 3, 3\)", narrow, RESNET18)


def test_two_backbones_of_which_none_is_called_target_are_an_error(take, refused):
    one, two = others.headless(), others.headless()
    different = others.named("left.", one) | others.named("right.", two)
    refused("2 different backbones, under 'left.', 'right.'; name the project", different)
    take(others.named("left.", one) | others.named("right.", one))


OTHER_NAMES = [
    (others.lightly_byol, "teacher_backbone.", "target backbone, under 'teacher_backbone.' and 'backbone_momentum.'"),
    (others.lightly_student, "teacher_backbone.", "target backbone, under 'teacher_backbone.' and 'backbone.'"),
    (others.solo_learn, "encoder.", "online backbone, under 'backbone.' and 'encoder.'"),
    (others.solo_learn, "momentum_encoder.", "target backbone, under 'momentum_backbone.' and 'momentum_encoder.'"),
    (others.mmselfsup, "online_net.0.", "online backbone, under 'backbone.' and 'online_net.0.'"),
    (others.byol_pytorch, "net.", "online backbone, under 'online_encoder.net.' and 'net.'"),
]


@pytest.mark.parametrize(("write", "prefix", "said"), OTHER_NAMES)
def test_two_networks_of_one_role_are_an_error_in_either_order(refused, write, prefix, said):
    written = write()
    more = others.named(prefix, others.headless(2 if written.small else None))
    state = written.content.get("state_dict", written.content)
    kept = {name: tensor for name, tensor in state.items() if not name.startswith(prefix)}
    said = f"two different networks may be its {said}; save the one that you mean"
    for content in ({**kept, **more}, {**more, **kept}):
        refused(said, {"state_dict": content}, written.recipe)


def test_a_backbone_beside_another_that_has_more_names_is_an_error(refused):
    one, two = others.headless().state_dict(), others.headless()
    short = {f"left.{name}": tensor for name, tensor in one.items() if not name.endswith("num_batches_tracked")}
    refused("2 different backbones, under 'left.', 'right.'", short | others.named("right.", two))
    refused("2 different backbones, under '', 'left.'", short | two.state_dict())


def test_not_a_number_is_refused_by_name(refused):
    state = others.headless().state_dict()
    state["layer2.0.conv2.weight"][3, 2, 1, 0] = float("nan")
    refused(r"1 tensors hold NaN or infinity \(layer2.0.conv2.weight\)", state)


def test_another_stem_is_refused_with_both(refused):
    refused(r"has a 3x3 stem, the recipe's resnet10_thin a 7x7 stem \(stride 2, padding 3, then", others.headless(1))
    theirs = r"has a 3x3 stem \(stride 1, padding 2, no max-pool\), the recipe's resnet10_thin a 7x7"
    refused(theirs, others.solo_learn().content)
    ours = r"a 7x7 stem, the recipe's resnet10_tiny a 3x3 stem \(stride 1, padding 1"
    refused(ours, others.headless(), others.CIFAR10)


def test_sequential_without_the_relu_of_its_stem_is_refused(refused):
    # lightly's own ResNet cut into a Sequential: its ReLU is no module.
    model = others.headless(1)
    layers = (model.conv1, model.bn1, model.layer1, model.layer2, model.layer3, model.layer4)
    said = r"the 3x3 stem under '' has no ReLU before the first stage \(number 2\)"
    refused(said, torch.nn.Sequential(*layers), others.CIFAR10)


class Payload:
    """What a hostile checkpoint holds: reading it with pickle creates a file."""

    def __init__(self, proof):
        self.proof = proof

    def __reduce__(self):
        return os.mkdir, (str(self.proof),)


@pytest.mark.parametrize("legacy", [False, True])
def test_payload_in_a_checkpoint_does_not_run(file, tmp_path, legacy):
    proof = tmp_path / "executed"
    content = {"state_dict": others.headless().state_dict(), "hyper_parameters": Payload(proof)}
    torch.save(content, file, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(UsageError, match=r"holds a Python object \(posix.mkdir\), which only running what the file"):
        import_checkpoint(file, others.STL10)
    assert not proof.exists() and not store.home().exists()
    pickle.loads(pickle.dumps(Payload(proof)))  # it would have
    assert proof.exists()


def of(module: str) -> type:
    """A class that says it is of another project."""
    return type("Recorded", (), {"__module__": module, "__reduce__": lambda self: (type(self), ())})


LIGHTNING = {"pytorch-lightning_version": "2.1", "epoch": 3}
WAYS_OUT = {
    "whole": (
        lambda state: others.tiny(),
        r"it is a whole model: .*weights_only=False\)\.state_dict\(\), 'weights.pt'",
    ),
    "lightning": (
        lambda state: {**LIGHTNING, "state_dict": state, "hyper_parameters": of("omegaconf.dictconfig")()},
        r"PyTorch Lightning wrote it; .*weights_only=False\)\['state_dict'\]",
    ),
    "model": (
        lambda state: {"args": of("argparse_of_theirs")(), "model": state},
        r"save its weights alone, .*weights_only=False\)\['model'\], 'weights.pt'",
    ),
    "mmengine": (
        lambda state: {"state_dict": state, "message_hub": {"log": of("mmengine.logging")()}},
        "publish_model.py FILE weights.pth` of mmpretrain writes one without it",
    ),
    "vissl": (
        lambda state: {"classy_state_dict": {"base_model": state}, "config": of("vissl.config")()},
        "convert_vissl_to_torchvision.py --model_url_or_file FILE` of VISSL writes one",
    ),
    "none": (
        lambda state: OrderedDict(weights=state, state_dict_of=of("theirs")()),
        "save what of it are weights alone, .*; its keys are 'weights', 'state_dict_of'",
    ),
}


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("kind", WAYS_OUT)
def test_a_checkpoint_with_classes_says_what_writes_one_without_and_no_wrong_key(file, monkeypatch, kind, legacy):
    write, said = WAYS_OUT[kind]
    content = write(others.headless().state_dict())
    with monkeypatch.context() as patch:  # the class is theirs, and is found while it is written alone
        patch.setattr("pickle.whichmodule", lambda thing, name: thing.__module__, raising=False)
        for value in content.values() if isinstance(content, dict) else ():
            for item in [value, *(value.values() if isinstance(value, dict) else ())]:
                if type(item).__name__ == "Recorded":
                    module = ModuleType(type(item).__module__)
                    module.Recorded = type(item)
                    for whole in (module.__name__, module.__name__.split(".")[0]):
                        patch.setitem(sys.modules, whole, module)
        torch.save(content, file, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(UsageError, match=f"holds a Python object .*{said}") as raised:
        import_checkpoint(file, others.STL10)
    assert "\n" not in str(raised.value)


def test_two_networks_beside_a_class_are_saved_with_their_names_and_not_the_first_of_them(refused):
    state = others.named("backbone.", others.tiny())
    args = argparse.Namespace(epochs=3)
    for keys in (("student", "teacher"), ("teacher", "student"), ("state_dict", "state_dict_ema")):
        content = {"args": args, **dict.fromkeys(keys, state)}
        said = refused(r"argparse\.Namespace.*c = torch\.load.*torch\.save\(.*", content, "byol-digits")
        assert f"for k in {[*keys]}" in said


def test_a_teacher_alone_is_no_online_network(take, refused):
    teacher = {"teacher": others.named("backbone.", others.tiny())}
    refused(r"no online network in it, but a target's \('teacher\..*use which='target'", teacher, "byol-digits")
    take(teacher, "byol-digits", which="target")


ODD = {
    "has a shape and no numbers": lambda tensor: tensor.to("meta"),
    "is sparse": lambda tensor: tensor.to_sparse(),
    "is quantised": lambda tensor: torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8),
    "would be 4398046511104 bytes": lambda tensor: torch.zeros(1).expand(2**40),
}


@pytest.mark.parametrize("said", ODD)
def test_tensors_that_are_not_plain_numbers_are_named(refused, said):
    state = others.tiny().state_dict()
    refused(f"'bn1.weight' {said}", {**state, "bn1.weight": ODD[said](state["bn1.weight"])}, "byol-digits")


@pytest.mark.parametrize("content", [b"", b"version https://git-lfs.github.com/spec/v1\n", b"PK\x03\x04 cut short"])
def test_damaged_files_are_named(file, content):
    file.write_bytes(content)
    with pytest.raises(UsageError) as raised:
        import_checkpoint(file, others.STL10)
    assert str(raised.value).startswith(f"{file} is damaged, or not written by torch.save")


def test_missing_file_folder_and_file_without_tensors(refused, file, tmp_path):
    with pytest.raises(UsageError, match="cannot read .*: No such file"):
        import_checkpoint(file, others.STL10)
    with pytest.raises(UsageError, match="cannot read .*: Is a directory"):
        import_checkpoint(tmp_path, others.STL10)
    refused("holds no tensors by name, but a dictionary of 'epoch', 'state_dict'", {"epoch": 3, "state_dict": {}})


def test_same_name_for_two_tensors_is_an_error(file):
    torch.save({"state_dict": {"a.weight": torch.zeros(1)}, "model": {"a.weight": torch.ones(1)}}, file)
    with pytest.raises(UsageError, match="two different tensors are called 'a.weight'"):
        read_checkpoint(file)


def test_a_larger_resnet_is_recognised(refused):
    refused("this looks like resnet50, and the recipe's backbone is resnet18", resnet50(), RESNET18)


def test_source_named_wrongly_or_unknown(refused, file):
    said = "unknown source 'torchvision'; it is one of simsiam, .*are 'plain'"
    refused(said, others.torchvision(), source="torchvision")
    with pytest.raises(UsageError, match="which is 'teacher', expected 'online' or 'target'"):
        import_checkpoint(file, others.STL10, which="teacher")
    assert detect({"encoder.conv1.weight": torch.zeros(1)}, where="file").name == "plain"
