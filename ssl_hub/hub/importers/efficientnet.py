"""EfficientNets as EfficientNet-PyTorch names their layers, under timm's names."""

from __future__ import annotations

from ssl_hub.errors import UsageError
from ssl_hub.hub.importers.checkpoint import Tensors, moved

AROUND = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2", "_fc": "classifier"}
NOT_EXPANDED = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}
EXPANDED = {"_expand_conv": "conv_pw", "_bn0": "bn1", "_depthwise_conv": "conv_dw", "_bn1": "bn2"}
EXPANDED |= {"_project_conv": "conv_pwl", "_bn2": "bn3"}


def numbered_in_stages(tensors: Tensors) -> Tensors:
    """The tensors of an EfficientNet-Lite under timm's names; others keep theirs, for a strict load to refuse.

    Blocks are numbered through; timm numbers them in stages, each of which begins where the width changes.

    Raises UsageError for an EfficientNet that is no Lite (it squeezes), and for blocks that are missing.
    """
    squeezing = next((name for name in tensors if "._se_" in name), None)
    if squeezing is not None:
        raise UsageError(f"{squeezing!r} is of an EfficientNet that is no Lite, whose images come in otherwise")
    names = {f"{theirs}.": f"{ours}." for theirs, ours in AROUND.items()}
    stage, place, width = -1, 0, 0
    for block in range(sum(name.endswith("._project_conv.weight") for name in tensors)):
        prefix = f"_blocks.{block}."
        if f"{prefix}_project_conv.weight" not in tensors:
            raise UsageError(f"block {block} is missing, and later ones are there: the checkpoint is not whole")
        before, width = width, len(tensors[f"{prefix}_project_conv.weight"])
        stage, place = (stage, place + 1) if width == before else (stage + 1, 0)
        layers = EXPANDED if f"{prefix}_expand_conv.weight" in tensors else NOT_EXPANDED
        names |= {f"{prefix}{theirs}.": f"blocks.{stage}.{place}.{ours}." for theirs, ours in layers.items()}
    return moved(tensors, names)
