"""What a recipe is: frozen, keyword-only dataclasses. ``codec`` turns them into JSON and applies overrides.

Nothing here imports torch. Components that come in named kinds (predictor, target, loss) are a :class:`Part`: a kind
and its options, where the options of a kind are the keyword arguments of the class registered under that name. So a
new predictor is one class in ``model/predictors`` and no edit here. Which values a setting may take is in ``limits``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Scalar = bool | int | float | str | None
Compile = Literal[False, True, "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]


@dataclass(frozen=True)
class Part:
    """A component chosen by name: ``Part("direct", rho=0.3)``. Options left out take the kind's defaults."""

    kind: str
    options: tuple[tuple[str, Scalar], ...] = ()

    def __init__(self, kind: str, **options: Scalar) -> None:
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "options", tuple(sorted(options.items())))

    def __repr__(self) -> str:
        return f"Part({', '.join([repr(self.kind), *(f'{k}={v!r}' for k, v in self.options)])})"


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """Any timm model, from random weights or from those that ``init`` names; ``views.mean`` and ``std`` follow them.

    ``init`` is a timm tag (``resnet50.a1_in1k``), the folder or name of a run or release, ``RUN@STEP``,
    ``hf-hub:OWNER/NAME``, or a checkpoint (``FILE``, ``FILE::SOURCE``, ``FILE::SOURCE::target``). ``zero_init_last``
    starts each residual branch at zero where the architecture has the option and the weights are random.
    """

    name: str = "resnet50"
    init: str | None = None
    bn_statistics: Literal["batch", "frozen"] = "batch"  # frozen: BN keeps those of init; its scale and shift train
    freeze_patch_embedding: bool = False  # it keeps what it starts from, as a ViT's in MoCo v3 (random there)
    zero_init_last: bool = True
    drop_path_rate: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Projector:
    """MLP from backbone features to projections: ``layers - 1`` hidden layers of Linear, BN, ReLU, then a Linear."""

    layers: int = 2
    hidden_width: int = 4096
    output_width: int = 256
    norm_affine: bool = True  # of the hidden BNs
    output_bias: bool = True  # of the last linear layer; no output_norm has one before it
    output_norm: Literal["none", "bn", "bn_no_affine"] = "none"


@dataclass(frozen=True, kw_only=True)
class View:
    """How one view is drawn. Probabilities are per image; jitter strengths are ``ColorJitter``'s."""

    crop_scale: tuple[float, float] = (0.08, 1.0)  # share of the image's area
    flip: float = 0.5
    jitter: float = 0.8
    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.2
    hue: float = 0.1
    grey: float = 0.2
    blur: float = 0.5
    blur_sigma: tuple[float, float] = (0.1, 2.0)  # pixels; the kernel is a tenth of the image and three sigma at least
    solarise: float = 0.0  # inverts values >= 0.5 (of 1)
    operations: Literal["torchvision", "byol"] = "torchvision"  # byol: as its released code does them, see data.views


@dataclass(frozen=True, kw_only=True)
class Views:
    """The two views of an image, ``size`` pixels square, and the normalisation that training and evaluation share."""

    size: int = 224
    view1: View = View()
    view2: View = View()
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)

    @property
    def evaluation(self) -> dict[str, Any]:
        """How evaluation images come in, in timm's terms: small images whole, others the centre of a resize by 8/7."""
        small = self.size < 128
        return {
            "crop_pct": 1.0 if small else 0.875,
            "interpolation": "bilinear" if small else "bicubic",
            "mean": self.mean,
            "std": self.std,
        }


@dataclass(frozen=True, kw_only=True)
class Data:
    """Which images: a registered source, a path, or a Hub dataset. ``train`` and ``test`` serve evaluation.

    Splits may be parts, as in ``train[:10%]`` or ``train@1percent.txt`` (a file list). A stream is read from front to
    back instead of opened as a whole; it serves pre-training alone. With ``on_bad_image="skip"``, pre-training puts
    another image in the place of one that cannot be read, and the run's own evaluation leaves it out and says so in the
    name of the split. ``ssl-hub probe`` and ``knn`` never do: an accuracy on other images is another number.
    """

    name: str = "ILSVRC/imagenet-1k"
    pretrain_split: str = "train"
    train_split: str = "train"
    test_split: str = "test"
    image_column: str | None = None
    label_column: str | None = None
    range: str = "auto"  # black and white of more than 8 bits: auto (the type's ends), bits ("12"), or "low,high"
    stream: bool = False
    shuffle_buffer: int = 4096  # encoded images of a stream that a process holds and shuffles
    on_bad_image: Literal["error", "skip"] = "error"
    max_bad_images: int = 100  # each process stops at the next one


