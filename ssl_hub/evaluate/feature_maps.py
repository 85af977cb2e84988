"""Features before they are pooled, for detection and segmentation: the last map, one of each stage, or the patches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from ssl_hub.data.views import EvalTransform
from ssl_hub.errors import UsageError
from ssl_hub.evaluate.subject import PIXELS, TIMM, Subject, open_model
from ssl_hub.limits import SIDE, or_none
from ssl_hub.model import backbones
from ssl_hub.model.modes import eval_mode

Dense = Literal["map", "stages", "tokens"]
BLOCKS = 4  # that stand for the stages of a network whose maps are all of one size, as in ViTDet (2203.16527, 2)


class FeatureMaps(nn.Module):
    """A backbone whose outputs are maps: images [B, 3, H, W] to a dict of [B, C, h, w], and of tokens [B, N, C].

    ``shapes`` says of each output what it is at the size ``image_size`` that it was made for: C, and its ``stride``,
    the pixels between two of its places (None for prefix tokens). It is an ordinary module, to be trained on as one.
    """

    def __init__(self, backbone: nn.Module, features: Dense, image_size: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.features = features
        self.image_size = image_size
        self._blocks: list[int] | None = None  # all stages, where they differ in size
        self._norm = features != "tokens" and self._takes_norm()
        if features == "stages" and len({m.shape[-1] for m in self._try()}) == 1:
            count = len(self._try())
            self._blocks = sorted({-(-count * (i + 1) // BLOCKS) - 1 for i in range(BLOCKS)})
        self._names: list[str] = []
        self._names, self.shapes = self._named(self._try())

    @property
    def channels(self) -> list[int]:
        """C of each output, as a feature pyramid asks for."""
        return [channels for channels, _ in self.shapes.values()]

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        return dict(zip(self._names, self._outputs(images), strict=True))

    def _outputs(self, images: Tensor) -> list[Tensor]:
        backbone: Any = self.backbone
        if self.features == "tokens":
            sequence = backbone.forward_features(images)
            prefix = backbone.num_prefix_tokens
            return [sequence[:, prefix:], *([sequence[:, :prefix]] if prefix else [])]
        indices = 1 if self.features == "map" else self._blocks
        maps: list[Tensor] = backbone.forward_intermediates(
            images, indices=indices, norm=self._norm, output_fmt="NCHW", intermediates_only=True
        )
        return maps

    def _takes_norm(self) -> bool:
        """Whether maps may come after the network's last normalisation, as pooled features do; not all can have it."""
        self._norm = True
        try:
            self._try()
        except UsageError as error:
            return "norm" not in str(error)
        return True

    def _try(self) -> list[Tensor]:
        """Outputs for one black image. Raises UsageError where the architecture has none such."""
        kind = type(self.backbone).__name__
        needed = "num_prefix_tokens" if self.features == "tokens" else "forward_intermediates"
        if not hasattr(self.backbone, needed):
            raise UsageError(f"{kind} has no features of the kind {self.features!r}; {_others(self.backbone)}")
        try:
            with eval_mode(self.backbone), torch.no_grad():
                like = next(self.backbone.parameters())
                outputs = self._outputs(like.new_zeros(1, 3, self.image_size, self.image_size))
        except (AssertionError, RuntimeError, TypeError, NotImplementedError) as error:
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise UsageError(f"{kind} gives no {self.features} of {self.image_size} pixels: {first}") from None
        dimensions = 3 if self.features == "tokens" else 4
        if any(output.ndim != dimensions for output in outputs):
            raise UsageError(f"{kind} has a map and no sequence of tokens; use features='map'")
        return outputs

    def _named(self, outputs: list[Tensor]) -> tuple[list[str], dict[str, tuple[int, int | None]]]:
        if self.features == "tokens":
            side = round(outputs[0].shape[1] ** 0.5)
            shapes: list[tuple[int, int | None]] = [(outputs[0].shape[2], round(self.image_size / side))]
            shapes += [(output.shape[2], None) for output in outputs[1:]]
            names = ["tokens", "prefix_tokens"][: len(outputs)]
        else:
            shapes = [(output.shape[1], round(self.image_size / output.shape[-1])) for output in outputs]
            word = "block" if self._blocks else "stage"
            places = self._blocks or range(len(outputs))
            names = [f"{word}{place}_stride{stride}" for place, (_, stride) in zip(places, shapes, strict=True)]
            names = ["map"] if self.features == "map" else names
        return names, dict(zip(names, shapes, strict=True))


def feature_maps(
    model: str | Path | nn.Module, features: Dense = "stages", *, image_size: int | None = None
) -> FeatureMaps:
    """A backbone for detection, segmentation and whatever else needs to know where in an image something is.

    Args:
        model: a run folder, release name, ``timm:NAME``, ``timm:NAME@TAG``, Hub address, or a timm model,
            which becomes part of what is returned.
        features: ``map``, the last one, [B, C, h, w]; ``stages``, one map of each stage (of a ViT, whose maps are all
            of one size, of four blocks evenly spaced); or ``tokens``, the patches of a ViT [B, N, C] row by row, with
            its class token and registers as ``prefix_tokens`` where it has some.
        image_size: pixels of a side, where it is not the model's own. What is built for one size is changed to it by
            timm (position embeddings are resampled).

    Raises:
        UsageError: an architecture without such features or that does not take the size, or no such model.
    """
    if features not in get_args(Dense):
        raise UsageError(f"features is {features!r}, expected one of {', '.join(get_args(Dense))}")
    subject = open_sized(model, image_size)
    return FeatureMaps(subject.model, features, subject.transform.size)


def open_sized(model: str | Path | nn.Module, image_size: int | None) -> Subject:
    """A model with a network, for images of ``image_size``, which may be a release's that has another."""
    or_none(SIDE).check("image_size", image_size)
    if str(model) == PIXELS:
        raise UsageError(f"{PIXELS!r} has no network; give a release, a run or timm:NAME")
    own = isinstance(model, str) and model.startswith(TIMM)
    subject = open_model(model, image_size=image_size if own else None)
    if image_size is None or own or image_size == subject.transform.size:
        return subject
    resize = getattr(subject.model, "set_input_size", None)
    if resize is not None:
        resize(img_size=(image_size, image_size))
    backbones.feature_width(subject.model, image_size)
    return subject._replace(transform=_at_size(subject.transform, image_size))


def _at_size(transform: EvalTransform, size: int) -> EvalTransform:
    """The same, but of whole images: a share cut off their borders was chosen for the size that they had."""
    return replace(transform, size=size, resize=size)


def _others(backbone: nn.Module) -> str:
    return "use features='map'" if hasattr(backbone, "forward_intermediates") else "use its pooled features"
