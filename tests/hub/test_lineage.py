"""How weights came to be: recorded at every origin, told by the card from the record alone, and run by its command."""

from __future__ import annotations

import copy
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard

import ssl_hub
from ssl_hub import cli
from ssl_hub.codec import parse_assignments
from ssl_hub.hub.card import release_card
from ssl_hub.hub.card_command import command
from ssl_hub.hub.importers.importing import import_checkpoint
from ssl_hub.model.files import CONFIG
from ssl_hub.model.lineage import inherited, lineage_of, pretrained
from ssl_hub.model.parts import with_defaults
from ssl_hub.model.release import read_facts, read_recipe
from ssl_hub.train import finetune as finetuning
from ssl_hub.train import finetune_task
from ssl_hub.zoo import as_modified, get_recipe
from tests.hub import checkpoints_of_others as others
from tests.hub.releases import make_release, rewrite

SHORT = {"epochs": 1, "batch_size": 64}
QUICK = {"overrides": SHORT, "fraction": 0.2, "workers": 0}


def chain_of(folder: Path) -> list[dict]:
    chain = json.loads((folder / CONFIG).read_text())["ssl_hub"]["lineage"]
    assert read_facts(folder)["lineage"] == chain  # recipe.json says the same
    return chain


def say(folder: Path, chain: object) -> None:
    rewrite(folder / CONFIG, lambda config: config["ssl_hub"].update(lineage=chain))


# The cards of all origins


@pytest.fixture(scope="module")
def origins(tmp_path_factory) -> dict[str, Path]:
    """A release of every origin there is."""
    home = tmp_path_factory.mktemp("origins")
    made = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_HUB_HOME", str(home / "store"))
        made["recipe"] = home / "recipe"
        made["recipe"].mkdir()
        make_release(made["recipe"])
        torch.save(others.tiny().state_dict(), home / "theirs.pt")
        imported = import_checkpoint(home / "theirs.pt", "byol-digits", name="import")
        made["import"] = imported.folder
        tuned = {
            "fine-tuned recipe": made["recipe"],
            "fine-tuned import": made["import"],
            "fine-tuned random": "timm:resnet10_tiny",
            "fine-tuned init": "init:byol-digits",
        }
        for name, model in tuned.items():
            size = {"image_size": 16} if name.endswith("random") else {}
            output = home / name.replace(" ", "-")
            made[name], _ = finetuning.finetune(model, "digits", output=output, **QUICK, **size)
    return made


WITHOUT_LABELS = "Pre-trained without labels"
SAID = {  # what the card says, and what it does not
    "recipe": ([WITHOUT_LABELS, "ssl_hub train directpred-digits"], ["with labels", "Imported", "finetune"]),
    "import": (["Imported from plain"], [WITHOUT_LABELS, "ssl_hub train", "Fine-tuned", "self-supervised", "byol"]),
    "fine-tuned recipe": ([WITHOUT_LABELS, "Fine-tuned with labels of digits", "ssl-hub finetune recipe"], ["Import"]),
    "fine-tuned import": (
        ["Imported from plain", "Fine-tuned with"],
        [WITHOUT_LABELS, "ssl_hub train", "self-supervised"],
    ),
    "fine-tuned random": (
        ["Started from random", "Fine-tuned with labels"],
        [WITHOUT_LABELS, "ssl_hub train", "Imported"],
    ),
    "fine-tuned init": (
        ["Started from random", "Fine-tuned with labels"],
        [WITHOUT_LABELS, "ssl_hub train", "self-super"],
    ),
}


@pytest.mark.parametrize("origin", SAID)
def test_the_card_says_what_made_these_weights_and_no_word_of_what_did_not(origins, origin):
    folder, (said, unsaid) = origins[origin], SAID[origin]
    text = release_card(folder, "ann/model")
    assert all(words in text for words in said), text
    assert not [words for words in unsaid if words in text.replace("tags", "")], text
    data = ModelCard(text).data
    assert data.license == "unknown" and "no licence is stated" in text  # nobody has stated one
    assert ("self-supervised-learning" in data.tags) == (WITHOUT_LABELS in text)
    assert ("a classifier of those alone" in text) == origin.startswith("fine-tuned")
    assert ("with labels" in text.split("## How it was made")[0]) == origin.startswith("fine-tuned")


@pytest.mark.parametrize("origin", SAID)
def test_every_origin_has_its_steps_in_both_files(origins, origin):
    steps = {
        "recipe": ["started", "pretrained"],
        "import": ["imported"],
        "fine-tuned recipe": ["started", "pretrained", "started", "finetuned"],
        "fine-tuned import": ["imported", "started", "finetuned"],
        "fine-tuned random": ["started", "finetuned"],
        "fine-tuned init": ["started", "finetuned"],
    }
    assert [link["step"] for link in chain_of(origins[origin])] == steps[origin]


