"""A table counts the releases of an owner on the Hub by the same rules, and fetches no weights for it."""

from __future__ import annotations

import json

import pytest

from ssl_hub.cli import main
from ssl_hub.errors import UsageError
from ssl_hub.hub.card import release_card
from ssl_hub.hub.store import home
from ssl_hub.model.release import write_recipe
from ssl_hub.model.results import Result, append_results
from ssl_hub.tables.report import report
from ssl_hub.zoo import get_recipe

RECIPE = "directpred-r18-cifar10-100ep"
LABELS = {"train_split": "train", "train_size": 50_000}


def files(folder, *, seed, split="test"):
    recipe = get_recipe(RECIPE, **{"train.seed": seed})
    folder.mkdir(parents=True, exist_ok=True)
    write_recipe(folder, recipe, {"images": 50_000})
    about = {"metric": "top1", "value": 85.0 + seed, "dataset": "uoft-cs/cifar10", "split": split}
    append_results(folder, [Result(**about, protocol="linear-authors-small", settings=LABELS)])
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def owner(hub, tmp_path):
    card = b"---\ntags: [ssl_hub]\n---\n"
    for seed in (0, 1):
        hub.add(
            f"ann/seed-{seed}", {"README.md": card, "model.safetensors": b"w", **files(tmp_path / f"{seed}", seed=seed)}
        )
    hub.add("ann/part", {"README.md": card, **files(tmp_path / "part", seed=2, split="test[:100]")})
    hub.add("ann/no-run", {"README.md": card})
    hub.add("ann/other", {"README.md": b"---\ntags: [else]\n---\n", **files(tmp_path / "other", seed=3)})
    hub.add("bob/seed-9", {"README.md": card, **files(tmp_path / "bob", seed=9)})
    return hub


def test_releases_of_an_owner_count_by_the_same_rules(owner, capsys):
    files(home() / "mine", seed=4)
    made = report("long-cifar10", owner="ann")
    (found,) = [entry for entry in made.entries if entry.cell.recipe == RECIPE and entry.runs]
    assert found.runs == ("hf-hub:ann/seed-0", "hf-hub:ann/seed-1", "mine")
    assert found.measured.mean == pytest.approx((85 + 86 + 89) / 3)
    assert made.not_counted == ("hf-hub:ann/part (linear-authors-small top1 87.00): on a part of a split (test[:100])",)
    assert not any("model.safetensors" in line for line in owner.log)
    assert main(["table", "long-cifar10", "--hub", "ann", "--format", "json"]) == 0
    assert "hf-hub:ann/seed-1" in json.dumps(json.loads(capsys.readouterr().out)["entries"])
    assert report("long-cifar10").not_counted == ()  # nobody is asked who is not named


def test_a_hub_that_cannot_be_asked_is_one_line(owner):
    owner.fail("GET /api/models", "status", times=10**6, code=403)
    with pytest.raises(UsageError, match="list the models of") as caught:
        report("long-cifar10", owner="ann")
    assert "\n" not in str(caught.value)


def test_every_card_carries_the_tag_that_releases_are_found_by(run):
    assert "- ssl_hub" in release_card(run).split("---")[1]


def test_one_release_that_cannot_be_had_hides_no_other(owner):
    owner.repos["ann/part"].gated = True
    made = report("long-cifar10", owner="ann")
    assert [entry.runs for entry in made.entries if entry.runs] == [("hf-hub:ann/seed-0", "hf-hub:ann/seed-1")]
    (line,) = made.not_counted
    assert line.startswith("hf-hub:ann/part: ") and "gated" in line


def test_a_release_without_measurements_is_listed(owner):
    recipe = owner.main("ann/seed-0")["recipe.json"]
    owner.add(
        "ann/unprobed", {"README.md": b"---\ntags: [ssl_hub]\n---\n", "recipe.json": recipe, "config.json": b"{}"}
    )
    assert "hf-hub:ann/unprobed (not probed): not probed" in report("long-cifar10", owner="ann").not_counted
