"""Where releases are, and how a name becomes a model: a folder, the store, the package, the Hub, in that order."""

from __future__ import annotations

import os
import re
import shlex
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ssl_hub.atomic import expanded
from ssl_hub.errors import UsageError
from ssl_hub.hub.glance import in_hub_cache, link_in, problem_of
from ssl_hub.hub.here import BUNDLED as BUNDLED
from ssl_hub.hub.here import CLOSED, MENDED_BY, Place, has_file, is_path, name_of, place_at, places_of
from ssl_hub.hub.here import NAME as NAME
from ssl_hub.hub.here import home as home
from ssl_hub.hub.remote import PREFIX, Repository, fetch, look
from ssl_hub.model.files import CONFIG, METHOD, RECIPE, TO_LOAD, check_whole
from ssl_hub.registry import suggest
from ssl_hub.zoo import RECIPES

if TYPE_CHECKING:
    from torch import nn

    from ssl_hub.model.release import Branch


def releases() -> list[str]:
    """Names of the releases that need no network: in the store, and bundled with the package."""
    return sorted({path.parent.name for folder in (home(), BUNDLED) for path in folder.glob(f"[!.]*/{CONFIG}")})


def run_folder(name: str | Path) -> Path:
    """The folder of a run, finished or not: an existing folder, else one of that name in the store."""
    folder = expanded(name_of(name))
    for candidate in (folder, home() / str(name)):
        if has_file(candidate, RECIPE):
            return candidate
    run = folder.name.partition("@")[0]
    beside = [folder.with_name(run), home() / str(name).partition("@")[0]] if run else []  # of RUN@STEP
    beside += folder.parents if os.path.lexists(folder) else []  # of what lies in a run
    near = [place for place in beside if has_file(place, RECIPE)]
    meant = f"; give the run itself: {near[0]}" if near else ""
    raise UsageError(f"no run at {str(name)!r}, and none of that name in the store {home()}{meant}")


def where(name: str | Path) -> list[Place]:
    """Every place where ``ssl_hub.load(name)`` looks, in order: it uses the first that is ``found``.

    Asks the Hub whether it has the name, and downloads nothing. Raises UsageError for what can be no name.
    """
    text = name_of(name)
    places = [_looked_at(place) for place in places_of(text)]
    repository = _repository(text)
    if isinstance(repository, str):
        return [*places, Place("hub", "", False, repository)] if repository else places
    location = f"{PREFIX}{repository}"
    try:
        return [*places, Place("hub", location, True, look(repository, TO_LOAD))]
    except UsageError as error:
        return [*places, Place("hub", location, False, str(error))]


def _looked_at(place: Place) -> Place:
    """With what is wrong with the release there, as far as it can be seen without reading its weights."""
    problem = problem_of(Path(place.location)) if place.found else ""
    return replace(place, state=f"damaged: {problem}", damaged=True) if problem else place


def places(name: str | Path) -> list[Place]:
    """The places of :func:`where` that are on this machine; none for what can be no name of a release."""
    try:
        return places_of(name_of(name))
    except UsageError:
        return []


def resolve(name: str | Path, files: Sequence[str] = TO_LOAD, *, check_hashes: bool = True) -> Path:
    """The folder of a release; from the Hub, one in its cache with those of ``files`` that the release has, as they
    were published if ``check_hashes``.

    Raises UsageError that says where the name was looked for and how to get it.
    """
    text = name_of(name)
    places = places_of(text)
    if (folder := _found(places)) is not None:
        return folder
    repository = _repository(text)
    if is_path(text) and not text.startswith(PREFIX):
        raise _no_release_at(text)
    if isinstance(repository, str):
        if os.path.isfile(expanded(text)):
            raise _no_release_at(text)
        raise UsageError(f"no release {text!r} is here, and the Hub was {repository}{_way_on(text)}")
    try:
        return fetch(repository, files, check_hashes=check_hashes)
    except UsageError as error:
        if not places:
            raise
        raise UsageError(f"no release {text!r} is here, and of the Hub: {error}") from None


