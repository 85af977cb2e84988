"""Fine-tuning a pretrained backbone with labels: on all of them, on 1 % or 10 %, or on other data."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from ssl_hub.atomic import expanded
from ssl_hub.codec import flat, plain, with_settings
from ssl_hub.data.sources import Source
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.accuracy import accuracy_results
from ssl_hub.evaluate.extraction import Extraction
from ssl_hub.evaluate.features import extract
from ssl_hub.evaluate.per_class import PerClass
from ssl_hub.evaluate.record import Recorder
from ssl_hub.evaluate.subject import INIT, Subject
from ssl_hub.evaluate.work import Work
from ssl_hub.hub import store
from ssl_hub.model.release import read_facts, write_recipe
from ssl_hub.model.results import Result, append_results, read_results
from ssl_hub.stopping import interruptible
from ssl_hub.train import checkpoint, run
from ssl_hub.train.classifier import Finetuning
from ssl_hub.train.finetune_epochs import train_epochs
from ssl_hub.train.finetune_task import Task, opened, prepared
from ssl_hub.train.finetuned import command_of, config_of, write_release
from ssl_hub.train.given import changed, refuse
from ssl_hub.train.launch import find_launcher, is_restart, job_id, joined
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
    transform. The last epoch is measured or, with a held-out part of the training images, the best one there;
    ``per_class.csv`` and ``confusion.csv`` say what it does with each class.

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
    began, extraction = time.monotonic(), Extraction(**options)
    work = Work(extraction.batch_size, extraction.workers, accelerator.device, accelerator, show_progress)
    settings = with_settings(Finetuning(seed=extraction.seed), overrides or {})
    task = opened(model, data, fraction, extraction, settings, work)
    source = str(model) if ":" in str(model) else Path(model).resolve().name
    named = "-".join(re.sub(r"[^\w.-]+", "-", part) for part in (source, "finetuned", task.train.name))
    folder = store.home() / named if output is None else expanded(output)
    _refuse_own_source(model, task.subject, folder)
    job = job_id(find_launcher())
    resume, overwrite = run.settled(folder, resume=resume, overwrite=overwrite, restart=job if is_restart() else None)
    facts = task.facts(source)
    run.claim(folder, resume=resume, overwrite=overwrite, command="finetune")
    before = read_facts(folder) if resume else {}
    _refuse_changes(before, facts, folder)
    if resume == "auto" and run.is_finished(folder):
        if accelerator.is_main_process:
            print(f"the model in {folder} is finished: nothing to do", file=sys.stderr)
        return folder, read_results(folder)

    command = command_of(source, data, fraction, extraction, settings)
    config = config_of(task.subject, source, task.train, command, extraction.range)
    trainer, crops, given = prepared(task, accelerator, workers=extraction.workers)
    refuse(changed(before, given))
    accelerator.wait_for_everyone()
    whole = {**facts, **given, ASKED: plain(asked, "finetune"), **run.facts_of(before, accelerator.num_processes, job)}
    with run.held(folder, accelerator, resume=resume, overwrite=overwrite, command="finetune"):
        state = checkpoint.restore(folder / run.CHECKPOINTS, trainer, accelerator) if resume else None
        on_main(accelerator, lambda: write_recipe(folder, task.subject.recipe, whole))
        held = None if task.held is None else partial(_top1, trainer.network, task.held, task.subject, work)
        with closing(crops):
            best = train_epochs(trainer, crops, folder, accelerator, state, held_out=held, show_progress=show_progress)
        settled = {**facts, **asdict(settings), **({} if best is None else {"best_epoch": best.epoch})}
        results = _measured_and_published(folder, trainer.network, task, config, settled, work, began)
    return folder, results


def _top1(network: nn.Module, held: Source, subject: Subject, work: Work) -> float:
    """In percent. Collective."""
    scores, labels = _scores(network, held, subject, work._replace(show_progress=False))
    return 100 * int((scores.argmax(dim=1) == labels).sum()) / len(labels)


def _measured_and_published(
    folder: Path, network: nn.Module, task: Task, config: dict[str, Any], settled: dict[str, Any], work: Work,
    began: float,
) -> list[Result]:  # fmt: skip
    """The release, and what the classifier reaches on the test split, for each class too. Collective."""
    train, test, subject = task.train, task.test, task.subject
    scores, labels = _scores(network, test, subject, work)
    recorder = Recorder(None, train, test, task.shared, work, began=began)
    results = recorder.complete(_measured(scores, labels, test, subject, settled))
    assert train.classes is not None
    by_class = PerClass.of(scores.argmax(dim=1).numpy(), labels.numpy(), train.classes)

    def publish() -> None:
        write_release(folder, network, config, train)
        by_class.write(folder)
        append_results(folder, results)
        run.finish(folder)

    assert work.accelerator is not None
    on_main(work.accelerator, publish)
    work.say("\n".join(["the classes that it does worst on:", *by_class.worst()]))
    return results


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


def _refuse_own_source(model: str | Path, subject: Subject, folder: Path) -> None:
    """Raise UsageError where the fine-tuned model would take the place of the one that it starts from."""
    name = str(model).removeprefix(INIT)
    source = subject.folder if name == str(model) or name in RECIPES else Path(name)
    if source is not None and source.resolve().is_relative_to(folder.resolve()):
        raise UsageError(
            f"--output {folder} is or holds {model}, which fine-tuning starts from; choose another --output"
        )
