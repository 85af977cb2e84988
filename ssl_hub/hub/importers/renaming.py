"""Backbones whose projects call the same layers otherwise than timm: each name's place in timm's, by patterns."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch

from ssl_hub.errors import UsageError
from ssl_hub.hub.importers.checkpoint import Tensors

Patterns = Sequence[tuple[str, str]]

# What stands before a pattern (`vit.`, `resnet.`) says nothing; \1 to \4 are its groups, and {1+} the first plus one.
TRANSFORMERS_RESNET: Patterns = (
    (r"embedder\.embedder\.convolution\.(.+)", r"conv1.\1"),
    (r"embedder\.embedder\.normalization\.(.+)", r"bn1.\1"),
    (r"encoder\.stages\.(\d+)\.layers\.(\d+)\.shortcut\.convolution\.(.+)", r"layer{1+}.\2.downsample.0.\3"),
    (r"encoder\.stages\.(\d+)\.layers\.(\d+)\.shortcut\.normalization\.(.+)", r"layer{1+}.\2.downsample.1.\3"),
    (r"encoder\.stages\.(\d+)\.layers\.(\d+)\.layer\.(\d+)\.convolution\.(.+)", r"layer{1+}.\2.conv{3+}.\4"),
    (r"encoder\.stages\.(\d+)\.layers\.(\d+)\.layer\.(\d+)\.normalization\.(.+)", r"layer{1+}.\2.bn{3+}.\4"),
    (r"classifier\.1\.(.+)", r"fc.\1"),
)
# As `save_pretrained` writes them, and as they are called in memory since version 5.
TRANSFORMERS_VIT: Patterns = (
    (r"embeddings\.cls_token", "cls_token"),
    (r"embeddings\.position_embeddings", "pos_embed"),
    (r"embeddings\.patch_embeddings\.projection\.(.+)", r"patch_embed.proj.\1"),
    (r"(?:encoder\.)?layers?\.(\d+)\.layernorm_before\.(.+)", r"blocks.\1.norm1.\2"),
    (r"(?:encoder\.)?layers?\.(\d+)\.layernorm_after\.(.+)", r"blocks.\1.norm2.\2"),
    (r"(?:encoder\.)?layers?\.(\d+)\.attention\.(?:attention\.query|q_proj)\.(.+)", r"blocks.\1.attn.q.\2"),
    (r"(?:encoder\.)?layers?\.(\d+)\.attention\.(?:attention\.key|k_proj)\.(.+)", r"blocks.\1.attn.k.\2"),
    (r"(?:encoder\.)?layers?\.(\d+)\.attention\.(?:attention\.value|v_proj)\.(.+)", r"blocks.\1.attn.v.\2"),
    (r"(?:encoder\.)?layers?\.(\d+)\.attention\.(?:output\.dense|o_proj)\.(.+)", r"blocks.\1.attn.proj.\2"),
    (r"(?:encoder\.)?layers?\.(\d+)\.(?:intermediate\.dense|mlp\.fc1)\.(.+)", r"blocks.\1.mlp.fc1.\2"),
    (r"(?:encoder\.)?layers?\.(\d+)\.(?:output\.dense|mlp\.fc2)\.(.+)", r"blocks.\1.mlp.fc2.\2"),
    (r"layernorm\.(.+)", r"norm.\1"),
    (r"classifier\.(.+)", r"head.\1"),
)
TORCHVISION_VIT: Patterns = (
    (r"class_token", "cls_token"),
    (r"encoder\.pos_embedding", "pos_embed"),
    (r"conv_proj\.(.+)", r"patch_embed.proj.\1"),
    (r"encoder\.layers\.encoder_layer_(\d+)\.ln_([12])\.(.+)", r"blocks.\1.norm\2.\3"),
    (r"encoder\.layers\.encoder_layer_(\d+)\.self_attention\.in_proj_(.+)", r"blocks.\1.attn.qkv.\2"),
    (r"encoder\.layers\.encoder_layer_(\d+)\.self_attention\.out_proj\.(.+)", r"blocks.\1.attn.proj.\2"),
    (r"encoder\.layers\.encoder_layer_(\d+)\.mlp\.(?:0|linear_1)\.(.+)", r"blocks.\1.mlp.fc1.\2"),
    (r"encoder\.layers\.encoder_layer_(\d+)\.mlp\.(?:3|linear_2)\.(.+)", r"blocks.\1.mlp.fc2.\2"),
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
