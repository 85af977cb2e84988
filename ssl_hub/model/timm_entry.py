"""The small-image ResNets in timm, whichever of ``timm`` and ``ssl_hub`` is imported first; importing this is cheap."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

BACKBONES = "ssl_hub.model.small_resnets"  # registers them when it is imported


class _AfterTimm(MetaPathFinder):
    """Finds timm as the other finders do, and imports the backbones once it has been imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "timm":
            return None
        others = (finder.find_spec(fullname, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((found for found in others if found is not None), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                if (
                    self in sys.meta_path
                ):  # finding timm, as many do to see whether it is installed, is not importing it
                    sys.meta_path.remove(self)
                importlib.import_module(BACKBONES)

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


def install() -> None:
    """Register the backbones now if timm is there already, else when it is imported. Installing twice does nothing."""
    if "timm" in sys.modules:
        importlib.import_module(BACKBONES)
    elif not any(isinstance(finder, _AfterTimm) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterTimm())
