"""What a run says of itself while it trains: metrics.jsonl, the console, the health monitor and the kNN accuracy."""

from __future__ import annotations

import sys
import time
from typing import Any

from tqdm import tqdm

from ssl_hub.hub.weights import INITIALISED_FROM
from ssl_hub.model.metrics import Metrics
from ssl_hub.train.job import Job
from ssl_hub.train.monitor import spectrum
from ssl_hub.train.step import Report


class Journal:
    """Reads a step's report when a reading is due, and passes it on. Silent on all processes but the main one."""

    def __init__(self, job: Job) -> None:
        trainer, main = job.trainer, job.accelerator.is_main_process
        self._job, self._main = job, main
        self._monitor = job.monitor
        # A run that starts again without a checkpoint measures its start again.
        start = {"from_step": trainer.step if trainer.position else -1, "from_batch": trainer.position}
        self._metrics = Metrics(job.folder, **start) if main else None
        self.console = Console(total_steps=trainer.total_steps, done=trainer.step, main=main)
        self._announce()
        self._read_at, self._batches_read = time.perf_counter(), trainer.position
        if trainer.position == 0:
            self._measure_start()

    @property
    def collapsed(self) -> bool:
        return self._monitor.collapsed

    def after_step(self, report: Report) -> None:
        """Take note of one step. Collective over processes where a kNN accuracy is due."""
        job, runtime = self._job, self._job.recipe.runtime
        epoch, epoch_ends, skipped = job.epoch, job.at_epoch_end or job.done, report.skipped
        if epoch_ends or job.trainer.step % runtime.log_every_steps == 0:
            skipped |= job.trainer.settle()  # a reading waits for the device anyway
        step = job.trainer.step
        self.console.step(step)
        if skipped:
            self.console.say(f"step {step}: gradients not finite, step skipped")
        if epoch_ends or (step % runtime.log_every_steps == 0 and not skipped):
            reading = self._read(report, step, epoch)
            self.console.show(epoch, reading)
            if epoch_ends:
                if self._main:
                    reading["spectrum"] = spectrum(report.projections, job.trainer.siamese.predictor)
                due = job.done or job.epoch_is(runtime.knn_every_epochs)
                reached = self._measured() if due else {}
                reading |= reached
                self.console.epoch_line(epoch, job.epochs, reading, self._in_words(reached))
            if self._metrics is not None:
                self._metrics.write(reading)
            scalars = {k: v for k, v in reading.items() if isinstance(v, (int, float)) and k not in ("step", "batch")}
            job.accelerator.log(scalars, step=step)

    def _measure_start(self) -> None:
        """The accuracy before the first step, which every later one is to be compared with. Collective."""
        reached = self._measured()
        if not reached:
            return
        self.console.say(f"before the first step: {self._in_words(reached)}")
        if self._metrics is not None:
            self._metrics.write({"step": 0, "batch": 0, "epoch": 0, **reached})
        self._job.accelerator.log(reached, step=0)

    def _measured(self) -> dict[str, float]:
        """Accuracies of the backbone as it is, and ``knn_seconds``; nothing where none can be measured. Collective."""
        reached = self._job.accuracy.measure(self._job.trainer.siamese.encoder.backbone, self._job.accelerator)
        if not reached:
            return {}
        begun, self._read_at = self._read_at, time.perf_counter()
        return {**reached, "knn_seconds": self._read_at - begun}

    def close(self) -> None:
        self.console.close()
        if self._metrics is not None:
            self._metrics.close()

    def _read(self, report: Report, step: int, epoch: int) -> dict[str, Any]:
        job, collapsed_before = self._job, self.collapsed
        loss = float(report.loss)  # waits for the device, so what it has done is in the time
        now, batches = time.perf_counter(), job.trainer.position - self._batches_read
        seconds = max(now - self._read_at, 1e-9)  # since the last reading, kNN not counted
        every = job.recipe.runtime.log_every_steps * job.recipe.runtime.spectra_every_readings
        spectra = self._main and (step % every == 0 or job.at_epoch_end or job.done)
        reading = {
            "step": step,
            "batch": job.trainer.position,
            "epoch": epoch,
            "loss": loss,
            "lr": report.lr,
            "momentum": report.momentum,
            "grad_norm": float(report.grad_norm),
            "images_per_second": batches * job.recipe.train.batch_size / seconds,
            "seconds": seconds,
            "data_share": job.waiting.take() / seconds,
            **self._monitor.read(report, job.trainer.siamese.predictor, spectra=spectra),
        }
        self._read_at, self._batches_read = now, job.trainer.position
        if job.loader.bad is not None:
            reading["bad_images"] = len(job.loader.bad)  # that this process met
        if self.collapsed and not collapsed_before:
            self.console.say(
                f"warning: step {step}: features have collapsed (std {reading['feature_std']:.2g}, healthy"
                f" {reading['healthy_std']:.2g}); the representation is close to a constant"
            )
        return reading

    def _in_words(self, reached: dict[str, float]) -> str:
        """``kNN 61.2 % (57.1 to 65.1), probe 64.0 % (59.9 to 67.9)``, and of what; nothing where none was measured."""
        told = [
            f"{words} {reached[f'{name}_top1']:.1f} % ({reached[f'{name}_low']:.1f} to {reached[f'{name}_high']:.1f})"
            for name, words in (("knn", "kNN"), ("probe", "probe"))
            if f"{name}_top1" in reached
        ]
        return f"{', '.join(told)}, {self._job.accuracy.name}" if told else ""

    def _announce(self) -> None:
        job, facts = self._job, self._job.facts
        recipe, batch = job.recipe, facts["batch_size"]
        where = "decoded once" if facts["resident"] else f"decoded by {recipe.runtime.workers} workers"
        images = "a stream" if facts["images"] is None else f"{facts['images']} images"
        if facts["warning"]:
            self.console.say(f"warning: {facts['warning']}")
        self.console.say(
            f"{recipe.name}: {recipe.summary}\n"
            f"  data    {recipe.data.name} ({recipe.data.pretrain_split}), {images}, {where}\n"
            f"  batch   {batch['total']} = {batch['per_process']} x {facts['processes']} process(es)"
            f" x {batch['accumulation']} accumulation\n"
            f"  lr      {facts['learning_rate']['factors']}\n"
            f"  device  {facts['device']}, precision {facts['precision']},"
            f" {facts['threads_per_process']} thread(s) a process{self._compiled_in_words()}\n"
            f"{self._start_in_words()}"
            f"  steps   {facts['steps']}{f', resumed at {job.trainer.step}' if job.resumed else ''}\n"
            f"  spread  feature std of the projections x sqrt(width): near 1 is healthy, near 0 collapsed\n"
            f"  run     {job.folder}"
        )
        if (origin := facts.get(INITIALISED_FROM)) and origin.get("warning") and not job.resumed:
            self.console.say(f"warning: {origin['warning']}")
        if (warmup := job.trainer.warmup_steps) > facts["steps"]:
            self.console.say(
                f"warning: optim.warmup_epochs is {recipe.optim.warmup_epochs:g}, {warmup} steps, and the run has"
                f" {facts['steps']}: the learning rate never reaches its value; lower optim.warmup_epochs"
            )
        unmeasurable = self._job.accuracy.unmeasurable
        if unmeasurable is not None and not recipe.data.stream:
            self.console.say(
                f"warning: accuracy will not be measured: {unmeasurable}; --monitor-data takes labelled images,"
                " and ssl-hub probe can hold some out (--folds 5, --holdout 0.2)"
            )
        seen = facts["images_at_once"]
        if seen is not None and seen != batch["total"]:
            self.console.say(
                f"warning: BN sees {seen} images at a time, not the recipe's {batch['total']}; results can differ"
            )

    def _compiled_in_words(self) -> str:
        mode, replays = self._job.recipe.runtime.compile, self._job.facts.get("cuda_graphs")
        if isinstance(mode, bool):
            return ", compiled" if mode else ""
        return f", compiled ({mode})" if replays is not False else f", compiled ({mode}; no CUDA graphs on this device)"

    def _start_in_words(self) -> str:
        """What the backbone starts from, where that is not random weights."""
        origin = self._job.facts.get(INITIALISED_FROM)
        if origin is None:
            return ""
        views, kept = self._job.recipe.views, f"{origin['kind']}, {origin['licence']}, sha256 {origin['sha256'][:12]}"
        images = f"mean {views.mean}, std {views.std} by the {origin['normalised_by']}"
        return f"  start   {origin['name']} ({kept}); images: {images}\n"


