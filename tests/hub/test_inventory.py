"""What is in the store, and what may be removed from it."""

import os
import shutil

import pytest

import ssl_hub
import ssl_hub.hub.verify
from ssl_hub.cli import main
from ssl_hub.errors import UsageError
from ssl_hub.hub import inventory
from ssl_hub.hub.store import home


@pytest.fixture
def stored(run, tmp_path, monkeypatch):
    """The run in the store and, as another release, in the package; an unfinished run and a foreign folder too."""
    home().mkdir(parents=True)
    bundled = tmp_path / "bundled"
    shutil.copytree(run, bundled / "tiny")
    monkeypatch.setattr(inventory, "BUNDLED", bundled)
    run.rename(home() / "mine")
    (home() / "started").mkdir()
    (home() / "started" / "recipe.json").write_text("{}")
    (home() / "notes").mkdir()
    return home() / "mine"


def test_what_is_here_with_its_size_and_results(stored):
    mine, started, tiny = inventory.list_releases()
    assert (mine.name, mine.place, mine.finished) == ("mine", "store", True)
    assert mine.size == sum(path.stat().st_size for path in stored.rglob("*") if path.is_file())
    assert [(result.metric, result.value) for result in mine.results] == [("top1", 90.8)]
    assert (started.name, started.finished) == ("started", False)
    assert (tiny.name, tiny.place) == ("tiny", "bundled")


RESULT = '[{"metric":"top1","value":1,"dataset":"d","split":"s","protocol":"p"%s}]'
DAMAGE = {
    "cut": b"{",
    "deep": b"[" * 100_000,
    "deep but whole": b"[" * 500 + b"]" * 500,
    "no text": b"\xff\xfe",
    "other": b"{}" * 1,
    "huge number": (RESULT % "").replace('"value":1', '"value":1e999').encode(),
    "date": (RESULT % ',"date":{}').encode(),
    "seed": (RESULT % ',"seed":[1]').encode(),
    "versions": (RESULT % ',"versions":3').encode(),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["results.json", "config.json", "recipe.json", "hashes.json", "model.safetensors"])
def test_a_damaged_release_is_listed_with_what_is_wrong_and_hides_no_other(stored, capsys, name, damage):
    (stored / name).write_bytes(DAMAGE[damage])
    mine, *others = inventory.list_releases()
    assert name in mine.problem and "\n" not in mine.problem and len(others) == 2
    assert main(["list"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 3 and name in shown[0] and shown[0].startswith("mine")
    if name == "results.json":  # which loading does not read
        return
    with pytest.raises(UsageError, match=name):
        ssl_hub.load("mine")
    assert main(["where", "mine"]) == 2
    assert name in capsys.readouterr().out
    with pytest.raises(UsageError, match=name):
        ssl_hub.hub.verify.verify("mine")


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_no_file_is_named_and_not_waited_for(stored, kind):
    (stored / "config.json").unlink()
    (stored / "config.json").mkdir() if kind == "folder" else os.mkfifo(stored / "config.json")
    with pytest.raises(UsageError, match=r"config\.json"):
        ssl_hub.load("mine")
    assert "mine" in {holding.name for holding in inventory.list_releases()}


def test_only_what_is_in_the_store_is_removed(stored, tmp_path):
    assert inventory.remove("mine").name == "mine" and not stored.exists()
    assert inventory.remove("started").name == "started"
    with pytest.raises(UsageError, match="'tiny' is bundled with the package"):
        inventory.remove("tiny")
    with pytest.raises(UsageError, match="nothing called 'mine' in the store"):
        inventory.remove("mine")
    with pytest.raises(UsageError, match="nothing called 'notes'"):
        inventory.remove("notes")
    assert (home() / "notes").exists() and (tmp_path / "bundled" / "tiny").exists()


@pytest.mark.parametrize("name", ["..", ".", "", "../outside", "mine/heads", "/", "~"])
def test_names_that_lead_out_of_the_store_remove_nothing(stored, name):
    shutil.copytree(stored, home().parent / "outside", dirs_exist_ok=True)
    with pytest.raises(UsageError, match="is no name in the store"):
        inventory.remove(name)
    assert stored.exists() and (home().parent / "outside" / "config.json").exists()


def test_of_a_link_the_link_alone_goes(stored, tmp_path):
    elsewhere = stored.rename(tmp_path / "elsewhere")
    (home() / "linked").symlink_to(elsewhere)
    inventory.remove("linked")
    assert not (home() / "linked").exists() and (elsewhere / "config.json").exists()
