"""Releases: what is written is what is read, strictly, and what timm reads too."""

import json
import warnings

import pytest
import timm
import torch
from safetensors import safe_open

from ssl_hub.errors import UsageError
from ssl_hub.model import release
from ssl_hub.model.files import changed, release_files
from ssl_hub.model.probe_head import ProbeHead
from ssl_hub.model.results import Result, append_results
from ssl_hub.model.siamese import build
from ssl_hub.model.standing import standing_in
from ssl_hub.zoo import get_recipe

IMAGES = torch.randn(5, 3, 16, 16)


@pytest.fixture
def saved(tmp_path):
    recipe = get_recipe("directpred-digits")
    model = build(recipe)
    model(IMAGES, IMAGES + 0.1).loss.backward()
    with torch.no_grad():
        for p in model.encoder.parameters():
            p.add_(0.01 * torch.randn_like(p))
    model.after_step(0, 10)
    release.save_release(tmp_path, model, recipe)
    return tmp_path, model


def features(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(IMAGES)


def test_round_trip_gives_identical_features(saved):
    folder, model = saved
    assert torch.equal(features(release.load_backbone(folder)), features(model.encoder.backbone))
    target = release.load_backbone(folder, which="target")
    assert torch.equal(features(target), features(model.target.network.backbone))


def test_timm_alone_loads_the_folder(saved):
    folder, model = saved
    loaded = timm.create_model(f"local-dir:{folder}", pretrained=True)
    assert torch.equal(features(loaded), features(model.encoder.backbone))
    assert list(timm.data.resolve_data_config(model=loaded)["mean"]) == [0.5, 0.5, 0.5]


def test_classifier_becomes_part_of_the_released_model(saved):
    folder, model = saved
    weight, bias = torch.randn(10, 128), torch.randn(10)
    assert release.add_classifier(folder, weight, bias, [str(d) for d in range(10)])
    want = features(model.encoder.backbone) @ weight.mT + bias
    torch.testing.assert_close(features(timm.create_model(f"local-dir:{folder}", pretrained=True)), want)
    torch.testing.assert_close(features(release.load_backbone(folder, num_classes=None)), want)
    assert torch.equal(features(release.load_backbone(folder)), features(model.encoder.backbone))
    fresh = release.load_backbone(folder, num_classes=3)
    assert features(fresh).shape == (5, 3)
    assert torch.equal(fresh.conv1.weight, model.encoder.backbone.conv1.weight)


def test_files_carry_the_format_timm_and_transformers_ask_for(saved):
    folder, _ = saved
    for name in (release.MODEL, release.METHOD):
        with safe_open(folder / name, framework="pt") as file:
            assert file.metadata() == {"format": "pt"}
    method = set(release.read_tensors(folder / release.METHOD))
    assert {"predictor.weight", "predictor.correlation.value", "projector.0.weight"} <= method
    assert any(name.startswith("target.backbone.") for name in method)


def test_channels_last_and_shared_networks_are_saved(tmp_path):
    recipe = get_recipe("simsiam-digits")
    model = build(recipe).to(memory_format=torch.channels_last)
    release.save_release(tmp_path, model, recipe)
    loaded = release.load_backbone(tmp_path).state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in model.encoder.backbone.state_dict().items())
    with pytest.raises(UsageError, match="has no target network: its method shares the online one"):
        release.load_backbone(tmp_path, which="target")


def test_tensors_that_do_not_fit_are_counted_and_named(saved):
    folder, _ = saved
    tensors = release.read_tensors(folder / release.MODEL)
    tensors["module.conv1.weight"] = tensors.pop("conv1.weight")
    release.write_tensors(folder / release.MODEL, tensors)
    with pytest.raises(UsageError, match=r"of \d+ tensors fit .*1 missing \(conv1.weight\); 1 unexpected \(module"):
        release.load_backbone(folder)


@pytest.mark.parametrize("damage", ["truncate", "remove", "pickle"])
def test_damaged_weights_are_refused_and_named(saved, damage):
    folder, _ = saved
    path = folder / release.MODEL
    if damage == "truncate":
        path.write_bytes(path.read_bytes()[:1000])
    elif damage == "remove":
        path.unlink()
    else:
        torch.save({"conv1.weight": torch.zeros(1)}, path)
    with pytest.raises(UsageError, match=r"model\.safetensors is (missing|not a readable safetensors file)"):
        release.load_backbone(folder)


