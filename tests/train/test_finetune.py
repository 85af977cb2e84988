"""Fine-tuning: what learns how fast, what stays, a release at the end, and a resumed run that is the straight one."""

import json
import os
import shutil
import signal

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from PIL import Image
from safetensors.torch import load_file
from torch import nn

import ssl_hub
from ssl_hub.errors import UsageError
from ssl_hub.hub import store
from ssl_hub.model import backbones
from ssl_hub.model.metrics import read_metrics
from ssl_hub.model.release import load_backbone, read_facts, save_release, write_recipe
from ssl_hub.model.results import read_results
from ssl_hub.model.siamese import build
from ssl_hub.model.stages import frozen_modules, with_classifier
from ssl_hub.stopping import Interrupted
from ssl_hub.train import classifier as classifiers
from ssl_hub.train import finetune_epochs as module
from ssl_hub.train.classifier import ClassifierTrainer, Finetuning, parameter_groups
from ssl_hub.train.finetune import finetune
from ssl_hub.zoo import get_recipe

SHORT = {"epochs": 2, "batch_size": 16, "lr": 0.5}


@pytest.fixture
def photos(tmp_path):
    """Two classes of 24 x 20 pixel photographs: one dark, one bright."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 20), ("test", 6)):
        for label, grey in (("dark", 70), ("light", 180)):
            folder = tmp_path / "photos" / split / label
            folder.mkdir(parents=True)
            for i in range(count):
                pixels = (grey + rng.normal(0, 20, (20, 24, 3))).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.png")
    return tmp_path / "photos"


@pytest.fixture
def released():
    recipe = get_recipe("byol-digits")
    folder = store.home() / recipe.name
    folder.mkdir(parents=True)
    torch.manual_seed(0)
    write_recipe(folder, recipe, {"seed": 0})
    save_release(folder, build(recipe), recipe)
    return folder


def classifier(architecture="resnet10_tiny", **settings):
    model, new = with_classifier(backbones.create(architecture), 3)
    return model, parameter_groups(model, new, Finetuning(**settings))


def test_every_parameter_is_trained_once_at_the_rate_of_its_depth():
    model, groups = classifier(layer_decay=0.5, head_lr_ratio=3.0, weight_decay=0.1)
    ratios = {name: group["lr_ratio"] for group in groups for name in group["names"]}
    assert ratios.keys() == dict(model.named_parameters()).keys()
    assert ratios["conv1.weight"] == 0.5**5 and ratios["layer4.0.conv1.weight"] == 0.5 and ratios["fc.weight"] == 3.0
    for group in groups:
        assert group["weight_decay"] == (0.1 if group["params"][0].ndim > 1 else 0.0)
        assert len({p.ndim > 1 for p in group["params"]}) == 1


@pytest.mark.parametrize(
    ("architecture", "new"),
    [
        ("test_convnext", {"head.fc.weight", "head.fc.bias"}),  # timm groups head.norm with it
        ("lcnet_035", {"classifier.weight", "classifier.bias"}),  # and conv_head
        ("pit_ti_224", {"head.weight", "head.bias"}),  # and groups nothing here
        ("repvit_m0_9", {f"head.{head}.{name}" for head in ("head", "head_dist")
                         for name in ("bn.weight", "bn.bias", "l.weight", "l.bias")}),
    ],
)  # fmt: skip
def test_the_rate_of_the_head_reaches_the_classifier_alone(architecture, new):
    _, groups = classifier(architecture, head_lr_ratio=3.0)
    assert {name for group in groups if group["lr_ratio"] == 3.0 for name in group["names"]} == new
    assert {group["lr_ratio"] for group in groups} == {1.0, 3.0}


def test_a_model_without_stages_is_frozen_whole_or_not_at_all():
    _, groups = classifier("poolformer_s12", freeze=1)
    assert [name for group in groups for name in group["names"]] == ["head.fc.weight", "head.fc.bias"]
    with pytest.raises(UsageError, match="freeze is 2, and MetaFormer has 1 stages before its classifier"):
        classifier("poolformer_s12", freeze=2)


def test_positions_and_tokens_do_not_decay():
    _, groups = classifier("test_vit", weight_decay=0.1)
    decay = {name: group["weight_decay"] for group in groups for name in group["names"]}
    assert decay["pos_embed"] == decay["cls_token"] == decay["norm.weight"] == 0
    assert decay["patch_embed.proj.weight"] == decay["blocks.0.attn.qkv.weight"] == 0.1


def test_a_frozen_stem_keeps_its_statistics_when_they_are_synchronised(monkeypatch):
    """On several GPUs; one process of a CPU computes the same with plain statistics."""
    monkeypatch.setattr(classifiers, "synchronises", lambda accelerator, asked: asked)
    monkeypatch.setattr(nn.SyncBatchNorm, "forward", nn.BatchNorm2d.forward)
    model, new = with_classifier(backbones.create("resnet10_tiny"), 3)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    settings = Finetuning(freeze=1, epochs=1, lr=1.0)
    trainer = ClassifierTrainer(
        model, new, settings, Accelerator(cpu=True), steps_per_epoch=1, images_of=np.ones(3, int)
    )
    assert isinstance(trainer.network.bn1, nn.SyncBatchNorm)
    trainer.train_mode()
    trainer.advance(iter([(torch.randn(4, 3, 16, 16), torch.tensor([0, 1, 2, 0]))]))
    assert not trainer.network.bn1.training and trainer.network.layer1[0].bn1.training
    changed = {n.split(".")[0] for n, t in trainer.network.state_dict().items() if not torch.equal(t, before[n])}
    assert changed == {"layer1", "layer2", "layer3", "layer4", "fc"}


def test_one_rate_for_all_unless_told_otherwise():
    _, groups = classifier()
    assert {group["lr_ratio"] for group in groups} == {1.0}


def test_frozen_stages_have_no_group_no_gradient_and_no_training_mode():
    model, groups = classifier(freeze=2)
    trained = {name for group in groups for name in group["names"]}
    assert not any(name.startswith(("conv1", "bn1", "layer1")) for name in trained)
    assert all(p.requires_grad == (name in trained) for name, p in model.named_parameters())
    frozen = list(frozen_modules(model, {"fc.weight", "fc.bias"}))
    assert model.bn1 in frozen and model.layer1 in frozen and model.layer2 not in frozen
    with pytest.raises(UsageError, match=r"freeze is 9, and SmallImageResNet has 5 stages .* expected 0 .* to 5"):
        classifier(freeze=9)


def test_it_learns_and_leaves_a_release(released, photos):
    folder, results = finetune(released, str(photos), overrides={**SHORT, "epochs": 16})
    assert folder == store.home() / "byol-digits-finetuned-photos"
    assert [(r.metric, r.protocol, r.dataset, r.split) for r in results] == [("top1", "finetune", "photos", "test")]
    assert results[0].value > 80 and results[0].settings["finetuned_from"] == "byol-digits"
    assert [(r.value, r.settings) for r in read_results(folder)] == [(r.value, r.settings) for r in results]

    config = json.loads((folder / "config.json").read_text())
    assert (config["num_classes"], config["label_names"]) == (2, ["dark", "light"])
    assert config["ssl_hub"]["finetuned_on"] == "photos"
    images = torch.rand(3, 3, 16, 16)
    whole, with_head = load_backbone(folder, num_classes=None), ssl_hub.load(folder, head="photos")
    with torch.no_grad():
        assert torch.equal(whole(images), with_head(images))
        assert ssl_hub.load(folder)(images).shape == (3, 128)  # features, as of any release
    # The head and the new backbone together are what was measured.
    again = ssl_hub.knn(folder, str(photos), k=3)
    assert again[0].protocol == "knn"
    assert [r["epoch"] for r in read_metrics(folder)] == [*range(1, 17)]


def test_what_is_frozen_is_bit_for_bit_the_same_statistics_included(released, photos):
    folder, _ = finetune(released, str(photos), overrides={**SHORT, "freeze": 2})
    before, after = load_file(released / "model.safetensors"), load_file(folder / "model.safetensors")
    for name, tensor in before.items():
        same = torch.equal(tensor, after[name])
        assert same == name.startswith(("conv1", "bn1", "layer1")), name
    # All of the backbone frozen: a classifier alone.
    folder, _ = finetune(released, str(photos), output=folder / "head", overrides={**SHORT, "freeze": 5})
    after = load_file(folder / "model.safetensors")
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


def test_a_stopped_run_resumes_to_the_same_bytes(released, photos, tmp_path, monkeypatch):
    straight, _ = finetune(released, str(photos), output=tmp_path / "straight", overrides=SHORT)
    steps = iter(range(100))
    monkeypatch.setattr(module, "agreed", lambda accelerator, flags: [next(steps) == 2])  # in the second epoch
    stopped = tmp_path / "stopped"
    with pytest.raises(Interrupted):
        finetune(released, str(photos), output=stopped, overrides=SHORT)
    assert not (stopped / "model.safetensors").exists()
    monkeypatch.undo()
    with pytest.raises(UsageError, match="holds a run already; continue it with --resume"):
        finetune(released, str(photos), output=stopped, overrides=SHORT)
    with pytest.raises(UsageError, match=r"was started with \S+=.*; resume it with the same"):
        finetune(released, str(photos), output=stopped, overrides={**SHORT, "lr": 1.0}, resume=True)
    with pytest.raises(UsageError, match="it goes on with the settings that it has, or not at all"):
        ssl_hub.resume(stopped, overrides={"lr": 1.0})
    whole = json.loads((stopped / "recipe.json").read_text())
    del whole["run"]["settings"]["bn_statistics"]  # as an older version leaves it
    (stopped / "recipe.json").write_text(json.dumps(whole))
    assert ssl_hub.resume(stopped) == stopped
    assert (stopped / "model.safetensors").read_bytes() == (straight / "model.safetensors").read_bytes()
    assert read_metrics(stopped) == read_metrics(straight)  # means over whole epochs


def test_a_signal_during_the_save_of_an_epoch_stops_there(released, photos, tmp_path, monkeypatch):
    save = module.run.save

    def signalled(*given, **options):
        os.kill(os.getpid(), signal.SIGTERM)
        return save(*given, **options)

    monkeypatch.setattr(module.run, "save", signalled)
    with pytest.raises(Interrupted):
        finetune(released, str(photos), output=tmp_path / "stopped", overrides=SHORT)
    (saved,) = (tmp_path / "stopped" / "checkpoints").iterdir()
    assert saved.name == "step-00000002.pt"  # the end of the first epoch, and no step after it


def test_a_fraction_is_of_each_class_and_is_recorded(released, photos):
    folder, results = finetune(
        released, str(photos), fraction=0.1, overrides={**SHORT, "batch_size": 2, "epochs": 1}, seed=3
    )
    assert results[0].settings["train_split"] == "train, 10 % of each class"
    assert results[0].settings["train_size"] == 4 and results[0].seed == 3
    assert read_facts(folder)["settings"]["epochs"] == 1


def test_a_published_list_is_a_split(released, photos, tmp_path):
    chosen = [f"{label}/{i}.png" for label in ("dark", "light") for i in (1, 3)]
    (tmp_path / "list.txt").write_text("\n".join(chosen))
    _, results = finetune(
        released, str(photos), train_split=f"train@{tmp_path / 'list.txt'}",
        overrides={**SHORT, "batch_size": 4, "epochs": 1},
    )  # fmt: skip
    assert results[0].settings["train_size"] == 4


def test_an_architecture_of_timm_needs_no_recipe(photos, tmp_path):
    settings = {**SHORT, "epochs": 1}
    folder, _ = finetune("timm:resnet10_tiny", str(photos), output=tmp_path / "a", overrides=settings)
    assert json.loads((folder / "recipe.json").read_text())["recipe"] is None
    assert read_facts(folder)["finetuned_from"] == "timm:resnet10_tiny"
    assert ssl_hub.load(folder, head="photos").label_names == ["dark", "light"]
    finetune("timm:resnet10_tiny", str(photos), output=folder, overrides=settings, resume=True)  # nothing is left to do


def test_a_diverged_run_stops_with_advice(released, photos):
    with pytest.raises(UsageError, match="the loss is nan in epoch 1; there is no checkpoint yet. Lower lr"):
        finetune(released, str(photos), overrides={**SHORT, "lr": 1e30})


def test_a_diverged_replacement_leaves_the_run_it_was_to_replace(released, photos, tmp_path):
    folder, _ = finetune(released, str(photos), output=tmp_path / "r", overrides={**SHORT, "epochs": 1})
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match="the loss is nan"):
        finetune(released, str(photos), output=folder, overrides={**SHORT, "lr": 1e30}, overwrite=True)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    finetune(released, str(photos), output=folder, overrides={**SHORT, "epochs": 1, "lr": 0.1}, overwrite=True)
    assert read_facts(folder)["settings"]["lr"] == 0.1


@pytest.mark.parametrize("how", [{"overwrite": True}, {"resume": True}, {}])
def test_the_model_that_it_starts_from_is_never_replaced(released, photos, tmp_path, monkeypatch, how):
    (tmp_path / "link").symlink_to(released)
    monkeypatch.chdir(released.parent)
    for model in (released, released.name, f"init:{released}"):
        for output in (released, tmp_path / "link", released.parent, "byol-digits"):
            with pytest.raises(UsageError, match="is or holds .*, which fine-tuning starts from; choose another"):
                finetune(model, str(photos), output=output, overrides=SHORT, **how)
    assert (released / "model.safetensors").exists()


def test_a_finished_run_is_not_trained_again_by_resuming_it(released, photos, tmp_path):
    folder, _ = finetune(released, str(photos), output=tmp_path / "r", overrides={**SHORT, "epochs": 1})
    shutil.rmtree(folder / "checkpoints")
    model = (folder / "model.safetensors").read_bytes()
    with pytest.raises(UsageError, match="holds a finished run without checkpoints"):
        finetune(released, str(photos), output=folder, overrides={**SHORT, "epochs": 1}, resume=True)
    assert (folder / "model.safetensors").read_bytes() == model


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"overrides": {"lr": -1}}, "lr is -1.0, expected a number above 0"),
        ({"overrides": {"epoch": 1}}, "unknown setting 'epoch'; did you mean 'epochs'"),
        ({"overrides": {"batch_size": 64}}, "batch_size is 64 for 40 images"),
        ({"overrides": {"batch_size": 9, "accumulation": 2}}, "expected a multiple of 2 and at most 40"),
        ({"fraction": 0.0}, "fraction is 0.0, expected a share over 0 and up to 1"),
        ({"train_split": "extra"}, "'extra'"),
        ({"model": "pixels"}, "pixels takes no classifier; give a run"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(released, photos, tmp_path, options, text):
    arguments = {"model": released, "data": str(photos), "output": tmp_path / "out", **options}
    with pytest.raises(UsageError, match=text):
        finetune(arguments.pop("model"), arguments.pop("data"), **arguments)
    assert not (tmp_path / "out").exists()


def test_accumulation_changes_nothing_without_batch_norm(photos, tmp_path):
    def weights(name, accumulation):
        folder, _ = finetune(
            "timm:test_convnext", str(photos), output=tmp_path / name, image_size=32,
            overrides={**SHORT, "epochs": 1, "lr": 0.05, "accumulation": accumulation},
        )  # fmt: skip
        return load_file(folder / "model.safetensors")

    one, four = weights("one", 1), weights("four", 4)
    assert all(torch.allclose(tensor, four[name], atol=1e-5) for name, tensor in one.items())
    assert not any(isinstance(m, nn.BatchNorm2d) for m in backbones.create("test_convnext").modules())
