"""Training times that others have published, against what the cost model makes of the same runs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from scaling_model import Assumptions, predict
from scaling_tables import IMAGENET, Projection, table

SUPERVISED_GFLOP = 24.5  # of an image, forward and backward
NVIDIA = "github.com/NVIDIA/DeepLearningExamples, ResNet50 v1.5 for PyTorch"


@dataclass(frozen=True, kw_only=True)
class Published:
    """A run on ImageNet. ``counted_as`` is the recipe whose step has the same work, times ``work``."""

    name: str
    devices: str
    n: int
    batch: int
    epochs: float
    hours: float
    source: str
    counted_as: str
    rate: float  # TFLOP/s of a device that are assumed
    because: str
    work: float = 1.0
    bn_group: int = 0
    assume: dict[str, Any] = field(default_factory=dict)


RUNS = (
    Published(
        name="BYOL, 1000 epochs",
        devices="512 TPU v3 cores",
        n=512,
        batch=4096,
        epochs=1000,
        hours=8,
        source="github.com/google-deepmind/deepmind-research, byol: about 8 h to 74.0 to 74.5 %, those of 1000 epochs",
        counted_as="byol-r50-300ep",
        rate=5.9,
        because="30 of an A100's peak of 312, times a core's 61.5",
    ),
    Published(
        name="MoCo v1/v2, 200 epochs",
        devices="8 V100, float32",
        n=8,
        batch=256,
        epochs=200,
        hours=53,
        source="github.com/facebookresearch/moco",
        counted_as="byol-r50-60ep",  # one view forwards and backwards, one forwards through the average
        rate=0.367 * SUPERVISED_GFLOP,
        because="NVIDIA's 367 images/s, supervised",
        bn_group=1,
    ),
    Published(
        name="SwAV 2x224 + 6x96, an epoch",
        devices="64 GPUs, taken for V100, fp16",
        n=64,
        batch=4096,
        epochs=1,
        hours=220 / 3600,
        source="github.com/facebookresearch/swav, running times: 3 min 40 s; its script says 64 GPUs, not which",
        counted_as="simsiam-r50-100ep",
        work=(2 + 6 * (96 / 224) ** 2) / 2,
        rate=1.156 * SUPERVISED_GFLOP,
        because="NVIDIA's 1,156 images/s, supervised",
        bn_group=8,
    ),
    Published(
        name="BYOL and others, an epoch",
        devices="2 RTX 4090",
        n=2,
        batch=256,
        epochs=1,
        hours=35 / 60,
        source="docs.lightly.ai, benchmarks, ImageNet1k: 35 min",
        counted_as="byol-r50-300ep",
        rate=30.0,
        because="the default",
    ),
)


def projected(run: Published, projection: Projection) -> float:
    """Hours by the model, with data for free: what the others' data path takes is not known."""
    counted = projection.counted[run.counted_as]
    work = {**counted["work"], "flops": run.work * counted["work"]["flops"]}
    assume: Assumptions = replace(projection.assume, gpu_tflops=run.rate, **run.assume)
    step = predict(
        {**counted, "work": work}, batch=run.batch, n=run.n, core_seconds=0, assume=assume, bn_group=run.bn_group
    )
    return run.epochs * (IMAGENET // run.batch) * step.seconds / 3600


def implied(run: Published, projection: Projection) -> float:
    """TFLOP/s of a device in the published time, whatever it was spent on."""
    flops = run.work * projection.counted[run.counted_as]["work"]["flops"] * IMAGENET * run.epochs
    return flops / (3600 * run.hours * run.n) / 1e12


def published(projection: Projection) -> str:
    rows, sources = [], []
    for run in RUNS:
        hours = projected(run, projection)
        rate = f"{run.rate:.1f}: {run.because}"
        found = (
            f"{run.hours:.3g}",
            rate,
            f"{hours:.3g}",
            f"{hours / run.hours:.2f}",
            f"{implied(run, projection):.1f}",
        )
        rows.append([run.name, run.devices, *found])
        sources.append(f"- {run.name}: {run.source}")
    head = "run | on | hours | TFLOP/s assumed | hours projected | over published | TFLOP/s implied"
    return "\n".join([table(head, rows), "", "Sources:", "", *sources])
