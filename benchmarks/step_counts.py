"""What an optimiser step asks of the hardware, counted without a GPU: host reads, launches, collectives, bytes.

python benchmarks/step_counts.py                                             # a table, and JSON
python benchmarks/step_counts.py --save benchmarks/step_counts.json --as after

Five steps of the real trainer after two, on the CPU, and their mean: alone, and as the first of two processes (torch's
fake process group stands for the other). Counted are the operations that reach a device's kernels. On an accelerator
each is a launch, and a *host read* is one that hands a number to Python, or an upload from Python's own memory: the
host waits there until the device has done all that was asked of it. A *late read* does not wait: a copy that is looked
at a step after. Views of tensors and allocations are not counted; nor are, of two processes, the collectives of
synchronised BN itself, which trains on no CPU: plain BN stands for it.

The two views of a batch of images are counted on torch's *meta* device, which computes nothing and from which nothing
can be read. An *upload* is a copy from the host: one that is not from pinned memory, or not asked to be asynchronous,
is a host read too.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from scaling_count import tensors_of
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import ssl_hub
from ssl_hub.config import Recipe
from ssl_hub.data.views import TwoViews
from ssl_hub.model import devices
from ssl_hub.model.parts import part_options, with_overrides
from ssl_hub.model.siamese import arranged, build
from ssl_hub.train import together
from ssl_hub.train.launch import open_accelerator
from ssl_hub.train.step import Trainer

DISPATCHED_READS = {  # the host waits for the device in each of these, whether or not it looks at the result
    "_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "unique", "_unique2", "bincount",
    "_linalg_eigh", "_linalg_svd", "_linalg_check_errors", "linalg_cholesky", "_linalg_solve_ex",
}  # fmt: skip
CALLED_READS = {Tensor.tolist: "tolist", Tensor.cpu: "cpu", Tensor.numpy: "numpy"}
UPLOADS = {torch.tensor: "tensor", torch.as_tensor: "as_tensor", Tensor.new_tensor: "new_tensor"}
NO_KERNEL = {
    "detach", "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view", "lift_fresh",
    "_reshape_alias", "set_", "resize_", "alias", "is_same_size",
}  # fmt: skip
FLAGS = 8  # as many numbers at most does the host ask for late
STEPS = 5  # as many as the longest cycle counted, predictor.freq=5
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "byol": ("byol-r50-300ep", {}),
    "simsiam": ("simsiam-r50-100ep", {}),
    "directpred": ("directpred-r50-300ep", {}),
    "directpred, freq 5": ("directpred-r50-300ep", {"predictor.freq": 5}),
}
VIEWS = ("byol-r50-300ep", "simsiam-r50-100ep", "directpred-r18-stl10-100ep", "byol-r18-cifar10-100ep")


class Asked(TorchDispatchMode):
    """Counts of what one process asks of its device and of the others."""

    def __init__(self) -> None:
        super().__init__()
        self.reads, self.launches, self.collectives = Counter[str](), Counter[str](), Counter[str]()
        self.late_reads = self.bytes = self.uploads = 0
        self.calls = Called(self.reads)

    def forget(self) -> None:
        """Count from zero."""
        for counts in (self.reads, self.launches, self.collectives):
            counts.clear()
        self.late_reads = self.bytes = self.uploads = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        namespace, _, name = func._schema.name.partition("::")
        if namespace == "c10d":
            self.collectives[name.removesuffix("_")] += 1
            self.bytes += sum(t.numel() * t.element_size() for t in tensors_of(args))
        elif name in DISPATCHED_READS or (name == "index" and _by_mask(args)):
            self.reads[name] += 1
            self.launches[name] += name != "_local_scalar_dense"
        elif name == "copy_" and len(args) > 2 and args[2] and _is_flags(args[0]):
            self.late_reads += 1
        elif name == "_to_copy" and args[0].device.type == "cpu" and _goes_to(kwargs, args[0]) != "cpu":
            self.uploads += 1
            if not ((kwargs or {}).get("non_blocking") and self.calls.is_pinned(args[0])):
                self.reads["upload by to"] += 1
        elif not func.is_view and name not in NO_KERNEL:
            self.launches[name] += 1
        return func(*args, **(kwargs or {}))

    def __enter__(self) -> Asked:
        self.calls.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.calls.__exit__(*error)


class Called(TorchFunctionMode):
    """Reads and uploads that reach no kernel on the CPU, where there is nothing to copy; memory is pinned by name only,
    for want of a device to pin it for."""

    def __init__(self, reads: Counter[str]) -> None:
        super().__init__()
        self.reads = reads
        self.pinned: list[Tensor] = []

    def is_pinned(self, tensor: Tensor) -> bool:
        return any(tensor.data_ptr() == known.data_ptr() for known in self.pinned)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.pin_memory:
            self.pinned.append(args[0])
            return args[0]
        if name := CALLED_READS.get(func):
            self.reads[name] += 1
        if name := UPLOADS.get(func):
            self.reads[f"upload by {name}"] += 1
        return func(*args, **(kwargs or {}))


def _is_flags(tensor: Tensor) -> bool:
    return tensor.dtype == torch.float32 and tensor.dim() == 1 and len(tensor) <= FLAGS


def _goes_to(options: dict[str, Any] | None, tensor: Tensor) -> str:
    return (options or {}).get("device", tensor.device).type


def _by_mask(args: Any) -> bool:
    return any(index is not None and index.dtype == torch.bool for index in args[1])


@contextmanager
def first_of(processes: int) -> Iterator[Any]:
    """The accelerator of the first of so many processes, of which the others do nothing."""
    if processes == 1:
        yield open_accelerator()
        return
    from torch.testing._internal.distributed.fake_pg import FakeStore

    numbers = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(processes)}
    numbers |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    forget()
    os.environ.update(numbers)
    dist.init_process_group("fake", rank=0, world_size=processes, store=FakeStore())
    forward, handle = nn.SyncBatchNorm.forward, nn.parallel.DistributedDataParallel._passing_sync_batchnorm_handle
    nn.SyncBatchNorm.forward = own_statistics  # type: ignore[method-assign]
    nn.parallel.DistributedDataParallel._passing_sync_batchnorm_handle = lambda *_: None  # type: ignore[method-assign]
    try:
        yield open_accelerator()
    finally:
        nn.SyncBatchNorm.forward = forward  # type: ignore[method-assign]
        nn.parallel.DistributedDataParallel._passing_sync_batchnorm_handle = handle  # type: ignore[method-assign]
        dist.destroy_process_group()
        for name in numbers:
            os.environ.pop(name)
        forget()


def forget() -> None:
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state(True)
    GradientState._reset_state()


def own_statistics(layer: nn.SyncBatchNorm, x: Tensor) -> Tensor:
    """Synchronised BN as the first of processes of which the others have the same images."""
    if layer.training:
        assert layer.num_batches_tracked is not None
        layer.num_batches_tracked.add_(1)
    return nn.functional.batch_norm(
        x, layer.running_mean, layer.running_var, layer.weight, layer.bias, layer.training, layer.momentum, layer.eps
    )


def reduced(_state, bucket):  # type: ignore[no-untyped-def]  # DDP refuses annotations that are text
    """DDP's own reduction of a bucket; the fake group does not say when it is done."""
    whole = bucket.buffer().div_(dist.get_world_size())
    dist.all_reduce(whole)
    done: torch.futures.Future[Tensor] = torch.futures.Future()
    done.set_result(whole)
    return done


