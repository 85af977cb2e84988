"""The commands: what they print, and what they refuse."""

import json

import pytest

from ssl_hub.cli import main
from ssl_hub.errors import UsageError
from ssl_hub.hub.store import home


@pytest.fixture
def stored(run):
    home().mkdir(parents=True)
    return run.rename(home() / "mine")


def test_where_marks_what_is_used(stored, capsys):
    assert main(["where", "mine"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:2] for line in lines] == ["  ", "->", "  ", "  "]
    assert lines[1].split()[1] == "store" and "not asked: $SSL_HUB_ORG" in lines[3]
    assert main(["where", "yours"]) == 2
    assert "'yours' is in none of these places" in capsys.readouterr().err


def test_list_verify_and_remove(stored, capsys):
    assert main(["list"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("mine"))
    assert "store" in line and "3.0 MB" in line and "linear-cached top1 90.80 % on digits" in line
    assert main(["list", "--json"]) == 0
    assert "mine" in {holding["name"] for holding in json.loads(capsys.readouterr().out)}
    assert main(["verify", "mine"]) == 0
    assert "7 files, as they were written" in capsys.readouterr().out
    assert main(["remove", "mine"]) == 2  # nobody can be asked
    assert "give --yes" in capsys.readouterr().err and stored.exists()
    assert main(["remove", "mine", "--yes"]) == 0
    assert not stored.exists()


@pytest.mark.parametrize(("answer", "kept"), [("y", False), ("", True), ("no", True)])
def test_remove_asks(stored, monkeypatch, answer, kept):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda question: answer)
    assert main(["remove", "mine"]) == 0
    assert stored.exists() == kept


@pytest.mark.filterwarnings("ignore:Use 'content=<...>' to upload:DeprecationWarning")  # the client's own
def test_push_dry_and_real(hub, stored, capsys):
    assert main(["push", "mine", "ann/digits", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "  1.3 MB  model.safetensors" in shown and "# digits" in shown and hub.log == []
    assert shown.endswith("every check passed; nothing was sent to ann/digits (--dry-run)\n")
    assert main(["push", "mine", "ann/digits"]) == 0
    assert "published and loaded back: ann/digits at " in capsys.readouterr().out
    assert main(["push", "mine", "ann/digits"]) == 0
    assert "unchanged: already there" in capsys.readouterr().out


def test_every_option_of_push_reaches_it(monkeypatch, capsys):
    given = {}

    def push(run, repository, **options):
        given.update(options)
        raise UsageError("that is enough")

    monkeypatch.setattr("ssl_hub.hub.publish.push", push)
    options = ["--private", "--revision", "v1", "--dry-run", "--allow-collapsed", "--licence", "mit"]
    assert main(["push", "mine", "ann/digits", *options]) == 2
    assert capsys.readouterr().err == "error: that is enough\n"
    flags = dict.fromkeys(("private", "dry_run", "allow_collapsed"), True)
    assert given == {**flags, "revision": "v1", "licence": "mit"}


def test_card_of_a_run_of_a_recipe_and_of_all(stored, tmp_path, capsys):
    assert main(["card", "mine"]) == 0
    assert "90.80" in capsys.readouterr().out
    assert main(["card", "byol-r50-60ep", "--out", str(tmp_path / "card.md")]) == 0
    assert "Not trained here" in (tmp_path / "card.md").read_text()
    assert capsys.readouterr() == (f"{tmp_path / 'card.md'}\n", "")
    stored.rename(stored.with_name("byol-r50-60ep-train.epochs-5"))
    assert main(["card", "byol-r50-60ep", "--out", str(tmp_path / "missing" / "card.md")]) == 2
    assert "the store has runs of it too: byol-r50-60ep-train.epochs-5" in (said := capsys.readouterr().err)
    assert f"cannot write {tmp_path / 'missing' / 'card.md'}: No such file or directory" in said
    for arguments in ([], ["--all"], ["mine", "--all", "--out", "x"]):
        assert main(["card", *arguments]) == 2
