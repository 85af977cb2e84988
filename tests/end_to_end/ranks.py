"""One training run of every predictor family on a small network without BN, on any number of processes.

torchrun --nproc_per_node 2 tests/end_to_end/ranks.py FOLDER

writes what each process ended with to FOLDER/rank0.pt and FOLDER/rank1.pt; ``test_ranks.py`` runs the same on one
process and compares.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import Tensor, nn

from ssl_hub.config import Optim
from ssl_hub.model.losses import LOSSES
from ssl_hub.model.predictors import PREDICTORS
from ssl_hub.model.siamese import Encoder, Siamese
from ssl_hub.model.targets import TARGETS
from ssl_hub.train.step import Trainer

STEPS, BATCH, WIDTH, FEATURES = 20, 32, 4, 6
SGD = Optim(name="sgd", lr=0.05, reference_batch=None, momentum=0.9, weight_decay=4e-4, schedule="cosine")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A predictor and what goes with it."""

    predictor: str
    options: dict[str, Any] = field(default_factory=dict)
    target: str = "ema"
    target_options: dict[str, Any] = field(default_factory=dict)
    loss: str = "cosine"
    loss_options: dict[str, Any] = field(default_factory=dict)
    optim: Optim = SGD
    steps: int = STEPS
    frozen_steps: int = 0


COSINE_EMA = {"momentum": 0.9, "schedule": "cosine"}
# Each micro-batch's loss is a function of its own samples and of weights: any split of the batch gives one result.
EXACT = {
    "linear": Case(predictor="linear", target_options=COSINE_EMA),
    "linear-bias": Case(predictor="linear", options={"bias": True}, target="stopgrad"),
    "linear-lars": Case(predictor="linear", optim=replace(SGD, name="lars", trust_coefficient=0.1)),
    "linear-adamw": Case(predictor="linear", optim=replace(SGD, name="adamw", lr=0.003)),
    "linear-clipped": Case(predictor="linear", optim=replace(SGD, clip_norm=0.05)),
    "linear-ratio": Case(
        predictor="linear",
        optim=replace(SGD, predictor_lr_ratio=4.0, predictor_schedule="constant", predictor_weight_decay=1e-2),
    ),
    "linear-frozen-first": Case(predictor="linear", target_options=COSINE_EMA, frozen_steps=5),
    "linear-attached": Case(predictor="linear", target="none", loss="mse", optim=replace(SGD, lr=0.003)),
    "linear-one-sided": Case(predictor="linear", loss_options={"symmetrised": False}),
    "symmetric": Case(predictor="symmetric", options={"layers": 1}),
    "symmetric-bias": Case(predictor="symmetric", options={"layers": 1, "bias": True}),
    "direct": Case(predictor="direct", target_options=COSINE_EMA, steps=40),
    "direct-freq3": Case(predictor="direct", options={"freq": 3}),
    "direct-freq3-momentum-through": Case(predictor="direct", options={"freq": 3, "momentum_through": True}),
    "direct-freq0": Case(predictor="direct", options={"freq": 0}),
    "direct-centred": Case(predictor="direct", options={"centred": True}),
    "direct-copy": Case(predictor="direct", options={"alpha": 1.0, "eps": 0.3}),
    "direct-paper": Case(predictor="direct", options={"form": "paper"}),
    "direct-homogeneous": Case(predictor="direct", options={"form": "homogeneous", "rho": None}),
    "direct-absolute": Case(predictor="direct", options={"form": "absolute", "c": 0.01}),
    "direct-one-sided": Case(predictor="direct", loss_options={"symmetrised": False}),
    "direct-iso": Case(predictor="direct", loss="iso", target="stopgrad"),
    "direct-iso-mse": Case(predictor="direct", loss="iso_mse", optim=replace(SGD, lr=0.003)),
    **{f"optimal-{s}": Case(predictor="optimal", options={"solution": s}) for s in ("right", "left", "caption")},
    "optimal-sylvester-freq3": Case(predictor="optimal", options={"solution": "sylvester", "freq": 3}),
    "newton-schulz": Case(predictor="newton_schulz", options={"chained": 2}),
    "stiefel": Case(predictor="stiefel"),
    "identity": Case(predictor="identity"),
}
# BN in the predictor sees one process's micro-batch: two processes equal two micro-batches, not one large one.
BATCH_NORM = {
    "mlp": Case(predictor="mlp", options={"hidden_width": 8}),
    "symmetric-two-layers": Case(predictor="symmetric", options={"layers": 2, "hidden_width": 8}),
}
# Splits of the feature space are at the mean of one process's micro-batch.
PARTITIONS = {"partitions": Case(predictor="direct", options={"partitions": 2})}
# Singular values are those of the micro-batches of all processes together, and of each when gradients are accumulated.
GATHERED = {
    "rank-filter": Case(predictor="rank_filter", options={"function": "log1p"}),
    "rank-filter-iso": Case(predictor="rank_filter", loss="iso", target="stopgrad"),
}
CASES = {**EXACT, **BATCH_NORM, **PARTITIONS, **GATHERED}
POISONED = 3  # the step at which the second half of the batch is not a number, in the runs that test it


