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

import ssl_hub
from ssl_hub.errors import UsageError
from ssl_hub.hub import store
from ssl_hub.hub.importers.checkpoint import read_checkpoint
from ssl_hub.hub.importers.importing import import_checkpoint
from ssl_hub.hub.importers.sources import detect
from ssl_hub.model import backbones
from tests.hub import checkpoints_of_others as others

RESNET18 = "byol-r18-stl10-100ep"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "checkpoint.pt"


def small_backbone():
    return others.lived_in(backbones.create("resnet10_tiny"))


def test_nothing_that_fits_is_an_error_with_counts_and_names(file):
    torch.save({"state_dict": {"blocks.0.attn.weight": torch.zeros(2), "head.weight": torch.zeros(2)}}, file)
    with pytest.raises(UsageError) as raised:
        import_checkpoint(file, others.STL10)
    message = str(raised.value)
    assert "0 of 78 tensors match resnet10_narrow" in message
    torch.save(backbones.create("test_efficientnet").state_dict(), file)
    with pytest.raises(UsageError, match="of 78 tensors match resnet10_narrow; .* is it another architecture"):
        import_checkpoint(file, others.STL10)  # a few layers are called alike
    assert "'blocks.0.attn.weight', 'head.weight'" in message
    assert "'conv1.weight'" in message
    assert not store.home().exists()


def test_part_of_a_backbone_more_than_it_and_other_shapes_are_errors(file):
    state = resnet18().state_dict()
    torch.save({name: tensor for name, tensor in state.items() if "layer4.1" not in name}, file)
    with pytest.raises(UsageError, match=r"110 of 120 tensors fit .* 10 missing \(layer4.1.bn1.bias, .*, \.\.\.\)"):
        import_checkpoint(file, RESNET18)
    torch.save(resnet34().state_dict(), file)
    with pytest.raises(UsageError, match=r"120 of 120 tensors fit .* 96 unexpected \(layer1.2.bn1.bias, "):
        import_checkpoint(file, RESNET18)
    torch.save(state | {"layer1.0.conv1.weight": torch.zeros(64, 64, 1, 1)}, file)
    with pytest.raises(UsageError, match=r"layer1.0.conv1.weight: \(64, 64, 1, 1\), not \(64, 64, 3, 3\)"):
        import_checkpoint(file, RESNET18)


def test_two_backbones_of_which_none_is_called_target_are_an_error(file):
    one, two = others.headless(), others.headless()
    torch.save(others.named("left.", one) | others.named("right.", two), file)
    with pytest.raises(UsageError, match="2 different backbones, under 'left.', 'right.'; name the project"):
        import_checkpoint(file, others.STL10)
    torch.save(others.named("left.", one) | others.named("right.", one), file)
    import_checkpoint(file, others.STL10)


OTHER_NAMES = [
    (others.lightly_byol, "teacher_backbone.", "target backbone, under 'teacher_backbone.' and 'backbone_momentum.'"),
    (others.lightly_student, "teacher_backbone.", "target backbone, under 'teacher_backbone.' and 'backbone.'"),
    (others.solo_learn, "encoder.", "online backbone, under 'backbone.' and 'encoder.'"),
    (others.solo_learn, "momentum_encoder.", "target backbone, under 'momentum_backbone.' and 'momentum_encoder.'"),
    (others.mmselfsup, "online_net.0.", "online backbone, under 'backbone.' and 'online_net.0.'"),
    (others.byol_pytorch, "net.", "online backbone, under 'online_encoder.net.' and 'net.'"),
]


@pytest.mark.parametrize(("write", "prefix", "said"), OTHER_NAMES)
def test_two_networks_of_one_role_are_an_error_in_either_order(file, write, prefix, said):
    written = write()
    more = others.named(prefix, others.headless(2 if written.small else None))
    state = written.content.get("state_dict", written.content)
    kept = {name: tensor for name, tensor in state.items() if not name.startswith(prefix)}
    for content in ({**kept, **more}, {**more, **kept}):
        torch.save({"state_dict": content}, file)
        with pytest.raises(UsageError, match=f"two different networks may be its {said}; save the one that you mean"):
            import_checkpoint(file, written.recipe)


def test_a_backbone_beside_another_that_has_more_names_is_an_error(file):
    one, two = others.headless().state_dict(), others.headless()
    short = {f"left.{name}": tensor for name, tensor in one.items() if not name.endswith("num_batches_tracked")}
    torch.save(short | others.named("right.", two), file)
    with pytest.raises(UsageError, match="2 different backbones, under 'left.', 'right.'"):
        import_checkpoint(file, others.STL10)
    torch.save(short | two.state_dict(), file)
    with pytest.raises(UsageError, match="2 different backbones, under '', 'left.'"):
        import_checkpoint(file, others.STL10)


def test_not_a_number_is_refused_by_name(file):
    state = others.headless().state_dict()
    state["layer2.0.conv2.weight"][3, 2, 1, 0] = float("nan")
    torch.save(state, file)
    with pytest.raises(UsageError, match=r"1 tensors hold NaN or infinity \(layer2.0.conv2.weight\)"):
        import_checkpoint(file, others.STL10)


def test_another_stem_is_refused_with_both(file):
    torch.save(others.headless(1).state_dict(), file)
    with pytest.raises(
        UsageError, match=r"has a 3x3 stem, the recipe's resnet10_narrow a 7x7 stem \(stride 2, padding 3, then"
    ):
        import_checkpoint(file, others.STL10)
    torch.save(others.solo_learn().content, file)
    with pytest.raises(
        UsageError, match=r"has a 3x3 stem \(stride 1, padding 2, no max-pool\), the recipe's resnet10_narrow a 7x7"
    ):
        import_checkpoint(file, others.STL10)
    torch.save(others.headless().state_dict(), file)
    with pytest.raises(UsageError, match=r"a 7x7 stem, the recipe's resnet10_tiny a 3x3 stem \(stride 1, padding 1"):
        import_checkpoint(file, others.CIFAR10)


