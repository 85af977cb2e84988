"""Who may import whom: the layers of CONTRIBUTING.md, lazy imports counted."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import ssl_hub

ROOT = Path(ssl_hub.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

# Each layer may import itself and the layers named here.
BASE = {"errors", "processes", "stopping", "plugins", "registry", "atomic", "config", "codec", "limits"}
MODEL = BASE | {"model"}
DATA = MODEL | {"data"}
ZOO = DATA | {"zoo"}
TOP = ZOO | {"hub", "evaluate", "tables", "exporting", "train", "theory", "report"}
ALLOWED = {
    "errors": set(),
    "processes": set(),
    "stopping": set(),
    "plugins": {"errors"},
    "registry": {"errors", "plugins"},
    "atomic": {"errors"},
    "config": {"errors", "registry"},
    "limits": {"errors"},
    "codec": {"config", "errors", "limits", "registry"},
    "model": BASE,
    "data": MODEL,
    "zoo": DATA,
    "hub": ZOO | {"theory"},
    "evaluate": ZOO | {"hub"},
    "exporting": ZOO | {"hub", "evaluate"},
    "tables": ZOO | {"hub", "evaluate"},
    "train": ZOO | {"evaluate", "hub", "tables", "theory"},
    "report": ZOO | {"evaluate", "hub", "tables", "theory", "train"},
    "commands": TOP,
    "theory": {"errors", "atomic", "model"},
    "completion": {"codec", "tables", "zoo"},
    "cli": {"completion", "errors", "plugins", "processes", "stopping", "commands", "__version__"},
    "__init__": TOP | {"cli"},
    "__main__": {"cli"},
}
# Heavy or replaceable libraries have one home each.
HOMES = {
    "timm": {
        "model/backbones.py",
        "model/normalisation.py",
        "model/small_resnets.py",
        "model/stages.py",
        "train/mixing.py",
    },
    "accelerate": {"train", "evaluate"},
    "huggingface_hub": {"hub"},
    "matplotlib": {"theory", "hub", "evaluate", "tables"},
}


def imports(path: Path) -> Iterator[str]:
    """Full dotted names that a file imports, at its top or inside functions; not those for type checkers alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layer(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_down_the_layers(path):
    mine = layer(path)
    for name in imports(path):
        if name.startswith("ssl_hub."):
            other = name.split(".")[1]
            assert other == mine or other in ALLOWED[mine], f"{path.name} ({mine}) imports {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_libraries_stay_at_home(path):
    relative = str(path.relative_to(ROOT))
    for name in imports(path):
        homes = HOMES.get(name.split(".")[0])
        assert homes is None or any(relative == h or relative.startswith(f"{h}/") for h in homes), f"{relative}: {name}"


def test_theory_knows_only_the_spectrum():
    for path in (ROOT / "theory").glob("*.py"):
        for name in imports(path):
            if name.startswith("ssl_hub.model"):
                assert name.startswith("ssl_hub.model.spectrum"), f"{path.name} imports {name}"


def test_files_stay_readable():
    long = {str(p.relative_to(ROOT)): n for p in FILES if (n := len(p.read_text().splitlines())) > 400}
    assert long == {}


def test_launchers_use_public_names_only():
    for path in (ROOT.parent / "recipes").glob("*.py"):
        assert all(n.startswith("ssl_hub.cli.") or not n.startswith("ssl_hub") for n in imports(path)), path


def test_tests_of_different_folders_can_be_collected_together():
    for path in (ROOT.parent / "tests").rglob("*.py"):
        assert "from conf" + "test import" not in path.read_text(), (
            f"{path}: several folders have a module of that name"
        )
