"""ssl_hub: pretrained models and recipes for non-contrastive self-supervised learning (BYOL, SimSiam, DirectPred).

Public names are imported when first used, so that importing the package loads neither torch nor anything else heavy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ssl_hub.model.timm_entry import install as _add_to_timm

__version__ = "0.1.0"

_PUBLIC = {
    "embed": "ssl_hub.evaluate.embedding",
    "eval_transform": "ssl_hub.evaluate.subject",
    "export": "ssl_hub.exporting.export",
    "feature_maps": "ssl_hub.evaluate.feature_maps",
    "finetune": "ssl_hub.train.finetune",
    "get_recipe": "ssl_hub.zoo",
    "import_checkpoint": "ssl_hub.hub.importers.importing",
    "knn": "ssl_hub.evaluate.model",
    "linear_probe": "ssl_hub.evaluate.model",
    "list_recipes": "ssl_hub.zoo",
    "load": "ssl_hub.hub.store",
    "near_duplicates": "ssl_hub.evaluate.near_duplicates",
    "pretrain": "ssl_hub.train.loop",
    "push": "ssl_hub.hub.publish",
    "resume": "ssl_hub.train.resume",
    "Recipe": "ssl_hub.config",
    "Result": "ssl_hub.model.results",
    "similar": "ssl_hub.evaluate.embedding",
    "sweep": "ssl_hub.train.sweep",
    "UsageError": "ssl_hub.errors",
    "where": "ssl_hub.hub.store",
}

__all__ = [*sorted(_PUBLIC), "__version__"]

_add_to_timm()


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'ssl_hub' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])


if TYPE_CHECKING:
    from ssl_hub.config import Recipe as Recipe
    from ssl_hub.errors import UsageError as UsageError
    from ssl_hub.evaluate.embedding import embed as embed
    from ssl_hub.evaluate.embedding import similar as similar
    from ssl_hub.evaluate.feature_maps import feature_maps as feature_maps
    from ssl_hub.evaluate.model import knn as knn
    from ssl_hub.evaluate.model import linear_probe as linear_probe
    from ssl_hub.evaluate.near_duplicates import near_duplicates as near_duplicates
    from ssl_hub.evaluate.subject import eval_transform as eval_transform
    from ssl_hub.exporting.export import export as export
    from ssl_hub.hub.importers.importing import import_checkpoint as import_checkpoint
    from ssl_hub.hub.publish import push as push
    from ssl_hub.hub.store import load as load
    from ssl_hub.hub.store import where as where
    from ssl_hub.model.results import Result as Result
    from ssl_hub.train.finetune import finetune as finetune
    from ssl_hub.train.loop import pretrain as pretrain
    from ssl_hub.train.resume import resume as resume
    from ssl_hub.train.sweep import sweep as sweep
    from ssl_hub.zoo import get_recipe as get_recipe
    from ssl_hub.zoo import list_recipes as list_recipes
