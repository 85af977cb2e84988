"""Model cards: numbers from results.json alone, markup from nobody, and the cards of the repository current."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from ssl_hub.codec import parse_assignments
from ssl_hub.errors import UsageError
from ssl_hub.hub import card
from ssl_hub.hub.card_sections import command
from ssl_hub.model.files import CONFIG, RECIPE
from ssl_hub.zoo import RECIPES, get_recipe
from tests.hub.releases import make_release, measured, rewrite

CARDS = Path(__file__).parents[2] / "model_cards"
HOSTILE = "<script>alert(1)</script> | [x](javascript:y) ``` \n---\n# owned"


@pytest.mark.parametrize("name", RECIPES.names())
def test_the_card_of_every_recipe_is_current(name):
    path = CARDS / f"{name}.md"
    assert path.is_file(), "write it with `ssl-hub card --all --out model_cards`"
    assert path.read_text() == card.recipe_card(RECIPES[name]), "`ssl-hub card --all --out model_cards` writes it anew"


def test_no_card_is_of_a_recipe_that_is_gone():
    assert {path.stem for path in CARDS.glob("*.md")} - {"README"} == set(RECIPES.names())


def test_a_recipe_without_a_run_says_so_and_quotes_the_paper_as_the_paper():
    text = card.recipe_card(get_recipe("directpred-r50-300ep"))
    assert "**Not trained here.**" in text and "model-index" not in text
    before, after = text.split("Reported by the paper, not measured here:")
    assert "72.4" in after and "72.4" not in before


def test_every_result_is_in_the_index_once_with_its_protocol_and_split(run):
    measured(run, 88.5, settings={"k": 20})
    data = ModelCard(card.release_card(run, "ann/digits")).data
    found = {(r.metric_name, r.metric_value, r.dataset_type, r.dataset_split) for r in data.eval_results}
    assert found == {
        ("top1 accuracy (%), linear probe, cached", 90.8, "digits", "test"),
        ("top1 accuracy (%), k nearest neighbours", 88.5, "digits", "test"),
    }
    assert data.model_name == "digits" and data.license == "unknown" and data.library_name == "timm"
    assert data.eval_results[1].metric_args["k"] == 20


def test_without_results_the_card_says_so_and_its_metadata_is_valid(tmp_path):
    folder = tmp_path / "a name with spaces"
    folder.mkdir()
    make_release(folder)
    (folder / "results.json").unlink()
    text = card.release_card(folder)
    assert "Nothing was measured." in text and "OWNER/a-name-with-spaces" in text
    assert ModelCard(text).data.eval_results is None


def test_a_path_of_somebodys_disk_is_not_published(run):
    measured(run, dataset="/home/ann/photos")
    text = card.release_card(run)
    assert "/home/ann" not in text and "photos" in text


def test_a_part_of_a_split_is_no_number_of_the_card_and_the_reason_is_given(run):
    (run / "results.json").unlink()
    measured(run, 90.5, protocol="linear-cached", split="validation[:100]")
    measured(run, 64.25, protocol="linear-cached", split="validation", images=500, interval=(60.0, 68.3))
    measured(run, 99.75, protocol="linear-cached", split="train")
    text = card.release_card(run)
    assert [r.metric_value for r in ModelCard(text).data.eval_results] == [64.25]
    assert "64.25 (60.00 to 68.30)" in text and "90.5" not in text and "99.75" not in text
    said = "on a part of a split (validation\\[:100\\]), where all of validation was measured"
    assert f"- linear probe, cached, digits, top1: {said}" in text
    assert "- linear probe, cached, digits, top1: measured on the training split (train)" in text
    # A part alone is a number, under its own name.
    (run / "results.json").unlink()
    measured(run, 90.5, protocol="linear-cached", split="validation[:100]")
    assert [r.metric_value for r in ModelCard(card.release_card(run)).data.eval_results] == [90.5]


def test_what_float32_adds_to_a_number_is_not_shown(run):
    measured(run, 64.5999984741211, metric="top5", settings={"holdout_top1": 64.5999984741211})
    text = card.release_card(run)
    assert "64.59999" not in text and "holdout_top1: 64.6" in text and "value: 64.6\n" in text


def test_the_command_on_a_card_is_one_that_a_shell_reads_as_it_is_meant(run):
    recipe = get_recipe("directpred-digits", **{"views.mean": [0.1, 0.2, 0.3], "optim.name": "lars"})
    *_, optimiser, mean = shlex.split(command(recipe))
    assert get_recipe("directpred-digits", **parse_assignments([optimiser, mean])) == recipe


def test_cards_go_to_a_folder_or_it_is_said_why_not(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot make the folder .*file"):
        card.write_cards(tmp_path / "file")


def test_text_of_others_is_shown_and_does_nothing(run):
    config, recipe = (json.loads((run / name).read_text()) for name in (CONFIG, RECIPE))
    trained = recipe["recipe"] | {"summary": HOSTILE, "notes": [HOSTILE], "name": HOSTILE}
    trained["data"]["name"] = trained["backbone"]["init"] = HOSTILE
    of_run = {"batch_size": {"total": HOSTILE}, "versions": {HOSTILE: HOSTILE}, "device": HOSTILE}
    facts = ("source", "file", "sha256", "branch", "licence", "method", "classifier", "name", "kind", "data", "split")
    anything = {**dict.fromkeys(facts, HOSTILE), "assumed": [HOSTILE], "command": [HOSTILE]}
    chain = [{"step": step, **anything} for step in ("imported", "started", "finetuned", HOSTILE)]
    chain += [{"step": "pretrained", "recipe": trained, "run": of_run}]
    config["ssl_hub"] |= {"licence": HOSTILE}
    everywhere = dict.fromkeys(("metric", "dataset", "split", "protocol"), HOSTILE)
    measured(run, 1.0, **everywhere, settings={HOSTILE: HOSTILE})
    measured(run, 2.0, protocol="linear-cached", settings={"a": "</td>"})
    for links in (chain, chain[::-1], []):
        config["ssl_hub"]["lineage"] = links
        (run / CONFIG).write_text(json.dumps(config))
        text = card.release_card(run, "ann/digits")
        _, _, body = text.split("---\n", 2)
        prose = "".join(body.split("```")[::2])  # what is outside code blocks, of which there are no more than usual
        assert body.count("```") == (10 if links else 6)
        spans = "".join(prose.replace("\\`", "").split("`")[::2])
        assert "<" not in spans and not re.search(r"(?<!\\)\]\(", spans) and "\n# owned" not in text
        assert all(line.count("|") == line.count("\\|") or line.startswith("|") for line in spans.splitlines())


def test_licences_of_imported_weights_reach_the_card(run):
    for licence, known, forbids in (
        ("CC-BY-NC-4.0", "cc-by-nc-4.0", True), ("unknown", "unknown", False), ("My Own 1.0", "other", False),
        ("fair-noncommercial-research-license", "other", True), ("CC BY NC 4.0", "other", True),
        ("isc", "isc", False), ("ncsa", "other", False),
    ):  # fmt: skip
        rewrite(run / CONFIG, lambda config, licence=licence: config["ssl_hub"].update(licence=licence))
        text = card.release_card(run)
        assert ModelCard(text).data.license == known
        assert ("Non-commercial" in text) == forbids


def test_the_command_trains_this_very_recipe():
    recipe = get_recipe("byol-digits", **{"train.epochs": 3, "train.seed": 2, "predictor.hidden_width": 64})
    assert command(recipe) == (
        "accelerate launch -m ssl_hub train byol-digits predictor.hidden_width=64 train.epochs=3 train.seed=2"
    )
