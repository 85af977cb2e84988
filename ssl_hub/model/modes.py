"""A model in eval mode for a while, and then as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Eval mode inside; afterwards each submodule's own flag, which ``model.train()`` alone would not bring back."""
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        model.train(training[model])  # some throw away in train() what they keep for evaluation
        for module, flag in training.items():
            module.training = flag
