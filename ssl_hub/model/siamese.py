"""The one composition of every method: backbone, projector, predictor, target and loss.

Legend: ``B`` images, ``C`` feature width, ``D`` projection width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from ssl_hub.config import Compile, Recipe
from ssl_hub.errors import UsageError
from ssl_hub.model import backbones
from ssl_hub.model.heads import mlp
from ssl_hub.model.loading import load_into
from ssl_hub.model.losses import Loss
from ssl_hub.model.normalisation import synchronised, with_statistics
from ssl_hub.model.parts import build_parts
from ssl_hub.model.predictors import Predictor
from ssl_hub.model.stages import freeze_patch_embedding
from ssl_hub.model.targets import Target

REPLAYING = ("reduce-overhead", "max-autotune")  # modes of torch.compile that replay CUDA graphs, on devices that can


class Encoder(nn.Module):
    """Backbone and projector: views [B, 3, H, W] to projections [B, D].

    Each view is its own forward, so that BN takes its statistics per view as in the papers; with ``joint_views`` all
    views share one forward and its statistics.

    With ``frozen_statistics`` the backbone's BN normalises by the running statistics that it has, and they stay as they
    are, in train mode too; scale and shift train. A copy does the same.
    """

    def __init__(
        self,
        backbone: nn.Module,
        projector: nn.Module,
        *,
        joint_views: bool = False,
        frozen_statistics: bool = False,
    ) -> None:
        super().__init__()
        self.backbone, self.projector, self.joint_views = backbone, projector, joint_views
        self.frozen_statistics = frozen_statistics

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.frozen_statistics:
            for layer in with_statistics(self.backbone):
                layer.eval()
        return self

    def forward(self, views: Sequence[Tensor]) -> list[Tensor]:
        if self.joint_views:
            return list(self.projector(self.backbone(torch.cat(list(views)))).chunk(len(views)))
        return [self.projector(self.backbone(view)) for view in views]


class Output(NamedTuple):
    """What one forward gives."""

    loss: Tensor  # scalar, float32 or better
    projections: Tensor  # online projections of all views, detached, [views * B, D]


class Siamese(nn.Module):
    """Online branch (encoder, predictor) trained to predict the target's projections.

    The target is held, not registered: parameters, DDP buckets and the state dict are those of the online branch alone.

    With ``replays`` the networks' outputs and the gradients of their weights may lie in memory of CUDA graphs, which
    the next forward overwrites: nothing of a step holds them then.
    """

    replays = False

    def __init__(self, encoder: Encoder, predictor: Predictor, target: Target, loss: Loss) -> None:
        super().__init__()
        if loss.needs_set_predictor and not predictor.straight_through:
            raise UsageError(
                f"an isotropic loss needs a predictor that is set, not trained; got {type(predictor).__name__},"
                " expected predictor.kind=direct or optimal"
            )
        self.encoder, self.predictor, self.target, self.loss = encoder, predictor, target, loss
        if loss.needs_set_predictor:  # no gradient reaches its weight, which is held from one refresh to the next
            predictor.requires_grad_(False)
        target.start(encoder)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        if self.target.network is not None:  # .to(), .double() and the like move the target too
            self.target.network._apply(fn)
        return super()._apply(fn, recurse)

    def forward(self, view1: Tensor, view2: Tensor) -> Output:
        """Loss of one micro-batch, two views [B, 3, H, W]; the predictor observes it."""
        if self.replays:
            torch.compiler.cudagraph_mark_step_begin()
        if self.loss.symmetrised:
            projections = self.encoder([view1, view2])
            targets = self.target.project([view2, view1], projections[::-1], self.encoder)
        else:  # view 1 predicts view 2: neither view 2's prediction nor view 1's target is needed
            projections = self.encoder([view1])
            targets = self.target.project([view2], [None], self.encoder)
        with torch.autocast(view1.device.type, enabled=False):
            projections, targets = [_full(f) for f in projections], [_full(t) for t in targets]
            self.predictor.observe(projections, targets)
        predictions = [self.predictor(f) for f in projections]
        if predictions[0].shape != projections[0].shape:  # a loss would broadcast it
            raise UsageError(
                f"{type(self.predictor).__name__} makes {list(predictions[0].shape)} of projections"
                f" {list(projections[0].shape)}; a predictor's forward returns the shape that it is given"
            )
        with torch.autocast(view1.device.type, enabled=False):
            triples = zip(projections, predictions, targets, strict=True)
            loss = torch.stack([self.loss(f, _full(q), t) for f, q, t in triples]).sum()
        return Output(loss, torch.cat(projections).detach())

    def start_from(self, tensors: Mapping[str, Tensor], *, where: str) -> None:
        """Give the backbone these weights, all or a UsageError, and the target a copy of what is online then."""
        load_into(self.encoder.backbone, tensors, where=where)
        self.target.start(self.encoder)

    def freeze_statistics(self, frozen: bool) -> None:
        """Freeze those of the backbone's BN, or let them move, in both branches; see :class:`Encoder`."""
        for encoder in (self.encoder, self.target.network):
            if isinstance(encoder, Encoder) and encoder.frozen_statistics != frozen:
                encoder.frozen_statistics = frozen
                encoder.train(encoder.training)

    def after_step(self, step: int, total_steps: int) -> None:
        """Refresh the predictor, then move the target: after optimiser step ``step`` (0-based) of ``total_steps``."""
        self.predictor.refresh(step)
        self.target.update(self.encoder, step, total_steps)


