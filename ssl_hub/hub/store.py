"""Where releases live on this machine, and how a name becomes a model."""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from ssl_hub.errors import UsageError
from ssl_hub.registry import suggest
from ssl_hub.zoo import RECIPES

if TYPE_CHECKING:
    from torch import nn

    from ssl_hub.model.release import Branch

CONFIG = "config.json"


def home() -> Path:
    """The store: ``$SSL_HUB_HOME``, else ``ssl_hub`` in the user's cache (``$XDG_CACHE_HOME``, else ``~/.cache``)."""
    if chosen := os.environ.get("SSL_HUB_HOME"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "ssl_hub"


def releases() -> list[str]:
    """Names of the releases in the store."""
    return sorted(path.parent.name for path in home().glob(f"*/{CONFIG}"))


def run_folder(name: str | Path) -> Path:
    """The folder of a run, finished or not: an existing folder, else one of that name in the store."""
    folder = Path(name).expanduser()
    for candidate in (folder, home() / str(name)):
        if (candidate / "recipe.json").is_file():
            return candidate
    raise UsageError(f"no run at {str(name)!r}, and none of that name in the store {home()}")


def resolve(name: str | Path) -> Path:
    """The folder of a release: an existing folder, else one of that name in the store.

    Raises UsageError that says what was looked for and how to get it.
    """
    text = str(name)
    folder = Path(text).expanduser()
    if folder.is_dir():
        if not (folder / CONFIG).is_file():
            raise UsageError(f"{folder} has no {CONFIG}: no release; is the run still training, or the path wrong?")
        return folder
    if text.startswith((".", "/", "~")) or folder.exists():
        raise UsageError(f"no release folder at {text!r}")
    if not re.fullmatch(r"[\w.-]+", text):
        raise UsageError(f"no folder {text!r}, and it is no release name: those have letters, digits, '.', '_' and '-'")
    stored = home() / text
    if (stored / CONFIG).is_file():
        return stored
    here = ", ".join(releases()) or "none"
    if text in RECIPES:
        unfinished = " (a run of it was started there and is not finished)" if stored.is_dir() else ""
        raise UsageError(
            f"no release {text!r} in the store {home()}{unfinished}; it is a recipe: train it with"
            f" `{RECIPES[text].command}`, or choose one that is there: {here}"
        )
    raise UsageError(f"no release {text!r} in the store {home()}{suggest(text, [*releases(), *RECIPES.names()])}")


def load(
    name_or_path: str | Path, *, head: str | None = None, num_classes: int | None = None, which: Branch = "online"
) -> nn.Module:
    """A trained backbone as a timm model in eval mode.

    Args:
        name_or_path: a run or release folder, or a name in the store.
        head: a dataset whose probe head the release carries, for a classifier [B, 3, H, W] -> [B, K]; its class names
            are ``model.label_names``.
        num_classes: a fresh, untrained classifier of that many classes, for fine-tuning. Without either the model gives
            pooled features [B, C].
        which: the ``online`` backbone or, for methods that have one, the ``target``'s.

    Raises:
        UsageError: no such release (naming the nearest and the command that trains it), no such head, a head of another
            width, both ``head`` and ``num_classes``, or damaged files.
    """
    if head is not None and num_classes is not None:
        raise UsageError("head loads a trained classifier and num_classes makes a fresh one; give one of them")
    if num_classes is not None and num_classes < 1:
        raise UsageError(f"num_classes is {num_classes}, expected at least 1; leave it out for features")
    folder = resolve(name_or_path)
    from ssl_hub.model.probe_head import ProbeHead
    from ssl_hub.model.release import attach_classifier, load_backbone

    if head is None:
        if num_classes is not None:
            warnings.warn(f"the classifier of {num_classes} classes is new and untrained; fine-tune it", stacklevel=2)
        return load_backbone(folder, num_classes=num_classes or 0, which=which)
    fitted = ProbeHead.load(folder, head)
    model = load_backbone(folder, num_classes=len(fitted.classes), which=which)
    attach_classifier(model, fitted.weight, fitted.bias, fitted.classes)
    return model