def test_newer_format_loads_with_a_warning(saved):
    folder, _ = saved
    config = json.loads((folder / release.CONFIG).read_text())
    config["ssl_hub"] |= {"format": 99, "novelty": True}
    release.write_config(folder, config)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        release.load_backbone(folder)
    assert any("has format 99, newer than 1" in str(w.message) for w in caught)


def test_recipe_round_trips_with_its_facts(tmp_path):
    recipe = get_recipe("byol-linear-digits", **{"train.epochs": 3})
    release.write_recipe(tmp_path, recipe, {"processes": 2})
    assert release.read_recipe(tmp_path) == recipe
    (tmp_path / release.RECIPE).write_text("{}")
    with pytest.raises(UsageError, match=r"recipe\.json holds no recipe"):
        release.read_recipe(tmp_path)


def test_hashes_follow_what_is_written(saved):
    folder, _ = saved
    names = release_files(folder)
    assert set(names) == {release.CONFIG, release.MODEL, release.METHOD} and changed(folder, names) == []
    release.add_classifier(folder, torch.randn(10, 128), torch.randn(10), [str(d) for d in range(10)])
    assert changed(folder, names) == []


def test_only_architectures_that_timm_lacks_say_what_they_need(saved, tmp_path):
    assert release.read_config(saved[0])["architecture"] == "resnet10_tiny.import_ssl_hub"
    recipe = get_recipe("directpred-digits", **{"backbone.name": "resnet10t", "views.size": 32})
    plain = tmp_path / "plain"
    plain.mkdir()
    release.save_release(plain, build(recipe), recipe)
    assert release.read_config(plain)["architecture"] == "resnet10t"
    assert timm.create_model(f"local-dir:{plain}", pretrained=True).num_features == 512


def test_a_recipe_for_another_backbone_is_refused(saved):
    folder, _ = saved
    release.write_recipe(folder, get_recipe("byol-r18-cifar10-100ep"), {})
    with pytest.raises(
        UsageError, match="names the architecture 'resnet10_tiny', but recipe.json .* trained 'resnet18_cifar'"
    ):
        release.load_backbone(folder)


def test_an_architecture_built_for_one_size_keeps_the_size_of_its_views(tmp_path):
    recipe = get_recipe("byol-digits", **{"backbone.name": "vit_tiny_patch16_224", "views.size": 32})
    siamese = build(recipe).eval()
    release.save_release(tmp_path, siamese, recipe)
    images = torch.randn(2, 3, 32, 32)
    expected = siamese.encoder.backbone(images)
    torch.testing.assert_close(release.load_backbone(tmp_path)(images), expected)
    in_timm = timm.create_model(f"local-dir:{tmp_path}", pretrained=True, num_classes=0).eval()
    torch.testing.assert_close(in_timm(images), expected)


def test_a_size_that_an_architecture_cannot_have_is_one_line():
    with pytest.raises(UsageError, match="Levit.* does not take images of 50 pixels: "):
        build(get_recipe("byol-digits", **{"backbone.name": "levit_128s", "views.size": 50}))


def test_other_weights_mark_the_numbers_of_those_before_and_remove_their_heads(saved):
    folder, model = saved
    recipe, about = get_recipe("directpred-digits"), {"metric": "top1", "split": "test", "protocol": "knn"}
    append_results(folder, [Result(value=60.0, dataset="pets", **about), Result(value=70.0, dataset="cars", **about)])
    ProbeHead(torch.zeros(2, 128), torch.zeros(2), ("cat", "dog"), "pets").save(folder)
    release.save_release(folder, model, recipe)  # the same weights again
    assert len(standing_in(folder).counted) == 2 and (folder / "heads" / "pets.json").exists()
    with torch.no_grad():
        next(model.encoder.backbone.parameters()).add_(1.0)
    release.save_release(folder, model, recipe)
    assert [reason for _, reason in standing_in(folder).aside] == ["measured on other weights than these"] * 2
    assert not [*(folder / "heads").iterdir()] and changed(folder, release_files(folder)) == []
    append_results(folder, [Result(value=50.0, dataset="pets", **about)])
    assert [r.value for r in standing_in(folder).counted] == [50.0]
    assert [r.value for r, _ in standing_in(folder).aside] == [70.0]
    (folder / "results.json").write_text("[{")  # which is named when it is read, and hinders no release
    with torch.no_grad():
        next(model.encoder.backbone.parameters()).add_(1.0)
    release.save_release(folder, model, recipe)