def count(recipe: Recipe, processes: int, *, late: bool, images: int = 2, side: int = 64) -> dict[str, Any]:
    """Means over :data:`STEPS` optimiser steps; ``late`` asks as on an accelerator."""
    with first_of(processes) as accelerator:
        torch.manual_seed(0)
        siamese = arranged(build(recipe), synchronise=processes > 1, channels_last=False, compiled=False)
        options: dict[str, Any] = {"late": late} if "late" in inspect.signature(Trainer.__init__).parameters else {}
        trainer = Trainer(siamese, recipe.optim, accelerator, lr=1e-3, total_steps=1000, **options)
        views = [torch.randn(images, 3, side, side) for _ in range(2)]
        agreed = together.Agreement(accelerator, 3, late=late) if hasattr(together, "Agreement") else together.agreed
        ask = agreed if hasattr(together, "Agreement") else lambda flags: together.agreed(accelerator, flags)
        if isinstance(trainer.model, nn.parallel.DistributedDataParallel):
            trainer.model.register_comm_hook(None, reduced)
        asked = Asked()
        for step in range(2 + STEPS):
            if step < 2:  # DDP forms its buckets in the first step and keeps them from the second on
                trainer.advance([(views[0], views[1])])
                ask([False, False, False])
                continue
            with asked:
                trainer.advance([(views[0], views[1])])
                ask([False, False, False])
    return {
        "host_reads": sum(asked.reads.values()) / STEPS,
        "late_reads": asked.late_reads / STEPS,
        "launches": sum(asked.launches.values()) / STEPS,
        "collectives": sum(asked.collectives.values()) / STEPS,
        "collective_bytes": asked.bytes / STEPS,
        "reads_by_kind": {name: n / STEPS for name, n in sorted(asked.reads.items())},
        "collectives_by_kind": {name: n / STEPS for name, n in sorted(asked.collectives.items())},
        "launches_by_kind": {name: n / STEPS for name, n in asked.launches.most_common(12)},
    }


