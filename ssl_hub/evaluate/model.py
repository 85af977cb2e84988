"""Evaluating a model by name: the public ``knn`` and ``linear_probe``, and the transform that belongs to a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from accelerate import Accelerator
from torch import nn

from ssl_hub.config import Recipe
from ssl_hub.data.overlap import Overlap
from ssl_hub.data.sources import Source
from ssl_hub.data.views import EvalTransform
from ssl_hub.data.views import eval_transform as make_transform
from ssl_hub.errors import UsageError
from ssl_hub.evaluate import knn as nearest
from ssl_hub.evaluate import linear
from ssl_hub.evaluate.cross_validation import Rows, cross_validated, dealt
from ssl_hub.evaluate.extraction import Extraction, absences, sources_of
from ssl_hub.evaluate.features import Features, PixelModel, extract
from ssl_hub.evaluate.head_training import train_probe
from ssl_hub.evaluate.keeping import keep_head, keep_results
from ssl_hub.evaluate.labels import check_labels, check_several, check_trainable, labels_of
from ssl_hub.evaluate.overlap import copies_in, refuse_overlap
from ssl_hub.evaluate.protocols import Cached, get_protocol
from ssl_hub.evaluate.record import Recorder
from ssl_hub.evaluate.work import Work
from ssl_hub.hub import store, weights
from ssl_hub.hub.snapshot import find_snapshot
from ssl_hub.hub.weights import TIMM as TIMM
from ssl_hub.model import backbones
from ssl_hub.model.devices import usual_device
from ssl_hub.model.loading import load_into
from ssl_hub.model.probe_head import ProbeHead
from ssl_hub.model.release import read_recipe
from ssl_hub.model.results import Result, check_results
from ssl_hub.model.siamese import build
from ssl_hub.zoo import RECIPES, get_recipe

INIT, PIXELS = "init:", "pixels"
Part = TypeVar("Part", Features, Source)


def eval_transform(model: nn.Module) -> EvalTransform:
    """The evaluation transform of a timm model: resize, centre crop and normalise as its ``pretrained_cfg`` says.

    Of a release, images of more than 8 bits are read in the range that it was trained with (``model.value_range``).

    Takes a PIL image or a uint8 tensor [3, H, W] or [B, 3, H, W]; returns float32 of the model's input size.
    """
    config = getattr(model, "pretrained_cfg", None)
    if not isinstance(config, dict) or "input_size" not in config:
        raise UsageError(
            f"{type(model).__name__} has no pretrained_cfg; eval_transform takes models made by timm or ssl_hub.load"
        )
    return make_transform(
        size=config["input_size"][-1],
        crop_pct=config["crop_pct"],
        interpolation=config["interpolation"],
        mean=config["mean"],
        std=config["std"],
        value_range=getattr(model, "value_range", "auto"),
    )


class Subject(NamedTuple):
    """What is evaluated."""

    model: nn.Module  # [B, 3, S, S] -> [B, C]
    transform: EvalTransform
    folder: Path | None  # where its results belong, for a release of this machine
    recipe: Recipe | None  # what trained it, for a release that says so
    collapsed: bool = False  # whether its features had, when it was trained
    config: dict[str, Any] | None = None  # config.json of a release
    step: int | None = None  # of a run's checkpoint, which no results are kept for
    origin: Mapping[str, Any] | None = None  # of its weights, where they are not random: kind, name, licence, lineage


def open_model(model: str | Path | nn.Module, *, image_size: int | None = None, seed: int = 0) -> Subject:
    """Find a model to evaluate.

    Args:
        model: a run folder or release name, ``RUN@STEP`` for a run's checkpoint of that step (one that is not finished
            stands at its newest); ``timm:NAME`` for that architecture at random initialisation, or ``timm:NAME@TAG``
            (or ``NAME.TAG``) for timm's weights; ``init:RECIPE`` for a recipe's backbone before training, or
            ``init:FOLDER`` for a run's; ``pixels`` for the images themselves; or a timm model.
        image_size: replaces the size of ``timm:`` models (default: the architecture's own) and of ``pixels`` (32).
        seed: draws the random initialisation.
    """
    if isinstance(model, nn.Module):
        return Subject(model, eval_transform(model), None, None)
    name = str(model)
    if name == PIXELS:
        transform = make_transform(size=image_size or 32, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
        return Subject(PixelModel(), transform, None, None)
    if name.startswith(INIT) and image_size is None:
        return _untrained(name, seed)
    if name.startswith(TIMM) and not weights.is_pretrained(name):
        architecture = name.removeprefix(TIMM)
        backbones.check_untrained(architecture)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made = backbones.create_for(architecture, image_size).eval()
        return Subject(made, eval_transform(made), None, None)
    if image_size is not None and not weights.is_pretrained(name):
        raise UsageError(f"{name} has its own image size; image_size is for {TIMM} models and {PIXELS}")
    if (snapshot := find_snapshot(name)) is not None:
        recipe = snapshot.recipe
        backbone, collapsed = snapshot.backbone()
        transform = _transform_of(recipe)
        return Subject(backbone, transform, None, recipe, collapsed, step=snapshot.step, origin=snapshot.origin)
    found = weights.pretrained(name, image_size=image_size)
    if found.folder is None or found.config is None:
        return Subject(found.model, eval_transform(found.model), None, None, origin=found.origin)
    collapsed = bool(found.config["ssl_hub"].get("collapsed", False))
    keeps = found.folder if store.owned(found.folder) else None
    return Subject(
        found.model, eval_transform(found.model), keeps, read_recipe(found.folder), collapsed, found.config,
        origin=found.origin,
    )  # fmt: skip


def _untrained(name: str, seed: int) -> Subject:
    """The backbone that a registered recipe, or that of a run folder, starts from."""
    named, origin = name.removeprefix(INIT), None
    of_run = None if named in RECIPES or not Path(named).is_dir() else read_recipe(store.run_folder(named))
    recipe = of_run or get_recipe(named)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        untrained = build(recipe).encoder.backbone.eval()
    if recipe.backbone.init is not None:  # of what a run started from, mean and std are in its recipe
        start = weights.initial(recipe)
        load_into(untrained, start.tensors, where=name)
        origin = start.origin
    return Subject(untrained, _transform_of(recipe), None, recipe, origin=origin)


def _transform_of(recipe: Recipe) -> EvalTransform:
    return make_transform(size=recipe.views.size, **recipe.views.evaluation, value_range=recipe.data.range)


def knn(
    model: str | Path | nn.Module,
    data: str | None = None,
    *,
    k: int = 20,
    temperature: float = 0.07,
    accelerator: Accelerator | None = None,
    show_progress: bool = False,
    **options: Any,
) -> list[Result]:
    """Weighted k-nearest-neighbour accuracy of a frozen backbone; the train split is the bank, the test split queries.

    Args:
        model: a run folder, a release name, ``timm:NAME``, ``timm:NAME@TAG``, ``pixels`` or a timm model; see
            :func:`open_model`.
        data: a registered name, path or Hub dataset id; by default what the release was pre-trained on.
        k, temperature: of the vote (Wu et al. 2018, section 3.4).
        accelerator: of several processes, which share the extraction; all return the same.
        show_progress: say on stderr how far it is.
        options: see :class:`~ssl_hub.evaluate.extraction.Extraction`.

    Returns:
        Top-1 (and top-5 from five classes on) in percent. A release keeps them in its results.json.
    """
    nearest.check_vote(k, temperature)
    subject, sources, extraction, work = _opened(model, data, accelerator, show_progress, options)
    fold_of, recorder = checked(subject, sources, extraction, work)
    take = partial(extract, subject.model, transform=subject.transform, **work._asdict())
    vote = partial(nearest.knn, k=k, temperature=temperature, device=work.device)
    results = by_features(sources, fold_of, take, vote)
    results = marked(recorder.complete(results), subject)
    if subject.folder is not None and work.rank == 0:
        work.say(keep_results(subject.folder, results))
    return results


def linear_probe(
    model: str | Path | nn.Module,
    data: str | None = None,
    *,
    protocol: str = "cached",
    overrides: Mapping[str, Any] | None = None,
    replace_head: bool = False,
    accelerator: Accelerator | None = None,
    show_progress: bool = False,
    **options: Any,
) -> list[Result]:
    """Accuracy of a linear classifier on a frozen backbone, by a named protocol.

    Args:
        model, data, accelerator, show_progress, options: as in :func:`knn`; ``seed`` also draws the held-out part of
            the train split, the initial heads and the crops.
        protocol: ``cached``, ``byol``, ``simsiam`` or ``authors-small``; see :mod:`ssl_hub.evaluate.protocols`.
        overrides: of the protocol's settings, such as ``{"epochs": 10}``.
        replace_head: store the head even where a better founded one is; see :mod:`ssl_hub.evaluate.keeping`.

    Returns:
        Top-1 (and top-5 from five classes on) after the last epoch, in percent, with what was chosen without the test
        split in ``settings``. A release keeps them, and the head: ``ssl_hub.load(model, head=...)`` is then a
        classifier, and a head for the pre-training data becomes the released model's own. A stored head gives way only
        to one of the same protocol, or of ``cached``, fitted to as many labels or more.
    """
    chosen = get_protocol(protocol, overrides)
    subject, sources, extraction, work = _opened(model, data, accelerator, show_progress, options)
    fold_of, recorder = checked(subject, sources, extraction, work, trained=True)
    settings: dict[str, Any] = {"seed": extraction.seed, "work": work}
    heads: list[ProbeHead] = []

    def fit(fitted: Any, judged: Any) -> list[Result]:
        if isinstance(chosen, Cached):
            head, results = linear.linear_probe(fitted, judged, chosen, **settings)
        else:
            head, results = train_probe(
                subject.model, fitted, judged, subject.transform, chosen, name=protocol, **settings
            )  # fmt: skip
        heads.append(head)
        return results

    features = partial(extract, subject.model, transform=subject.transform, **work._asdict())
    results = by_features(sources, fold_of, features if isinstance(chosen, Cached) else lambda source: source, fit)
    results = marked(recorder.complete(results), subject)
    if subject.folder is not None and work.rank == 0:
        own = data is None or (subject.recipe is not None and subject.recipe.data.name == data)
        work.say(keep_results(subject.folder, results))
        if fold_of is None:  # else there is a head for each fold, and none for all
            work.say(keep_head(subject.folder, heads[0], results, classifier=own, replace=replace_head))
    return results


def _opened(
    model: str | Path | nn.Module,
    data: str | None,
    accelerator: Accelerator | None,
    show_progress: bool,
    options: Mapping[str, Any],
) -> tuple[Subject, tuple[Source, Source], Extraction, Work]:
    extraction = Extraction(**options)
    subject = open_model(model, image_size=extraction.image_size, seed=extraction.seed)
    work = work_on(subject, extraction, accelerator, show_progress)
    return subject, sources_of(subject.recipe, data, extraction, accelerator), extraction, work


def checked(
    subject: Subject, sources: tuple[Source, Source], extraction: Extraction, work: Work, *, trained: bool = False
) -> tuple[Rows | None, Recorder]:
    """The fold of each image, where there are folds, once labels are whole and no image is judged that is fitted to.
    A classifier that is ``trained`` needs as many images as classes."""
    fitted, judged = sources
    labels = labels_of(fitted), labels_of(judged)
    check_labels(*labels)
    (check_trainable if trained else check_several)(labels[0])
    if extraction.folds is None:
        fold_of = None
        shared = refuse_overlap(fitted, judged, allow=extraction.allow_overlap, accelerator=work.accelerator)
    else:
        fold_of = dealt(labels[0], extraction.folds, extraction.seed, copies_in(fitted, work.accelerator))
        shared = Overlap(0, len(fitted))
    for line in absences(*labels, fold_of):
        work.say(f"note: {line}")
    if shared.images:
        work.say(f"note: {shared.images:,} of {shared.of:,} images are in both splits")
    return fold_of, Recorder(subject.model, fitted, judged, shared, work, dealt_by=extraction.dealt_by)


def by_features(
    sources: tuple[Source, Source],
    fold_of: Rows | None,
    take: Callable[[Source], Part],
    measure: Callable[[Part, Part], list[Result]],
) -> list[Result]:
    """What is measured on the features, or whatever ``take`` makes of a source; folds share it."""
    train = take(sources[0])
    if fold_of is None:
        return measure(train, take(sources[1]))

    def of_rows(*rows: Rows) -> list[Result]:
        return measure(*(train.rows(r) if isinstance(train, Features) else train.subset(r) for r in rows))

    return cross_validated(fold_of, of_rows, split=sources[0].split)


def marked(results: list[Result], subject: Subject) -> list[Result]:
    settings = {} if subject.step is None else {"step": subject.step}
    return [replace(r, collapsed=subject.collapsed, settings=r.settings | settings) for r in results]


def work_on(subject: Subject, extraction: Extraction, accelerator: Accelerator | None, show_progress: bool) -> Work:
    """How the evaluation is carried out, with the model on its device."""
    if subject.folder is not None:
        check_results(subject.folder)
    device = usual_device() if accelerator is None else accelerator.device
    subject.model.to(device)
    work = Work(extraction.batch_size, extraction.workers, device, accelerator, show_progress)
    if subject.step is not None and work.rank == 0:
        work.say(f"measured at step {subject.step}, by a checkpoint: the results are not kept in the run")
    return work
