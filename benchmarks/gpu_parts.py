"""Parts of training whose cost on a GPU decides something, each alone: `python benchmarks/gpu_cifar10.py --parts`.

- the square root of F: a decomposition, which the host waits for, or matrix products (``predictor.solver``);
- blurring a batch, each image by its own sigma: products with band matrices, as it is done, or a grouped convolution;
- a BYOL step of a ResNet-50, compiled or not: images/s and memory.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor
from torch.nn import functional

import ssl_hub
from ssl_hub.config import Compile
from ssl_hub.data.photometric import blur_filters, gaussian_blur
from ssl_hub.model.devices import usual_device
from ssl_hub.model.siamese import arranged, build
from ssl_hub.model.spectrum import eigh
from ssl_hub.model.square_root import unit_square_root
from ssl_hub.train.step import Trainer

WIDTHS, SMALL_WIDTHS = (128, 256, 512), (8, 16)
BATCHES, SMALL_BATCHES = ((128, 32), (256, 224)), ((4, 32),)  # images, pixels
BYOL, SMALL_BYOL = ("resnet50", 256, 224, 20), ("resnet10_tiny", 4, 32, 2)  # backbone, images, pixels, steps
SIGMAS = (0.1, 2.0)


def parts(*, small: bool, modes: Sequence[Compile], seed: int) -> dict[str, Any]:
    """All of them, on the accelerator or, small, on a CPU."""
    torch.manual_seed(seed)
    device, repeats = usual_device(), 3 if small else 50
    backbone, images, size, steps = SMALL_BYOL if small else BYOL
    return {
        "square_root": [roots(width, device, repeats) for width in (SMALL_WIDTHS if small else WIDTHS)],
        "blur": [blurs(*batch, device, repeats, seed) for batch in (SMALL_BATCHES if small else BATCHES)],
        "byol_step": [byol(mode, backbone, images, size, steps) for mode in modes],
    }


def wait() -> None:
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


def milliseconds(action: Callable[[], Any], repeats: int) -> dict[str, float]:
    """Of one call alone until the device is done (median), and of many that are queued one after another (mean)."""
    for _ in range(3):
        action()
    alone = []
    for _ in range(repeats):
        wait()
        began = time.perf_counter()
        action()
        wait()
        alone.append(time.perf_counter() - began)
    began = time.perf_counter()
    for _ in range(repeats):
        action()
    wait()
    return {"alone_ms": 1e3 * statistics.median(alone), "queued_ms": 1e3 * (time.perf_counter() - began) / repeats}


def roots(width: int, device: torch.device, repeats: int) -> dict[str, Any]:
    """The root of a correlation matrix whose eigenvalues fall by 1e4, both ways."""
    basis = torch.linalg.qr(torch.randn(width, width, dtype=torch.float64))[0]
    eigenvalues = torch.logspace(0, -4, width, dtype=torch.float64)
    f = ((basis * eigenvalues) @ basis.mT).float().to(device)
    f = (f + f.mT) / 2

    def decomposed() -> Tensor:
        values, vectors = eigh(f)
        return (vectors * values.clamp_min(0).sqrt()) @ vectors.mT

    error = (unit_square_root(f)[0] - decomposed()).abs().max()
    return {
        "width": width,
        "eigh": milliseconds(decomposed, repeats),
        "iteration": milliseconds(lambda: unit_square_root(f), repeats),
        "apart": float(error),  # the largest eigenvalue is 1
    }


def convolved(images: Tensor, sigmas: np.ndarray[Any, Any], half: int) -> Tensor:
    """:func:`gaussian_blur` of kernels ``2 half + 1`` wide, as two convolutions with a group for each channel."""
    count, channels, height, width = images.shape
    pixels = torch.arange(-half, half + 1, device=images.device)
    scale = torch.from_numpy(sigmas.astype(np.float32)).to(images.device)[:, None]
    taps = torch.exp(-0.5 * (pixels / scale) ** 2)
    taps = (taps / taps.sum(dim=1, keepdim=True)).repeat_interleave(channels, dim=0)
    stacked = functional.pad(images, (half, half, half, half), mode="reflect").reshape(
        1, count * channels, height + 2 * half, width + 2 * half
    )
    groups = count * channels
    stacked = functional.conv2d(stacked, taps[:, None, None, :], groups=groups)
    stacked = functional.conv2d(stacked, taps[:, None, :, None], groups=groups)
    return stacked.reshape(images.shape)


def blurs(images: int, size: int, device: torch.device, repeats: int, seed: int) -> dict[str, Any]:
    sigmas = np.random.default_rng(seed).uniform(*SIGMAS, images)
    half = max(size // 20, 6)  # three of the largest sigma at least, as blur_filters takes
    own, alike = (torch.from_numpy(blur_filters(sigmas, size, size, taps)).to(device) for taps in (None, 2 * half + 1))
    batch = torch.rand(images, 3, size, size, device=device)
    blurred = batch.clone()
    gaussian_blur(blurred, alike)
    apart = float((convolved(batch, sigmas, half) - blurred).abs().max())  # on a GPU with the rounding of TF32
    return {
        "images": images,
        "pixels": size,
        "bands": milliseconds(lambda: gaussian_blur(batch, own), repeats),
        "grouped_convolution": milliseconds(lambda: convolved(batch, sigmas, half), repeats),
        "apart": apart,
    }


def byol(mode: Compile, backbone: str, images: int, size: int, steps: int) -> dict[str, Any]:
    """One process's step of byol-r50-300ep on views that lie on the device already, channels-last."""
    gc.collect()  # of the mode before
    recipe = ssl_hub.get_recipe("byol-r50-300ep", **{"backbone.name": backbone, "views.size": size})
    accelerator = Accelerator(cpu=not torch.accelerator.is_available())
    siamese = arranged(build(recipe), synchronise=False, channels_last=True, compiled=mode)
    trainer = Trainer(siamese, recipe.optim, accelerator, lr=0.1, total_steps=1_000_000)
    view1, view2 = (
        torch.randn(images, 3, size, size, device=accelerator.device).to(memory_format=torch.channels_last)
        for _ in range(2)
    )

    def take(count: int) -> float:
        wait()
        began = time.perf_counter()
        for _ in range(count):
            trainer.advance([(view1, view2)])
        trainer.settle()
        wait()
        return time.perf_counter() - began

    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    first, _warm = take(1), take(3)
    seconds = take(steps) / steps
    found = {
        "backbone": backbone,
        "images": images,
        "pixels": size,
        "compile": mode,
        "first_step_seconds": first,
        "step_ms": 1e3 * seconds,
        "images_per_second": images / seconds,
        "window": f"{steps} steps after {1 + 3}, views not counted",
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9 if on_gpu else None,
        "reserved_gb": torch.cuda.max_memory_reserved() / 1e9 if on_gpu else None,
    }
    torch.compiler.reset()
    return found
