"""What a recipe is: frozen, keyword-only dataclasses. ``codec`` turns them into JSON and applies overrides.

The comment behind a field, or on the lines above it, is its meaning in the documentation.

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
    ``hf-hub:OWNER/NAME``, or a checkpoint (``FILE``, ``FILE::SOURCE``, ``FILE::SOURCE::target``).
    """

    name: str = "resnet50"  # architecture, by its name in timm or one of the package's own small ResNets
    init: str | None = None  # the weights to start from; none: random ones
    # what the backbone's BN normalises by: each batch, or (frozen) the running statistics of init, which then stay,
    # while its scale and shift still train
    bn_statistics: Literal["batch", "frozen"] = "batch"
    freeze_patch_embedding: bool = False  # whether it stays as it starts, as a ViT's in MoCo v3 (random there)
    # whether each residual branch starts at zero, where the architecture has the option and the weights are random
    zero_init_last: bool = True
    drop_path_rate: float = 0.0  # probability of skipping a residual branch (stochastic depth), as timm applies it


@dataclass(frozen=True, kw_only=True)
class Projector:
    """MLP from backbone features to projections: ``layers - 1`` hidden layers of Linear, BN, ReLU, then a Linear."""

    layers: int = 2  # linear layers, the last included
    hidden_width: int = 4096  # width of each hidden layer
    output_width: int = 256  # width of the projections, so of the predictor and of F
    norm_affine: bool = True  # whether the hidden BNs have a scale and a shift
    output_bias: bool = True  # whether the last linear layer has a bias; before an output_norm it never has
    output_norm: Literal["none", "bn", "bn_no_affine"] = "none"  # BN after the last layer, with scale and shift or not


@dataclass(frozen=True, kw_only=True)
class View:
    """How one view is drawn. Probabilities are per image; jitter strengths are ``ColorJitter``'s."""

    crop_scale: tuple[float, float] = (0.08, 1.0)  # share of the image's area that a crop takes, drawn from this range
    flip: float = 0.5  # probability of a horizontal flip
    jitter: float = 0.8  # probability of the colour jitter, whose strengths are the next four
    brightness: float = 0.4  # strength s: the factor is drawn from 1 - s to 1 + s
    contrast: float = 0.4  # strength, drawn in the same way
    saturation: float = 0.2  # strength, drawn in the same way
    hue: float = 0.1  # largest turn of the hue, in either direction, as a share of the colour circle
    grey: float = 0.2  # probability of turning grey
    blur: float = 0.5  # probability of a Gaussian blur
    # standard deviation of the blur in pixels, drawn from this range; the kernel is a tenth of the image and three
    # sigma at least
    blur_sigma: tuple[float, float] = (0.1, 2.0)
    solarise: float = 0.0  # probability of inverting the values that are at least 0.5 (of 1)
    operations: Literal["torchvision", "byol"] = "torchvision"  # whose definitions of these; byol: its released code's


@dataclass(frozen=True, kw_only=True)
class Views:
    """The two views of an image, ``size`` pixels square, and the normalisation that training and evaluation share."""

    size: int = 224  # side of a view in pixels; images are evaluated at it, too
    view1: View = View()  # how the first view is drawn
    view2: View = View()  # how the second view is drawn; a one-sided loss predicts it from the first
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)  # subtracted from red, green and blue (of 1)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)  # what they are divided by after that

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

    name: str = "ILSVRC/imagenet-1k"  # a registered source, a path, or a Hub dataset; --data replaces it
    pretrain_split: str = "train"  # what pre-training sees, without labels
    train_split: str = "train"  # what kNN and probes are fitted to
    test_split: str = "test"  # what they are judged on
    image_column: str | None = None  # column (in tar shards, ending) that holds the images; none: found by itself
    label_column: str | None = None  # column that holds the labels; none: found by itself
    range: str = "auto"  # black and white of more than 8 bits: auto (the type's ends), bits ("12"), or "low,high"
    stream: bool = False  # whether the images are read from front to back, without opening the whole
    shuffle_buffer: int = 4096  # encoded images of a stream that a process holds and shuffles
    on_bad_image: Literal["error", "skip"] = "error"  # stop at an image that cannot be read, or take another
    max_bad_images: int = 100  # how many are skipped: each process stops at the next one


