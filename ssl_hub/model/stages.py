"""The classifier on a backbone, and the stages below it: what is new, what is deep, and what stays as it is."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import torch
from timm.models import group_parameters
from torch import nn

from ssl_hub.errors import UsageError
from ssl_hub.model.backbones import Making, create
from ssl_hub.model.normalisation import with_statistics


def with_classifier(model: nn.Module, classes: int) -> tuple[nn.Module, frozenset[str]]:
    """The same backbone made again with a classifier of ``classes``; names of the tensors that came with it.

    Those are the classifier's, whatever else timm groups with it or ``get_classifier()`` returns: heads have
    normalisation or hidden layers that give features too, and some classifiers have a normalisation or are two.
    Raises UsageError for a model that :func:`~ssl_hub.model.backbones.create` did not make, or that is another network
    with a classifier than without.
    """
    making = getattr(model, "made_by", None)
    if not isinstance(making, Making):
        raise UsageError(f"{type(model).__name__} is no model of timm and takes no classifier")
    whole = create(making.name, num_classes=classes, **making.options)
    own, given = whole.state_dict(), model.state_dict()
    lost = [name for name, tensor in given.items() if name not in own or own[name].shape != tensor.shape]
    if lost or own.keys() == given.keys():
        what = f"lacks {lost[0]}" if lost else "has nothing more"
        raise UsageError(f"{making.name} {what} with a classifier than without, so it cannot be fine-tuned as a whole")
    whole.load_state_dict(given, strict=False)
    return whole, frozenset(own.keys() - given.keys())


def classifier_names(name: str, **options: object) -> frozenset[str]:
    """Names of the tensors that a classifier adds to an architecture. No tensor is made."""
    with torch.device("meta"):
        plain, whole = (create(name, num_classes=classes, **options).state_dict() for classes in (0, 2))  # type: ignore[arg-type]
    return frozenset(whole.keys() - plain.keys())


def linear_classifier(model: nn.Module) -> nn.Linear | nn.Conv2d | None:
    """The classifier of a model made with one, where it is a linear map of the features with a bias and nothing else.

    A normalisation before it, in some families, belongs to the classifier; in some, a 1x1 convolution is the map.
    """
    making = getattr(model, "made_by", None)
    module = model.get_classifier()  # type: ignore[operator]
    is_linear = isinstance(module, nn.Linear) or (isinstance(module, nn.Conv2d) and module.kernel_size == (1, 1))
    if not isinstance(making, Making) or not is_linear:
        return None
    own = {name for name, tensor in model.named_parameters() if tensor is module.weight or tensor is module.bias}
    return module if len(own) == 2 and own == classifier_names(making.name, **making.options) else None


def start_small(model: nn.Module) -> None:
    """Draw a linear classifier anew, with weights of standard deviation 0.01 and no bias, whatever the architecture's
    own start is. That of some (timm's MobileNets and EfficientNets: up to 0.3 for ten classes) is so large that the
    first steps' gradients undo the weights below it. A classifier that is more than linear stays as it is.
    """
    head = linear_classifier(model)
    if head is not None:
        nn.init.normal_(head.weight, std=0.01)
        assert head.bias is not None
        nn.init.zeros_(head.bias)


def freeze_patch_embedding(model: nn.Module) -> None:
    """Keep what cuts the image into patches as it is. Training a ViT without labels is steadier then, and no worse, be
    its patch embedding random (Chen, Xie & He 2021, "An Empirical Study of Training Self-Supervised Vision
    Transformers", section 4).

    Raises UsageError for a model without one, or whose patch embedding has statistics of its own that would move.
    """
    embedding = getattr(model, "patch_embed", None)
    if not isinstance(embedding, nn.Module) or next(embedding.parameters(), None) is None:
        raise UsageError(
            f"{type(model).__name__} has no patch embedding to freeze: set backbone.freeze_patch_embedding=false"
        )
    if with_statistics(embedding):
        raise UsageError(
            f"the patch embedding of {type(model).__name__} has batch normalisation, whose statistics would move: set"
            " backbone.freeze_patch_embedding=false"
        )
    embedding.requires_grad_(False)


def depths(model: nn.Module, classifier: Collection[str]) -> tuple[dict[str, int], int]:
    """Depth of each parameter by name, 0 for the stem and one more for each stage or block; how many stages there are.

    By timm's own grouping: blocks of transformers, stages of others. The classifier is as deep as what timm groups with
    it (in some, the last normalisation), but belongs to no stage. A model that does not group its parameters has one
    stage, all that is below the classifier.
    """
    names = [name for name, _ in model.named_parameters()]
    matcher = getattr(model, "group_matcher", None)
    if matcher is None:
        depth = {name: int(name in classifier) for name in names}
    else:
        try:
            grouping = matcher(coarse=True)
        except AssertionError:  # RDNet has blocks and no stages
            grouping = matcher(coarse=False)
        depth = group_parameters(model, grouping, reverse=True)
    return depth, 1 + max(depth[name] for name in names if name not in classifier)


def frozen_modules(model: nn.Module, classifier: Collection[str]) -> Iterator[nn.Module]:
    """The modules that have parameters, none of which is trained.

    Where nothing but the classifier is trained, those of the backbone that have statistics alone, too.
    """
    whole = all(name in classifier for name, p in model.named_parameters() if p.requires_grad)
    for prefix, module in model.named_modules():
        parameters = list(module.parameters())
        buffers = {f"{prefix}.{name}".lstrip(".") for name, _ in module.named_buffers()}
        only_statistics = bool(buffers) and not parameters and not buffers & {*classifier}
        if (parameters or (whole and only_statistics)) and not any(p.requires_grad for p in parameters):
            yield module
