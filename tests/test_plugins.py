"""Other packages' recipes and predictors: found in every process, named when they clash, and not needed to load."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import ssl_hub
from ssl_hub import plugins
from ssl_hub.cli import main
from ssl_hub.config import Part
from ssl_hub.errors import UsageError
from ssl_hub.model.predictors import PREDICTORS
from ssl_hub.model.release import write_recipe
from ssl_hub.registry import Registry
from ssl_hub.train import begun
from ssl_hub.train.sweep import SWEEP, planned
from ssl_hub.zoo import RECIPES

TEMPLATE = Path(__file__).parents[1] / "examples" / "plugin"
QUICK = [
    "train.max_steps=2", "train.batch_size=16", "runtime.knn_every_epochs=0", "data.pretrain_split=train[:64]",
    "data.train_split=train[:64]", "data.test_split=test[:32]",
]  # fmt: skip
COLOURS: Registry[int] = Registry("colour")
NEEDED = {"predictor diagonal": "ssl_hub_diagonal"}


@pytest.fixture
def unimported(monkeypatch):
    """As in a process that has looked nothing up yet."""
    monkeypatch.setitem(plugins._state, "imported", False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv(plugins.IMPORT, raising=False)


def offered(monkeypatch, *values):
    points = [EntryPoint(f"point-{value}", value, plugins.GROUP) for value in values]
    monkeypatch.setattr(plugins, "entry_points", lambda group: points)


def installed(folder):
    """What pip leaves of the template: the package and its metadata."""
    (folder / "ssl_hub_diagonal").symlink_to(TEMPLATE / "src" / "ssl_hub_diagonal")
    about = folder / "ssl_hub_diagonal-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: ssl-hub-diagonal\nVersion: 0.1.0\n")
    (about / "entry_points.txt").write_text("[ssl_hub]\ndiagonal = ssl_hub_diagonal\n")


def python(code, *words, cwd, path):
    paths = os.pathsep.join([str(path), str(Path(ssl_hub.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=cwd, text=True, capture_output=True,
        env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_installed_package_is_found_and_its_runs_load_without_it(tmp_path):
    site, run = tmp_path / "site", tmp_path / "run"
    site.mkdir()
    installed(site)
    code = f"""
import sys
from ssl_hub.cli import main
assert "torch" not in sys.modules
assert main(["plugins", "--json"]) == 0
assert main(["train", "byol-diagonal-digits", "--output", {str(run)!r}, *sys.argv[1:]]) == 0
"""
    found = json.loads(python(code, *QUICK, cwd=tmp_path, path=site))
    assert found == [
        {"module": "ssl_hub_diagonal", "offered_by": "ssl-hub-diagonal 0.1.0",
         "has": ["recipe byol-diagonal-digits", "predictor diagonal"]},
    ]  # fmt: skip
    about = json.loads((run / "config.json").read_text())["ssl_hub"]
    assert about["plugins"] == json.loads((run / "recipe.json").read_text())["run"]["plugins"] == NEEDED
    assert ssl_hub.load(run).num_features == 128
    missing = "predictor 'diagonal' is of the plug-in ssl_hub_diagonal, which is not here: install it, or name its"
    for call in (lambda: ssl_hub.resume(run), lambda: ssl_hub.knn(f"{run}@2", "digits")):
        with pytest.raises(UsageError, match=missing):
            call()


def test_what_was_begun_with_a_plugin_that_is_not_here_names_it(monkeypatch, tmp_path, capsys):
    mine = replace(ssl_hub.get_recipe("byol-digits"), name="mine", predictor=Part("diagonal"))
    with monkeypatch.context() as loaded:
        for registry, name, value in ((PREDICTORS, "diagonal", PREDICTORS["linear"]), (RECIPES, "mine", mine)):
            loaded.setitem(registry._entries, name, value)
            loaded.setitem(registry._owners, name, "ssl_hub_diagonal")
        axes = {"train.epochs": [1, 2]}
        plan, folder = planned("mine", axes, settings=None, data=None, out=tmp_path / "s", seeds=None)
    assert plan.plugins == {"recipe mine": "ssl_hub_diagonal", **NEEDED}
    begun.write(folder / SWEEP, plan)
    assert main(["sweep", "--out", str(folder)]) == 2
    said = "error: recipe 'mine' is of the plug-in ssl_hub_diagonal, which is not here: install it, or name its module"
    assert capsys.readouterr().err == f"{said} with --import\n"
    (tmp_path / "run").mkdir()
    write_recipe(tmp_path / "run", mine, {"plugins": NEEDED})
    with pytest.raises(UsageError, match="predictor 'diagonal' is of the plug-in ssl_hub_diagonal, which is not here"):
        ssl_hub.knn(f"init:{tmp_path / 'run'}", "digits")


def test_a_module_that_is_named_is_found_in_processes_that_are_started(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from ssl_hub.evaluate.protocols import *\nfrom ssl_hub.hub.importers.project import source\n"
        "PROTOCOLS.add('mine', Cached())\nsource('mylab', 'encoder', licence='MIT')(dict)\n"
    )
    child = "from ssl_hub.evaluate.protocols import PROTOCOLS; print('mine' in PROTOCOLS)"
    code = f"""
