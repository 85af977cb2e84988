"""Fine-tuning a pretrained backbone with labels: on all of them, on 1 % or 10 %, or on other data."""

from __future__ import annotations

import re
import shlex
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ssl_hub.atomic import expanded
from ssl_hub.codec import flat, plain, with_settings
from ssl_hub.data.labelled import LabelledCrops
from ssl_hub.data.sources import Source
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.accuracy import accuracy_results
from ssl_hub.evaluate.agreement import same_data
from ssl_hub.evaluate.extraction import Extraction, absences, fraction_of, held_out, sources_of
from ssl_hub.evaluate.features import extract
from ssl_hub.evaluate.labels import check_labels, check_trainable, labels_of
from ssl_hub.evaluate.overlap import refuse_overlap
from ssl_hub.evaluate.per_class import PerClass
from ssl_hub.evaluate.record import Recorder
from ssl_hub.evaluate.subject import INIT, TIMM, Subject, open_model
from ssl_hub.evaluate.work import Work
from ssl_hub.hub import store
from ssl_hub.model.backbones import freeze_idle
from ssl_hub.model.release import read_facts, write_recipe
from ssl_hub.model.results import Result, append_results, installed_versions, read_results
from ssl_hub.model.stages import start_small, with_classifier
from ssl_hub.stopping import interruptible
from ssl_hub.train import checkpoint, run
from ssl_hub.train.classifier import ClassifierTrainer, Finetuning
from ssl_hub.train.finetune_epochs import train_epochs
from ssl_hub.train.finetuned import command_of, config_of, write_release
from ssl_hub.train.given import AT_ONCE, FINGERPRINT, IMAGES, PRECISION, changed, refuse
from ssl_hub.train.launch import find_launcher, is_restart, job_id, joined, synchronises
from ssl_hub.train.together import on_main, same_buffers
from ssl_hub.zoo import RECIPES

ASKED = "asked"  # fact: the arguments of `finetune` that a run goes on with


def finetune(
    model: str | Path,
    data: str | None = None,
    *,
    output: str | Path | None = None,
    fraction: float = 1.0,
    resume: run.Resume = False,
    overwrite: bool = False,
    overrides: Mapping[str, Any] | None = None,
    show_progress: bool = False,
    **options: Any,
) -> tuple[Path, list[Result]]:
    """Train a backbone and a new classifier together on labelled images, and leave a folder that is a release.

    Training images are random resized crops, flipped half of the time; test images are the model's own evaluation
    transform. The last epoch is measured or, with
    a held-out part of the training images, the best one there; ``per_class.csv`` and ``confusion.csv`` say what it does
    with each class.

    Args:
        model: a run folder, a release name, ``timm:NAME``, ``timm:NAME@TAG`` or ``init:RECIPE``.
        data: a registered name, path or Hub dataset id; by default what the release was pre-trained on.
        output: the folder; by default one in the store, named after the model and the data.
        fraction: of the training images of each class, at least one, drawn by the seed. Published lists are splits:
            ``train_split="train@1percent.txt"``.
        resume: continue the run in that folder from its newest checkpoint, exactly; ``"auto"`` as in
            :func:`~ssl_hub.train.loop.pretrain`. overwrite: replace it, once the new one has a checkpoint.
        overrides: of the settings of :class:`~ssl_hub.train.classifier.Finetuning`, such as ``{"lr": 0.02}``.
        options: splits, columns, image size, workers, batch of the test and seed: see
            :class:`~ssl_hub.evaluate.extraction.Extraction`.

    Returns:
        The folder, and top-1 (and top-5 from five classes on) on the test split.

    Raises:
        UsageError: anything wrong with the arguments or the data, before training starts; a loss that is not finite.
        Interrupted: after SIGTERM, SIGUSR1 or SIGINT, once the run is saved; exits with code 75. Before the first step
            there is nothing to save, and SIGINT is a KeyboardInterrupt.
    """
    with interruptible(), joined() as accelerator:
        return _finetuned(
            accelerator, model, data, output=output, fraction=fraction, resume=resume, overwrite=overwrite,
            overrides=overrides, show_progress=show_progress, **options,
        )  # fmt: skip


