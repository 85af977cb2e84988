"""What a model card says, section by section. Every text that is filled in goes through ``markdown``."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from huggingface_hub import ModelCardData

from ssl_hub.codec import to_dict
from ssl_hub.config import Recipe
from ssl_hub.data.inventory import in_words
from ssl_hub.hub.card_results import indexed
from ssl_hub.hub.citations import METHODS, citations
from ssl_hub.hub.markdown import code, plain_text, public_name, slug, table
from ssl_hub.hub.remote import PREFIX
from ssl_hub.hub.weights import OURS
from ssl_hub.model.results import Result
from ssl_hub.model.standing import Aside
from ssl_hub.zoo import RECIPES, departures

LICENCES = {
    "apache-2.0",
    "mit",
    "bsd-3-clause",
    "cc-by-4.0",
    "cc-by-sa-4.0",
    "cc-by-nc-4.0",
    "cc-by-nc-sa-4.0",
    "unknown",
}
DATA_TERMS = {
    "digits": "scikit-learn's copy of the UCI Optical Recognition of Handwritten Digits, CC BY 4.0",
    "ILSVRC/imagenet-1k": "ImageNet, ILSVRC 2012: for non-commercial research and education, on terms to be accepted",
    "jxie/stl10": "STL-10, whose images are ImageNet's and come on its terms",
    "uoft-cs/cifar10": "CIFAR-10, published without a licence",
}


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What a card is about."""

    name: str
    recipe: Recipe | None
    architecture: str
    image_size: int
    repository: str = "OWNER/NAME"
    load_name: str
    trained: bool = True
    collapsed: bool = False
    imported: Mapping[str, Any] | None = None  # source, file, sha256, branch
    started: Mapping[str, Any] | None = None  # kind, name, licence, sha256: of the weights that training started from
    licence: str = OURS
    classifies: bool = False
    heads: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)  # of the run
    results: tuple[Result, ...] = ()
    aside: tuple[Aside, ...] = ()  # measured too, and no number of the card
    pictures: tuple[str, ...] = ()

    @property
    def method(self) -> str:
        """What trained imported weights, as far as their source implies it."""
        return str(_mapping(self.imported).get("method", ""))


def metadata(subject: Subject) -> str:
    """The YAML block that the Hub reads, with the model index of what was measured."""
    licence = subject.licence.lower()
    known = licence in LICENCES
    trained_here = subject.recipe if subject.imported is None else None
    data = trained_here.data.name if trained_here else ""
    method = trained_here.name.split("-")[0] if trained_here else subject.method
    block = ModelCardData(
        license=licence if known else "other",
        license_name=None if known else slug(licence),
        library_name="timm",
        pipeline_tag="image-classification" if subject.classifies else "image-feature-extraction",
        tags=["ssl_hub", "timm", *(["self-supervised-learning", slug(method)] if method else [])],
        base_model=_base_model(subject.started),
        datasets=[data] if re.fullmatch(r"[\w-]+/[\w.-]+", data) else None,
        model_name=subject.name if subject.results else None,
        eval_results=[indexed(result) for result in subject.results] or None,
    )
    return f"---\n{block.to_yaml()}\n---\n"


def _base_model(started: Mapping[str, Any] | None) -> str | None:
    """The repository of the Hub that training started from, where it was one."""
    kind, name = (str(_mapping(started).get(key, "")) for key in ("kind", "name"))
    repository = {"hub": name.removeprefix(PREFIX).split("@")[0], "timm": f"timm/{name}"}.get(kind, "")
    return repository if re.fullmatch(r"[\w-]+/[\w.-]+", repository) else None


def sentence(subject: Subject) -> str:
    what = "" if subject.recipe is None else plain_text(subject.recipe.summary) + ". "
    return (
        f"{what}A `{code(subject.architecture)}` backbone for images of {subject.image_size} pixels, in timm's names."
    )


def status(subject: Subject) -> str:
    if not subject.trained:
        return (
            "**Not trained here.** No weights of this recipe are published with ssl_hub; this card says what it is and"
            " what its paper reports."
        )
    if subject.collapsed:
        return (
            "**Collapsed.** The features had collapsed when training ended: they are close to a constant and no useful"
            " representation. Published on purpose, as an example of it."
        )
    return ""