def test_timms_weights_keep_their_licence_through_fine_tuning(tmp_path, monkeypatch):
    named = ssl_hub.evaluate.subject.open_model("timm:resnet10_tiny", image_size=16)
    origin = {"kind": "timm", "name": "resnet10_tiny.theirs", "licence": "cc-by-nc-4.0"}
    monkeypatch.setattr(finetune_task, "open_model", lambda *_, **__: named._replace(origin=origin))
    folder, _ = finetuning.finetune(
        "timm:resnet10_tiny@theirs", "digits", output=tmp_path / "run", image_size=16, **QUICK
    )
    start, _ = chain_of(folder)
    assert start["name"] == "resnet10_tiny.theirs" and len(start["sha256"]) == 64
    text = release_card(folder)
    assert "Made from resnet10\\_tiny.theirs, which is under cc-by-nc-4.0" in text and "Non-commercial" in text
    assert ModelCard(text).data.license == "cc-by-nc-4.0"


def test_a_release_of_an_older_version_says_what_its_files_tell(origins, tmp_path):
    import shutil

    for name, wanted in (("recipe", ["pretrained"]), ("fine-tuned recipe", ["pretrained", "finetuned"])):
        folder = Path(shutil.copytree(origins[name], tmp_path / name))
        config = json.loads((folder / CONFIG).read_text())
        del config["ssl_hub"]["lineage"]
        found = lineage_of(config, read_recipe(folder), read_facts(folder))
        assert [link["step"] for link in found] == wanted
        (folder / CONFIG).write_text(json.dumps(config))
        text = release_card(folder)
        assert ("a classifier of those alone" in text) == (name != "recipe")
    imported = {"ssl_hub": {"imported_from": {"source": "lightly"}, "licence": "MIT"}}
    assert lineage_of(imported, get_recipe("byol-digits"), {}) == [
        {"step": "imported", "source": "lightly", "licence": "MIT"}
    ]


def test_a_name_that_only_the_training_machine_has_is_told_of_in_the_command(run):
    last = chain_of(run)[-1]
    for kind, told in (("run", True), ("file", True), ("timm", False), ("hub", False), ("random", False)):
        say(run, [{"step": "started", "kind": kind, "name": "theirs"}, last])
        assert ("In its command, `theirs` are the weights that it started from." in release_card(run)) == told


def test_the_base_model_is_the_repository_that_timm_takes_the_weights_from(run):
    last = chain_of(run)[-1]
    for name, repository in (
        ("resnet50.a1_in1k", "timm/resnet50.a1_in1k"),
        ("rdnet_base.nv_in1k", "naver-ai/rdnet_base.nv_in1k"),
        ("gcvit_base.in1k", None),  # which is at another address
        ("resnet50.no_such", None),
    ):
        say(run, [{"step": "started", "kind": "timm", "name": name}, last])
        assert ModelCard(release_card(run)).data.base_model == repository


def test_a_licence_is_handed_on_where_it_binds_and_data_are_named_once(origins):
    assert [inherited(name) for name in ("CC-BY-NC-4.0", "Apache-2.0", "mit", "unknown", "Their Own 1.0")] == [
        "CC-BY-NC-4.0", "unknown", "unknown", "unknown", "Their Own 1.0",
    ]  # fmt: skip
    text = release_card(origins["fine-tuned recipe"])
    assert text.count("Labelled data: digits") == 1 and "Heads, loaded by" in text
    assert "linear classifiers of labelled data on its frozen features" in release_card(origins["recipe"])
    assert "Evaluated at" not in release_card(origins["import"])


# Every sentence from a fact

RUN = {
    "seed": 1234, "steps": 5678, "images": 91011, "batch_size": {"total": 1213}, "processes": 1415,
    "learning_rate": {"factors": "factors-of-it"}, "precision": "bf16", "device": "a-device",
    "versions": {"torch": "9.9.9"}, "git_commit": "abcdef123456", "inventory": {"images": 161718},
}  # fmt: skip
LINKS = {
    "imported": {
        "source": "the-source", "file": "the-file", "sha256": "5ha256", "branch": "the-branch", "licence": "MIT-like",
        "method": "a-method", "classifier": "the-classes", "assumed": ["the-stem"],
        "code_licence": "GPL-like", "top_layer": "a-layer",
    },
    "started": {"kind": "a-kind", "name": "the-name", "licence": "MIT-like", "sha256": "5ha256", "normalised_by": "we"},
    "pretrained": {"recipe": {"name": "no-such-recipe", "data": {"name": "some-data"}}, "run": RUN},
    "finetuned": {"data": "the-data", "split": "the-split", "images": 1920, "classes": 2122, "command": ["x-do"]},
}  # fmt: skip
SHOWN = {"bf16": "Bf16", "161718": "161,718 images", "we": "stated by the we"}


def leaves(value, path=()):
    for key, item in value.items():
        if isinstance(item, dict):
            yield from leaves(item, (*path, key))
        else:
            yield (*path, key), item