class Console:
    """A bar on a terminal, a line per epoch elsewhere; silent on all processes but the main one."""

    def __init__(self, *, total_steps: int, done: int, main: bool) -> None:
        self._main = main
        self._live = main and sys.stderr.isatty()
        self._bar = tqdm(
            total=total_steps, initial=done, disable=not self._live, unit="step", dynamic_ncols=True, mininterval=0.5
        )
        self._started, self._batches, self._total, self._done = time.monotonic(), 0, total_steps, done

    def say(self, text: str) -> None:
        if self._main:
            tqdm.write(text, file=sys.stderr)

    def step(self, step: int) -> None:
        """One batch more; ``step`` counts the optimiser steps taken, which a skipped batch does not add to."""
        self._batches += 1
        self._bar.update(step - self._done)
        self._done = step

    def show(self, epoch: int, reading: dict[str, Any]) -> None:
        """Refresh the numbers beside the bar."""
        speed = f"{reading['images_per_second']:.0f} img/s"
        self._bar.set_postfix_str(
            f"epoch {epoch}, loss {reading['loss']:.4f}, lr {reading['lr']:.3g}, {speed}", refresh=False
        )

    def epoch_line(self, epoch: int, epochs: int, reading: dict[str, Any], knn: str = "") -> None:
        """One line for an epoch, where there is no bar or there is a kNN accuracy to report."""
        if self._live and not knn:
            return
        left = max(self._total - self._done, 0) * (time.monotonic() - self._started) / max(self._batches, 1)
        minutes, seconds = divmod(round(left), 60)
        self.say(
            f"epoch {epoch}/{max(epoch, epochs)}  loss {reading['loss']:.4f}  lr {reading['lr']:.3g}  "
            f"spread {reading['feature_std'] / reading['healthy_std']:.2f}  "
            f"{reading['images_per_second']:.0f} images/s  {minutes}:{seconds:02d} left  {knn}".rstrip()
        )

    def close(self) -> None:
        self._bar.close()
