"""What a model card says, section by section. Every text that is filled in goes through ``markdown``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from huggingface_hub import ModelCardData

from ssl_hub.codec import flat, to_dict
from ssl_hub.config import Recipe
from ssl_hub.hub.card_command import command
from ssl_hub.hub.card_lineage import Story, source_name
from ssl_hub.hub.card_results import indexed
from ssl_hub.hub.citations import citations
from ssl_hub.hub.markdown import code, plain_text, public_name, slug, table
from ssl_hub.model.lineage import UNKNOWN, licences
from ssl_hub.model.results import Result
from ssl_hub.model.standing import Aside

LICENCES = {"apache-2.0", "mit", "bsd-3-clause", UNKNOWN}
LICENCES |= {"cc-by-4.0", "cc-by-sa-4.0", "cc-by-nc-4.0", "cc-by-nc-sa-4.0"}
LICENCES |= {"cc-by-nd-4.0", "cc-by-nc-nd-4.0", "cc0-1.0", "bsd", "bsd-2-clause", "isc", "unlicense", "mpl-2.0"}
LICENCES |= {"gpl-3.0", "agpl-3.0", "lgpl-3.0", "openrail", "apple-ascl", "apple-amlr", "gemma"}
DATA_TERMS = {
    "digits": "scikit-learn's copy of the UCI Optical Recognition of Handwritten Digits, CC BY 4.0",
    "ILSVRC/imagenet-1k": "ImageNet, ILSVRC 2012: for non-commercial research and education, on terms to be accepted",
    "jxie/stl10": "STL-10, whose images are ImageNet's and come on its terms",
    "uoft-cs/cifar10": "CIFAR-10, published without a licence",
}
NON_COMMERCIAL = re.compile(r"\bnc\b|non.?commercial", re.IGNORECASE)
REPOSITORY = r"[\w-]+/[\w.-]+"
PARTS = ("backbone", "predictor", "target", "loss", "projector", "views", "data", "optim", "train")


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What a card is about."""

    name: str
    recipe: Recipe | None = None  # of a card of a recipe that nobody has trained
    architecture: str
    image_size: int
    repository: str = "OWNER/NAME"
    load_name: str
    trained: bool = True
    collapsed: bool = False
    story: Story = field(default_factory=lambda: Story(()))  # how its weights came to be
    licence: str = UNKNOWN  # as stated by whoever publishes it, or that of what it was made from
    classifies: bool = False
    heads: tuple[str, ...] = ()
    image: Mapping[str, Any] = field(default_factory=dict)  # how images come in: mean, std
    results: tuple[Result, ...] = ()
    aside: tuple[Aside, ...] = ()  # measured too, and no number of the card
    pictures: tuple[str, ...] = ()


def metadata(subject: Subject) -> str:
    """The YAML block that the Hub reads, with the model index of what was measured."""
    story, licence = subject.story, subject.licence.lower()
    known = licence in LICENCES
    methods = [subject.recipe.name.split("-")[0]] if subject.recipe else story.methods
    data = [subject.recipe.data.name] if subject.recipe else story.data
    listed = [name for name in data if re.fullmatch(REPOSITORY, name)]
    block = ModelCardData(
        license=(licence if known else "other") if subject.trained else None,
        license_name=None if known or not subject.trained else slug(licence),
        library_name="timm",
        pipeline_tag="image-classification" if subject.classifies else "image-feature-extraction",
        tags=["ssl_hub", "timm", *(["self-supervised-learning", *map(slug, methods)] if methods else [])],
        base_model=story.base_model if re.fullmatch(REPOSITORY, story.base_model) else None,
        datasets=listed or None,
        model_name=subject.name if subject.results else None,
        eval_results=[indexed(result) for result in subject.results] or None,
    )
    return f"---\n{block.to_yaml()}\n---\n"


def sentence(subject: Subject) -> str:
    """What it is, by the step that made it."""
    story, what = subject.story, ""
    if subject.recipe is not None:
        what = plain_text(subject.recipe.summary) + ". "
    elif story.last == "pretrained" and story.recipes:
        what = plain_text(story.recipes[-1].summary) + ". "
    elif story.last == "finetuned":
        data = f" of {plain_text(story.data[-1])}" if story.data else ""
        what = f"A classifier, fine-tuned with labels{data}. "
    elif story.last == "imported" and (source := story.chain[-1].get("source")):
        what = f"Imported from {source_name(str(source))}, not trained with ssl_hub. "
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
    if subject.recipe is not None:
        return f"Recipe `{code(subject.recipe.name)}`:\n\n```bash\n{command(subject.recipe)}\n```"
    return subject.story.in_words()