@dataclass(frozen=True, kw_only=True)
class Optim:
    """Optimiser and schedules; every schedule counts optimiser steps.

    The learning rate is ``lr * total batch / reference_batch`` (``lr`` itself where ``reference_batch`` is None). The
    predictor has its own ratio (the paper's alpha_p), schedule and weight decay (its eta_p; None: as the trunk's).
    """

    name: Literal["sgd", "lars", "adamw"] = "sgd"  # the optimiser
    lr: float = 0.05  # peak learning rate for a batch of reference_batch
    reference_batch: int | None = 256  # batch that lr is for; none: lr is not scaled
    momentum: float = 0.9  # momentum of SGD and LARS, beta1 of AdamW
    weight_decay: float = 1e-4  # an L2 penalty in SGD and LARS, decoupled in AdamW
    # whether what is no weight of a linear map decays too: biases, normalisation, position embeddings
    decay_norm_and_bias: bool = False
    warmup_epochs: float = 0.0  # first epochs, in which the learning rate rises linearly
    schedule: Literal["cosine", "constant"] = "cosine"  # what follows warm-up: half a cosine to 0, or no change
    predictor_lr_ratio: float = 1.0  # the predictor's learning rate over that of the rest
    # whether the predictor's learning rate follows warm-up and schedule, or is at its peak throughout (constant)
    predictor_schedule: Literal["same", "constant"] = "same"
    predictor_weight_decay: float | None = None  # weight decay of the predictor; none: weight_decay
    trust_coefficient: float = 0.001  # step of LARS as a share of the weight's norm, for lr 1
    clip_norm: float | None = None  # largest norm of the whole gradient; none: not clipped
    # the backbone's learning rate is multiplied by it from each stage or block to the one before
    layer_decay: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Train:
    """How long and on how much. ``batch_size`` is the total over processes and accumulation, so that a recipe gives
    the same result however many processes share the work."""

    epochs: int = 100  # passes over the pre-training images
    max_steps: int | None = None  # at most so many optimiser steps, which schedules then end at; none: all epochs
    batch_size: int = 256  # images of one optimiser step, over all processes and accumulation
    accumulation: int = 1  # micro-batches that one optimiser step is made of
    sync_bn: bool = True  # whether BN takes its statistics over all processes; on several GPUs alone
    sync_bn_group: int = 0  # processes that share the statistics of BN, which then sees their images alone; 0: all
    freeze_backbone_epochs: float = 0.0  # first epochs, in which the projector and the predictor are trained alone
    # whether one forward takes both views, so that BN shares its statistics; the papers' do not
    joint_views: bool = False
    seed: int = 0  # fixes initial weights, order of images, views and dropout


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """How the work is done and watched, none of which changes what is learnt beyond rounding."""

    workers: int = 8  # processes that read and crop images for each training process; 0: it does so itself
    # whether images and weights lie channels last, which is faster on GPUs with tensor cores
    channels_last: bool = False
    compile: Compile = False  # torch.compile, by mode; reduce-overhead and max-autotune replay CUDA graphs
    # what of float32 is computed in TF32 on a GPU; convolutions is torch's own choice; F and its predictor never
    tf32: Literal["none", "convolutions", "all"] = "convolutions"
    # whether cuDNN's algorithms are timed at the start; repeats of a run may round otherwise
    cudnn_benchmark: bool = False
    log_every_steps: int = 10  # optimiser steps from one reading in metrics.jsonl to the next
    spectra_every_readings: int = 1  # every so many have effective rank and alignment, and the last of an epoch
    tracker: Literal["tensorboard", "wandb", "trackio"] | None = None  # where to log, too; none: to metrics.jsonl alone
    knn_every_epochs: int = 5  # epochs from one kNN accuracy to the next; 0: none on the recipe's own images
    knn_k: int = 20  # neighbours that vote in kNN
    monitor_data: str | None = None  # labelled images of your own to measure on instead of the recipe's: name or path
    monitor_split: str = "train"  # their split; both neighbours and queries come from it, in folds
    monitor_label_column: str | None = None  # column that holds their labels; none: found by itself
    on_collapse: Literal["warn", "stop"] = "warn"  # what happens when features collapse
    checkpoint_every_epochs: int = 1  # epochs from one checkpoint to the next; 0: none by epochs
    checkpoint_minutes: float | None = None  # also save when so many minutes have passed; none: by epochs alone
    keep_checkpoints: int = 2  # how many of the newest checkpoints stay
    keep_every_epochs: int = 0  # and those of every so many epochs stay; 0: none


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
