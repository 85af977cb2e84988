"""Weights by name: what each spelling finds, that all of it is loaded, and what is said where it is not."""

import json
import shutil

import huggingface_hub
import pytest
import timm
import torch
from safetensors.torch import save_file

import ssl_hub
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.subject import open_model
from ssl_hub.hub import store, weights
from ssl_hub.hub.importers.importing import import_checkpoint
from ssl_hub.model import backbones
from ssl_hub.model.release import save_release
from ssl_hub.model.siamese import build
from tests.hub import checkpoints_of_others as others


def recipe(name="resnet10_tiny", init=None, size=32, **more):
    settings = {"backbone.name": name, "backbone.init": init, "views.size": size, "projector.hidden_width": 32}
    return ssl_hub.get_recipe("byol-digits", **settings, **more)


def features(model, size=32):
    with torch.no_grad():
        return model.eval()(torch.linspace(-1, 1, 2 * 3 * size * size).view(2, 3, size, size))


def started(chosen):
    siamese = build(chosen)
    siamese.start_from(weights.initial(chosen).tensors, where="test")
    return siamese


@pytest.fixture
def saved(tmp_path):
    model = others.tiny()
    save_file(model.state_dict(), tmp_path / "weights.safetensors")
    return model, tmp_path / "weights.safetensors"


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """Puts weights of timm where the Hub's cache has them; nothing else is there."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))

    def put(name, change=lambda state: state):
        model = others.lived_in(timm.create_model(name))
        repository = tmp_path / "hub" / f"models--timm--{name}"
        (repository / "refs").mkdir(parents=True)
        (repository / "refs" / "main").write_text("0" * 40)
        (repository / "snapshots" / ("0" * 40)).mkdir(parents=True)
        state = change(model.state_dict())
        save_file(state, repository / "snapshots" / ("0" * 40) / "model.safetensors", metadata={"format": "pt"})
        return model

    return put


def test_a_file_gives_the_network_that_was_saved_to_online_and_target(saved):
    model, file = saved
    siamese = started(recipe(init=str(file)))
    torch.testing.assert_close(features(siamese.encoder.backbone), features(model), rtol=0, atol=0)
    pairs = zip(siamese.encoder.state_dict().values(), siamese.target.network.state_dict().values(), strict=True)
    assert all(torch.equal(online, target) for online, target in pairs)
    origin = weights.initial(recipe(init=f"{file}::plain")).origin
    assert (origin["kind"], origin["name"], origin["licence"]) == ("file", "weights.safetensors", "unknown")


def test_the_same_weights_have_one_hash_however_they_are_kept(saved, tmp_path):
    model, file = saved
    torch.save({"state_dict": {f"module.{k}": v for k, v in model.state_dict().items()}}, tmp_path / "other.pt")
    release = import_checkpoint(file, recipe(), name="theirs").folder
    names = (str(file), str(tmp_path / "other.pt"), str(release), "theirs")
    origins = [weights.initial(recipe(init=name)).origin for name in names]
    assert len({origin["sha256"] for origin in origins}) == 1
    assert [origin["kind"] for origin in origins] == ["file", "file", "release", "release"]
    assert origins[-1]["lineage"][0]["file"] == "weights.safetensors"


def test_the_branch_and_source_of_a_checkpoint_are_chosen_as_on_import(tmp_path):
    written, file = others.mmpretrain(), tmp_path / "checkpoint.pt"
    torch.save(written.content, file)
    images, name = written.images, "resnet10_thin"
    for spelt, wanted in ((f"{file}", written.features), (f"{file}::mmpretrain::target", written.target_features)):
        siamese = started(recipe(name, init=spelt, size=64))
        torch.testing.assert_close(siamese.encoder.backbone.eval()(images), wanted(images), atol=1e-5, rtol=1e-5)
    with pytest.raises(UsageError, match=r"expected FILE, FILE::SOURCE or FILE::SOURCE::target"):
        weights.initial(recipe(name, init=f"{file}::mmpretrain::both"))
    with pytest.raises(UsageError, match="unknown source 'mmpretrian'"):
        weights.initial(recipe(name, init=f"{file}::mmpretrian"))


def test_a_stem_that_does_otherwise_is_refused_from_a_file_and_from_its_release(tmp_path):
    written, file = others.solo_learn(), tmp_path / "checkpoint.pt"
    torch.save(written.content, file)
    with pytest.raises(UsageError, match=r"padding 2, no max-pool\), and resnet10_tiny a .*padding 1"):
        weights.initial(recipe(init=str(file)))
    config = import_checkpoint(file, written.recipe, name="theirs").folder / "config.json"
    (config.parent / "hashes.json").unlink()
    for padding in (2, 0):
        config.write_text(json.dumps(json.loads(config.read_text()) | {"model_args": {"stem_padding": padding}}))
        with pytest.raises(UsageError, match=f"theirs pads its stem by {padding}, and resnet10_tiny .* here by 1"):
            weights.initial(recipe(init="theirs"))


def test_a_release_that_was_changed_since_starts_no_run(saved):
    folder = import_checkpoint(saved[1], recipe(), name="theirs").folder
    state = saved[0].state_dict()
    save_file({**state, "bn1.bias": state["bn1.bias"] + 1}, folder / "model.safetensors")
    with pytest.raises(UsageError, match=r"model\.safetensors is not the file that hashes\.json lists"):
        weights.initial(recipe(init="theirs"))


def test_timms_weights_come_from_the_cache_by_either_spelling(cached):
    model = cached("test_resnet.r160_in1k")
    wanted = model.forward_head(model.forward_features(torch.zeros(1, 3, 64, 64)), pre_logits=True)
    for spelt in ("test_resnet.r160_in1k", "timm:test_resnet@r160_in1k"):
        chosen = recipe("test_resnet", init=spelt, size=64)
        backbone = started(chosen).encoder.backbone.eval()
        torch.testing.assert_close(backbone(torch.zeros(1, 3, 64, 64)), wanted, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(open_model(spelt).model(torch.zeros(1, 3, 64, 64)), wanted, atol=1e-6, rtol=1e-5)
    found = weights.initial(chosen)
    assert found.normalisation == (model.pretrained_cfg["mean"], model.pretrained_cfg["std"])
    assert found.origin["licence"] == "apache-2.0" and found.origin["kind"] == "timm"


def test_what_timm_would_leave_random_is_an_error_that_names_it(cached):
    def without_a_stage(state):
        return {name: tensor for name, tensor in state.items() if not name.startswith("layer3.")}

    cached("test_resnet.r160_in1k", without_a_stage)
    for act in (
        lambda: open_model("timm:test_resnet@r160_in1k"),
        lambda: weights.initial(recipe("test_resnet", init="test_resnet.r160_in1k", size=64)),
    ):
        with pytest.raises(UsageError, match=r"test_resnet\.r160_in1k.*layer3\.0\.conv1\.weight"):
            act()


@pytest.mark.parametrize("kind", ["file", "release", "timm"])
def test_position_embeddings_are_interpolated_to_the_views(kind, cached, tmp_path):
    trained = cached("test_vit.r160_in1k")  # for 160 pixels, patches of 16
    init, body = "test_vit.r160_in1k", backbones.create("test_vit")
    body.load_state_dict({k: v for k, v in trained.state_dict().items() if not k.startswith("head.")})
    if kind == "file":
        init = str(tmp_path / "vit.safetensors")
        save_file(body.state_dict(), init)
    elif kind == "release":
        siamese = build(recipe("test_vit", size=160))
        siamese.encoder.backbone.load_state_dict(body.state_dict())
        init = str(tmp_path / "release")
        (tmp_path / "release").mkdir()
        save_release(tmp_path / "release", siamese, recipe("test_vit", size=160))
    tensors = weights.initial(recipe("test_vit", init=init, size=96)).tensors
    wanted = timm.layers.resample_abs_pos_embed(trained.pos_embed, (6, 6), num_prefix_tokens=trained.num_prefix_tokens)
    torch.testing.assert_close(tensors["pos_embed"], wanted)
    assert torch.equal(tensors["patch_embed.proj.weight"], trained.patch_embed.proj.weight)
    assert features(started(recipe("test_vit", init=init, size=96)).encoder.backbone, 96).isfinite().all()


def test_a_vit_for_224_pixels_starts_at_96(tmp_path):
    big = backbones.create("vit_tiny_patch16_224")
    save_file(big.state_dict(), tmp_path / "vit.safetensors")
    found = weights.initial(recipe("vit_tiny_patch16_224", init=str(tmp_path / "vit.safetensors"), size=96))
    assert found.tensors["pos_embed"].shape == (1, 37, 192)
    torch.testing.assert_close(found.tensors["pos_embed"][:, 0], big.pos_embed[:, 0])


def test_a_vit_of_other_patches_is_another_network(tmp_path):
    file = tmp_path / "vit.safetensors"
    for size, patch in ((32, 8), (64, 8), (64, 32)):
        save_file(timm.create_model("test_vit", num_classes=0, img_size=size, patch_size=patch).state_dict(), file)
        with pytest.raises(
            UsageError, match=rf"patch_embed\.proj\.weight: \(64, 3, {patch}, {patch}\), not \(64, 3, 16, "
        ):
            weights.initial(recipe("test_vit", init=str(file), size=64))


def test_weights_that_do_not_all_fit_are_named_with_their_shapes(saved, tmp_path):
    model, _ = saved
    state, file = model.state_dict(), tmp_path / "changed.safetensors"
    save_file({k: v for k, v in state.items() if k != "layer2.0.conv2.weight"}, file)
    with pytest.raises(UsageError, match=r"1 missing \(layer2\.0\.conv2\.weight\)"):
        weights.initial(recipe(init=str(file)))
    save_file({**state, "conv1.weight": state["conv1.weight"][:, :1].contiguous()}, file)
    with pytest.raises(UsageError, match=r"conv1\.weight: \(64, 1, 3, 3\), not \(64, 3, 3, 3\)"):
        weights.initial(recipe(init=str(file)))
    save_file({**state, "bn1.bias": torch.full_like(state["bn1.bias"], torch.nan)}, file)
    with pytest.raises(UsageError, match=r"NaN or infinity \(bn1\.bias\)"):
        weights.initial(recipe(init=str(file)))
    save_file({**state, "fc.weight": torch.ones(10, 128), "fc.bias": torch.ones(10)}, file)
    assert "fc.weight" not in weights.initial(recipe(init=str(file))).tensors


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no-such-thing", r"no checkpoint file, no weights of timm .*, and: no release 'no-such-thing'"),
        ("resnet18", r"an architecture without weights: timm's weights of it are resnet18\.a1_in1k, "),
        ("timm:resnet18", "an architecture without weights"),
        ("resnet18.nonsense", "resnet18 has no weights tagged 'nonsense'; timm has a1_in1k"),
        ("resnet50.a1_in1k", "is a resnet50, .* a resnet18: add backbone.name=resnet50"),  # before a download
        ("gone.pth", "there is no file"),
        ("./somewhere", "no folder './somewhere'"),
        ("directpred-digits", "is a resnet10_tiny, .* a resnet18: add backbone.name=resnet10_tiny"),
    ],
)
def test_what_is_no_weights_is_refused_with_what_was_looked_for(name, said):
    with pytest.raises(UsageError, match=said):
        weights.initial(recipe("resnet18", init=name))


def test_a_release_comes_before_weights_of_timm_of_the_same_name(cached):
    bundled = store.BUNDLED / "directpred-digits"
    shutil.copytree(bundled, store.home() / "test_resnet.r160_in1k")
    assert weights.pretrained("test_resnet.r160_in1k").kind == "release"
    cached("test_resnet.r160_in1k")
    assert weights.pretrained("timm:test_resnet@r160_in1k").kind == "timm"