def trainer(case: Case, accumulation: int = 1) -> Trainer:
    """The same initial model everywhere."""
    torch.manual_seed(1)
    encoder = Encoder(nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, WIDTH, bias=False)), nn.Identity())
    siamese = Siamese(
        encoder,
        PREDICTORS[case.predictor](WIDTH, **case.options),
        TARGETS[case.target](**case.target_options),
        LOSSES[case.loss](**case.loss_options),
    ).double()
    return Trainer(
        siamese,
        case.optim,
        Accelerator(cpu=True),
        lr=case.optim.lr,
        total_steps=case.steps,
        warmup_steps=4,
        accumulation=accumulation,
        frozen_steps=case.frozen_steps,
    )


def batches(steps: int, *, poisoned: bool = False) -> Iterator[tuple[Tensor, Tensor]]:
    """Two float64 views [32, 6] for each step, the same on every process."""
    generator = torch.Generator().manual_seed(2)
    for step in range(steps):
        x = torch.randn(BATCH, FEATURES, generator=generator, dtype=torch.float64)
        views = [x + 0.3 * torch.randn(x.shape, generator=generator, dtype=torch.float64) for _ in range(2)]
        if poisoned and step == POISONED:
            views[0][BATCH // 2 :] = float("nan")
        yield views[0], views[1]


def train(
    case: Case, *, accumulation: int = 1, poisoned: bool = False, repeated: bool = False, rows: int = BATCH
) -> dict[str, Any]:
    """Train ``case`` on this process's share of each batch and return what it ended with, and its schedules.

    ``rows`` cuts the batch; ``repeated`` gives every process all of that rather than its share. A ``poisoned`` run ends
    a few steps after the one that it skips.
    """
    if poisoned:
        case = replace(case, steps=POISONED + 5)
    run = trainer(case, accumulation)
    rank, world = (0, 1) if repeated else (run.accelerator.process_index, run.accelerator.num_processes)
    lrs, momenta, skipped = [], [], []
    for pair in batches(case.steps, poisoned=poisoned):
        shares = zip(*(view[:rows].chunk(accumulation * world) for view in pair), strict=True)
        report = run.advance(list(shares)[rank::world])
        lrs.append(report.lr)
        momenta.append(report.momentum)
        skipped.append(report.skipped)
    # clone: the trainer's tensors go on living, and a state is saved once for all cases
    return {
        **{branch: {k: v.detach().clone() for k, v in run.state_dict()[branch].items()} for branch in BRANCHES},
        "step": run.step,
        "lr": lrs,
        "momentum": momenta,
        "skipped": skipped,
    }


BRANCHES = ("online", "target")


class Counter:
    """Counts calls of ``torch.distributed.all_reduce``, which DDP's own gradient reduction does not use."""

    def __init__(self) -> None:
        self.calls, self._real = 0, dist.all_reduce
        dist.all_reduce = self

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.calls += 1
        return self._real(*arguments, **options)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    accelerator = Accelerator(cpu=True)
    counter, found = Counter(), {}
    for name, case in CASES.items():
        counter.calls = 0
        state = train(case)
        state["all_reduces_per_step"] = counter.calls / case.steps
        found[name] = state
    found["poisoned"] = {name: train(case, poisoned=True) for name, case in CASES.items()}
    found["repeated"] = {name: train(case, repeated=True, rows=BATCH // 2) for name, case in PARTITIONS.items()}
    torch.save(found, folder / f"rank{accelerator.process_index}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    dist.destroy_process_group()
