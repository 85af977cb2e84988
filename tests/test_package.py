"""The package itself: light to import, everything public importable."""

import subprocess
import sys
from pathlib import Path

import pytest

import ssl_hub
from ssl_hub.processes import speaks


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    "statement", ["import ssl_hub", "import ssl_hub; ssl_hub.list_recipes()", "import ssl_hub.cli"]
)
def test_import_loads_nothing_heavy(statement):
    heavy = "torch", "timm", "numpy", "sklearn", "datasets", "accelerate", "huggingface_hub"
    assert run(f"import sys; {statement}; print([m for m in {heavy} if m in sys.modules])").strip() == "[]"


def test_releases_are_listed_without_torch():
    heavy = "torch", "timm", "PIL", "datasets", "accelerate", "huggingface_hub"
    code = f"import sys; from ssl_hub.cli import main; main(['list']); print([m for m in {heavy} if m in sys.modules])"
    *listed, loaded = run(code).splitlines()
    assert "directpred-digits" in listed[-1] and "linear-cached top1 90.60 %" in listed[-1] and loaded == "[]"


def test_no_public_name_is_hidden_by_a_subpackage():
    # Importing ssl_hub.train sets an attribute "train" on the package; a public function of that name would vanish.
    folder = Path(ssl_hub.__file__).parent
    modules = {path.stem for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert modules.isdisjoint(set(ssl_hub.__all__) - {"__version__"})


def test_public_names_exist_and_unknown_ones_do_not():
    for name in ssl_hub.__all__:
        assert getattr(ssl_hub, name) is not None
        assert name in dir(ssl_hub)
    with pytest.raises(AttributeError, match="has no attribute 'lode'"):
        _ = ssl_hub.lode


@pytest.mark.parametrize(
    ("rank", "world", "expected"),
    [
        (None, None, True),
        ("0", "2", True),
        ("1", "2", False),
        ("1", None, True),  # left over
        ("x", "2", True),  # nobody else would say what is wrong
        ("3", "2", True),
        ("0", "", True),
    ],
)
def test_one_process_speaks(monkeypatch, rank, world, expected):
    for name, value in (("RANK", rank), ("WORLD_SIZE", world)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert speaks() == expected
