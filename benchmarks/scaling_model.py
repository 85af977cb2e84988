"""How long a step takes on many GPUs: counted work and traffic, over assumed speeds. Pure arithmetic.

Legend: ``n`` processes, one a GPU; ``b`` images a process and step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Assumptions:
    """What is not known here. Defaults describe A100-class nodes of eight, in bfloat16; each can be replaced."""

    gpu_tflops: float = 30.0  # sustained on a ResNet-50's convolutions, far below the peak: they are bound by memory
    gpu_tflops_low: float = 15.0  # a quarter of that below, the least that scaling_published.py finds
    gpu_tflops_high: float = 60.0  # NVIDIA's own supervised training of a ResNet-50 on an A100
    half_rate_images: float = 8.0  # images a GPU at which it reaches half of that
    step_overhead_ms: float = 10.0  # Python and kernel launches that nothing hides
    root_ms: float = 1.0  # of F by matrix products, some fifty small kernels; a decomposition is waited for
    gpus_per_node: int = 8
    node_gb_per_s: float = 200.0  # between GPUs of one node, each way
    network_gb_per_s: float = 25.0  # for each GPU, between nodes
    latency_us: float = 30.0  # of a collective
    hop_latency_us: float = 5.0  # more for each doubling of the processes
    hidden_gradient_share: float = 0.9  # of the gradients' reduction, behind the backward
    gpu_memory_gb: float = 80.0
    reserved_gb: float = 6.0  # CUDA context, libraries, fragmentation
    activation_share: float = 0.5  # of the float32 bytes counted: bfloat16
    cores_per_gpu: float = 16.0
    host_memory_gb: float = 1000.0
    image_kb: float = 110.0  # a JPEG of ImageNet
    workers: int = 8  # runtime.workers

    def latency(self, n: int) -> float:
        return 1e-6 * (self.latency_us + self.hop_latency_us * math.log2(n)) if n > 1 else 0.0

    def bandwidth(self, n: int) -> float:
        return 1e9 * (self.node_gb_per_s if n <= self.gpus_per_node else self.network_gb_per_s)

    def all_reduce(self, n: int, *, calls: int, size: float) -> float:
        """Seconds of ``calls`` ring all-reduces of ``size`` bytes altogether."""
        return calls * self.latency(n) + (2 * (n - 1) / n * size / self.bandwidth(n) if n > 1 else 0.0)

    def all_gather(self, n: int, *, calls: int, size: float) -> float:
        """Seconds of ``calls`` ring all-gathers of ``size`` bytes a process altogether."""
        return calls * self.latency(n) + ((n - 1) * size / self.bandwidth(n) if n > 1 else 0.0)


def synchronised_bn(counted: dict[str, Any]) -> dict[str, int]:
    """SyncBN's traffic by its definition: a forward gathers 2 C + 1 numbers, a backward reduces 2 C, float32."""
    online, target = counted["normalisations"]["online"], counted["normalisations"]["target"]
    forwards, channels = online["forwards"] + target["forwards"], online["channels"] + target["channels"]
    return {
        "gathers": forwards,
        "gather_bytes": 4 * (2 * channels + forwards),
        "reduces": online["forwards"],
        "reduce_bytes": 4 * 2 * online["channels"],
    }


@dataclass(frozen=True)
class Step:
    """One optimiser step on ``n`` GPUs, in seconds, with what limits it."""

    n: int
    images: float  # a GPU and step
    accumulation: int
    compute: float
    gradients: float  # not hidden
    synchronised_bn: float
    statistics: float  # reduction and root of F
    overhead: float
    data: float  # at the assumed cores
    cores_per_gpu: float  # that keep up with the GPU
    memory_gb: float
    memory_in_one_gb: float  # without accumulation

    @property
    def on_gpu(self) -> float:
        return self.compute + self.gradients + self.synchronised_bn + self.statistics + self.overhead

    @property
    def seconds(self) -> float:
        return max(self.on_gpu, self.data)

    @property
    def bound_by(self) -> str:
        if self.data > self.on_gpu:
            return "data"
        parts = {
            "compute": self.compute,
            "gradients": self.gradients,
            "SyncBN": self.synchronised_bn,
            "F": self.statistics,
            "overhead": self.overhead,
        }
        return max(parts, key=lambda part: parts[part])


def predict(
    counted: dict[str, Any], *, batch: int, n: int, core_seconds: float, assume: Assumptions, bn_group: int = 0
) -> Step:
    """One step of a recipe on ``n`` GPUs.

    Args:
        counted: what ``scaling_count.py`` found for the recipe; its collectives from several processes.
        batch: images a step, over all processes.
        core_seconds: of one core to decode an image and crop its two views.
        bn_group: processes that share BN's statistics; 0 for all.
    """
    memory, traffic = counted["memory"], counted["collectives"]
    images = batch / n
    fixed = sum(memory.values()) + memory["gradients"]  # once more: DDP's buckets
    activations = assume.activation_share * counted["work"]["activations"]
    room = 1e9 * (assume.gpu_memory_gb - assume.reserved_gb) - fixed
    accumulation = 1
    while images / accumulation * activations > room:
        accumulation *= 2
    rate = 1e12 * assume.gpu_tflops
    compute = counted["work"]["flops"] * (images + assume.half_rate_images * accumulation) / rate
    gradients = assume.all_reduce(n, calls=traffic["gradients"]["calls"], size=traffic["gradients"]["bytes"])
    hidden = min(assume.hidden_gradient_share * gradients, compute / 2)
    bn, together = synchronised_bn(counted), bn_group or n
    bn_seconds = accumulation * (
        assume.all_gather(together, calls=bn["gathers"], size=bn["gather_bytes"])
        + assume.all_reduce(together, calls=bn["reduces"], size=bn["reduce_bytes"])
    )
    statistics = 0.0
    if "statistics" in traffic:
        statistics = assume.all_reduce(n, calls=traffic["statistics"]["calls"], size=traffic["statistics"]["bytes"])
        statistics += 1e-3 * assume.root_ms
    others = ("flags", "buffers") if together < n else ("flags",)  # buffers are sent where groups gather their own
    overhead = 1e-3 * assume.step_overhead_ms + sum(
        assume.all_reduce(n, calls=traffic[p]["calls"], size=traffic[p]["bytes"]) for p in others
    )
    on_gpu = compute + gradients - hidden + bn_seconds + statistics + overhead
    return Step(
        n=n,
        images=images,
        accumulation=accumulation,
        compute=compute,
        gradients=gradients - hidden,
        synchronised_bn=bn_seconds,
        statistics=statistics,
        overhead=overhead,
        data=images * core_seconds / assume.cores_per_gpu,
        cores_per_gpu=images * core_seconds / on_gpu,
        memory_gb=(fixed + images / accumulation * activations) / 1e9 + assume.reserved_gb,
        memory_in_one_gb=(fixed + images * activations) / 1e9 + assume.reserved_gb,
    )
