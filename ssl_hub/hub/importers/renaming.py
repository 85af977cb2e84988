"""Backbones whose projects call the same layers otherwise than timm: each name's place in timm's, by patterns."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch

from ssl_hub.errors import UsageError
from ssl_hub.hub.importers.checkpoint import Tensors

Patterns = Sequence[tuple[str, str]]

# What stands before a pattern (`vit.`, `resnet.`) says nothing; \1 to \4 are its groups, and {1+} the first plus one.
LAYER = r"encoder\.stages\.(\d+)\.layers\.(\d+)\."
TRANSFORMERS_RESNET: Patterns = (
    (r"embedder\.embedder\.convolution\.(.+)", r"conv1.\1"),
    (r"embedder\.embedder\.normalization\.(.+)", r"bn1.\1"),
    (LAYER + r"shortcut\.convolution\.(.+)", r"layer{1+}.\2.downsample.0.\3"),
    (LAYER + r"shortcut\.normalization\.(.+)", r"layer{1+}.\2.downsample.1.\3"),
    (LAYER + r"layer\.(\d+)\.convolution\.(.+)", r"layer{1+}.\2.conv{3+}.\4"),
    (LAYER + r"layer\.(\d+)\.normalization\.(.+)", r"layer{1+}.\2.bn{3+}.\4"),
    (r"classifier\.1\.(.+)", r"fc.\1"),
)
# As `save_pretrained` writes them, and as they are called in memory since version 5.
BLOCK = r"(?:encoder\.)?layers?\.(\d+)\."
TRANSFORMERS_VIT: Patterns = (
    (r"embeddings\.cls_token", "cls_token"),
    (r"embeddings\.position_embeddings", "pos_embed"),
    (r"embeddings\.patch_embeddings\.projection\.(.+)", r"patch_embed.proj.\1"),
    (BLOCK + r"layernorm_before\.(.+)", r"blocks.\1.norm1.\2"),
    (BLOCK + r"layernorm_after\.(.+)", r"blocks.\1.norm2.\2"),
    (BLOCK + r"attention\.(?:attention\.query|q_proj)\.(.+)", r"blocks.\1.attn.q.\2"),
    (BLOCK + r"attention\.(?:attention\.key|k_proj)\.(.+)", r"blocks.\1.attn.k.\2"),
    (BLOCK + r"attention\.(?:attention\.value|v_proj)\.(.+)", r"blocks.\1.attn.v.\2"),
    (BLOCK + r"attention\.(?:output\.dense|o_proj)\.(.+)", r"blocks.\1.attn.proj.\2"),
    (BLOCK + r"(?:intermediate\.dense|mlp\.fc1)\.(.+)", r"blocks.\1.mlp.fc1.\2"),
    (BLOCK + r"(?:output\.dense|mlp\.fc2)\.(.+)", r"blocks.\1.mlp.fc2.\2"),
    (r"layernorm\.(.+)", r"norm.\1"),
    (r"classifier\.(.+)", r"head.\1"),
)
ENCODER_LAYER = r"encoder\.layers\.encoder_layer_(\d+)\."
TORCHVISION_VIT: Patterns = (
    (r"class_token", "cls_token"),
    (r"encoder\.pos_embedding", "pos_embed"),
    (r"conv_proj\.(.+)", r"patch_embed.proj.\1"),
    (ENCODER_LAYER + r"ln_([12])\.(.+)", r"blocks.\1.norm\2.\3"),
    (ENCODER_LAYER + r"self_attention\.in_proj_(.+)", r"blocks.\1.attn.qkv.\2"),
    (ENCODER_LAYER + r"self_attention\.out_proj\.(.+)", r"blocks.\1.attn.proj.\2"),
    (ENCODER_LAYER + r"mlp\.(?:0|linear_1)\.(.+)", r"blocks.\1.mlp.fc1.\2"),
    (ENCODER_LAYER + r"mlp\.(?:3|linear_2)\.(.+)", r"blocks.\1.mlp.fc2.\2"),
    (r"encoder\.ln\.(.+)", r"norm.\1"),
    (r"heads\.head\.(.+)", r"head.\1"),
)
BESIDE = re.compile(r"(.*\.)?(pooler|embeddings\.mask_token)(\.|$)")  # of transformers, on top of what timm has


def renamed(tensors: Tensors, patterns: Patterns) -> Tensors:
    """The tensors under timm's names; what no pattern knows keeps its name, for a strict load to refuse.

    Queries, keys and values that are apart are put together, in this order. Raises UsageError where two tensors get
    one name: there are two models in the file.
    """
    found: Tensors = {}
    for name, tensor in tensors.items():
        if BESIDE.match(name):
            continue
        new = next((made for pattern, to in patterns if (made := _as(name, pattern, to))), name)
        if new in found and not torch.equal(found[new], tensor):
            raise UsageError(f"{name!r} is one of two tensors that would be {new!r}: there are two models in the file")
        found[new] = tensor
    for name in [name for name in found if re.search(r"\.attn\.q\.", name)]:
        parts = [name.replace(".attn.q.", f".attn.{letter}.") for letter in "qkv"]
        if all(part in found for part in parts):
            found[name.replace(".attn.q.", ".attn.qkv.")] = torch.cat([found.pop(part) for part in parts])
    return found


def _as(name: str, pattern: str, to: str) -> str | None:
    match = re.fullmatch(rf"(?:.*\.)?{pattern}", name)
    if match is None:
        return None
    counted = re.sub(r"\{(\d)\+\}", lambda place: str(int(match[int(place[1])]) + 1), to)
    return match.expand(counted)