@contextmanager
def pretended() -> Iterator[None]:
    """The meta device taken for an accelerator."""
    with (
        patch.object(devices, "can_pin", lambda device: device.type != "cpu"),
        patch.object(torch, "autocast", lambda *_, **__: nullcontext()),  # which knows no such device
    ):
        yield


def count_views(recipe: Recipe, *, images: int = 256) -> dict[str, int]:
    """Both views of a batch, crops included, which lies on the device and is large enough for every operation."""
    size = recipe.views.size
    pixels = torch.empty(images, 3, size, size, dtype=torch.uint8, device="meta")
    with pretended(), Asked() as asked:
        TwoViews(recipe.views, seed=0)(pixels, range(images), 0)
    return {
        "host_reads": sum(asked.reads.values()),
        "launches": sum(asked.launches.values()) + asked.uploads,
        "uploads": asked.uploads,
    }


def table(found: dict[str, dict[str, Any]]) -> str:
    lines = [
        "| method | processes | host reads | late reads | launches | collectives | MB |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in found.items():
        method, _, processes = name.rpartition(" x ")
        lines.append(
            f"| {method} | {processes} | {row['host_reads']:.1f} | {row['late_reads']:.1f} | {row['launches']:.0f}"
            f" | {row['collectives']:.1f} | {row['collective_bytes'] / 1e6:.3f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--waiting", action="store_true", help="ask as on a CPU, where reading costs nothing")
    parser.add_argument("--save", type=Path, help="JSON to put the counts into")
    parser.add_argument("--as", dest="label", default="after", help="under this name there")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    for method in arguments.methods:
        name, settings = METHODS[method]
        recipe = ssl_hub.get_recipe(name, **settings)
        if not arguments.waiting and "solver" in part_options("predictor", recipe.predictor.kind):
            recipe = with_overrides(recipe, {"predictor.solver": "iteration"})  # what an accelerator chooses
        for processes in (1, 2):
            found[f"{method} x {processes}"] = count(recipe, processes, late=not arguments.waiting)
    print(table(found))
    views = {name: count_views(ssl_hub.get_recipe(name)) for name in VIEWS}
    print("\n| views | host reads | launches | uploads |\n|---|---|---|---|")
    for name, row in views.items():
        print(f"| {name} | {row['host_reads']} | {row['launches']} | {row['uploads']} |")
    found["views"] = views
    if arguments.save is None:
        print(json.dumps(found))
        return
    saved = json.loads(arguments.save.read_text()) if arguments.save.exists() else {}
    arguments.save.write_text(json.dumps({**saved, arguments.label: found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
