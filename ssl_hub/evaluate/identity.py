"""What tells one model from another: its weights, how it computes, and how it sees images, as one hash."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from ssl_hub.evaluate.model import Subject


def weights_hash(model: nn.Module) -> str:
    """Hexadecimal sha256 of a model's tensors: names, types, shapes and bytes, buffers included."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def subject_hash(subject: Subject) -> str:
    """Hexadecimal sha256 of all that features of an image depend on: the weights, the architecture (a stem's padding is
    in no weight) and the evaluation transform."""
    words = (weights_hash(subject.model), repr(subject.model), repr(subject.transform))
    return hashlib.sha256("\n".join(words).encode()).hexdigest()