def origin(subject: Subject) -> str:
    recipe, facts = subject.recipe, subject.facts
    if subject.imported is not None:
        items = ", ".join(f"{key} `{code(str(value))}`" for key, value in sorted(subject.imported.items()))
        filed = f" Filed under the recipe `{code(recipe.name)}`, which did not train it." if recipe else ""
        known = f"the method is {plain_text(subject.method)}, the rest is not" if subject.method else "nothing is"
        return (
            f"A `{code(subject.architecture)}` imported, not trained with ssl_hub: {items}. Of its training, {known}"
            f" known to ssl_hub.{filed}"
        )
    if recipe is None:
        return "No recipe is recorded."
    lines = [_start(subject.started)] if subject.started is not None else []
    lines += [f"Recipe `{code(recipe.name)}`:\n\n```bash\n{command(recipe)}\n```"]
    batch = facts.get("batch_size")
    if isinstance(batch, Mapping):
        precision = {"no": "float32"}.get(str(facts.get("precision")), facts.get("precision"))
        stated = (
            f"Seed {facts.get('seed')}, {facts.get('steps')} steps on {facts.get('images')} images, batch"
            f" {batch.get('total')} over {facts.get('processes')} process(es), learning rate"
            f" {_mapping(facts.get('learning_rate')).get('factors')}, {precision} on {facts.get('device')}"
        )
        installed = {k: v for k, v in sorted(_mapping(facts.get("versions")).items()) if v != "not installed"}
        versions = ", ".join(f"{package} {version}" for package, version in installed.items())
        commit = f", commit {str(facts['git_commit'])[:12]}" if facts.get("git_commit") else ""
        lines.append(f"{plain_text(stated)}. {plain_text(versions + commit)}.")
    return "\n\n".join(lines)


def _start(started: Mapping[str, Any]) -> str:
    """What training started from, and what that had come from, as far as it was recorded."""
    parts = []
    link: Mapping[str, Any] = started
    while link:
        name, licence = code(str(link.get("name") or link.get("file"))), plain_text(str(link.get("licence", "unknown")))
        kind = plain_text(str(link.get("kind") or f"import from {link.get('source')}"))
        parts.append(f"`{name}` ({kind}; licence {licence}; sha256 `{code(str(link.get('sha256', '')))}`)")
        link = _mapping(link.get("imported_from") or link.get("initialised_from"))
    how = "; that one, in turn, from ".join(parts)
    return f"Started from the weights of {how}, then pre-trained on the data named below."


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def command(recipe: Recipe) -> str:
    """The command that trains exactly this recipe."""
    registered = next((RECIPES[name] for name in RECIPES.names() if name == recipe.name), recipe)
    changed = {key: new for key, (_, new) in departures(recipe).items()}
    if recipe.train.seed != registered.train.seed:
        changed["train.seed"] = recipe.train.seed
    words = [] if recipe.data.name == registered.data.name else ["--data", public_name(recipe.data.name)]
    words += [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in changed.items()]
    return code(" ".join([recipe.command, *map(shlex.quote, words)]))


def settings(subject: Subject) -> str:
    if subject.recipe is None or subject.imported is not None:
        return ""
    recipe = subject.recipe
    parts = {name: to_dict(getattr(recipe, name)) for name in ("predictor", "target", "loss", "projector", "optim")}
    parts["train"] = {key: value for key, value in to_dict(recipe.train).items() if value is not None}
    rows = [(name, ", ".join(f"{k}={v}" for k, v in part.items() if v is not None)) for name, part in parts.items()]
    notes = "\n".join(f"- {plain_text(note)}" for note in recipe.notes)
    return table(("part", "settings"), rows) + (f"\n\nDepartures and choices:\n\n{notes}" if notes else "")


def licence(subject: Subject) -> str:
    weights = f"Weights: {plain_text(subject.licence)}."
    if not subject.trained:
        weights = ""
    elif "-nc" in subject.licence.lower():
        weights += " **Non-commercial: the licence of the source forbids commercial use.**"
    elif subject.licence.lower() == "unknown":
        weights += " The source states none; ask its authors before using them."
    if subject.imported is not None:
        return f"Pre-training data: not known to ssl_hub; see the source. {weights}"
    if subject.recipe is None:
        return weights
    data = subject.recipe.data.name
    terms = DATA_TERMS.get(data, "its terms are those of whoever provides it, and apply to what is learnt from it too")
    found = in_words(subject.facts.get("inventory"))
    parts = [f"Pre-training data: {plain_text(public_name(data))} ({terms}){found and f', {found}'}."]
    if subject.recipe.data.range != "auto":
        parts.append(
            f"Images of more than 8 bits were read with data.range={plain_text(subject.recipe.data.range)}, as "
            "ssl_hub.eval_transform reads them; timm and transformers take images of 8 bits."
        )
    return " ".join([*parts, weights]).strip()


def limits(subject: Subject) -> str:
    start = f"Pre-trained without labels at {subject.image_size} pixels"
    if subject.started is not None:
        start = f"Pre-trained without labels at {subject.image_size} pixels, from weights that may have seen some"
    if subject.imported is not None:
        start = f"Evaluated at {subject.image_size} pixels, whatever it was trained at"
    return (
        f"{start}: features of images unlike its data, or of another size, were not measured. Only what stands under"
        " Results was. Biases of the data are in the features."
    )


def citation(subject: Subject) -> str:
    if subject.imported is None:
        entries = citations(subject.recipe) if subject.recipe else []
    else:
        entries = [METHODS[subject.method]] if subject.method in METHODS else []
    if not entries:
        return "Cite the work that the weights come from."
    return "```bibtex\n" + "\n\n".join(entries) + "\n```"
