"""What a checkpoint file holds beside the weights, and says of them: none of it becomes a weight, or is passed over."""

import io
import json
import zipfile

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.models._hub import save_for_hf
from transformers import ResNetConfig, ResNetModel, TimmWrapperConfig, TimmWrapperForImageClassification

import ssl_hub
from ssl_hub.data.sources import open_source
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.subject import open_model
from ssl_hub.hub.importers.backbone import classifier_of, find_backbone
from ssl_hub.hub.importers.checkpoint import read_checkpoint
from ssl_hub.hub.weights import initial
from ssl_hub.model import backbones
from ssl_hub.model.release import load_backbone
from ssl_hub.model.stages import classifier_names, with_classifier
from ssl_hub.train.finetuned import config_of, write_release
from tests.hub import checkpoints_of_others as others


def recipe(init, name="resnet10_tiny", size=32):
    return ssl_hub.get_recipe("byol-digits", **{"backbone.name": name, "backbone.init": str(init), "views.size": size})


@pytest.mark.parametrize(
    "beside",
    [
        {"best_acc1": torch.tensor(71.2), "epoch": 3, "arch": "resnet18", "optimizer": {"state": {}}},
        {"metrics": {"top1": torch.tensor(71.2), "per_class": torch.ones(10)}},
        {"queue": torch.ones(8, 2), "queue_ptr": torch.zeros(1)},
    ],
)
def test_what_stands_beside_the_weights_is_none_of_them(file, beside):
    model = others.tiny()
    torch.save({"state_dict": others.named("module.", model), **beside}, file)
    found = initial(recipe(file)).tensors
    assert all(torch.equal(found[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("more", ["prototypes.weight", "queue", "queue_ptr", "mask_token", "decoder_blocks.0.weight"])
def test_what_only_the_pretraining_needs_is_left_out(file, more):
    model = others.tiny()
    torch.save({**others.named("module.", model), f"module.{more}": torch.ones(3, 4)}, file)
    assert torch.equal(initial(recipe(file)).tensors["conv1.weight"], model.conv1.weight)


@pytest.mark.parametrize("name", ["deit_tiny_distilled_patch16_224", "legacy_seresnet18", "dla46x_c", "levit_128s"])
def test_the_classifier_of_any_family_is_told_and_left_out(name):
    with torch.device("meta"):
        own, whole = (backbones.create(name, num_classes=classes).state_dict() for classes in (0, 7))
    beside = classifier_names(name)
    for prefix in ("", "backbone."):
        tensors = {prefix + key: tensor for key, tensor in whole.items()}
        found = find_backbone(tensors, own, architecture=name, where="file", classifier=beside)
        assert found.keys() == own.keys()
        assert (classifier_of(tensors, beside) or "").startswith((f"{prefix}head", f"{prefix}fc", f"{prefix}last_lin"))


def test_counters_that_became_half_precision_are_no_reason_to_refuse(file):
    model = others.tiny()
    torch.save({name: tensor.half() for name, tensor in model.state_dict().items()}, file)
    found = initial(recipe(file)).tensors
    assert torch.equal(found["layer1.0.bn1.num_batches_tracked"], model.layer1[0].bn1.num_batches_tracked)


@pytest.mark.parametrize("key", ["arch", "args"])
def test_another_architecture_of_the_same_tensors_is_refused_by_what_it_computes(file, key):
    """SAME padding is in no shape."""
    name = "mobilenetv3_small_075"
    model = others.lived_in(timm.create_model(f"tf_{name}", num_classes=0))
    for said in (f"tf_{name}", f"tf_{name}.in1k"):
        torch.save({"state_dict": model.state_dict(), key: said if key == "arch" else {"model": said}}, file)
        with pytest.raises(UsageError, match=rf"said to be a tf_{name}, .* give backbone\.name=tf_{name}"):
            initial(recipe(file, name, 64))
        initial(recipe(file, f"tf_{name}", 64))


def test_another_name_of_the_same_network_and_a_name_for_another_stem_are_taken(file):
    vit = timm.create_model("vit_tiny_patch16_224", num_classes=0, img_size=32)
    torch.save({"model": vit.state_dict(), "arch": "deit_tiny_patch16_224"}, file)
    initial(recipe(file, "vit_tiny_patch16_224"))
    small = backbones.create("resnet18_cifar")
    torch.save({"model": small.state_dict(), "arch": "resnet18"}, file)
    initial(recipe(file, "resnet18_cifar"))


CONFIG = {"architecture": "test_vit", "pretrained_cfg": {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]}}


@pytest.mark.parametrize(
    ("beside", "content", "mean"),
    [
        ("config.json", CONFIG, (0.1, 0.2, 0.3)),
        ("config.json", {"architecture": "test_vit", "mean": [0.1, 0.2, 0.3], "std": [1, 1, 1]}, (0.1, 0.2, 0.3)),
        ("preprocessor_config.json", {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}, (0.5, 0.5, 0.5)),
        ("preprocessor_config.json", {"do_normalize": False}, (0.0, 0.0, 0.0)),
        ("preprocessor_config.json", {"image_mean": [123, 116, 103], "image_std": [58, 57, 57]}, None),
        ("open_clip_config.json", {"preprocess_cfg": {"mean": [0.4] * 3, "std": [0.3] * 3}}, (0.4, 0.4, 0.4)),
        ("config.json", ["no settings"], None),
        ("config.json", {**CONFIG, "architecture": "resnet18"}, None),
    ],
)
def test_images_come_in_as_is_said_beside_the_file(tmp_path, beside, content, mean):
    file = tmp_path / "pytorch_model.bin"
    torch.save(timm.create_model("test_vit", num_classes=0, img_size=64).state_dict(), file)
    (tmp_path / beside).write_text(json.dumps(content))
    found = initial(recipe(file, "test_vit", 64)).normalisation
    assert (found and found[0]) == mean


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({**CONFIG, "model_args": {"act_layer": "silu"}}, "was made with act_layer"),
        ({**CONFIG, "global_pool": "avg"}, "pools by 'avg', and the backbone by 'token'"),
        ({"model_type": "vit", "num_attention_heads": 4}, "num_attention_heads is 4, and the backbone has 2"),
        ({"model_type": "vit", "hidden_act": "quick_gelu"}, "hidden_act is 'quick_gelu', and the backbone has 'gelu'"),
    ],
)
def test_what_no_tensor_tells_is_refused_where_it_is_said_beside_the_file(tmp_path, config, said):
    file = tmp_path / "pytorch_model.bin"
    torch.save(timm.create_model("test_vit", num_classes=0, img_size=64).state_dict(), file)
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match=said):
        initial(recipe(file, "test_vit", 64))


