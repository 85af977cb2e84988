"""Whether a file computes what the model does: both on the same pictures, in other batches than were traced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from ssl_hub.errors import UsageError
from ssl_hub.exporting.formats import Run
from ssl_hub.exporting.program import Program

BATCHES = (1, 3, 5)
TOLERANCE = 1e-4
"""Of the greatest value of an output. Float32 sums in another order differ by 1e-6 to 1e-5 of it; a wrong operation, a
fixed batch or swapped channels by far more."""


@dataclass(frozen=True)
class Parity:
    """The greatest difference of any output in any batch, absolute and as a share of that output's greatest value."""

    absolute: float
    relative: float
    output: str  # where the relative one is


def pictures(count: int, size: int, seed: int = 0) -> Tensor:
    """uint8 [count, 3, size, size] with the statistics of photographs, so that a network is where it works.

    Noise of every scale, each as strong as the others (a power spectrum of 1/f^2), colours that go together, and from
    dark and flat to bright and full of contrast.
    """
    generator = torch.Generator().manual_seed(seed)
    values = torch.zeros(count, 3, size, size)
    side = 1
    while side <= size:
        grey = torch.randn(count, 1, side, side, generator=generator)
        colour = torch.randn(count, 3, side, side, generator=generator)
        values += functional.interpolate(grey + 0.4 * colour, (size, size), mode="bilinear", align_corners=False)
        side *= 2
    contrast = torch.linspace(0.3, 1.2, count)[torch.randperm(count, generator=generator)]
    return (values * contrast[:, None, None, None]).sigmoid().mul(255).round().byte()


@torch.no_grad()
def compare(program: Program, run: Run, tolerance: float, batches: Sequence[int] = BATCHES) -> Parity:
    """The greatest difference between ``program`` and what ``run`` makes of the same pictures.

    Raises UsageError that names the output where a shape is another, the run fails, or a difference is over
    ``tolerance`` times the output's greatest value.
    """
    worst = Parity(0.0, 0.0, program.names[0])
    for count in batches:
        images = program.given(pictures(count, program.size, seed=count))
        expected = program(images)
        try:
            got = run(images)
        except Exception as error:  # runtimes have exceptions of their own
            first = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
            raise UsageError(f"what was written does not run on a batch of {count}: {first}; nothing is kept") from None
        for name, one, other in zip(program.names, expected, got, strict=True):
            found = _difference(name, one, other, count)
            if not found.relative <= tolerance:  # not-a-number is no agreement
                raise UsageError(
                    f"what was written differs from the model by {found.absolute:.2g} in {name!r} on a batch of "
                    f"{count}, {found.relative:.2g} of its greatest value, over {tolerance:g}; nothing is kept"
                )
            worst = Parity(
                max(worst.absolute, found.absolute),
                max(worst.relative, found.relative),
                found.output if found.relative > worst.relative else worst.output,
            )
    return worst


def _difference(name: str, one: Tensor, other: Tensor, count: int) -> Parity:
    if one.shape != other.shape:
        raise UsageError(
            f"what was written gives {name!r} of shape {list(other.shape)} for a batch of {count}, and the model"
            f" {list(one.shape)}; nothing is kept"
        )
    if not one.isfinite().all():
        raise UsageError(f"the model itself gives {name!r} with NaN or infinity on pictures; it is no usable model")
    absolute = float((one - other).abs().max())
    return Parity(absolute, absolute / max(float(one.abs().max()), 1e-12), name)