@dataclass(frozen=True, kw_only=True)
class Optim:
    """Optimiser and schedules; every schedule counts optimiser steps.

    The learning rate is ``lr * total batch / reference_batch`` (``lr`` itself where ``reference_batch`` is None). The
    predictor has its own ratio (the paper's alpha_p), schedule and weight decay (its eta_p; None: as the trunk's).
    """

    name: Literal["sgd", "lars", "adamw"] = "sgd"
    lr: float = 0.05
    reference_batch: int | None = 256
    momentum: float = 0.9  # beta1 of AdamW
    weight_decay: float = 1e-4
    decay_norm_and_bias: bool = False  # all that is no weight of a linear map: position embeddings, too
    warmup_epochs: float = 0.0
    schedule: Literal["cosine", "constant"] = "cosine"
    predictor_lr_ratio: float = 1.0
    predictor_schedule: Literal["same", "constant"] = "same"
    predictor_weight_decay: float | None = None
    trust_coefficient: float = 0.001  # LARS only
    clip_norm: float | None = None
    layer_decay: float = 1.0  # of the backbone's learning rate, from each stage or block to the one before it


@dataclass(frozen=True, kw_only=True)
class Train:
    """How long and on how much. ``batch_size`` is the total over processes and accumulation, so that a recipe gives
    the same result however many processes share the work."""

    epochs: int = 100
    max_steps: int | None = None
    batch_size: int = 256
    accumulation: int = 1
    sync_bn: bool = True
    sync_bn_group: int = 0  # processes that share the statistics of BN, which then sees their images alone; 0: all
    freeze_backbone_epochs: float = 0.0  # first epochs, in which the projector and the predictor are trained alone
    joint_views: bool = False  # one forward over both views: BN statistics shared; the papers use one forward per view
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """How the work is done and watched, none of which changes what is learnt beyond rounding."""

    workers: int = 8
    channels_last: bool = False
    compile: Compile = False  # or a mode of torch.compile; reduce-overhead and max-autotune replay CUDA graphs
    tf32: Literal["none", "convolutions", "all"] = "convolutions"  # torch's own choice; F and its predictor never
    cudnn_benchmark: bool = False  # times cuDNN's algorithms at the start; repeats of a run may then round otherwise
    log_every_steps: int = 10
    spectra_every_readings: int = 1  # effective rank and alignment, which take decompositions; an epoch ends with them
    tracker: Literal["tensorboard", "wandb", "trackio"] | None = None  # beside metrics.jsonl
    knn_every_epochs: int = 5
    knn_k: int = 20
    monitor_data: str | None = None  # labelled images of your own to measure on instead of the recipe's: name or path
    monitor_split: str = "train"  # of those; both neighbours and queries come from it, in folds
    monitor_label_column: str | None = None
    on_collapse: Literal["warn", "stop"] = "warn"
    checkpoint_every_epochs: int = 1
    checkpoint_minutes: float | None = None  # also save when this much time has passed
    keep_checkpoints: int = 2  # the newest
    keep_every_epochs: int = 0  # and those of every so many epochs; 0: none


@dataclass(frozen=True, kw_only=True)
class Expected:
    """A published number this recipe should reach, in percent, and where it is printed."""

    metric: str
    value: float
    source: str
    std: float | None = None


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One training run, named and complete. Derive another with ``dataclasses.replace`` or dotted overrides."""

    name: str
    summary: str
    backbone: Backbone = Backbone()
    projector: Projector = Projector()
    predictor: Part = Part("mlp")
    target: Part = Part("ema")
    loss: Part = Part("cosine")
    views: Views = Views()
    data: Data = Data()
    optim: Optim = Optim()
    train: Train = Train()
    runtime: Runtime = Runtime()
    expected: tuple[Expected, ...] = ()
    notes: tuple[str, ...] = ()  # each departure from the paper and each choice it leaves open

    @property
    def command(self) -> str:
        return f"accelerate launch -m ssl_hub train {self.name}"