@pytest.mark.parametrize(
    ("step", "path", "value"),
    [(step, path, value) for step, facts in LINKS.items() for path, value in leaves(facts)],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else str(value),
)
def test_a_sentence_is_there_with_its_fact_and_not_without_it(run, step, path, value):
    shown = str(value[-1] if isinstance(value, list) else value)
    if step == "pretrained" and path[0] == "run":
        shown = SHOWN.get(shown, shown)

    def card(facts):
        say(run, [{"step": step, **facts}])
        return release_card(run).split("## How it was made")[1].split("## Use it")[0].replace("\\", "")

    without = copy.deepcopy(LINKS[step])
    *way, last = path
    place = without
    for key in way:
        place = place[key]
    del place[last]
    with_it, without_it = card(LINKS[step]), card(without)
    assert re.search(rf"(?i)(?<!\w){re.escape(shown)}(?!\w)", with_it), with_it
    count = [len(re.findall(rf"(?i)(?<!\w){re.escape(shown)}(?!\w)", text)) for text in (with_it, without_it)]
    assert count[1] < count[0] and "None" not in without_it and "{}" not in without_it, without_it


# The command gives the recipe

WIDE = [
    {"data.range": "12", "data.train_split": "train[:50%]", "data.image_column": "x", "data.on_bad_image": "skip"},
    {"predictor.kind": "mlp"},
    {"predictor.kind": "mlp", "predictor.hidden_width": 64, "target.kind": "stopgrad"},
    {"loss.kind": "iso", "target.kind": "none"},
    {"views.view1.blur_sigma": [0.2, 1.0], "views.mean": [0.1, 0.2, 0.3], "views.size": 32},
    {"data.name": "photos of [v2]/a 'b'", "data.stream": True, "train.max_steps": 7, "train.seed": 9},
    {"data.name": "/home/ann/photos", "backbone.init": "/home/ann/weights.pt", "optim.clip_norm": 1.0},
    {"data.name": "ILSVRC/imagenet-1k", "data.label_column": "a label", "optim.predictor_weight_decay": 0.0},
]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((name, settings) for name in ("directpred-digits", "byol-digits", "simsiam-r50-100ep") for settings in WIDE),
        ("directpred-digits", {"predictor.eps": 0.02, "predictor.freq": 5, "predictor.rho": 0.5}),
    ],
)
def test_the_command_of_a_card_gives_the_runs_recipe_data_settings_included(monkeypatch, name, settings):
    recipe = as_modified(get_recipe(name, **settings))
    asked = {}
    monkeypatch.setattr("ssl_hub.train.loop.pretrain", lambda name, **given: asked.update(given, name=name))
    launch, words = shlex.split(command(recipe))[:4], shlex.split(command(recipe))[4:]
    assert launch == ["accelerate", "launch", "-m", "ssl_hub"]
    assert cli.main(words) == 0
    data = {} if asked["data"] is None else {"data.name": asked["data"]}
    given = as_modified(get_recipe(asked["name"], **asked["overrides"], **data))
    public = lambda text: text and text.rpartition("/home/ann/")[2]  # noqa: E731
    wanted = replace(
        recipe,
        summary=given.summary,
        data=replace(recipe.data, name=public(recipe.data.name)),
        backbone=replace(recipe.backbone, init=public(recipe.backbone.init)),
    )
    assert with_defaults(given) == with_defaults(wanted)
    assert "/home/ann" not in command(recipe)


def test_the_command_names_the_precision_and_a_recipe_of_nobodys_has_none():
    recipe = get_recipe("byol-digits")
    assert command(recipe, precision="bf16") == "accelerate launch --mixed_precision bf16 -m ssl_hub train byol-digits"
    assert command(recipe, precision="no") == "accelerate launch -m ssl_hub train byol-digits"
    assert command(replace(recipe, name="byol-mine")) is None
    assert command(replace(recipe, notes=("another",))) == "accelerate launch -m ssl_hub train byol-digits"


def test_the_command_of_a_fine_tuning_gives_its_settings(origins, monkeypatch):
    asked = {}
    monkeypatch.setattr(
        finetuning, "finetune", lambda *given, **options: (asked.update(options, given=given), (Path(), []))[1]
    )
    words = chain_of(origins["fine-tuned random"])[-1]["command"]
    assert cli.main(words[1:]) == 0
    assert asked["given"] == ("timm:resnet10_tiny", "digits")
    assert asked["overrides"] == parse_assignments(["epochs=1", "batch_size=64"]) and asked["image_size"] == 16


def test_no_path_of_somebodys_disk_is_in_what_is_published_of_a_chain(tmp_path):
    settings = {"data.name": "/home/ann/photos", "backbone.init": "/home/ann/weights.pt"}
    recipe = as_modified(get_recipe("byol-digits", **settings))
    assert "/home/ann" in recipe.summary
    assert "/home/ann" not in json.dumps(pretrained(recipe, {}))


@pytest.mark.parametrize("wrong", [{}, "x", [1], [{"no": "step"}]])
def test_a_chain_that_is_none_is_named(run, wrong):
    say(run, wrong)
    with pytest.raises(ssl_hub.UsageError, match="'lineage' is .*expected a list of objects with a 'step'"):
        release_card(run)
