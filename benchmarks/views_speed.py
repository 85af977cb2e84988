"""Two views of an image, against lightly's and torchvision's pipelines for one image at a time, on one core.

pip install -e '.[bench]'
python benchmarks/views_speed.py --jpegs FOLDER
python benchmarks/views_speed.py --trial --jpegs FOLDER      # which library decodes and cuts best

Each rate is of this process's own time on one thread, the least of rounds in turn. The peers' pipelines take encoded
bytes or a 32-pixel image to two normalised tensors; "workers' part" is decoding and cutting, what ssl_hub leaves to
worker processes, and "whole" is that and the rest on the same core. Without ``--jpegs``, images are made up.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from side_by_side import least_seconds, machine, one_thread, print_table
from torch.nn import functional
from torchvision import transforms

from ssl_hub.config import Views
from ssl_hub.data.decoding import decode, decode_array
from ssl_hub.data.views import TwoViews
from ssl_hub.zoo import get_recipe

BATCH = 32
Encoded = list[bytes]


def read_jpegs(folder: Path | None) -> Encoded:
    """The RGB files of a folder, or made-up ones of ImageNet's usual size."""
    if folder is not None:
        files = [path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix.lower() in (".jpg", ".jpeg")]
        return [file for file in files if Image.open(io.BytesIO(file)).mode == "RGB"]
    print("no --jpegs: made-up images, which decode sooner than photographs of their size\n")
    generator, files = np.random.default_rng(0), []
    for _ in range(64):
        coarse = Image.fromarray(generator.integers(0, 256, (24, 32, 3), np.uint8)).resize((500, 375))
        fine = generator.normal(0, 12, (375, 500, 3))
        file = io.BytesIO()
        Image.fromarray((np.asarray(coarse) + fine).clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
        files.append(file.getvalue())
    return files


def opened(file: bytes) -> Image.Image:
    return Image.open(io.BytesIO(file)).convert("RGB")


def torchvision_view(size: int, blur: float, solarise: float, saturation: float) -> transforms.Compose:
    """BYOL's view, as torchvision's documentation puts such pipelines together, on PIL images."""
    kernel = max(3, 2 * (size // 20) + 1)
    return transforms.Compose(
        [
            transforms.RandomResizedCrop(size, scale=(0.08, 1.0)),
            transforms.RandomHorizontalFlip(),
            transforms.RandomApply([transforms.ColorJitter(0.4, 0.4, saturation, 0.1)], p=0.8),
            transforms.RandomGrayscale(p=0.2),
            transforms.RandomApply([transforms.GaussianBlur(kernel, (0.1, 2.0))], p=blur),
            transforms.RandomSolarize(128, p=solarise),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )


def torchvision_pair(size: int, blurs: tuple[float, float], solarise: float, saturation: float) -> Callable[[Any], Any]:
    first = torchvision_view(size, blurs[0], 0.0, saturation)
    second = torchvision_view(size, blurs[1], solarise, saturation)
    return lambda image: (first(image), second(image))


def byol_views() -> Views:
    """BYOL's, with torchvision's operations, which are what both peers do."""
    return get_recipe("byol-r50-300ep", **{f"views.view{n}.operations": "torchvision" for n in (1, 2)}).views


def lightly_pairs() -> tuple[Callable[[Any], Any], Callable[[Any], Any]] | None:
    """lightly's two views at 224 and at 32 pixels (without blur and solarisation, as ours), where it is installed."""
    try:
        from lightly.transforms import BYOLTransform
        from lightly.transforms.byol_transform import BYOLView1Transform, BYOLView2Transform
    except ImportError:
        return None
    plain = {"input_size": 32, "cj_sat": 0.4, "gaussian_blur": 0.0, "solarization_prob": 0.0}
    small = BYOLTransform(BYOLView1Transform(**plain), BYOLView2Transform(**plain))
    return BYOLTransform(), small


def large(files: Encoded, repeats: int) -> None:
    views, peers = TwoViews(byol_views(), seed=0), lightly_pairs()
    by_torchvision = torchvision_pair(224, (1.0, 0.1), 0.2, saturation=0.2)

    def batches() -> Iterator[tuple[range, list[torch.Tensor]]]:
        """What workers hand over: indices and the crops of both views."""
        for start in range(0, len(files), BATCH):
            indices = range(start, min(start + BATCH, len(files)))
            pairs = [views.crop(decode_array(files[index], "image"), index, 0) for index in indices]
            yield indices, [torch.from_numpy(np.stack(crops)) for crops in zip(*pairs, strict=True)]

    def cut() -> None:
        for _ in batches():
            pass

    def whole() -> None:
        for indices, crops in batches():
            for view in (0, 1):
                views.photometric(crops[view].permute(0, 3, 1, 2), indices, 0, view)

    ways: dict[str, Callable[[], Any]] = {
        "ssl_hub, workers' part": cut,
        "ssl_hub, whole": whole,
        "torchvision on PIL images": lambda: [by_torchvision(opened(file)) for file in files],
        "decoding alone, Pillow": lambda: [opened(file) for file in files],
    }
    if peers is not None:
        ways["lightly BYOLTransform"] = lambda: [peers[0](opened(file)) for file in files]
    show(f"Two views at 224 px from JPEG bytes, {len(files)} images", ways, len(files), repeats)


def small(images: int, repeats: int) -> None:
    views, peers = TwoViews(get_recipe("byol-r18-cifar10-100ep").views, seed=0), lightly_pairs()
    pixels = np.random.default_rng(0).integers(0, 256, (images, 32, 32, 3), np.uint8)
    resident = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
    pil = [Image.fromarray(image) for image in pixels]
    by_torchvision = torchvision_pair(32, (0.0, 0.0), 0.0, saturation=0.4)

    def whole() -> None:
        for start in range(0, images, 128):
            views(resident[start : start + 128], range(start, min(start + 128, images)), 0)

    ways: dict[str, Callable[[], Any]] = {
        "ssl_hub, whole": whole,
        "torchvision on PIL images": lambda: [by_torchvision(image) for image in pil],
    }
    if peers is not None:
        ways["lightly BYOLTransform"] = lambda: [peers[1](image) for image in pil]
    show(f"Two views at 32 px of decoded images, {images} images", ways, images, repeats)


def show(title: str, ways: dict[str, Callable[[], Any]], images: int, repeats: int) -> None:
    seconds = least_seconds(ways, repeats=repeats)
    peers = [name for name in ("lightly BYOLTransform", "torchvision on PIL images") if name in ways]
    rows = [[name, images / s, *(seconds[peer] / s for peer in peers)] for name, s in seconds.items()]
    print(f"\n{title}; {machine('torchvision', 'pillow', 'lightly', 'simplejpeg')}\n")
    print_table(["", "image pairs/s", *(f"times {peer}" for peer in peers)], rows)


def trial(files: Encoded, repeats: int) -> None:
    """Ways to decode, and ways to cut what is decoded; how far each is from Pillow."""
    size, views = 224, TwoViews(byol_views(), seed=0)
    images = [decode_array(file, "image") for file in files]
    pil = [decode(file, "image") for file in files]
    boxes = [views._boxes([index], 0, *image.shape[:2])[:, 0].tolist() for index, image in enumerate(images)]

    def by_pil(image: Image.Image, top: int, left: int, height: int, width: int) -> Any:
        crop = image.crop((left, top, left + width, top + height))
        return np.asarray(crop.resize((size, size), Image.Resampling.BILINEAR))

    def by_torch(image: Any, top: int, left: int, height: int, width: int) -> Any:
        crop = torch.from_numpy(image[None, top : top + height, left : left + width].copy()).permute(0, 3, 1, 2)
        resized = functional.interpolate(crop, size=(size, size), mode="bilinear", antialias=True)
        return resized[0].permute(1, 2, 0).numpy()

    decoders: dict[str, Callable[[bytes], Any]] = {
        "Pillow, to an array": lambda file: np.asarray(opened(file)),
        "Pillow, draft mode to 224": lambda file: np.asarray(drafted(file)),
    }
    cutters: dict[str, Callable[..., Any]] = {"Pillow": by_pil, "torch, 8 bits, antialias": by_torch}
    try:
        import simplejpeg

        decoders["simplejpeg"] = simplejpeg.decode_jpeg
        decoders["simplejpeg, fast DCT and upsampling"] = lambda file: simplejpeg.decode_jpeg(
            file, fastdct=True, fastupsample=True
        )
        decoders["simplejpeg, an eighth of the size (entropy decoding is what is left)"] = lambda file: (
            simplejpeg.decode_jpeg(file, min_height=1, min_width=1, min_factor=8)
        )
    except ImportError:
        print("simplejpeg is not installed")
    try:
        import cv2

        colours = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
        decoders["OpenCV"] = lambda file: cv2.imdecode(np.frombuffer(file, np.uint8), colours)
        for name, mode in (("linear", cv2.INTER_LINEAR), ("area", cv2.INTER_AREA)):
            cutters[f"OpenCV, {name}"] = lambda image, t, le, h, w, mode=mode: cv2.resize(
                image[t : t + h, le : le + w], (size, size), interpolation=mode
            )
    except ImportError:
        print("opencv-python-headless is not installed")
    seconds = least_seconds(
        {name: lambda d=decoder: [d(file) for file in files] for name, decoder in decoders.items()}, repeats=repeats
    )
    print(f"\nDecoding; {machine('pillow', 'simplejpeg', 'opencv-python-headless')}\n")
    rows = []
    for name, decoder in decoders.items():
        same = [decoder(file) for file in files[:16]]
        far = [np.abs(a.astype(int) - b).max() for a, b in zip(same, images, strict=False) if a.shape == b.shape]
        rows.append([name, len(files) / seconds[name], int(max(far)) if len(far) == len(same) else "another size"])
    print_table(["", "images/s", "grey levels from Pillow, at most"], rows)

    def all_cuts(name: str) -> list[Any]:
        given = pil if name == "Pillow" else images
        return [cutters[name](given[index], *box) for index, pair in enumerate(boxes) for box in pair]

    seconds = least_seconds({name: lambda n=name: all_cuts(n) for name in cutters}, repeats=repeats)
    expected = np.stack(all_cuts("Pillow")).astype(int)
    rows = []
    for name in cutters:
        far = np.abs(np.stack(all_cuts(name)) - expected)
        rows.append([name, len(files) / seconds[name], float(far.mean()), int(far.max())])
    print("\nTwo crops of a decoded image\n")
    print_table(["", "pairs/s", "grey levels from Pillow, mean", "at most"], rows)


def drafted(file: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(file))
    image.draft("RGB", (224, 224))
    return image.convert("RGB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jpegs", type=Path, help="a folder of JPEG files of ImageNet's size")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--trial", action="store_true", help="compare libraries instead")
    arguments = parser.parse_args()
    one_thread()
    files = read_jpegs(arguments.jpegs)
    if arguments.trial:
        trial(files, arguments.repeats)
        return
    if lightly_pairs() is None:
        print("lightly is not installed: its rows are left out; pip install -e '.[bench]'\n")
    large(files, arguments.repeats)
    small(512, arguments.repeats)


if __name__ == "__main__":
    main()