def _full(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def build(recipe: Recipe) -> Siamese:
    """The model of a recipe, freshly initialised from torch's global random state, on the CPU in train mode.

    What ``backbone.init`` names is not in it: :meth:`Siamese.start_from` puts that there.
    """
    if recipe.projector.layers < 1:
        raise UsageError(f"projector.layers is {recipe.projector.layers}, expected at least 1")
    predictor, target, loss = build_parts(recipe)
    backbones.check_untrained(recipe.backbone.name)
    options: dict[str, Any] = {"zero_init_last": recipe.backbone.zero_init_last}
    if recipe.backbone.drop_path_rate:
        options["drop_path_rate"] = recipe.backbone.drop_path_rate
    backbone = backbones.create(recipe.backbone.name, image_size=recipe.views.size, **options)
    widths = [
        backbones.feature_width(backbone, recipe.views.size),
        *[recipe.projector.hidden_width] * (recipe.projector.layers - 1),
        recipe.projector.output_width,
    ]
    if (frozen := recipe.backbone.bn_statistics == "frozen") and not with_statistics(backbone):
        raise UsageError(
            f"backbone.bn_statistics is 'frozen', and {recipe.backbone.name} has no batch normalisation: set"
            " backbone.bn_statistics=batch"
        )
    backbones.freeze_idle(backbone, recipe.views.size)
    if recipe.backbone.freeze_patch_embedding:
        freeze_patch_embedding(backbone)
    projector = mlp(
        widths,
        norm_affine=recipe.projector.norm_affine,
        output_bias=recipe.projector.output_bias,
        output_norm=recipe.projector.output_norm,
    )
    encoder = Encoder(backbone, projector, joint_views=recipe.train.joint_views, frozen_statistics=frozen)
    return Siamese(encoder, predictor, target, loss).train()


def arranged(
    siamese: Siamese, *, synchronise: bool, channels_last: bool, compiled: Compile, bn_group: Any = None
) -> Siamese:
    """Synchronised BN in both branches, memory format, compilation; tensors and their names stay the same.

    ``compiled`` is False, True, or a mode of ``torch.compile``.
    ``bn_group`` is torch's group of the processes that share BN's statistics with this one; None for all.
    """
    target = siamese.target
    if synchronise:
        siamese = synchronised(siamese, bn_group)
        if target.network is not None:
            target.network = synchronised(target.network, bn_group)
    if channels_last:
        siamese = siamese.to(memory_format=torch.channels_last)
    if compiled:
        mode = "default" if compiled is True else compiled
        siamese.replays = mode in REPLAYING
        siamese.encoder.compile(mode=mode)
        if target.network is not None:
            target.network.compile(mode=mode)
    return siamese