def test_a_file_is_what_it_holds_and_not_what_it_is_called(tmp_path):
    state = others.tiny().state_dict()
    save_file(state, tmp_path / "weights.bin")
    torch.save(state, tmp_path / "weights.safetensors")
    torch.save(state, tmp_path / "old.safetensors", _use_new_zipfile_serialization=False)
    for path in tmp_path.iterdir():
        assert torch.equal(read_checkpoint(path)["conv1.weight"], state["conv1.weight"])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("model-00001-of-00002.safetensors", "is of a model that lies in several files"),
        ("pytorch_model.bin.index.json", "is of a model that lies in several files"),
        ("script.pt", r"holds a program \(TorchScript\), no weights"),
        ("exported.pt2", r"holds a program \(torch\.export\), no weights"),
        ("arrays.npz", "holds arrays of numpy"),
        ("list.pt", "holds no tensors by name, but list"),
        ("lists.pt", "holds no tensors by name, but a dictionary of 'models'"),
    ],
)
def test_what_is_no_file_of_weights_is_named(tmp_path, name, said):
    layer, path = torch.nn.Linear(2, 2), tmp_path / name
    content = [layer.state_dict()]
    torch.save({"models": content} if name == "lists.pt" else content, path)
    if name == "script.pt":
        buffer = io.BytesIO()
        torch.jit.save(torch.jit.trace(layer, torch.zeros(1, 2)), buffer)
        path.write_bytes(buffer.getvalue())
    elif name == "exported.pt2":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("exported/archive_format", "pt2")
    elif name == "arrays.npz":
        np.savez(path, weight=np.zeros(2))
    with pytest.raises(UsageError, match=said):
        read_checkpoint(path)


def test_a_folder_of_weights_asks_which(tmp_path):
    for name in ("a.safetensors", "b.pth"):
        (tmp_path / name).touch()
    with pytest.raises(UsageError, match=r"a folder that is no release: name one of its files \(a\.safet.*, b\.pth\)"):
        initial(recipe(tmp_path))


