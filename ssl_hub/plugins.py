"""Other packages that register things here: found by their entry points, or named by ``--import``.

A package says so in its pyproject.toml, and its module registers what it has when it is imported:

    [project.entry-points."ssl_hub"]
    my_methods = "my_package.methods"

They are imported when a name is first looked up in a registry: in a script, a command, a worker or a rank alike.
``--import MODULE`` of every command does the same for a module that no package offers; processes that a command starts
know it by ``$SSL_HUB_IMPORT``. ``SSL_HUB_PLUGINS=off`` leaves the packages out.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from ssl_hub.errors import UsageError

GROUP = "ssl_hub"
IMPORT, SWITCH = "SSL_HUB_IMPORT", "SSL_HUB_PLUGINS"  # environment variables
NAMED = f"--import, ${IMPORT}"
OURS = "ssl_hub"  # the owner of what comes with this package

_lock = threading.RLock()
_state = {"imported": False}


class Plugin(NamedTuple):
    module: str
    offered_by: str  # "NAME VERSION" of the package, or what named the module


def plugins() -> list[Plugin]:
    """Those that are there, imported or not."""
    named = [Plugin(module, NAMED) for module in os.environ.get(IMPORT, "").split(",") if module]
    return [*(Plugin(point.value, _package(point)) for point in _points()), *named]


def name_modules(modules: list[str]) -> None:
    """What ``--import`` does: have this process, and those that it starts, import these modules too."""
    before = [name for name in os.environ.get(IMPORT, "").split(",") if name]
    os.environ[IMPORT] = ",".join(dict.fromkeys([*before, *modules]))
    _state["imported"] = False


def import_all() -> None:
    """Import them, once. Raises UsageError that names the one that cannot be imported.

    Not while this package itself is being imported: what is looked up then is its own.
    """
    if _state["imported"] or any(_is_being_imported()):
        return
    with _lock:
        if _state["imported"]:
            return
        _state["imported"] = True  # what they look up themselves is there
        if os.environ.get(IMPORT) and os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())  # a file beside you is found, as by `python -m`
        try:
            for plugin in plugins():
                _import(plugin)
        except BaseException:
            _state["imported"] = False
            raise


def owner_of_caller() -> str:
    """The package on whose behalf something is registered: ``ssl_hub``, a plug-in's, or ``__main__``.

    A function of this package that registers things works for whoever has called it.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and _owner(frame) == OURS and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return _owner(frame)


def _owner(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "__main__")).partition(".")[0]


def _import(plugin: Plugin) -> None:
    name = plugin.module.partition(":")[0]
    if name.endswith(".py") or not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(
            f"plug-in {plugin.module} ({plugin.offered_by}) is no module; give the name that `import` takes, such as"
            f" my_package.methods, or {Path(name).stem or 'my_file'} for a file beside you"
        )
    try:
        importlib.import_module(name)
    except UsageError as error:
        raise UsageError(f"plug-in {plugin.module} ({plugin.offered_by}): {error}") from None
    except (Exception, SystemExit) as error:
        fix = "or leave it out" if plugin.offered_by == NAMED else f"or leave plug-ins out with {SWITCH}=off"
        raise UsageError(
            f"plug-in {plugin.module} ({plugin.offered_by}) cannot be imported ({type(error).__name__}: {error});"
            f" mend it, {fix}"
        ) from error


def _points() -> list[EntryPoint]:
    if os.environ.get(SWITCH) == "off":
        return []
    return sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value))


def _package(point: EntryPoint) -> str:
    return "an unknown package" if point.dist is None else f"{point.dist.name} {point.dist.version}"


def _is_being_imported() -> Iterator[bool]:
    for name, module in list(sys.modules.items()):
        if name == OURS or name.startswith(f"{OURS}."):
            yield getattr(getattr(module, "__spec__", None), "_initializing", False)