def repository_of(name: str | Path) -> Repository | None:
    """The repository of the Hub that has a name which no place on this machine has; None where that cannot be."""
    repository = _repository(name_of(name))
    return None if isinstance(repository, str) else repository


def local(name: str | Path) -> Path:
    """The folder of a release on this machine: as :func:`resolve`, without the Hub.

    Raises UsageError where there is none, or a run that is not finished.
    """
    text = name_of(name)
    if (folder := _found(places_of(text))) is not None:
        return folder
    if is_path(text):
        raise _no_release_at(text)
    raise UsageError(f"no finished run or release {text!r} on this machine{_way_on(text)}")


def owned(folder: Path) -> bool:
    """Whether results may be added to this release, which is to be known before hours of measuring."""
    return not why_not_owned(folder)


def why_not_owned(folder: Path) -> str:
    """What keeps results from being added to a release, as it is said of it; empty where nothing does."""
    if folder.resolve().is_relative_to(BUNDLED):
        return "is part of the package"
    if in_hub_cache(folder):
        return "lies in the Hub's cache"
    return "" if os.access(folder, os.W_OK) else "cannot be written"


def _found(places: Sequence[Place]) -> Path | None:
    """The folder of the first release among them. UsageError where a file of it is a link."""
    folder = next((Path(place.location) for place in places if place.found), None)
    if folder is not None and (link := link_in(folder)):
        raise UsageError(link)
    return folder


def _repository(text: str) -> Repository | str:
    """The repository of the Hub that may have the name, or why there is none to ask."""
    if text.startswith(PREFIX):
        return Repository.parse(text)
    if is_path(text):
        return ""
    owner = os.environ.get("SSL_HUB_ORG")
    return Repository.parse(f"{owner}/{text}") if owner else "not asked: $SSL_HUB_ORG names no owner"


def _way_on(text: str) -> str:
    """The first of :func:`ways_on`, and the command that tells the rest."""
    way = ways_on(text)[0]
    return f"; {way}{'' if way.endswith('?') else '.'} More: `ssl-hub where {shlex.quote(text)}`"


def ways_on(text: str) -> list[str]:
    """What may be meant by a name that is nowhere, and how to get it; the likeliest comes first."""
    ways, here = [], releases()
    if is_path(text) or text.startswith(PREFIX):
        return ["is it right?"]
    if has_file(Path("runs") / text, CONFIG):
        ways.append(f"a run of that name is in runs/: load 'runs/{text}'")
    for place in places(text):
        if place.state.startswith(CLOSED):
            ways.append(f"{place.location} {place.state}")
        elif place.state in MENDED_BY:
            ways.append(f"the {place.kind} has {place.state}; {MENDED_BY[place.state].format(shlex.quote(text))}")
    if text in RECIPES:
        importing = f"import a public checkpoint with `ssl-hub import SOURCE FILE --recipe {text}`"
        ways += [f"train it with `{RECIPES[text].command}`", importing]
    elif (guess := suggest(text, [*here, *RECIPES.names()])).endswith("?"):
        ways.append(guess.removeprefix("; "))
    ways.append("`ssl-hub list` shows those that are" if here else "no release is here yet")
    return ways


