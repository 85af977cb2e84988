"""What is in the store, and what may be removed from it."""

import shutil

import pytest

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


def test_a_damaged_release_is_listed_with_what_is_wrong(stored):
    (stored / "results.json").write_text("{")
    mine, *others = inventory.list_releases()
    assert "results.json must hold JSON" in mine.problem and len(others) == 2


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
def test_names_that_lead_out_of_the_store_remove_nothing(stored, tmp_path, name):
    shutil.copytree(stored, home().parent / "outside")
    with pytest.raises(UsageError, match="is no name in the store"):
        inventory.remove(name)
    assert stored.exists() and (home().parent / "outside" / "config.json").exists()


def test_of_a_link_the_link_alone_goes(stored, tmp_path):
    elsewhere = stored.rename(tmp_path / "elsewhere")
    (home() / "linked").symlink_to(elsewhere)
    inventory.remove("linked")
    assert not (home() / "linked").exists() and (elsewhere / "config.json").exists()
