"""Model cards: a release, or a recipe that nobody has trained, in the words of ``card_template.md``.

Numbers come from results.json alone, those that count (:mod:`ssl_hub.model.standing`). Whatever else is filled in is
text that someone wrote: no markup of it survives.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import ModelCard, ModelCardData

from ssl_hub.atomic import expanded, make_folder, replace_file
from ssl_hub.config import Recipe
from ssl_hub.errors import UsageError
from ssl_hub.hub import card_sections as sections
from ssl_hub.hub.card_lineage import Story
from ssl_hub.hub.card_results import results, rounded
from ssl_hub.hub.card_sections import Subject
from ssl_hub.hub.markdown import plain_text, slug
from ssl_hub.hub.store import BUNDLED, local
from ssl_hub.model.files import CONFIG, HEADS_FOLDER
from ssl_hub.model.lineage import UNKNOWN, lineage_of
from ssl_hub.model.release import read_config, read_facts, read_recipe
from ssl_hub.model.results import read_results
from ssl_hub.model.small_resnets import is_small
from ssl_hub.model.standing import standing
from ssl_hub.zoo import RECIPES

TEMPLATE = Path(__file__).with_name("card_template.md")


def release_card(
    folder: Path, repository: str | None = None, *, pictures: Sequence[str] = (), licence: str | None = None
) -> str:
    """The card of a run or release, as published to ``repository`` with these pictures beside it, under a ``licence``
    where one is stated.

    Raises UsageError where its config.json, recipe.json or results.json is damaged or holds what is no measurement.
    """
    config, recipe = read_config(folder), read_recipe(folder)
    about, image = config["ssl_hub"], config["pretrained_cfg"]
    repository = repository or f"OWNER/{slug(folder.name)}"
    bundled = folder.parent == BUNDLED
    measured = standing(read_results(folder), train_split="train" if recipe is None else recipe.data.train_split)
    return _render(
        Subject(
            name=repository.split("/")[-1],
            architecture=config["architecture"].split(".")[0],
            image_size=image.get("input_size", [3, 224, 224])[-1],
            repository=repository,
            load_name=folder.name if bundled else f"hf-hub:{repository}",
            collapsed=bool(about.get("collapsed", False)),
            story=Story(lineage_of(config, recipe, read_facts(folder))),
            licence=licence or str(about.get("licence", UNKNOWN)),
            classifies=bool(config.get("num_classes")),
            heads=tuple(sorted(path.stem for path in folder.glob(f"{HEADS_FOLDER}/*.safetensors"))),
            image=image,
            results=tuple(measured.counted),
            aside=tuple(measured.aside),
            pictures=tuple(pictures),
        )
    )


def recipe_card(recipe: Recipe) -> str:
    """The card of a recipe: of its bundled release where there is one, else one that says it is not trained here."""
    folder = BUNDLED / recipe.name
    if (folder / CONFIG).is_file():
        return release_card(folder)
    return _render(
        Subject(
            name=recipe.name,
            recipe=recipe,
            architecture=recipe.backbone.name,
            image_size=recipe.views.size,
            repository=f"OWNER/{recipe.name}",
            load_name=recipe.name,
            trained=False,
        )
    )


def card(name: str) -> str:
    """The card of a run or release on this machine, else of the recipe of that name."""
    try:
        folder = local(name)
    except UsageError:
        if name not in RECIPES:
            raise
        return recipe_card(RECIPES[name])
    return release_card(folder)


def write_cards(out: str | Path) -> list[Path]:
    """Write the card of each registered recipe to the folder ``out``; returns their paths."""
    out = expanded(out)
    make_folder(out)
    paths = [out / f"{name}.md" for name in RECIPES.names()]
    for path in paths:
        replace_file(path, recipe_card(RECIPES[path.stem]).encode())
    return paths


def _render(subject: Subject) -> str:
    small = is_small(subject.architecture)
    text = string.Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        metadata=sections.metadata(subject),
        name=plain_text(subject.name),
        summary=sections.sentence(subject),
        status=sections.status(subject),
        results=results(subject),
        origin=sections.origin(subject),
        settings=sections.settings(subject),
        pictures="\n\n".join(f"![{name.removesuffix('.png')}]({name})" for name in subject.pictures),
        licence=sections.licence(subject),
        limits=sections.limits(subject),
        once="" if subject.trained else "Once it is trained with the command above, and pushed:",
        size=subject.image_size,
        load_name=subject.load_name,
        repository=subject.repository,
        timm_imports="import ssl_hub  # registers the small-image ResNets\nimport timm" if small else "import timm",
        transformers_imports=("import ssl_hub  # registers the small-image ResNets\n" if small else "")
        + "from transformers import AutoImageProcessor, AutoModel",
        heads=sections.heads(subject),
        citation=sections.citation(subject),
    )
    text = re.sub(r"\n{3,}", "\n\n", text)
    _check_metadata(text, subject)
    return text


def _check_metadata(text: str, subject: Subject) -> None:
    """Raise UsageError unless the Hub's own reader finds every result, and no other, in the card's metadata."""
    try:
        read = ModelCard(text).data
    except ValueError as error:
        raise UsageError(f"the card of {subject.name!r} has no valid metadata: {error}") from None
    assert isinstance(read, ModelCardData)
    values = sorted(result.metric_value for result in read.eval_results or [])
    if values != sorted(rounded(result.value) for result in subject.results):
        raise UsageError(f"the card of {subject.name!r} reads back with other numbers than results.json has")