def settings(subject: Subject) -> str:
    """All of the recipe that made the weights, where it was one that did."""
    recipe = subject.recipe
    if recipe is None and subject.story.last == "pretrained" and subject.story.recipes:
        recipe = subject.story.recipes[-1]
    images = ", ".join(f"{key}={subject.image[key]}" for key in ("mean", "std") if subject.image.get(key))
    if recipe is None:
        return f"Images come in with {plain_text(images)}." if images else ""
    parts = {name: flat(to_dict(getattr(recipe, name))) for name in PARTS}
    rows = [(name, ", ".join(f"{k}={v}" for k, v in part.items() if v is not None)) for name, part in parts.items()]
    notes = "\n".join(f"- {plain_text(note)}" for note in recipe.notes)
    return table(("part", "settings"), rows) + (f"\n\nDepartures and choices:\n\n{notes}" if notes else "")


def licence(subject: Subject) -> str:
    story, parts = subject.story, []
    trained_on = [subject.recipe] if subject.recipe else story.recipes
    for recipe in trained_on:
        parts.append(f"Pre-training data: {_with_terms(recipe.data.name)}.")
        if recipe.data.range != "auto":
            parts.append(
                f"Images of more than 8 bits were read with data.range={plain_text(recipe.data.range)}, as "
                "ssl_hub.eval_transform reads them; timm and transformers take images of 8 bits."
            )
    parts += [f"Labelled data: {_with_terms(str(link['data']))}." for link in story.of("finetuned") if link.get("data")]
    if story.of("imported"):
        parts.append("What the imported weights were trained on is not known to ssl_hub; see their source.")
    parts = [*dict.fromkeys(parts)]
    if not subject.trained:
        return " ".join(parts)
    if subject.licence.lower() == UNKNOWN:
        parts.append("Weights: no licence is stated; ask whoever published them before using them.")
    else:
        parts.append(f"Weights: {plain_text(subject.licence)}.")
    under = dict.fromkeys(licences(story.chain))
    parts += [f"Made from {plain_text(name)}, which is under {plain_text(its)}." for name, its in under]
    if any(NON_COMMERCIAL.search(its) for its in (subject.licence, *(its for _, its in under))):
        parts.append("**Non-commercial: a licence among these forbids commercial use.**")
    return " ".join(parts)


def _with_terms(data: str) -> str:
    terms = DATA_TERMS.get(data, "its terms are those of whoever provides it, and apply to what is learnt from it too")
    return f"{plain_text(public_name(data))} ({terms})"


def limits(subject: Subject) -> str:
    story, size = subject.story, subject.image_size
    if not subject.trained:
        return "Nothing was trained, and so nothing was measured."
    if not story.chain:
        return "What it was trained on, and how, is not recorded. Only what stands under Results was measured."
    if story.last == "pretrained":
        start = f"Pre-trained without labels at {size} pixels"
        start += ", from weights that may have seen some" if story.has_unknown_past or story.saw_labels else ""
    elif story.last == "finetuned":
        start = f"Trained with labels at {size} pixels, and a classifier of those alone"
    else:
        start = f"Images come in at {size} pixels, whatever it was trained at"
    return (
        f"{start}: features of images unlike its data, or of another size, were not measured. Only what stands under"
        " Results was. Biases of the data are in the features."
    )


def heads(subject: Subject) -> str:
    """The classifiers that come with it, and what they know."""
    if not subject.heads:
        return ""
    names = ", ".join(f"`{code(name)}`" for name in subject.heads)
    whole = " The weights that timm and transformers load have one of them on top." if subject.classifies else ""
    tuned = subject.story.last == "finetuned"
    fitted = "" if tuned else ", linear classifiers of labelled data on its frozen features"
    return f"Heads{fitted}, loaded by `ssl_hub.load(..., head=NAME)`: {names}.{whole}"


def citation(subject: Subject) -> str:
    entries = citations(subject.recipe) if subject.recipe else subject.story.citations
    if not entries:
        return "Cite the work that the weights come from."
    return "```bibtex\n" + "\n\n".join(entries) + "\n```"
