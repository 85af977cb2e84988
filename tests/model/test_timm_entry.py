"""The small-image ResNets are in timm whichever is imported first. (tests/hub/test_three_ways.py does it for real.)"""

import subprocess
import sys

import pytest

FAKE = """
import sys, types, importlib.util, importlib.machinery
made = []
class Loader:
    def create_module(self, spec): return None
    def exec_module(self, module): made.append("timm")
class Fake:
    def find_spec(self, name, path, target=None):
        return importlib.machinery.ModuleSpec(name, Loader()) if name == "timm" else None
sys.meta_path.insert(0, Fake())
import ssl_hub.model.timm_entry as entry
importlib.import_module, real = lambda name: made.append(name), importlib.import_module
"""


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("entry.install(); import timm", ["timm", "small_resnets"]),
        ("import timm; entry.install()", ["timm", "small_resnets"]),
        ("entry.install(); entry.install(); importlib.util.find_spec('timm'); import timm", ["timm", "small_resnets"]),
        ("entry.install(); import json", []),
    ],
)
def test_registered_once_after_timm_in_any_order(order, expected):
    code = FAKE.replace("import ssl_hub.model", "sys.modules['ssl_hub'] = types.ModuleType('ssl_hub')\n"
                        "sys.modules['ssl_hub'].__path__ = [ROOT]\nimport ssl_hub.model")  # fmt: skip
    import ssl_hub

    code = code.replace("ROOT", repr(ssl_hub.__path__[0])) + f"{order}\nprint(*[name.split('.')[-1] for name in made])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == expected
