"""What is fine-tuned on what: a model and its images, checked, and made ready to train."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate import Accelerator

from ssl_hub.data.labelled import LabelledCrops
from ssl_hub.data.overlap import Overlap
from ssl_hub.data.sources import Source
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.agreement import same_data
from ssl_hub.evaluate.extraction import Extraction, absences, fraction_of, held_out, sources_of
from ssl_hub.evaluate.labels import check_labels, check_trainable, labels_of
from ssl_hub.evaluate.overlap import refuse_overlap
from ssl_hub.evaluate.subject import INIT, TIMM, Subject, open_model, range_of
from ssl_hub.evaluate.work import Work
from ssl_hub.model.backbones import freeze_idle
from ssl_hub.model.stages import start_small, with_classifier
from ssl_hub.train.classifier import ClassifierTrainer, Finetuning
from ssl_hub.train.given import given_to
from ssl_hub.train.launch import processes_of_bn


class Task(NamedTuple):
    """What is fine-tuned on what, and by what it is judged."""

    subject: Subject
    settings: Finetuning
    train: Source
    held: Source | None  # out of the training images, to tell which epoch was best
    test: Source
    shared: Overlap  # of training and test images

    def facts(self, source: str) -> dict[str, Any]:
        """What a run that goes on has to have in common with what was begun."""
        return {
            "finetuned_from": source,
            "data": self.train.name,
            "train_split": self.train.split,
            "train_size": len(self.train),
            "settings": asdict(self.settings),
        }


def opened(
    model: str | Path, data: str | None, fraction: float, extraction: Extraction, settings: Finetuning, work: Work
) -> Task:
    """The model and the images. Raises UsageError where one is not fit for the other, or for being measured."""
    if not 0 < fraction <= 1:
        raise UsageError(f"fraction is {fraction}, expected a share over 0 and up to 1, for example 0.01")
    subject = open_model(model, image_size=extraction.image_size, seed=settings.seed)
    if not hasattr(subject.model, "made_by"):
        raise UsageError(f"{model} takes no classifier; give a run, a release, {TIMM}NAME or {INIT}RECIPE")
    if extraction.folds is not None:
        raise UsageError("a fine-tuned model is one model, and folds give several; use holdout, for example 0.2")
    train, test = sources_of(subject.recipe, range_of(subject), data, extraction)
    check_labels(labels_of(train), labels_of(test))
    if fraction < 1:
        train = fraction_of(train, fraction, settings.seed)
    check_trainable(labels_of(train))
    shared = refuse_overlap(train, test, allow=extraction.allow_overlap, accelerator=work.accelerator)
    for line in absences(labels_of(train), labels_of(test)):
        work.say(f"note: {line}")
    held = None
    if settings.holdout:
        train, held = held_out(train, settings.holdout, settings.seed, work.accelerator)
    return Task(subject, settings, train, held, test, shared)


def prepared(
    task: Task, accelerator: Accelerator, *, workers: int
) -> tuple[ClassifierTrainer, LabelledCrops, dict[str, Any]]:
    """The model with a new classifier, the batches that it is trained on, and what a result of that rests on."""
    subject, settings, train = task.subject, task.settings, task.train
    micro_batch = _micro_batch(settings, len(train), accelerator.num_processes)
    crops = LabelledCrops(
        train,
        size=subject.transform.size,
        mean=subject.transform.mean,
        std=subject.transform.std,
        batch_size=settings.batch_size,
        micro_batch_size=micro_batch,
        rank=accelerator.process_index,
        world=accelerator.num_processes,
        seed=settings.seed,
        device=accelerator.device,
        workers=workers,
        drop_last=True,
    )
    torch.manual_seed(settings.seed)  # the same new classifier on every process
    assert train.classes is not None
    network, classifier = with_classifier(subject.model, len(train.classes))
    start_small(network)
    freeze_idle(network, subject.transform.size)
    assert train.labels is not None
    trainer = ClassifierTrainer(
        network, classifier, settings, accelerator, steps_per_epoch=crops.steps_per_epoch,
        images_of=np.bincount(train.labels, minlength=len(train.classes)),
    )  # fmt: skip
    torch.manual_seed(settings.seed + accelerator.process_index)  # dropout and drop-path differ over processes
    sharing, fingerprint = processes_of_bn(accelerator, settings.sync_bn, 0), same_data(accelerator, train)
    return trainer, crops, given_to(network, micro_batch, sharing, accelerator, len(train), fingerprint)


def _micro_batch(settings: Finetuning, images: int, processes: int) -> int:
    """Images that a process takes at a time. Raises UsageError for a batch that the images or processes do not fit."""
    shares = processes * settings.accumulation
    if settings.batch_size % shares or images < settings.batch_size:
        raise UsageError(
            f"batch_size is {settings.batch_size} for {images} images, {processes} process(es) and"
            f" {settings.accumulation} accumulation steps; expected a multiple of {shares} and at most {images}:"
            " set it as batch_size=N"
        )
    micro_batch = settings.batch_size // shares
    if (settings.mixup or settings.cutmix) and micro_batch % 2:
        raise UsageError(
            f"mixup and cutmix pair the images of a process, which are {micro_batch} at a time; set"
            " batch_size and accumulation so that they are even"
        )
    return micro_batch