def test_sequential_without_the_relu_of_its_stem_is_refused(file):
    # lightly's own ResNet cut into a Sequential: its ReLU is no module.
    model = others.headless(1)
    layers = (model.conv1, model.bn1, model.layer1, model.layer2, model.layer3, model.layer4)
    torch.save(torch.nn.Sequential(*layers).state_dict(), file)
    with pytest.raises(UsageError, match=r"the 3x3 stem under '' has no ReLU before the first stage \(number 2\)"):
        import_checkpoint(file, others.CIFAR10)


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
    with pytest.raises(
        UsageError, match=r"holds a Python object \(posix.mkdir\), which only running what the file says"
    ):
        import_checkpoint(file, others.STL10)
    assert not proof.exists()
    assert not store.home().exists()
    pickle.loads(pickle.dumps(Payload(proof)))  # it would have
    assert proof.exists()


def of(module: str) -> type:
    """A class that says it is of another project."""
    return type("Recorded", (), {"__module__": module, "__reduce__": lambda self: (type(self), ())})


LIGHTNING = {"pytorch-lightning_version": "2.1", "epoch": 3}
WAYS_OUT = {
    "whole": (
        lambda state: small_backbone(),
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


def test_two_networks_beside_a_class_are_saved_with_their_names_and_not_the_first_of_them(file):
    state = {name: tensor for name, tensor in others.named("backbone.", small_backbone()).items()}
    args = argparse.Namespace(epochs=3)
    for keys in (("student", "teacher"), ("teacher", "student"), ("state_dict", "state_dict_ema")):
        torch.save({"args": args, **dict.fromkeys(keys, state)}, file)
        with pytest.raises(UsageError, match=r"argparse\.Namespace.*c = torch\.load.*torch\.save\(.*") as raised:
            import_checkpoint(file, "byol-digits")
        assert f"for k in {[*keys]}" in str(raised.value)


def test_a_teacher_alone_is_no_online_network(file):
    torch.save({"teacher": others.named("backbone.", small_backbone())}, file)
    with pytest.raises(UsageError, match=r"no online network in it, but a target's \('teacher\..*use which='target'"):
        import_checkpoint(file, "byol-digits")
    import_checkpoint(file, "byol-digits", which="target")


ODD = {
    "has a shape and no numbers": lambda tensor: tensor.to("meta"),
    "is sparse": lambda tensor: tensor.to_sparse(),
    "is quantised": lambda tensor: torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8),
    "would be 4398046511104 bytes": lambda tensor: torch.zeros(1).expand(2**40),
}


@pytest.mark.parametrize("said", ODD)
def test_tensors_that_are_not_plain_numbers_are_named(file, said):
    state = small_backbone().state_dict()
    torch.save({**state, "bn1.weight": ODD[said](state["bn1.weight"])}, file)
    with pytest.raises(UsageError, match=f"'bn1.weight' {said}"):
        import_checkpoint(file, "byol-digits")


def test_the_mean_of_weights_that_torchvision_saves_is_a_target(file):
    online, mean = small_backbone(), small_backbone()
    counted = {"n_averaged": torch.tensor(3), **others.named("module.", mean)}
    torch.save({"model": online.state_dict(), "model_ema": counted, "epoch": 1}, file)
    for which, wanted in (("online", online), ("target", mean)):
        import_checkpoint(file, "byol-digits", which=which, name=which)
        assert torch.equal(ssl_hub.load(which).conv1.weight, wanted.conv1.weight)


@pytest.mark.parametrize("content", [b"", b"version https://git-lfs.github.com/spec/v1\n", b"PK\x03\x04 cut short"])
def test_damaged_files_are_named(file, content):
    file.write_bytes(content)
    with pytest.raises(UsageError) as raised:
        import_checkpoint(file, others.STL10)
    assert str(raised.value).startswith(f"{file} is damaged, or not written by torch.save")


def test_missing_file_folder_and_file_without_tensors(file, tmp_path):
    with pytest.raises(UsageError, match="cannot read .*: No such file"):
        import_checkpoint(file, others.STL10)
    with pytest.raises(UsageError, match="cannot read .*: Is a directory"):
        import_checkpoint(tmp_path, others.STL10)
    torch.save({"epoch": 3, "state_dict": {}}, file)
    with pytest.raises(UsageError, match="holds no tensors, but dict"):
        import_checkpoint(file, others.STL10)


def test_same_name_for_two_tensors_is_an_error(file):
    torch.save({"state_dict": {"a.weight": torch.zeros(1)}, "model": {"a.weight": torch.ones(1)}}, file)
    with pytest.raises(UsageError, match="two different tensors are called 'a.weight'"):
        read_checkpoint(file)


def test_a_larger_resnet_is_recognised(file):
    torch.save(resnet50().state_dict(), file)
    with pytest.raises(UsageError, match="this looks like resnet50, and the recipe's backbone is resnet18"):
        import_checkpoint(file, "byol-r18-stl10-100ep", overrides={"backbone.name": "resnet18"})


def test_source_named_wrongly_or_unknown(file):
    torch.save(others.torchvision().content, file)
    with pytest.raises(UsageError, match="unknown source 'torchvision'; it is one of simsiam, .*are 'plain'"):
        import_checkpoint(file, others.STL10, source="torchvision")
    with pytest.raises(UsageError, match="which is 'teacher', expected 'online' or 'target'"):
        import_checkpoint(file, others.STL10, which="teacher")
    assert detect({"encoder.conv1.weight": torch.zeros(1)}, where="file").name == "plain"