def written_by_timm(folder, name, **options):
    model = others.lived_in(timm.create_model(name, **options))
    save_for_hf(model, folder, safe_serialization="both")
    return lambda images: model.eval().forward_head(model.forward_features(images), pre_logits=True)


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("test_vit", {"img_size": 64, "num_classes": 5}),  # of images of any size, so that timm reads them at 160
        ("vit_tiny_patch16_224", {"img_size": 64, "num_classes": 5}),
        ("test_vit", {"img_size": 64, "num_classes": 5, "global_pool": "avg"}),
        ("test_convnext", {"num_classes": 5}),
        ("test_efficientnet", {"num_classes": 0}),
    ],
)
def test_a_folder_that_timm_has_written_gives_its_features(tmp_path, name, options):
    wanted, images = written_by_timm(tmp_path, name, **options), torch.randn(2, 3, 64, 64)
    opened = open_model(str(tmp_path))
    torch.testing.assert_close(opened.model(images), wanted(images), atol=1e-5, rtol=1e-5)
    assert opened.transform.size == (64 if name.endswith("224") else 160)
    if options.get("global_pool") == "avg":
        for start in (tmp_path, tmp_path / "pytorch_model.bin"):
            with pytest.raises(UsageError, match=r"pools by 'avg', and .* 'token'|2 missing \(norm"):
                initial(recipe(start, name, 64))
        return
    for start in (tmp_path, tmp_path / "model.safetensors", tmp_path / "pytorch_model.bin"):
        found = initial(recipe(start, name, 64))
        body = backbones.create(name, image_size=64)
        body.load_state_dict(found.tensors)
        torch.testing.assert_close(body.eval()(images), wanted(images), atol=1e-5, rtol=1e-5)
        assert found.normalisation == (opened.transform.mean, opened.transform.std)


def test_a_model_that_pools_otherwise_by_the_same_tensors_is_no_start(tmp_path):
    written_by_timm(tmp_path, "test_resnet", global_pool="max")
    assert open_model(str(tmp_path)).model.global_pool.pool_type == "max"
    for start in (tmp_path, tmp_path / "pytorch_model.bin"):
        with pytest.raises(UsageError, match="pools by 'max', and .* 'avg'"):
            initial(recipe(start, "test_resnet", 64))


@pytest.mark.parametrize("given", [{"act_layer": "silu"}, {"in_chans": 1}, {"global_pool": ""}, {"num_classes": 4}])
def test_arguments_that_are_not_the_models_own_are_refused(tmp_path, given):
    written_by_timm(tmp_path, "test_resnet", num_classes=5)
    config = json.loads((tmp_path / "config.json").read_text())
    config["model_args"] |= given
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match="'model_args' is .*, expected none"):
        open_model(str(tmp_path))


def test_a_file_beside_the_settings_of_transformers_is_read_by_its_name(tmp_path):
    model = ResNetModel(
        ResNetConfig(embedding_size=64, hidden_sizes=[64, 128, 256, 512], layer_type="basic", depths=[2] * 4)
    )
    model.save_pretrained(tmp_path)
    initial(recipe(tmp_path / "model.safetensors", "resnet18", 64))
    with pytest.raises(UsageError, match=r"names no 'architecture', .* by its file: .*model\.safetensors"):
        initial(recipe(tmp_path, "resnet18", 64))


def test_a_file_where_a_release_is_asked_for_is_said_to_be_one(tmp_path, monkeypatch):
    torch.save(others.tiny().state_dict(), tmp_path / "weights.pth")
    monkeypatch.chdir(tmp_path)
    for name in ("weights.pth", "./weights.pth", str(tmp_path / "weights.pth")):
        with pytest.raises(UsageError, match=r"weights\.pth' is a file and no release: .* `ssl-hub import auto"):
            open_model(name)


def test_a_classifier_made_of_what_timm_has_written_keeps_its_pooling_and_opens(tmp_path):
    (tmp_path / "theirs").mkdir()
    written_by_timm(tmp_path / "theirs", "test_resnet", num_classes=5, global_pool="max")
    subject, train = open_model(str(tmp_path / "theirs")), open_source("digits", "train")
    network, _ = with_classifier(subject.model, 10)
    (tmp_path / "ours").mkdir()
    write_release(tmp_path / "ours", network, config_of(subject, "theirs", train, ["finetune"]), train)
    again, images = load_backbone(tmp_path / "ours", num_classes=None), torch.randn(2, 3, 64, 64)
    assert again.global_pool.pool_type == "max" and again.num_classes == 10
    by_timm = timm.create_model(f"local-dir:{tmp_path / 'ours'}", pretrained=True).eval()
    torch.testing.assert_close(by_timm(images), again(images))


@torch.no_grad()
def test_a_model_of_timm_that_transformers_has_saved_opens(tmp_path):
    config = TimmWrapperConfig(architecture="test_resnet")
    config.num_labels = 5
    model = others.lived_in(TimmWrapperForImageClassification(config)).eval()
    model.save_pretrained(tmp_path)
    inside, images = model.timm_model, torch.randn(2, 3, 64, 64)
    wanted = inside.forward_head(inside.forward_features(images), pre_logits=True)
    torch.testing.assert_close(open_model(str(tmp_path)).model(images), wanted)
    torch.testing.assert_close(load_backbone(tmp_path, num_classes=None)(images), inside(images))
    found = initial(recipe(tmp_path, "test_resnet", 64)).normalisation
    assert found == (inside.pretrained_cfg["mean"], inside.pretrained_cfg["std"])
