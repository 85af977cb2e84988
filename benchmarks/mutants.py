"""Forty faults that a maintainer could make and no error would show, by room: the set of ``mutation.py``.

They were written by reading the code, before any test was run on them. Where code moves, its fault moves with it:
``tests/test_mutants.py`` says which texts are no longer there.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Fault(NamedTuple):
    """``old``, which is once in ``file`` (below ``ssl_hub/``), becomes ``new``; ``tests`` ought to fail then."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def source(self, root: Path) -> Path:
        return root / "ssl_hub" / self.file

    def put_into(self, text: str) -> str:
        """The text of the file with the fault. Raises ValueError where ``old`` is not there exactly once."""
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.name}: {self.old!r} is {count} times in ssl_hub/{self.file}, expected once")
        return text.replace(self.old, self.new)


TAKEN = (
    "            self.optimizer.step()  # with a scaler: skips itself where it found infinities, and lowers the scale\n"
    "            is_taken = scaler is None or not self.optimizer.step_was_skipped\n"
)

FAULTS = (
    Fault(
        "the target keeps its gradient",
        "model/targets.py",
        "[f.detach() if f is not None",
        "[f if f is not None",
        ("tests/model/test_targets.py", "tests/model/test_siamese.py"),
    ),
    Fault(
        "each view is its own target",
        "model/siamese.py",
        "self.target.project([view2, view1], projections[::-1], self.encoder)",
        "self.target.project([view1, view2], projections, self.encoder)",
        ("tests/model/test_siamese.py",),
    ),
    Fault(
        "F is centred though nobody asked",
        "model/predictors/computed.py",
        "RunningExpectation(width, rho=rho) if centred else None",
        "RunningExpectation(width, rho=rho)",
        ("tests/model/test_predictors.py",),
    ),
    Fault(
        "eps is not scaled with F",
        "model/spectrum.py",
        "** alpha + eps * unit",
        "** alpha + eps",
        ("tests/model/test_spectrum.py",),
    ),
    Fault(
        "LARS dampens its momentum",
        "model/lars.py",
        '"dampening": 0.0',
        '"dampening": group["momentum"]',
        ("tests/train/test_optim.py",),
    ),
    Fault(
        "results of two seeds are one",
        "model/results.py",
        '"protocol", "settings", "seed")',
        '"protocol", "settings")',
        ("tests/model/test_results.py",),
    ),
    Fault(
        "the split that the model was trained on is forgotten",
        "model/standing.py",
        "bases(fitted_split(result) or train_split) | bases(train_split)",
        "bases(fitted_split(result) or train_split)",
        ("tests/model/test_results.py", "tests/tables/test_traps.py"),
    ),
    Fault(
        "the blur is narrower than its sigma",
        "data/photometric.py",
        "np.exp(-0.5 * distances**2)",
        "np.exp(-(distances**2))",
        ("tests/data/test_photometric.py",),
    ),
    Fault(
        "a resumed epoch forgets accumulation",
        "data/loaders.py",
        "start_step * self.accumulation",
        "start_step",
        ("tests/data/test_loaders.py",),
    ),
    Fault(
        "a stream's cursor is an image behind",
        "data/streams.py",
        "opened._replace(taken=number + 1)",
        "opened._replace(taken=number)",
        ("tests/data/test_streams.py",),
    ),
    Fault(
        "both views take one draw",
        "data/views.py",
        "self._draws(indices, epoch, view), view, shape)",
        "self._draws(indices, epoch, 0), view, shape)",
        ("tests/data/test_views.py",),
    ),
    Fault(
        "braces leave out the last shard",
        "data/addresses.py",
        "range(int(first), int(last) + 1)",
        "range(int(first), int(last))",
        ("tests/data/test_addresses.py",),
    ),
    Fault(
        "the plan trains on the test images",
        "zoo/data_plan.py",
        'in ("train", "unlabeled") if',
        'in ("train", "unlabeled", "test") if',
        ("tests/zoo/test_advice.py",),
    ),
    Fault(
        "a bit is missing at powers of two",
        "zoo/advice.py",
        "math.ceil(math.log2(high + 1))",
        "math.ceil(math.log2(high))",
        ("tests/zoo/test_advice.py",),
    ),
    Fault(
        "the hashes of heads are not checked",
        "hub/store.py",
        "check_whole(folder, files)",
        "check_whole(folder, TO_LOAD)",
        ("tests/hub/test_store.py", "tests/hub/test_verify.py"),
    ),
    Fault(
        "queries and keys change places",
        "hub/importers/renaming.py",
        'for letter in "qkv"',
        'for letter in "kqv"',
        ("tests/hub/test_importers.py",),
    ),
    Fault(
        "a name leads out of the store",
        "hub/inventory.py",
        'if not name or "/" in name or name.startswith((".", "~")):',
        'if not name or name.startswith(("/", "~")):',
        ("tests/hub/test_inventory.py",),
    ),
    Fault(
        "a private repository is made public",
        "hub/publish.py",
        "private=private or None, exist_ok=True",
        "exist_ok=True",
        ("tests/hub/test_publish.py",),
    ),
    Fault(
        "the interval takes the quantile of one side",
        "evaluate/intervals.py",
        "UPPER = 0.975",
        "UPPER = 0.95",
        ("tests/evaluate/test_intervals.py",),
    ),
    Fault(
        "Student's t has a degree of freedom too many",
        "evaluate/intervals.py",
        "stdtrit(runs - 1, UPPER)",
        "stdtrit(runs, UPPER)",
        ("tests/evaluate/test_intervals.py",),
    ),
    Fault(
        "a strength is chosen on images that were fitted to",
        "evaluate/linear.py",
        "part = Logistic(train.x, y, kept, ",
        "part = Logistic(train.x, y, np.arange(len(train)), ",
        ("tests/evaluate/test_linear.py",),
    ),
    Fault(
        "the index does not know the transform",
        "evaluate/similarity_index.py",
        "repr(subject.model), repr(subject.transform))",
        "repr(subject.model))",
        ("tests/evaluate/test_similarity_index.py",),
    ),
    Fault(
        "an exported file divides by 256",
        "exporting/program.py",
        "images.float() * (1 / 255)",
        "images.float() * (1 / 256)",
        ("tests/exporting/test_export.py",),
    ),
    Fault(
        "the share of the crop is upside down",
        "exporting/about.py",
        "transform.size / transform.resize",
        "transform.resize / transform.size",
        ("tests/exporting/test_export.py",),
    ),
    Fault(
        "the oldest number of a seed counts",
        "tables/pooling.py",
        "key=lambda pair: pair[0].when, reverse=True)",
        "key=lambda pair: pair[0].when)",
        ("tests/tables/test_traps.py", "tests/tables/test_report.py"),
    ),
    Fault(
        "a paired difference has the wrong sign",
        "tables/comparison.py",
        "other[seed].value - first[seed].value",
        "first[seed].value - other[seed].value",
        ("tests/tables/test_comparison.py",),
    ),
    Fault(
        "the average moves before the optimiser's step",
        "train/step.py",
        TAKEN + "        if is_taken:\n            self.siamese.after_step(step, self.total_steps)\n",
        "            self.siamese.after_step(step, self.total_steps)\n" + TAKEN + "        if is_taken:\n",
        ("tests/train/test_step.py",),
    ),
    Fault(
        "warm-up begins at nothing",
        "train/optim.py",
        "return (step + 1) / warmup_steps",
        "return step / warmup_steps",
        ("tests/train/test_optim.py",),
    ),
    Fault(
        "a resumed run forgets the batches that were skipped",
        "train/step.py",
        'int(state["step"]), int(state["position"])',
        'int(state["step"]), int(state["step"])',
        ("tests/train/test_step.py", "tests/train/test_checkpoint.py"),
    ),
    Fault(
        "mixed labels are not smoothed",
        "train/classifier.py",
        "smoothing = self.settings.label_smoothing",
        "smoothing = self.settings.label_smoothing if self._mixing is None else 0.0",
        ("tests/train/test_finetune_options.py",),
    ),
    Fault(
        "the last of equal epochs is the best",
        "train/finetune_epochs.py",
        "if top1 > self.top1:",
        "if top1 >= self.top1:",
        ("tests/train/test_finetune_options.py",),
    ),
    Fault(
        "the log ends a reading before the checkpoint",
        "report/record.py",
        'reading["step"] <= at',
        'reading["step"] < at',
        ("tests/report/test_record.py",),
    ),
    Fault(
        "shared images are left out by their places in the bank",
        "report/story.py",
        "overlap(seen, asked).places",
        "overlap(asked, seen).places",
        ("tests/report/test_page.py", "tests/report/test_pictures.py"),
    ),
    Fault(
        "the average follows the amplitude instead of its square",
        "theory/modes.py",
        "return dw, dwa, self.averaging * (w * w - average)",
        "return dw, dwa, self.averaging * (w - average)",
        ("tests/theory/test_modes.py",),
    ),
    Fault(
        "the target's gradient lacks X'",
        "theory/dynamics.py",
        "- W @ (self.x + self.xprime)\n        return dWp, dW",
        "- W @ self.x\n        return dWp, dW",
        ("tests/theory/test_dynamics.py",),
    ),
    Fault(
        "--replace-head is ignored",
        "commands/evaluate.py",
        'options(arguments, "protocol", "replace_head")',
        'options(arguments, "protocol")',
        ("tests/test_cli.py", "tests/evaluate/test_keeping.py"),
    ),
    Fault(
        "push --revision is ignored",
        "commands/hub.py",
        'names = ("private", "revision", "dry_run",',
        'names = ("private", "dry_run",',
        ("tests/hub/test_commands.py",),
    ),
    Fault(
        "a sweep of leftovers takes everybody's .part files",
        "atomic.py",
        'in filter(is_leftover, folder.rglob("*.part")):',
        'in folder.rglob("*.part"):',
        ("tests/test_atomic.py", "tests/train/test_run.py"),
    ),
    Fault(
        "a share may be one",
        "limits.py",
        "least <= value < high",
        "least <= value <= high",
        ("tests/test_limits.py",),
    ),
    Fault(
        "options are set before the kind",
        "codec.py",
        'key=lambda item: not item[0].endswith(".kind")',
        'key=lambda item: item[0].endswith(".kind")',
        ("tests/test_codec.py",),
    ),
)