import subprocess, sys
from ssl_hub.cli import main
assert main(["plugins", "--import", "mine"]) == 0
print(subprocess.run([sys.executable, "-c", {child!r}], capture_output=True, text=True).stdout)
"""
    said = python(code, cwd=tmp_path, path=tmp_path / "elsewhere")
    assert said == "mine  (--import, $SSL_HUB_IMPORT)  protocol mine, source mylab\nTrue\n\n"


def test_a_clash_names_both(unimported, monkeypatch, tmp_path):
    (tmp_path / "one_of_two.py").write_text("from tests.test_plugins import COLOURS\nCOLOURS.add('red', 1)\n")
    (tmp_path / "two_of_two.py").write_text("from tests.test_plugins import COLOURS\nCOLOURS.add('red', 2)\n")
    sys.path.append(str(tmp_path))
    offered(monkeypatch, "one_of_two", "two_of_two")
    said = (
        r"plug-in two_of_two .*: colour 'red' of two_of_two is registered already, by one_of_two; choose another name"
    )
    with pytest.raises(UsageError, match=said):
        COLOURS["red"]
    monkeypatch.setenv(plugins.SWITCH, "off")
    assert COLOURS["red"] == 1 and COLOURS.owner("red") == "one_of_two" and plugins.plugins() == []


@pytest.mark.parametrize("value", ["not_there_at_all", "raises_at_once", "exits_at_once"])
def test_one_that_cannot_be_imported_is_one_line_and_not_forgotten(unimported, monkeypatch, tmp_path, capsys, value):
    once = "from tests.test_plugins import COLOURS\nCOLOURS.add('mauve', 3)\n"
    (tmp_path / "raises_at_once.py").write_text(f"{once}1 / 0\n")
    (tmp_path / "exits_at_once.py").write_text("import sys\nsys.exit(3)\n")
    sys.path.append(str(tmp_path))
    offered(monkeypatch, value)
    for _ in range(2):
        assert main(["recipes"]) == 2
        line = capsys.readouterr().err
        assert line.startswith(f"error: plug-in {value} (an unknown package) cannot be imported (")
        assert line.count("\n") == 1
        assert "leave plug-ins out with SSL_HUB_PLUGINS=off" in line


@pytest.mark.parametrize("module", ["./mine.py", "mine.py", "../mine", "my-methods"])
def test_a_path_is_no_module(unimported, monkeypatch, module, capsys):
    monkeypatch.setenv(plugins.IMPORT, module)
    with pytest.raises(UsageError, match="is no module; give the name that `import` takes"):
        COLOURS["red"]
    with pytest.raises(SystemExit):
        main(["recipes", "--import"])
    assert "--import takes the name of a module" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["--import a recipes --import=b", "recipes --import a --import=b"])
def test_import_stands_anywhere(monkeypatch, capsys, words):
    seen = []
    monkeypatch.setattr(plugins, "name_modules", seen.append)
    assert main(words.split()) == 0
    assert seen == [["a", "b"]] and "directpred-digits" in capsys.readouterr().out
