"""Evaluating a model by name: the public ``knn`` and ``linear_probe``, and :func:`measure` for any evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from accelerate import Accelerator
from torch import nn

from ssl_hub.data.overlap import Overlap
from ssl_hub.data.sources import Source
from ssl_hub.evaluate import knn as nearest
from ssl_hub.evaluate import linear
from ssl_hub.evaluate.cross_validation import Rows, cross_validated, dealt
from ssl_hub.evaluate.extraction import Extraction, absences, sources_of
from ssl_hub.evaluate.features import Features, extract
from ssl_hub.evaluate.head_training import train_probe
from ssl_hub.evaluate.keeping import keep_head, keep_results
from ssl_hub.evaluate.labels import check_labels, check_several, check_trainable, labels_of
from ssl_hub.evaluate.overlap import copies_in, refuse_overlap
from ssl_hub.evaluate.protocols import Cached, get_protocol
from ssl_hub.evaluate.record import Recorder
from ssl_hub.evaluate.subject import Subject, check_pools, open_model, range_of
from ssl_hub.evaluate.work import Work
from ssl_hub.model.devices import usual_device
from ssl_hub.model.probe_head import ProbeHead, check_place
from ssl_hub.model.results import Result, check_results

Part = TypeVar("Part", Features, Source)


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
    vote = partial(nearest.knn, k=k, temperature=temperature, device=_device(accelerator))
    return measure(model, data, vote, accelerator=accelerator, show_progress=show_progress, **options)


def measure(
    model: str | Path | nn.Module,
    data: str | None,
    judge: Callable[[Features, Features], list[Result]],
    *,
    accelerator: Accelerator | None = None,
    show_progress: bool = False,
    **options: Any,
) -> list[Result]:
    """What ``judge(train, test)`` says of a frozen backbone's features of the two splits, or of each fold, recorded.

    The other arguments are those of :func:`knn`, and a release keeps the results.
    """
    subject, sources, extraction, work = _opened(model, data, accelerator, show_progress, options)
    fold_of, recorder = checked(subject, sources, extraction, work)
    take = partial(extract, subject.model, transform=subject.transform, **work._asdict())
    results = by_features(sources, fold_of, take, judge)
    results = marked(recorder.complete(results), subject, extraction)
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
    if subject.folder is not None:
        check_place(subject.folder, sources[0].name)
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
    results = marked(recorder.complete(results), subject, extraction)
    if subject.folder is not None and work.rank == 0:
        own = data is None or (subject.recipe is not None and subject.recipe.data.name == data)
        work.say(keep_results(subject.folder, results))
        if fold_of is None:  # else there is a head for each fold, and none for all
            foreign = not_its_own(subject, extraction)
            head = replace(heads[0], settings=heads[0].settings | foreign)
            own = own and not foreign  # as the released model reads images
            work.say(keep_head(subject.folder, head, results, classifier=own, replace=replace_head))
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
    check_pools(subject.model)
    work = work_on(subject, extraction, accelerator, show_progress)
    return subject, sources_of(subject.recipe, range_of(subject), data, extraction, accelerator), extraction, work


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


def not_its_own(subject: Subject, extraction: Extraction) -> dict[str, Any]:
    """Settings that are not those of the model: a step before its last, another range of values."""
    settings: dict[str, Any] = {} if subject.step is None else {"step": subject.step}
    if extraction.range not in (None, range_of(subject)):
        settings["range"] = extraction.range
    return settings


def marked(results: list[Result], subject: Subject, extraction: Extraction) -> list[Result]:
    """The results with what is :func:`not_its_own`."""
    settings = not_its_own(subject, extraction)
    return [replace(r, collapsed=subject.collapsed, settings=r.settings | settings) for r in results]


def work_on(subject: Subject, extraction: Extraction, accelerator: Accelerator | None, show_progress: bool) -> Work:
    """How the evaluation is carried out, with the model on its device."""
    if subject.folder is not None:
        check_results(subject.folder)
    device = _device(accelerator)
    subject.model.to(device)
    work = Work(extraction.batch_size, extraction.workers, device, accelerator, show_progress)
    if subject.not_kept:
        work.say(f"the release {subject.not_kept}: the results are not kept")
    if subject.step is not None and work.rank == 0:
        work.say(f"measured at step {subject.step}, by a checkpoint: the results are not kept in the run")
    return work


def _device(accelerator: Accelerator | None) -> torch.device:
    return usual_device() if accelerator is None else accelerator.device
