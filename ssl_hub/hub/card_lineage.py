"""How the weights of a release came to be, in the words of a model card: each sentence from a fact of the chain.

A fact that is not there leaves its sentence out.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from ssl_hub.codec import from_dict
from ssl_hub.config import Recipe
from ssl_hub.data.inventory import in_words
from ssl_hub.errors import UsageError
from ssl_hub.hub.card_command import command
from ssl_hub.hub.citations import METHODS, citations
from ssl_hub.hub.markdown import code, plain_text, public_name
from ssl_hub.hub.remote import PREFIX
from ssl_hub.model.backbones import repository_of

Link = Mapping[str, Any]


class Story:
    """A chain, asked what a card asks of it."""

    def __init__(self, chain: Sequence[Link]) -> None:
        self.chain = chain

    def of(self, step: str) -> list[Link]:
        return [link for link in self.chain if link.get("step") == step]

    @property
    def last(self) -> str:
        """The step that made the weights what they are; empty where nothing is recorded."""
        return str(self.chain[-1].get("step", "")) if self.chain else ""

    @cached_property
    def recipes(self) -> list[Recipe]:
        """Of the runs in the chain, as far as this version can read them."""
        return [recipe for link in self.of("pretrained") if (recipe := recipe_of(link)) is not None]

    @property
    def methods(self) -> list[str]:
        """What trained without labels, as far as it is known."""
        named = [str(link["method"]) for link in self.of("imported") if link.get("method")]
        return [*named, *(recipe.name.split("-")[0] for recipe in self.recipes)]

    @property
    def data(self) -> list[str]:
        """Public names of the data of each training that is known, first to last."""
        found = [str(_at(link, "recipe", "data", "name") or link.get("data") or "") for link in self.chain]
        return list(dict.fromkeys(public_name(name) for name in found if name))

    @property
    def saw_labels(self) -> bool:
        """Whether labels were used, or may have been as far as the files tell."""
        return bool(self.of("finetuned")) or any(
            link.get("classifier") or link.get("top_layer") for link in self.of("imported")
        )

    @property
    def has_unknown_past(self) -> bool:
        """Whether it begins with weights of whose training something is not known."""
        others = [link for link in self.of("started") if link.get("kind") in ("timm", "file")]
        return bool(others or self.of("imported"))

    @property
    def base_model(self) -> str:
        """The repository of the Hub that training last started from, as far as it was one."""
        for link in reversed(self.of("started")):
            name = str(link.get("name", ""))
            if link.get("kind") == "timm":
                return repository_of(name) or ""
            return name.removeprefix(PREFIX).split("@")[0] if link.get("kind") == "hub" else ""
        return ""

    @property
    def citations(self) -> list[str]:
        """BibTeX of the methods that are known, each once."""
        named = [METHODS[method] for method in self.methods if method in METHODS and not self.recipes]
        return list(dict.fromkeys([*named, *(entry for recipe in self.recipes for entry in citations(recipe))]))

    def in_words(self) -> str:
        """One numbered paragraph a step, and the command of each that has one."""
        if not self.chain:
            return "How these weights came to be is not recorded."
        before: Link = {}
        told = []
        for link in self.chain:
            parts = TOLD.get(str(link.get("step")), _unknown)(link)
            told.append(" ".join(_with_elsewhere(parts, before)).replace(" \n\n```", "\n\n```"))
            before = link
        return "\n\n".join(f"{number}. {text}" for number, text in enumerate(told, start=1))


def _with_elsewhere(parts: list[str], start: Link) -> list[str]:
    """What is told of a training, and of a name in its command that only the machine has where it was run."""
    name = str(start.get("name") or "")
    if start.get("kind") not in ("run", "release", "file") or not name or not parts[-1].startswith("\n\n```"):
        return parts
    return [*parts[:-1], f"In its command, `{code(name)}` are the weights that it started from.", parts[-1]]


def recipe_of(link: Link) -> Recipe | None:
    """The recipe of a run in a chain; None where this version cannot read it."""
    try:
        return from_dict(link["recipe"])
    except (UsageError, KeyError):
        return None


def source_name(source: str) -> str:
    """What to call the source of an import."""
    return "plain weights, which name no project" if source == "plain" else plain_text(source)


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _imported(link: Link) -> list[str]:
    known = link.get("method")
    parts = [
        _if(link.get("source"), "Imported from {}, not trained with ssl_hub.", source_name),
        _if(link.get("branch"), "The {} branch of the checkpoint."),
        _if(link.get("file"), "File `{}`.", code),
        _if(link.get("sha256"), "Its sha256 is `{}`.", code),
        _if(link.get("licence"), "Licence: {}."),
        _if(link.get("code_licence"), "The project's code is under {}, which says nothing of weights trained with it."),
        f"Its method is {plain_text(str(known))}; the rest of its training is not known to ssl_hub."
        if known
        else "How it was trained is not known to ssl_hub.",
        _if(link.get("classifier"), "It came with a classifier of {}, and so was trained with labels."),
        _if(
            link.get("top_layer"),
            "On top of it the file has a linear layer, {}, which is left out: if it is a classifier, labels were used.",
        ),
    ]
    if assumed := link.get("assumed"):
        what = " and ".join(plain_text(str(item)) for item in assumed)
        parts.append(f"Assumed, since no file says it: {what}.")
    return [part for part in parts if part]


def _started(link: Link) -> list[str]:
    if link.get("kind") == "random":
        return ["Started from random weights."]
    parts = [
        "Started from "
        + (_if(link.get("name"), "the weights `{}`", code) or "weights of no recorded name")
        + _if(link.get("kind"), " ({})")
        + ".",
        _if(link.get("licence"), "Licence: {}."),
        _if(link.get("sha256"), "Their sha256 is `{}`.", code),
        _if(link.get("normalised_by"), "How images are normalised is stated by the {}."),
    ]
    return [part for part in parts if part]


def _pretrained(link: Link) -> list[str]:
    run = link.get("run") if isinstance(link.get("run"), Mapping) else {}
    recipe = recipe_of(link)
    data = _at(link, "recipe", "data", "name")
    inventory = in_words(_at(run, "inventory"))
    stated = [
        _if(_at(run, "seed"), "seed {}"),
        _if(_at(run, "steps"), "{} steps"),
        _if(_at(run, "images"), "{} images"),
        _if(_at(run, "batch_size", "total"), "batch {}"),
        _if(_at(run, "processes"), "{} process(es)"),
        _if(_at(run, "learning_rate", "factors"), "learning rate {}"),
        _if({"no": "float32"}.get(str(_at(run, "precision")), _at(run, "precision")), "{}"),
        _if(_at(run, "device"), "on {}"),
    ]
    versions = _at(run, "versions")
    packages = sorted(versions.items()) if isinstance(versions, Mapping) else []
    installed = ", ".join(f"{package} {version}" for package, version in packages if version != "not installed")
    parts = [
        "Pre-trained without labels" + _if(_at(link, "recipe", "name"), " by the recipe `{}`", code)
        + _if(data and public_name(str(data)), ", on {}") + (f" ({plain_text(inventory)})" if inventory else "") + ".",
        _if(", ".join(part for part in stated if part).capitalize(), "{}.", str),
        _if(installed, "With {}."),
        _if(str(_at(run, "git_commit") or "")[:12], "Commit {}."),
        _commanded(recipe, _at(run, "precision")),
    ]  # fmt: skip
    return [part for part in parts if part]


def _commanded(recipe: Recipe | None, precision: Any) -> str:
    if recipe is None:
        return "Its recipe is of a newer ssl_hub."
    words = command(recipe, precision=None if precision is None else str(precision))
    if words is None:
        return "Its recipe is none of those that come with ssl_hub; recipe.json has all of it."
    return f"\n\n```bash\n{words}\n```"


def _finetuned(link: Link) -> list[str]:
    parts = [
        "Fine-tuned with labels"
        + _if(link.get("data"), " of {}")
        + _if(link.get("split"), ", split {}")
        + _if(link.get("images"), ", {} images")
        + _if(link.get("classes"), ", {} classes")
        + ".",
    ]
    words = link.get("command")
    if isinstance(words, Sequence) and not isinstance(words, str) and words:
        parts.append(f"\n\n```bash\n{code(shlex.join(map(str, words)))}\n```")
    return parts


def _unknown(link: Link) -> list[str]:
    return [f"A step that this ssl_hub does not know: {plain_text(str(link.get('step')))}."]


def _if(value: Any, text: str, shown: Callable[[str], str] = plain_text) -> str:
    """The text with the value in it; nothing where there is none."""
    return "" if value is None or value == "" else text.format(shown(str(value)))


TOLD: dict[str, Callable[[Link], list[str]]] = {
    "imported": _imported,
    "started": _started,
    "pretrained": _pretrained,
    "finetuned": _finetuned,
}
