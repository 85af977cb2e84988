"""ssl_hub: pretrained models and recipes for non-contrastive self-supervised learning (BYOL, SimSiam, DirectPred).

Public names are imported when first used, so that importing the package loads neither torch nor anything else heavy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC = {
    "Recipe": "ssl_hub.config",
    "Result": "ssl_hub.model.results",
    "UsageError": "ssl_hub.errors",
    "eval_transform": "ssl_hub.evaluate.model",
    "get_recipe": "ssl_hub.zoo",
    "knn": "ssl_hub.evaluate.model",
    "linear_probe": "ssl_hub.evaluate.model",
    "list_recipes": "ssl_hub.zoo",
    "load": "ssl_hub.hub.store",
    "pretrain": "ssl_hub.train.loop",
}

__all__ = [*sorted(_PUBLIC), "__version__"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'ssl_hub' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])


if TYPE_CHECKING:
    from ssl_hub.config import Recipe as Recipe
    from ssl_hub.errors import UsageError as UsageError
    from ssl_hub.evaluate.model import eval_transform as eval_transform
    from ssl_hub.evaluate.model import knn as knn
    from ssl_hub.evaluate.model import linear_probe as linear_probe
    from ssl_hub.hub.store import load as load
    from ssl_hub.model.results import Result as Result
    from ssl_hub.train.loop import pretrain as pretrain
    from ssl_hub.zoo import get_recipe as get_recipe
    from ssl_hub.zoo import list_recipes as list_recipes
