"""How far the recipes that name a released configuration are from it, where they are: one line for each difference.

python benchmarks/departures.py --jpegs FOLDER
python benchmarks/departures.py --jpegs FOLDER --images 20

What is compared is the same crop and the same sigma on both sides. A difference of images is the mean over pixels and
channels of the absolute difference, in grey levels (of 255).
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageFilter
from torch import Tensor
from torch.nn import functional

from ssl_hub.config import View, Views
from ssl_hub.data import photometric
from ssl_hub.data.crops import CROP_DRAWS, crop_boxes
from ssl_hub.data.views import TwoViews
from ssl_hub.model.siamese import build
from ssl_hub.zoo import get_recipe

SIZE = 224


def tensor(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255


def square(image: Image.Image) -> Tensor:
    """The middle of an image, [3, 224, 224] in 0..1."""
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    return tensor(image.resize((SIZE, SIZE), box=(left, top, left + side, top + side)))


def blur_by_pillow(images: Tensor, sigmas: NDArray[np.float64]) -> Tensor:
    bytes_ = (images * 255).round().byte().permute(0, 2, 3, 1).numpy()
    blurred = [
        np.asarray(Image.fromarray(image).filter(ImageFilter.GaussianBlur(radius=float(sigma))))
        for image, sigma in zip(bytes_, sigmas, strict=True)
    ]
    return torch.from_numpy(np.stack(blurred)).permute(0, 3, 1, 2).float() / 255


def say(what: str, value: str) -> None:
    print(f"- {what}: {value}", flush=True)


def levels(first: Tensor, second: Tensor) -> str:
    return f"{255 * float((first - second).abs().mean()):.1f} grey levels"


def blurs(images: Tensor, draws: np.random.Generator) -> None:
    sigmas = draws.uniform(0.1, 2.0, len(images))
    blurred = images.clone()
    photometric.gaussian_blur(blurred, torch.from_numpy(photometric.blur_filters(sigmas, *images.shape[-2:])))
    say("SimSiam, blur by Pillow's boxes", levels(blurred, blur_by_pillow(images, sigmas)))
    say("one-sided, always blurred against never", levels(blurred, images))


def byols_operations(images: Tensor) -> None:
    """What ``operations="byol"`` changes: torchvision's operations on the same draws."""
    plain = View(flip=0, jitter=0, grey=0, blur=0)
    for label, view in (
        ("brightness", replace(plain, jitter=1, contrast=0, saturation=0, hue=0)),
        ("contrast", replace(plain, jitter=1, brightness=0, saturation=0, hue=0)),
        ("saturation", replace(plain, jitter=1, brightness=0, contrast=0, hue=0)),
        ("colour jitter as a whole", replace(plain, jitter=1)),
        ("blur", replace(plain, blur=1)),
    ):
        changed = []
        for operations in ("torchvision", "byol"):
            of_one = replace(view, operations=operations)
            views = Views(size=SIZE, view1=of_one, view2=of_one, mean=(0, 0, 0), std=(1, 1, 1))
            changed.append(TwoViews(views, seed=0).photometric(images, range(len(images)), 0, 0))
        apart, effect = levels(*changed), levels(changed[1], images)
        say(
            f"BYOL, {label}",
            f"{apart}; it changes {effect}; the outer two rows {levels(*(c[..., :2, :] for c in changed))}",
        )


def crop_sizes(draws: np.random.Generator) -> None:
    height, width, numbers = 375, 500, draws.random((100_000, CROP_DRAWS))
    redrawn, cut = (crop_boxes(numbers, height, width, (0.08, 1.0), clipped) for clipped in (False, True))
    areas = [float((boxes[:, 2] * boxes[:, 3]).mean() / (height * width)) for boxes in (redrawn, cut)]
    share = 100 * float((redrawn != cut).any(axis=1).mean())
    say(
        "BYOL, crops cut to 500 x 375, not redrawn",
        f"{share:.0f} % of them; mean area {areas[1]:.2f} for {areas[0]:.2f}",
    )


def lars_denominator() -> None:
    """|g| + wd |w| for |g + wd w|, on the matrices of BYOL's ResNet-50 at random weights, 8 images of noise."""
    torch.manual_seed(0)
    recipe = get_recipe("byol-r50-300ep", **{"views.size": 64})
    model, decay = build(recipe), recipe.optim.weight_decay
    model(torch.randn(8, 3, 64, 64), torch.randn(8, 3, 64, 64)).loss.backward()
    shorter = []
    with torch.no_grad():
        for w in model.parameters():
            if w.grad is not None and w.ndim > 1 and float(w.grad.norm()) > 0:
                shorter.append(float((w.grad.norm() + decay * w.norm()) / (w.grad + decay * w).norm() - 1))
    say("LARS", f"steps shorter by {np.median(shorter):.0e} in the median matrix, {max(shorter):.0e} at most")


def crops(photographs: list[Image.Image], draws: np.random.Generator) -> None:
    """Bilinear with antialias against bicubic, with antialias as Pillow's and without as TensorFlow's."""
    shrunk = [image.resize((32, 32), Image.Resampling.BOX) for image in photographs]
    for label, images, size, antialias in (
        ("BYOL, crops resized bicubically without antialias to 224 pixels", photographs, SIZE, False),
        ("solo-learn, crops resized bicubically to 32 pixels", shrunk, 32, True),
    ):
        apart = []
        for image in images:
            box = crop_boxes(draws.random((1, CROP_DRAWS)), image.height, image.width, (0.08, 1.0), clipped=True)
            top, left, height, width = box[0].tolist()
            crop = tensor(image.crop((left, top, left + width, top + height)))[None]
            here = functional.interpolate(crop, (size, size), mode="bilinear", antialias=True)
            there = functional.interpolate(crop, (size, size), mode="bicubic", antialias=antialias).clamp(0, 1)
            apart.append(255 * float((here - there).abs().mean()))
        say(label, f"{np.mean(apart):.1f} grey levels")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jpegs", type=Path, required=True, help="folder of photographs, *.JPEG")
    parser.add_argument("--images", type=int, default=120)
    arguments = parser.parse_args()
    paths = sorted(arguments.jpegs.glob("*.JPEG"))[: arguments.images]
    photographs, draws = [Image.open(path).convert("RGB") for path in paths], np.random.default_rng(0)
    print(f"{len(photographs)} photographs, one draw each")
    images = torch.stack([square(image) for image in photographs])
    blurs(images, draws)
    byols_operations(images)
    crops(photographs, draws)
    crop_sizes(draws)
    lars_denominator()


if __name__ == "__main__":
    main()
