"""The papers behind a recipe, as BibTeX."""

from __future__ import annotations

import re

from ssl_hub.config import Recipe

TIAN = """@inproceedings{tian2021understanding,
  title = {Understanding Self-Supervised Learning Dynamics without Contrastive Pairs},
  author = {Tian, Yuandong and Chen, Xinlei and Ganguli, Surya},
  booktitle = {International Conference on Machine Learning},
  year = {2021}
}"""
GRILL = """@inproceedings{grill2020bootstrap,
  title = {Bootstrap Your Own Latent: A New Approach to Self-Supervised Learning},
  author = {Grill, Jean-Bastien and Strub, Florian and Altch\\'e, Florent and Tallec, Corentin and others},
  booktitle = {Advances in Neural Information Processing Systems},
  year = {2020}
}"""
CHEN = """@inproceedings{chen2021exploring,
  title = {Exploring Simple Siamese Representation Learning},
  author = {Chen, Xinlei and He, Kaiming},
  booktitle = {IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  year = {2021}
}"""
WANG = """@article{wang2021towards,
  title = {Towards Demystifying Representation Learning with Non-contrastive Self-supervision},
  author = {Wang, Xiang and Chen, Xinlei and Du, Simon S. and Tian, Yuandong},
  journal = {arXiv preprint arXiv:2110.04947},
  year = {2021}
}"""
HALVAGAL = """@inproceedings{halvagal2023implicit,
  title = {Implicit variance regularization in non-contrastive {SSL}},
  author = {Halvagal, Manu Srinath and Laborieux, Axel and Zenke, Friedemann},
  booktitle = {Advances in Neural Information Processing Systems},
  year = {2023}
}"""

RICHEMOND = """@inproceedings{richemond2023edge,
  title = {The Edge of Orthogonality: A Simple View of What Makes {BYOL} Tick},
  author = {Richemond, Pierre H. and Tam, Allison and Tang, Yunhao and Strub, Florian and Piot, Bilal and Hill, Felix},
  booktitle = {International Conference on Machine Learning},
  year = {2023}
}"""
ZHUO = """@inproceedings{zhuo2023towards,
  title = {Towards a Unified Theoretical Understanding of Non-contrastive Learning via Rank Differential Mechanism},
  author = {Zhuo, Zhijian and Wang, Yifei and Ma, Jinwen and Wang, Yisen},
  booktitle = {International Conference on Learning Representations},
  year = {2023}
}"""


METHODS = {"byol": GRILL, "simsiam": CHEN}  # as importers name what a project trains


def in_words(entry: str) -> str:
    """A BibTeX entry as one line: who, what, when."""
    who, what, when = (re.search(rf"{key} = {{(.+)}}", entry) for key in ("author", "title", "year"))
    assert who and what and when, "every entry above has the three"
    authors = who[1].split(" and ")
    return f"{authors[0]}{' and others' if len(authors) > 1 else ''}: {re.sub('[{}]', '', what[1])} ({when[1]})"


def citations(recipe: Recipe) -> list[str]:
    """BibTeX of the paper whose recipes these are, and of the methods that this one is made of."""
    method = [TIAN]
    if recipe.target.kind == "ema":
        method.append(GRILL)
    if recipe.target.kind == "stopgrad":
        method.append(CHEN)
    if "alpha" in dict(recipe.predictor.options):
        method.append(WANG)
    if recipe.predictor.kind in ("newton_schulz", "stiefel"):
        method.append(RICHEMOND)
    if recipe.predictor.kind == "rank_filter":
        method.append(ZHUO)
    if recipe.loss.kind.startswith("iso"):
        method.append(HALVAGAL)
    return method