def _no_release_at(path: str) -> UsageError:
    """What is at a path instead of a release, and one way on."""
    folder = expanded(path)
    state = place_at("folder", folder).state
    if state.startswith(CLOSED):
        return UsageError(f"{path[:80]!r} {state}; is the path right?")
    if state in MENDED_BY:
        return UsageError(f"{path!r} is {state}; {MENDED_BY[state].format(shlex.quote(path))}")
    run, _, step = path.rpartition("@")
    if step.isdecimal() and (expanded(run) / RECIPE).is_file():
        return UsageError(
            f"{path!r} is a step of a run: evaluation, export, report and backbone.init take it; here it is the run as"
            f" it ended, {run!r}"
        )
    if folder.is_file():
        return UsageError(
            f"{path!r} is a file and no release: training takes a checkpoint as backbone.init; all else takes what"
            f" `ssl-hub import auto {shlex.quote(path)} --recipe NAME` makes of it"
        )
    if folder.is_dir():
        return UsageError(f"{path!r} has no {CONFIG}, so it is no release; is the path that of another folder?")
    beside = [config.parent.name for config in folder.parent.glob(f"*/{CONFIG}")]
    if beside:
        hint = suggest(folder.name, beside)
    elif re.fullmatch(f"{NAME}/{NAME}", path) and not folder.parent.is_dir():
        hint = f"; a repository of the Hub is written {PREFIX}{path}"
    else:
        hint = "; is the path right?"
    return UsageError(f"no folder {path!r}{hint}")


def head_files(dataset: str) -> list[str]:
    """The names of the files of a probe head in a release."""
    from ssl_hub.model.probe_head import head_path

    path = head_path(Path(), dataset)
    return [path.as_posix(), path.with_suffix(".json").as_posix()]


def load(
    name_or_path: str | Path,
    *,
    head: str | None = None,
    num_classes: int | None = None,
    which: Branch = "online",
    check_hashes: bool = True,
) -> nn.Module:
    """A trained backbone as a timm model in eval mode.

    Args:
        name_or_path: a run or release folder; a name in the store, bundled with the package, or published by
            ``$SSL_HUB_ORG``, looked for in this order; or ``hf-hub:OWNER/NAME@REVISION``.
        head: a dataset whose probe head the release carries, for a classifier [B, 3, H, W] -> [B, K]; its class names
            are ``model.label_names``.
        num_classes: a fresh, untrained classifier of that many classes, for fine-tuning. Without either the model gives
            pooled features [B, C].
        which: the ``online`` backbone or, for methods that have one, the ``target``'s.
        check_hashes: compare the files with what hashes.json lists, where there is one: one flipped bit is found. False
            saves reading them twice, and loads whatever is there.

    Raises:
        UsageError: no such release (naming the nearest and how to get it), no such head, a head of another width, both
            ``head`` and ``num_classes``, or files that are damaged or not what they should be, which it names.
    """
    if head is not None and num_classes is not None:
        raise UsageError("head loads a trained classifier and num_classes makes a fresh one; give one of them")
    if num_classes is not None and (type(num_classes) is not int or num_classes < 1):
        raise UsageError(f"num_classes is {num_classes!r}, expected a whole number from 1; leave it out for features")
    if head is not None and not isinstance(head, str):
        raise UsageError(f"head is {head!r}, expected the name of the data that it was fitted on, such as 'digits'")
    from ssl_hub.model.probe_head import ProbeHead
    from ssl_hub.model.release import attach_classifier, finetuned_classes, load_backbone

    files = [*TO_LOAD, *([METHOD] if which == "target" else []), *([] if head is None else head_files(head))]
    here = _found(places(name_or_path))
    folder = here or resolve(name_or_path, files, check_hashes=check_hashes)
    if check_hashes and here:  # what is fetched is checked on arrival
        check_whole(folder, files)
    if head is None:
        if num_classes is not None:
            warnings.warn(f"the classifier of {num_classes} classes is new and untrained; fine-tune it", stacklevel=2)
        return load_backbone(folder, num_classes=num_classes or 0, which=which)
    if (classes := finetuned_classes(folder, head)) is not None:
        model = load_backbone(folder, num_classes=None, which=which)
        model.label_names = classes  # type: ignore[assignment]
        return model
    fitted = ProbeHead.load(folder, head)
    model = load_backbone(folder, num_classes=len(fitted.classes), which=which)
    attach_classifier(model, fitted.weight, fitted.bias, fitted.classes)
    if fitted.value_range is not None:
        model.value_range = fitted.value_range  # type: ignore[assignment]
    return model
