"""Targets: what gives the regression target. The keyword arguments of a registered target are the options ``target.*``.

A target is not a submodule of the trained model: no optimiser, DDP wrapper or autograd pass sees it. Its state is saved
through :meth:`Target.state_dict`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ssl_hub.errors import UsageError
from ssl_hub.model.foreach import copy_tensors
from ssl_hub.registry import Registry


class Target:
    """The regression target of each view; see the module's docstring."""

    network: nn.Module | None = None

    def start(self, encoder: nn.Module) -> None:
        """Called once with the online encoder (backbone and projector), freshly initialised."""

    def project(self, views: Sequence[Tensor], projections: Sequence[Tensor | None], online: nn.Module) -> list[Tensor]:
        """Targets [B, D] of the given views [B, 3, H, W].

        ``projections`` are the online projections of the same views where there are any, so that a target which shares
        the ``online`` encoder needs no second forward.
        """
        raise NotImplementedError

    def momentum(self, step: int, total_steps: int) -> float | None:
        """The weight of the past in the update after optimiser step ``step`` (0-based) of ``total_steps``."""
        return None

    def update(self, encoder: nn.Module, step: int, total_steps: int, taken: Tensor | None = None) -> None:
        """Follow the online encoder, after its optimiser step ``step``.

        ``taken``, a boolean on the device, is whether that step was taken at all, where the host does not know yet:
        nothing may change where it is false. A target whose ``update`` does not take it is told by the host, which
        waits for the device then.
        """

    def state_dict(self) -> dict[str, Tensor]:
        return {} if self.network is None else self.network.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self.network is not None:
            self.network.load_state_dict(state, strict=True)


TARGETS: Registry[Callable[..., Target]] = Registry("target")


@TARGETS.register("ema")
class EMATarget(Target):
    """A copy of the online encoder that follows it: parameters averaged, buffers copied, float32, always in train mode.

    Args:
        momentum: weight of the past, gamma_a of the paper, in [0, 1].
        schedule: how momentum moves: ``constant``, or ``cosine``: 1 - (1 - momentum) (cos(pi k / K) + 1) / 2 for the
            k-th of K + 1 updates, which is exactly 1 at the last (Grill et al. 2020, section 3.2).
    """

    def __init__(self, *, momentum: float = 0.996, schedule: Literal["constant", "cosine"] = "constant") -> None:
        if not 0 <= momentum <= 1:
            raise UsageError(f"target.momentum is {momentum}, expected a number in [0, 1]")
        self.base, self.schedule = momentum, schedule

    def start(self, encoder: nn.Module) -> None:
        # All of it, backbone and projector. (The paper's code leaves the target an independent random network.)
        self.network = copy.deepcopy(encoder).requires_grad_(False).train()

    @torch.no_grad()
    def project(self, views: Sequence[Tensor], projections: Sequence[Tensor | None], online: nn.Module) -> list[Tensor]:
        assert self.network is not None, "start() comes first"
        return list(self.network(views))

    def momentum(self, step: int, total_steps: int) -> float:
        if self.schedule == "constant":
            return self.base
        progress = min(step / max(total_steps - 1, 1), 1.0)
        return 1 - (1 - self.base) * (math.cos(math.pi * progress) + 1) / 2

    @torch.no_grad()
    def update(self, encoder: nn.Module, step: int, total_steps: int, taken: Tensor | None = None) -> None:
        assert self.network is not None, "start() comes first"
        past, online = list[Tensor](self.network.parameters()), list[Tensor](encoder.parameters())
        weight = 1 - self.momentum(step, total_steps)
        if taken is None:
            torch._foreach_lerp_(past, online, weight)
        else:  # the same, times 0 or 1
            moves = torch._foreach_sub(online, past)
            torch._foreach_mul_(moves, taken.to(past[0].dtype) * weight)
            torch._foreach_add_(past, moves)
        copy_tensors(list(encoder.buffers()), to=list(self.network.buffers()))


@TARGETS.register("stopgrad")
class StopGradTarget(Target):
    """The online projections themselves, detached: SimSiam, and the paper's "no EMA". No second forward pass."""

    @torch.no_grad()
    def project(self, views: Sequence[Tensor], projections: Sequence[Tensor | None], online: nn.Module) -> list[Tensor]:
        return [f.detach() if f is not None else online([view])[0] for view, f in zip(views, projections, strict=True)]


@TARGETS.register("none")
class AttachedTarget(Target):
    """The online projections with their gradient: no stop-gradient. An ablation, which collapses."""

    def project(self, views: Sequence[Tensor], projections: Sequence[Tensor | None], online: nn.Module) -> list[Tensor]:
        return [f if f is not None else online([view])[0] for view, f in zip(views, projections, strict=True)]
