"""How the processes of a run share what they must, and nothing else: gradients, and buffers that differ."""

from __future__ import annotations

from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs
from torch.nn.parallel import DistributedDataParallel

from ssl_hub.model.normalisation import synchronises_all, with_statistics
from ssl_hub.model.running import RunningExpectation
from ssl_hub.model.siamese import Siamese


def shared(siamese: Siamese, optimizer: torch.optim.Optimizer, accelerator: Accelerator) -> tuple[Any, Any]:
    """The model and its optimiser as accelerate wraps them.

    Gradients are views of the buckets that cross. The running statistics of the predictor are the same everywhere, and
    so are BN's where all processes gather them together: only what each gathers alone is sent to the others at each
    forward. No graph is declared static: where no unused parameter is looked for, nothing would be saved after the
    first step.
    """
    accelerator.ddp_handler = DistributedDataParallelKwargs(gradient_as_bucket_view=True)
    same = [name for name, module in siamese.named_modules() if isinstance(module, RunningExpectation)]
    names = [f"{name}.{buffer}" for name in same for buffer in ("value", "seen")]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(siamese, names)
    model, optimizer = accelerator.prepare(siamese, optimizer)
    if isinstance(model, DistributedDataParallel) and all(map(synchronises_all, with_statistics(siamese))):
        model.broadcast_buffers = False  # from now on; those of the start are sent
    return model, optimizer