def _finetuned(
    accelerator: Accelerator, model: str | Path, data: str | None, *, output: str | Path | None, fraction: float,
    resume: run.Resume, overwrite: bool, overrides: Mapping[str, Any] | None, show_progress: bool, **options: Any,
) -> tuple[Path, list[Result]]:  # fmt: skip
    """:func:`finetune`, once the processes have met."""
    asked = {"model": str(model), "data": data, "fraction": fraction, "overrides": dict(overrides or {}), **options}
    began = time.monotonic()
    extraction = Extraction(**options)
    settings = with_settings(Finetuning(seed=extraction.seed), overrides or {})
    if not 0 < fraction <= 1:
        raise UsageError(f"fraction is {fraction}, expected a share over 0 and up to 1, for example 0.01")
    subject = open_model(model, image_size=extraction.image_size, seed=settings.seed)
    if not hasattr(subject.model, "made_by"):
        raise UsageError(f"{model} takes no classifier; give a run, a release, {TIMM}NAME or {INIT}RECIPE")
    if extraction.folds is not None:
        raise UsageError("a fine-tuned model is one model, and folds give several; use holdout, for example 0.2")
    train, test = sources_of(subject.recipe, data, extraction)
    check_labels(labels_of(train), labels_of(test))
    if fraction < 1:
        train = fraction_of(train, fraction, settings.seed)
    check_trainable(labels_of(train))
    shared = refuse_overlap(train, test, allow=extraction.allow_overlap, accelerator=accelerator)
    if show_progress and accelerator.is_main_process:
        print(
            "".join(f"note: {line}\n" for line in absences(labels_of(train), labels_of(test))), end="", file=sys.stderr
        )
    source = str(model) if ":" in str(model) else Path(model).resolve().name
    named = "-".join(re.sub(r"[^\w.-]+", "-", part) for part in (source, "finetuned", train.name))
    folder = store.home() / named if output is None else expanded(output)
    _refuse_own_source(model, subject, folder)
    job = job_id(find_launcher())
    resume, overwrite = run.settled(folder, resume=resume, overwrite=overwrite, restart=job if is_restart() else None)
    train, held = held_out(train, settings.holdout, settings.seed, accelerator) if settings.holdout else (train, None)
    facts = {
        "finetuned_from": source,
        "data": train.name,
        "train_split": train.split,
        "train_size": len(train),
        "settings": asdict(settings),
    }
    run.claim(folder, resume=resume, overwrite=overwrite, command="finetune")
    before = read_facts(folder) if resume else {}
    _refuse_changes(before, facts, folder)
    if resume == "auto" and run.is_finished(folder):
        if accelerator.is_main_process:
            print(f"the model in {folder} is finished: nothing to do", file=sys.stderr)
        return folder, read_results(folder)

    command = command_of(source, data, fraction, extraction, settings)
    config = config_of(subject, source, train, command, extraction.range)
    trainer, crops = _prepared(subject, train, settings, accelerator, workers=extraction.workers)
    now = {
        PRECISION: accelerator.mixed_precision,
        AT_ONCE: _images_at_once(trainer, settings, accelerator),
        FINGERPRINT: same_data(accelerator, train),
        IMAGES: len(train),
    }
    refuse(changed(before, now))
    accelerator.wait_for_everyone()
    whole = {**facts, **now, "processes": accelerator.num_processes, run.JOB: job}
    whole |= {ASKED: plain(asked, "finetune"), "versions": installed_versions(), "git_commit": run.git_commit()}
    whole["command"] = before.get("command", shlex.join(sys.argv))
    whole["started"] = before.get("started", datetime.now(UTC).isoformat(timespec="seconds"))
    with run.held(folder, accelerator, resume=resume, overwrite=overwrite, command="finetune"):
        state = checkpoint.restore(folder / run.CHECKPOINTS, trainer, accelerator) if resume else None
        on_main(accelerator, lambda: write_recipe(folder, subject.recipe, whole))
        quiet = Work(extraction.batch_size, extraction.workers, accelerator.device, accelerator)

        def accuracy_held_out() -> float:
            assert held is not None
            scores, labels = _scores(trainer.network, held, subject, quiet)
            return 100 * int((scores.argmax(dim=1) == labels).sum()) / len(labels)

        with closing(crops):
            best = train_epochs(
                trainer, crops, folder, accelerator, state, held_out=None if held is None else accuracy_held_out,
                show_progress=show_progress,
            )  # fmt: skip
        settled = {**facts, **asdict(settings), **({} if best is None else {"best_epoch": best.epoch})}
        scores, labels = _scores(trainer.network, test, subject, quiet._replace(show_progress=show_progress))
        recorder = Recorder(None, train, test, shared, quiet, began=began)
        results = recorder.complete(_measured(scores, labels, test, subject, settled))
        assert train.classes is not None
        by_class = PerClass.of(scores.argmax(dim=1).numpy(), labels.numpy(), train.classes)
        on_main(accelerator, lambda: _publish(folder, trainer.network, config, train, results, by_class))
        if show_progress and accelerator.is_main_process:
            print("\n".join(["the classes that it does worst on:", *by_class.worst()]), file=sys.stderr)
    return folder, results


