"""Counts what a training step sends between processes, keeps in memory and computes. Started by ``scaling.py``.

torchrun --nproc_per_node 2 benchmarks/scaling_count.py FILE RECIPE...

Nothing here depends on the speed of the machine: collectives and bytes are those of the real trainer's third step on
gloo, with small images (their size changes neither), memory is the size of the tensors that exist, and floating-point
operations and saved activations are counted on two images of the recipe's own size, by one process.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import ssl_hub
from ssl_hub.config import Recipe
from ssl_hub.model.running import RunningExpectation
from ssl_hub.model.siamese import Siamese, build
from ssl_hub.train.step import Trainer
from ssl_hub.train.together import agreed

IMAGES, SMALL = 2, 64  # images a process, and their side in pixels where it does not matter


class Collectives(TorchDispatchMode):
    """Calls and bytes of every collective, from Python or from DDP's reducer, by what it is for."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, int] = defaultdict(int)
        self.bytes: dict[str, int] = defaultdict(int)
        self.purpose = "gradients"

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        namespace, _, name = func._schema.name.partition("::")
        if namespace == "c10d":
            purpose = "buffers" if name.startswith("broadcast") else self.purpose
            self.calls[purpose] += 1
            self.bytes[purpose] += sum(t.numel() * t.element_size() for t in tensors_of(args))
        return func(*args, **(kwargs or {}))

    def during(self, purpose: str, action: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            before, self.purpose = self.purpose, purpose
            try:
                return action(*arguments, **options)
            finally:
                self.purpose = before

        return wrapped


def tensors_of(argument: Any) -> Iterable[Tensor]:
    if isinstance(argument, Tensor):
        yield argument
    elif isinstance(argument, (list, tuple)):
        for item in argument:
            yield from tensors_of(item)


def size(tensors: Iterable[Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def optimiser_step(recipe: Recipe, accelerator: Accelerator) -> dict[str, Any]:
    """One process's share of a step: collectives by purpose, tensors by part, BN forwards."""
    torch.manual_seed(0)
    trainer = Trainer(build(recipe), recipe.optim, accelerator, lr=1e-3, total_steps=10)
    siamese, network = trainer.siamese, trainer.siamese.target.network
    views = [torch.randn(IMAGES, 3, SMALL, SMALL) for _ in range(2)]
    mode = Collectives()
    siamese.predictor.refresh = mode.during("statistics", siamese.predictor.refresh)  # type: ignore[method-assign]
    for _ in range(2):  # DDP forms its buckets in the first step and keeps them from the second on
        trainer.advance([(views[0], views[1])])
    normalisations = {"online": count_normalisations(siamese), "target": count_normalisations(network)}
    with mode:
        trainer.advance([(views[0], views[1])])
        mode.during("flags", agreed)(accelerator, [False, False, False])
    state = [t for values in trainer.optimizer.state.values() for t in values.values() if isinstance(t, Tensor)]
    statistics = [m.value for m in siamese.modules() if isinstance(m, RunningExpectation)]
    return {
        "collectives": {p: {"calls": mode.calls[p], "bytes": mode.bytes[p]} for p in sorted(mode.calls)},
        "normalisations": normalisations,
        "memory": {
            "online": size(siamese.parameters()) + size(siamese.buffers()) - size(statistics),
            "target": 0 if network is None else size(network.parameters()) + size(network.buffers()),
            "gradients": size(p for p in siamese.parameters() if p.requires_grad),
            "optimiser": size(state),
            "statistics": size(statistics),
        },
    }


def count_normalisations(module: nn.Module | None) -> dict[str, int]:
    """Forwards of BN layers and the channels they normalise, filled in as the module runs."""
    found = {"forwards": 0, "channels": 0}

    def note(layer: nn.Module, inputs: Any, output: Any) -> None:
        found["forwards"] += 1
        found["channels"] += int(layer.num_features)  # type: ignore[arg-type]

    for layer in module.modules() if module is not None else ():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.register_forward_hook(note)
    return found


def work(recipe: Recipe) -> dict[str, float]:
    """Floating-point operations and bytes of saved activations for one image, forwards and backward, in float32."""
    torch.manual_seed(0)
    siamese: Siamese = build(recipe)
    own = {p.untyped_storage().data_ptr() for p in siamese.parameters()}
    saved: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    views = [torch.randn(IMAGES, 3, recipe.views.size, recipe.views.size) for _ in range(2)]
    with FlopCounterMode(display=False) as counter:
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            loss = siamese(views[0], views[1]).loss
        loss.backward()
    return {"flops": counter.get_total_flops() / IMAGES, "activations": sum(saved.values()) / IMAGES}


def main(file: Path, names: list[str]) -> None:
    torch.set_num_threads(1)
    accelerator, found = Accelerator(cpu=True), {}
    for name in names:
        recipe = ssl_hub.get_recipe(name)
        found[name] = optimiser_step(recipe, accelerator)
        if accelerator.num_processes == 1:
            found[name]["work"] = work(recipe)
    if accelerator.is_main_process:
        file.write_text(json.dumps(found), encoding="utf-8")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