def _scores(network: nn.Module, source: Source, subject: Subject, work: Work) -> tuple[Tensor, Tensor]:
    """Class scores [N, K] and labels [N] of a split, the same on all processes. Collective."""
    if work.accelerator is not None:
        same_buffers(network, work.accelerator)
    logits = extract(network, source, subject.transform, **work._asdict())
    return torch.from_numpy(logits.x), torch.from_numpy(logits.y)


def _measured(scores: Tensor, labels: Tensor, test: Source, subject: Subject, settings: dict[str, Any]) -> list[Result]:
    every = torch.ones(scores.shape[1], dtype=torch.bool)
    results = accuracy_results(
        scores,
        labels,
        every,
        dataset=test.name,
        split=test.split,
        protocol="finetune",
        settings={name: value for name, value in settings.items() if name not in ("seed", "settings")},
        seed=settings["seed"],
        classes=test.classes or (),
    )
    return [replace(result, collapsed=subject.collapsed) for result in results]


def _refuse_changes(before: Mapping[str, Any], now: Mapping[str, Any], folder: Path) -> None:
    """Raise UsageError that names what differs from the run that goes on; ``before`` is empty where none does.

    A setting that its version did not have was as it is by default.
    """
    were, are = flat({"settings": asdict(Finetuning())}) | flat(dict(before)), flat(dict(now))
    changed = [f"{name.removeprefix('settings.')}={were.get(name)}" for name in are if were.get(name) != are[name]]
    if before and changed:
        raise UsageError(f"the run in {folder} was started with {', '.join(changed)}; resume it with the same")


def _images_at_once(trainer: ClassifierTrainer, settings: Finetuning, accelerator: Accelerator) -> int | None:
    """How many images batch normalisation sees together; None where the network has none."""
    if not any(isinstance(module, _BatchNorm) for module in trainer.network.modules()):
        return None
    together = settings.batch_size // settings.accumulation
    return together if synchronises(accelerator, settings.sync_bn) else together // accelerator.num_processes


def _refuse_own_source(model: str | Path, subject: Subject, folder: Path) -> None:
    """Raise UsageError where the fine-tuned model would take the place of the one that it starts from."""
    name = str(model).removeprefix(INIT)
    source = subject.folder if name == str(model) or name in RECIPES else Path(name)
    if source is not None and source.resolve().is_relative_to(folder.resolve()):
        raise UsageError(
            f"--output {folder} is or holds {model}, which fine-tuning starts from; choose another --output"
        )


def _publish(
    folder: Path,
    network: nn.Module,
    config: dict[str, Any],
    train: Source,
    results: list[Result],
    by_class: PerClass,
) -> None:
    write_release(folder, network, config, train)
    by_class.write(folder)
    append_results(folder, results)
    run.finish(folder)


def _prepared(
    subject: Subject, train: Source, settings: Finetuning, accelerator: Accelerator, *, workers: int
) -> tuple[ClassifierTrainer, LabelledCrops]:
    """The model with a new classifier, and the batches that it is trained on."""
    shares = accelerator.num_processes * settings.accumulation
    if settings.batch_size % shares or len(train) < settings.batch_size:
        raise UsageError(
            f"batch_size is {settings.batch_size} for {len(train)} images, {accelerator.num_processes} process(es) and"
            f" {settings.accumulation} accumulation steps; expected a multiple of {shares} and at most {len(train)}:"
            " set it as batch_size=N"
        )
    if (settings.mixup or settings.cutmix) and settings.batch_size // shares % 2:
        raise UsageError(
            f"mixup and cutmix pair the images of a process, which are {settings.batch_size // shares} at a time; set"
            " batch_size and accumulation so that they are even"
        )
    crops = LabelledCrops(
        train,
        size=subject.transform.size,
        mean=subject.transform.mean,
        std=subject.transform.std,
        batch_size=settings.batch_size,
        micro_batch_size=settings.batch_size // shares,
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
    return trainer, crops
